//! A record as one string, and back.
//!
//! The head is 130 bytes; what follows it in a RECORDED record is written and read here alone. Numbers are little-endian:
//!
//! ```text
//!   0 format u8 = 1      84 attempt u32          120 last write i64 ms
//!   1 state u8           88 lapsed runs u32      128 status u16
//!   2 detail u8          92 most of them u32     130 headers: u32 length, bytes
//!   3 on unknown u8      96 retention u64 ms         trailers, if detail is 1: u32 length, bytes
//!   4 fingerprint 32    104 claimed at i64 ms        body, to the end
//!  36 caller 32         112 lease until i64 ms
//!  68 lease id 16
//! ```
//!
//! *Detail* is the reason of a tombstone, the cause of a hold, and 1 for a response with trailers.
//!
//! Times are the server's. Whoever writes without a look at its clock leaves *last write* 0: then the record is as old as is
//! gone of its expiry, which was the retention, or the lease if that is longer. *Lease until* is then how long the lease
//! lasts, from the last write on, and *claimed at* means the last write. A first run and a completed one are written so.
//!
//! Reading is total: what no version has written is [`Damaged`].

use bytes::{Buf, Bytes};
use http::StatusCode;

use crate::store::code::{self, HELD, RECORDED, RUNNING, TOMBSTONE};
use crate::store::headers::{self, Damaged};
use crate::store::{ClaimRequest, Completion, StoredResponse, Tombstone, UnknownOutcome};

/// The record of a first run whose lease lasts so long, written without a look at the clock.
pub(super) fn first(request: &ClaimRequest, retention: i64, duration: i64) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD);
    head.extend([FORMAT, byte(RUNNING), 0, byte(code::of_unknown(request.policy.unknown))]);
    head.extend(request.fingerprint.as_bytes());
    head.extend(request.caller.as_bytes());
    head.extend(request.lease.id.as_bytes());
    for count in [1, 0, request.policy.max_attempts.get()] {
        head.extend(count.to_le_bytes());
    }
    for millis in [retention, 0, duration, UNTIMED] {
        head.extend(millis.to_le_bytes());
    }
    head.extend(NO_STATUS.to_le_bytes());
    head
}

/// The head of a record, as far as a claim that is no script looks at it.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) state: i64,
    pub(super) detail: i64,
    pub(super) unknown: i64,
    pub(super) fingerprint: [u8; 32],
    pub(super) caller: [u8; 32],
    pub(super) lease: [u8; 16],
    pub(super) retention: i64,
    pub(super) claimed: i64,
    pub(super) till: i64,
    pub(super) written: i64,
    pub(super) status: u16,
}

impl Head {
    /// None of what a script would not read either.
    pub(super) fn read(value: &[u8]) -> Option<Self> {
        let mut head = value.get(..HEAD)?;
        if head.get_u8() != FORMAT {
            return None;
        }
        let [state, detail, unknown] = array(&mut head).map(i64::from);
        let (fingerprint, caller, lease) = (array(&mut head), array(&mut head), array(&mut head));
        let [_attempt, _lapsed, max] = [(); 3].map(|()| head.get_u32_le());
        let [retention, claimed, till, written] = [(); 4].map(|()| head.get_i64_le());
        let status = head.get_u16_le();
        let is_sound = (RUNNING..=HELD).contains(&state)
            && [UnknownOutcome::Rerun, UnknownOutcome::Hold].map(code::of_unknown).contains(&unknown)
            && max > 0
            && [retention, claimed, till, written].iter().all(|millis| *millis >= 0);
        let head =
            Self { state, detail, unknown, fingerprint, caller, lease, retention, claimed, till, written, status };
        is_sound.then_some(head)
    }
}

fn array<const N: usize>(head: &mut &[u8]) -> [u8; N] {
    let mut array = [0; N];
    head.copy_to_slice(&mut array);
    array
}

/// What a script is told of an outcome: the parts of the record that are new.
#[derive(Debug)]
pub(super) struct Outcome {
    /// What it begins with: format, state, detail.
    pub(super) begin: [u8; 3],
    /// What it ends with: last write, status, and the response.
    pub(super) end: Vec<u8>,
}

impl Outcome {
    /// An end of a run that leaves no answer.
    pub(super) fn without_answer(state: i64, detail: i64) -> Self {
        Self::new(state, detail, NO_STATUS, 0)
    }

    pub(super) fn of(completion: &Completion) -> Self {
        match completion {
            Completion::Response(response) => Self::of_response(response),
            Completion::Tombstone(Tombstone { status, reason }) => {
                Self::new(TOMBSTONE, code::of_reason(*reason), status.as_u16(), 0)
            }
        }
    }

