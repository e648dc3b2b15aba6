//! What a layer would ask of the store for a key, for tests without one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use idempotency_layer::store::{
    CallerFingerprint, ClaimRequest, Completion, Fingerprint, LapsePolicy, Lease, LeaseId, RecordId, StoredResponse,
    UnknownOutcome,
};

/// A claim of the key; the same request each time, by another holder.
pub(super) fn request(key: &str) -> ClaimRequest {
    let mut record = [0; 32];
    record[..key.len()].copy_from_slice(key.as_bytes());
    ClaimRequest {
        lease: Lease { record: RecordId::from_bytes(record), id: LeaseId::random(), duration: Duration::from_secs(60) },
        fingerprint: Fingerprint::from_bytes(record),
        caller: CallerFingerprint::from_bytes(record),
        retention: Duration::from_secs(600),
        policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: 5.try_into().unwrap() },
    }
}

pub(super) fn answer(body: &str) -> Completion {
    Completion::Response(Arc::new(StoredResponse {
        status: StatusCode::CREATED,
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        trailers: None,
    }))
}
