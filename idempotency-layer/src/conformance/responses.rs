//! What was recorded is replayed byte for byte.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::Harness;
use super::key::Key;
use crate::Store;
use crate::store::{Claim, Completion, Lease, Look, StoredResponse, Tombstone, TombstoneReason, Write};

/// Every status is replayed.
///
/// Fails on a store that keeps common statuses only.
pub async fn each_status_is_replayed<H: Harness>(harness: &H) {
    for status in [200, 201, 204, 299, 302, 304, 404, 409, 422, 499, 599, 999] {
        let Ok(status) = StatusCode::from_u16(status) else { unreachable!("{status} has three digits") };
        replays(harness, StoredResponse::new(status, Bytes::from_static(b"{}"))).await;
    }
}

/// Repeated headers are replayed, each of their values, in their order; so are empty values.
///
/// Fails on a store that keeps one value of each name.
pub async fn repeated_headers_are_replayed_in_order<H: Harness>(harness: &H) {
    let response = StoredResponse {
        headers: headers(&[
            ("vary", b"accept"),
            ("link", b"</c>; rel=next"),
            ("link", b"</a>; rel=prev"),
            ("link", b""),
            ("link", b"</c>; rel=next"),
            ("accept-ranges", b"bytes"),
            ("vary", b"origin"),
        ]),
        ..StoredResponse::new(StatusCode::OK, Bytes::new())
    };
    replays(harness, response).await;
}

/// A header's bytes are replayed whether or not they are text.
///
/// Fails on a store that keeps headers as UTF-8.
pub async fn header_bytes_are_replayed<H: Harness>(harness: &H) {
    let all: Vec<u8> = (0x20..=0xff).filter(|byte| *byte != 0x7f).chain([b'\t', b'x']).collect();
    let response = StoredResponse {
        headers: headers(&[("content-disposition", b"attachment; filename=\"na\xefve\xff\""), ("x-all", &all)]),
        ..StoredResponse::new(StatusCode::OK, Bytes::new())
    };
    replays(harness, response).await;
}

/// A body is replayed be it empty, binary or 1 MiB long.
///
/// Fails on a store that keeps bodies as text.
pub async fn bodies_are_replayed<H: Harness>(harness: &H) {
    let binary: Vec<u8> = (0..=u8::MAX).rev().chain([0, 0, 0xff]).collect();
    let long: Vec<u8> = (0..MEBIBYTE).map(|at| (at * 31 % 251) as u8).collect();
    for body in [Vec::new(), binary, long] {
        replays(harness, StoredResponse::new(StatusCode::OK, Bytes::from(body))).await;
    }
}

/// Trailers are replayed, and the lack of them is told from none.
///
/// Fails on a store that drops trailers.
pub async fn trailers_are_replayed<H: Harness>(harness: &H) {
    let trailers = headers(&[("grpc-status", b"0"), ("x-sum", b"\xfe\xff"), ("x-sum", b"2")]);
    for trailers in [None, Some(trailers)] {
        replays(harness, StoredResponse { trailers, ..StoredResponse::new(StatusCode::OK, Bytes::from_static(b"ok")) })
            .await;
    }
}

/// A tombstone tells the status and the reason that were recorded, and no response.
///
/// Fails on a store that keeps one reason for all.
pub async fn tombstones_tell_status_and_reason<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for reason in [TombstoneReason::TooLarge, TombstoneReason::Streamed, TombstoneReason::Upgraded] {
        for status in [StatusCode::OK, StatusCode::SWITCHING_PROTOCOLS, StatusCode::IM_A_TEAPOT] {
            let key = any.fresh();
            let lease = key.acquire().await;
            let buried = Tombstone { status, reason };
            assert_eq!(key.complete(&lease, Completion::Tombstone(buried)).await, Write::Done);
            assert_is!(key.claim().await, Claim::Unavailable(told) if told == buried, "a claim after {buried:?}");
            assert_is!(key.look().await, Look::Unavailable(told) if told == buried, "a look after {buried:?}");
        }
    }
}

/// What was recorded first stays: a second completion by the same holder replaces nothing.
///
/// Fails on a store that takes the latest response of the id that wrote one.
pub async fn the_first_response_stays<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let lease = key.acquire().await;
    let first = response("first");
    assert_eq!(key.complete(&lease, Completion::Response(Arc::clone(&first))).await, Write::Done);
    let second = Completion::Response(response("second"));
    // What the holder is told is for its store to decide; what others are told is not.
    let _answer: Write = key.complete(&lease, second).await;
    is_replayed(&key, &lease, &first).await;
}

fn response(body: &'static str) -> Arc<StoredResponse> {
    Arc::new(StoredResponse::new(StatusCode::OK, Bytes::from_static(body.as_bytes())))
}

pub(super) fn headers(pairs: &[(&'static str, &[u8])]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let Ok(value) = HeaderValue::from_bytes(value) else { unreachable!("{value:?} is a header's value") };
        headers.append(HeaderName::from_static(name), value);
    }
    headers
}

/// Records a response over one handle, and asserts that each handle replays it.
async fn replays<H: Harness>(harness: &H, response: StoredResponse) {
    let key = Key::lasting(harness).await;
    let response = Arc::new(response);
    let lease = key.acquire().await;
    assert_eq!(key.complete(&lease, Completion::Response(Arc::clone(&response))).await, Write::Done);
    is_replayed(&key, &lease, &response).await;
    is_replayed(&key.through(harness.open().await), &lease, &response).await;
}

/// Asserts that everybody gets this response, the one that sent the first claim included.
pub(super) async fn is_replayed<S: Store>(key: &Key<S>, holder: &Lease, response: &StoredResponse) {
    let mut again = key.request();
    again.lease = *holder;
    for claim in [key.claim().await, key.claim().await, key.send(&again).await] {
        let Claim::Recorded(recorded) = claim else { panic!("a claim on a recorded key got {claim:?}") };
        is_same(&recorded.response, response);
    }
    let Look::Recorded(recorded) = key.look().await else { panic!("a recorded key is not seen as recorded") };
    is_same(&recorded, response);
}

fn is_same(replayed: &StoredResponse, recorded: &StoredResponse) {
    assert_eq!(replayed.status, recorded.status, "the status");
    assert_eq!(lines(&replayed.headers), lines(&recorded.headers), "the headers");
    assert!(replayed.body == recorded.body, "a body of {} bytes was replayed otherwise", recorded.body.len());
    assert_eq!(replayed.trailers.as_ref().map(lines), recorded.trailers.as_ref().map(lines), "the trailers");
}

/// Headers in the order in which they are sent, which equality of maps does not compare.
fn lines(headers: &HeaderMap) -> Vec<(&HeaderName, &HeaderValue)> {
    headers.iter().collect()
}

const MEBIBYTE: usize = 1 << 20;
