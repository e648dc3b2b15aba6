//! A request that names its operation can be recognized when it comes again: this module reads that
//! name, and makes new ones.
//!
//! The name is the value of the `Idempotency-Key` field (draft-ietf-httpapi-idempotency-key-header,
//! section 2). Two forms of it are accepted:
//!
//! - *quoted*: a structured-field Item whose bare item is a String (RFC 9651, sections 3.3 and
//!   3.3.3): printable ASCII between double quotes, with `\"` and `\\` for a quote and a backslash.
//!   Parameters behind it must be well-formed and mean nothing;
//! - *bare*: visible ASCII without `"`, `,` and `;`, taken as it stands. A backslash is a character
//!   like any other.
//!
//! And these rules hold for both:
//!
//! - A value whose first character is `"` is in the quoted form, any other is in the bare form.
//! - Spaces before and after the value are dropped, as RFC 9651, section 4.2 asks for Items. A tab
//!   is not a space.
//! - The form is not part of the key: `"abc"` and `abc` are the same key. Case is: `abc` and `ABC`
//!   are two.
//! - A key has 1 to 255 characters, or fewer where a [`KeyLimit`] says so. Escapes count as what
//!   they stand for.
//! - A value above 8192 bytes is not parsed. It is too long, whatever it holds.
//! - A field that occurs twice is refused, even when both values are equal.
//!
//! A key is not a secret and proves nothing about who sends it. It is a handle to somebody's answer
//! all the same, so `Debug` prints its first 8 characters at most, and never more than half of it, and
//! there is no `Display`.
//!
//! ```
//! use http::HeaderValue;
//! use idempotency_shared::{IdempotencyKey, KeyErrorKind};
//!
//! let quoted = IdempotencyKey::parse(&HeaderValue::from_static(r#""order 4711";v=1"#))?;
//! assert_eq!(quoted.as_str(), "order 4711");
//! assert_eq!(format!("{quoted:?}"), r#"IdempotencyKey("order"…)"#);
//!
//! let unquoted = IdempotencyKey::parse(&HeaderValue::from_static("order 4711"));
//! assert_eq!(unquoted.unwrap_err().kind(), KeyErrorKind::Invalid);
//! # Ok::<(), idempotency_shared::KeyError>(())
//! ```

mod error;
mod field;
mod limit;

use std::fmt::{self, Debug, Formatter};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::StringRef;
use uuid::fmt::Hyphenated;
use uuid::{Builder, Uuid};

pub use self::error::{KeyError, KeyErrorKind};
pub use self::limit::{KeyLimit, KeyLimitError};

/// The name that a client gives to one operation, the same on each of its attempts.
///
/// It holds 1 to 255 characters of printable ASCII, space included. A clone shares them. The
/// [module docs](crate::key) state the grammar.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Bytes);

impl IdempotencyKey {
    /// A key of exactly these characters: no quotes are taken off and no escapes are resolved.
    ///
    /// # Errors
    ///
    /// - [`KeyErrorKind::Invalid`] when `key` is empty, or holds what a structured-field String
    ///   cannot: anything but visible ASCII and space (RFC 9651, section 3.3.3).
    /// - [`KeyErrorKind::TooLong`] when it has more than 255 characters.
    pub fn new(key: &str) -> Result<Self, KeyError> {
        Self::within(key, KeyLimit::MAX)
    }

    /// A key that nobody has used before: a version 4 UUID (RFC 9562, section 5.4) in lower case,
    /// 36 characters.
    ///
    /// # Panics
    ///
    /// When the operating system gives no randomness.
    #[must_use]
    pub fn random() -> Self {
        // From the system each time: of a generator in this process, a copy of the process would have the same numbers,
        // and the second operation under a key is taken for the first.
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("randomness of the operating system");
        Self::from_uuid(Builder::from_random_bytes(random).into_uuid())
    }

    /// Reads a key from one field value, in either form.
    ///
    /// # Errors
    ///
    /// - [`KeyErrorKind::Invalid`] when the value or the key in it is empty, or the value follows
    ///   neither form: a list, an Item of another type, text behind the closing quote.
    /// - [`KeyErrorKind::TooLong`] when the key has more than 255 characters, or the value more
    ///   than 8192 bytes.
    pub fn parse(value: &HeaderValue) -> Result<Self, KeyError> {
        field::read(value, KeyLimit::MAX)
    }

