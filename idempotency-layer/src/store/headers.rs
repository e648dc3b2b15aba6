//! Header maps as bytes, so that order, repetition and values that are no text come back as they were.
//!
//! A `u32` count, then for each field: a flag byte (1 for a sensitive value), the name and the value, each with a `u32`
//! length before it. Numbers are little-endian. Reading is total: whatever the bytes, there is a map or [`Damaged`],
//! and bytes left over are damage too.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The bytes are not a header map.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

pub(crate) fn encode(headers: &HeaderMap) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(headers.len() * TYPICAL_FIELD);
    put_length(&mut bytes, headers.len());
    for (name, value) in headers {
        bytes.push(u8::from(value.is_sensitive()));
        put(&mut bytes, name.as_str().as_bytes());
        put(&mut bytes, value.as_bytes());
    }
    bytes
}

pub(crate) fn decode(mut bytes: &[u8]) -> Result<HeaderMap, Damaged> {
    let count = take_length(&mut bytes)?;
    let mut headers = HeaderMap::new();
    for _ in 0..count {
        let sensitive = match take(&mut bytes, 1)? {
            [0] => false,
            [1] => true,
            _ => return Err(Damaged),
        };
        let name = HeaderName::from_bytes(take_field(&mut bytes)?).map_err(|_| Damaged)?;
        let mut value = HeaderValue::from_bytes(take_field(&mut bytes)?).map_err(|_| Damaged)?;
        value.set_sensitive(sensitive);
        headers.try_append(name, value).map_err(|_| Damaged)?;
    }
    if bytes.is_empty() { Ok(headers) } else { Err(Damaged) }
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    put_length(bytes, field.len());
    bytes.extend_from_slice(field);
}

fn put_length(bytes: &mut Vec<u8>, length: usize) {
    // No database takes a value of 2^32 bytes, so a length that does not fit is never stored.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
}

fn take_field<'a>(bytes: &mut &'a [u8]) -> Result<&'a [u8], Damaged> {
    let length = take_length(bytes)?;
    take(bytes, length)
}

fn take_length(bytes: &mut &[u8]) -> Result<usize, Damaged> {
    let length = take(bytes, 4)?.try_into().map_err(|_| Damaged)?;
    usize::try_from(u32::from_le_bytes(length)).map_err(|_| Damaged)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], Damaged> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(Damaged)?;
    *bytes = rest;
    Ok(taken)
}

/// Bytes to set aside for each field; more are taken where they are needed.
const TYPICAL_FIELD: usize = 48;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        /// Fails when a value is read as text, or when `try_append` becomes `try_insert`.
        #[test]
        fn headers_come_back_in_order_repeated_and_with_any_bytes(
            fields in vec(("[a-z]{1,3}", vec(0x80u8..=0xff, 0..20), any::<bool>()), 0..30),
        ) {
            let mut headers = HeaderMap::new();
            for (name, value, sensitive) in fields {
                let mut value = HeaderValue::from_bytes(&value).unwrap();
                value.set_sensitive(sensitive);
                headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value);
            }
            let back = decode(&encode(&headers)).unwrap();
            let list = |map: &HeaderMap| -> Vec<_> {
                map.iter().map(|(name, value)| (name.clone(), value.clone(), value.is_sensitive())).collect()
            };
            prop_assert_eq!(list(&back), list(&headers));
        }

        /// Fails when a length is trusted (`split_at` for `split_at_checked`), or when bytes left over are ignored.
        #[test]
        fn reading_is_total(bytes in vec(any::<u8>(), 0..64), cut in 0usize..40, flip in 0usize..40) {
            let _total = decode(&bytes);
            let mut headers = HeaderMap::new();
            headers.append("content-type", HeaderValue::from_static("text/plain"));
            headers.append("x", HeaderValue::from_static("y"));
            let whole = encode(&headers);
            prop_assert_eq!(decode(&whole[..cut.min(whole.len() - 1)]), Err(Damaged));
            prop_assert_eq!(decode(&[&whole[..], &[0]].concat()), Err(Damaged));
            let mut flipped = whole;
            let at = flip % flipped.len();
            flipped[at] ^= 0xff;
            let _total = decode(&flipped);
        }
    }
}