    pub(super) fn of_response(response: &StoredResponse) -> Self {
        let headers = headers::encode(&response.headers);
        let trailers = response.trailers.as_ref().map(headers::encode);
        let length = LENGTH * 2 + headers.len() + trailers.as_ref().map_or(0, Vec::len) + response.body.len();
        let mut outcome = Self::new(RECORDED, i64::from(trailers.is_some()), response.status.as_u16(), length);
        put(&mut outcome.end, &headers);
        if let Some(trailers) = &trailers {
            put(&mut outcome.end, trailers);
        }
        outcome.end.extend_from_slice(&response.body);
        outcome
    }

    fn new(state: i64, detail: i64, status: u16, length: usize) -> Self {
        let mut end = Vec::with_capacity(HEAD - WRITTEN + length);
        end.extend(UNTIMED.to_le_bytes());
        end.extend(status.to_le_bytes());
        Self { begin: [FORMAT, byte(state), byte(detail)], end }
    }
}

/// The response in the value of a RECORDED record, whose head a script has read.
pub(super) fn response(value: Vec<u8>) -> Result<StoredResponse, Damaged> {
    let (head, mut rest) = value.split_at_checked(HEAD).ok_or(Damaged)?;
    let status = StatusCode::from_u16(u16::from_le_bytes([head[STATUS], head[STATUS + 1]])).map_err(|_| Damaged)?;
    let headers = headers::decode(take(&mut rest)?)?;
    let trailers = match head[DETAIL] {
        0 => None,
        1 => Some(headers::decode(take(&mut rest)?)?),
        _ => return Err(Damaged),
    };
    let before = value.len() - rest.len();
    let mut body = Bytes::from(value);
    body.advance(before);
    Ok(StoredResponse { status, headers, body, trailers })
}

/// A code as the byte that it is in a record.
fn byte(code: i64) -> u8 {
    // Every code is a small number. What is not is damage to a script, which refuses it.
    u8::try_from(code).unwrap_or(u8::MAX)
}

fn put(bytes: &mut Vec<u8>, field: &[u8]) {
    // Redis takes no value of 2^32 bytes, so a length that does not fit is never stored.
    let length = u32::try_from(field.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(field);
}

fn take<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], Damaged> {
    let length = rest.try_get_u32_le().map_err(|_| Damaged)?;
    let length = usize::try_from(length).map_err(|_| Damaged)?;
    let (taken, after) = rest.split_at_checked(length).ok_or(Damaged)?;
    *rest = after;
    Ok(taken)
}

/// A head that is read as this kind of damage.
#[cfg(feature = "conformance")]
pub(super) fn damaged(format: u8, state: u8) -> Vec<u8> {
    let mut head = vec![0; HEAD];
    head[0] = format;
    head[1] = state;
    head
}

const FORMAT: u8 = 1;
pub(super) const HEAD: usize = 130;
const DETAIL: usize = 2;
const WRITTEN: usize = 120;
const STATUS: usize = 128;
const LENGTH: usize = size_of::<u32>();

/// The last write, where it is not told.
pub(super) const UNTIMED: i64 = 0;
const NO_STATUS: u16 = 0;

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn value(response: &StoredResponse) -> Vec<u8> {
        let outcome = Outcome::of_response(response);
        let mut value = vec![0; WRITTEN];
        value[..outcome.begin.len()].copy_from_slice(&outcome.begin);
        value.extend(outcome.end);
        value
    }

    proptest! {
        /// Fails when `of_response` leaves out the trailers or `response` the length of either map.
        #[test]
        fn a_response_comes_back_as_it_was(
            body in vec(any::<u8>(), 0..200), field in vec(0x80u8..=0xff, 0..20), trails in any::<bool>(),
        ) {
            let headers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_bytes(&field).unwrap())]);
            let response = StoredResponse {
                headers: headers.clone(),
                trailers: trails.then_some(headers),
                ..StoredResponse::new(StatusCode::CREATED, body.into())
            };
            prop_assert_eq!(super::response(value(&response)).unwrap(), response);
        }

        /// Fails when a length is trusted, in `take` or for the head.
        #[test]
        fn reading_is_total(mut bytes in vec(any::<u8>(), 0..200), cut in 0usize..150, status in 100u16..1000) {
            let _total = super::response(bytes.clone());
            if bytes.len() > STATUS + 1 {
                bytes[STATUS..STATUS + 2].copy_from_slice(&status.to_le_bytes());
                bytes[DETAIL] %= 2;
                let _total = super::response(bytes);
            }
            let mut whole = value(&StoredResponse::new(StatusCode::OK, Bytes::new()));
            whole.truncate(cut.min(whole.len() - 1));
            prop_assert_eq!(super::response(whole).unwrap_err(), Damaged);
        }
    }
}