    /// Reads the key of a request from its header section: `None` when the field `name` is absent.
    ///
    /// # Errors
    ///
    /// - [`KeyErrorKind::Repeated`] when the field occurs more than once, whatever the values are.
    /// - Those of [`parse`](Self::parse), with `limit` in the place of 255.
    pub fn from_headers(headers: &HeaderMap, name: &HeaderName, limit: KeyLimit) -> Result<Option<Self>, KeyError> {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(KeyError::new(KeyErrorKind::Repeated));
        }
        field::read(value, limit).map(Some)
    }

    /// The field value in the bare form; `None` where the key holds a character that needs quotes.
    ///
    /// It is marked as sensitive, so that it appears in no `Debug` and no HPACK table.
    #[must_use]
    pub fn bare(&self) -> Option<HeaderValue> {
        field::bare(self)
    }

    /// The field value in the quoted form, which every key has. It is marked as sensitive.
    #[must_use]
    pub fn quoted(&self) -> HeaderValue {
        field::quoted(self)
    }

    /// The whole key, without quotes and escapes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("every key is ASCII")
    }

    /// The first 8 characters of the key, and of a short one no more than half: what a log may show.
    #[must_use]
    pub fn prefix(&self) -> &str {
        // A key is ASCII, so each character boundary is a byte's.
        self.as_str().get(..PREFIX_LEN.min(self.0.len() / 2)).unwrap_or_default()
    }

    /// A key of 36 characters in lower case.
    pub(crate) fn from_uuid(uuid: Uuid) -> Self {
        let mut characters = [0; Hyphenated::LENGTH];
        uuid.hyphenated().encode_lower(&mut characters);
        // With an owner no clone allocates, and a request that is sent again has one with each copy.
        Self(Bytes::from_owner(characters))
    }

    fn within(key: &str, limit: KeyLimit) -> Result<Self, KeyError> {
        if key.is_empty() || StringRef::from_str(key).is_err() {
            return Err(KeyError::new(KeyErrorKind::Invalid));
        }
        // Only ASCII is left, so bytes are characters.
        if key.len() > limit.get() {
            return Err(KeyError::too_long(key.len(), limit));
        }
        Ok(Self(Bytes::copy_from_slice(key.as_bytes())))
    }
}

impl Debug for IdempotencyKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "IdempotencyKey({:?}…)", self.prefix())
    }
}

/// Characters of a key that may appear in logs.
const PREFIX_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(lines: &[&str], limit: usize) -> Result<Option<IdempotencyKey>, KeyErrorKind> {
        let name = HeaderName::from_static("x-key");
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, HeaderValue::from_str(line).unwrap());
        }
        IdempotencyKey::from_headers(&headers, &name, KeyLimit::new(limit).unwrap()).map_err(|error| error.kind())
    }

    proptest! {
        /// Fails when `PREFIX_LEN` is 9, or when `Debug` is derived.
        #[test]
        fn debug_shows_eight_characters_at_most(shown in "[a-z]{8}", hidden in "[0-9]{8,247}") {
            let key = IdempotencyKey::new(&format!("{shown}{hidden}")).unwrap();
            prop_assert_eq!(key.prefix(), &shown);
            prop_assert_eq!(format!("{key:?}"), format!("IdempotencyKey(\"{shown}\"…)"));
        }
    }

    /// Fails when `prefix` takes eight characters of any key that has them.
    #[test]
    fn debug_shows_no_more_than_half_of_a_short_key() {
        for (key, shown) in [("1", ""), ("12", "1"), ("12345678", "1234"), ("123456789012345", "1234567")] {
            let key = IdempotencyKey::new(key).unwrap();
            assert_eq!(format!("{key:?}"), format!("IdempotencyKey({shown:?}…)"));
        }
    }

    /// Fails when `from_headers` passes `KeyLimit::MAX` on.
    #[test]
    fn lower_limit_applies_to_both_forms() {
        let too_long = Err(KeyErrorKind::TooLong { length: 4, limit: 3 });
        assert_eq!(read(&["abc"], 3), read(&[r#""abc""#], 3));
        assert_eq!(read(&["abcd"], 3), too_long);
        assert_eq!(read(&[r#""abcd""#], 3), too_long);
    }

    /// Fails when `from_headers` does not ask for a second value.
    #[test]
    fn second_line_is_refused_even_when_equal() {
        assert_eq!(read(&["a", "a"], 255), Err(KeyErrorKind::Repeated));
        assert_eq!(read(&["a", ""], 255), Err(KeyErrorKind::Repeated));
    }

    /// Fails when `from_headers` answers an absent field with `KeyErrorKind::Invalid`.
    #[test]
    fn only_an_absent_field_is_no_key() {
        assert_eq!(read(&[], 255), Ok(None));
        assert_eq!(read(&[""], 255), Err(KeyErrorKind::Invalid));
    }

    /// Fails when `random` uses `Uuid::nil`.
    #[test]
    fn random_keys_are_new_version_4_uuids() {
        let key = IdempotencyKey::random();
        let uuid = Uuid::parse_str(key.as_str()).unwrap();
        assert_eq!(uuid.get_version_num(), 4);
        assert_ne!(key, IdempotencyKey::random());
    }
}
