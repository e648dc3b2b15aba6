//! Plain claims of keys that are told apart by a number, for tests of a single store.

use std::num::NonZeroU32;
use std::time::Duration;

use idempotency_layer::store::{
    CallerFingerprint, ClaimRequest, Fingerprint, LapsePolicy, Lease, LeaseId, RecordId, UnknownOutcome,
};

/// A claim of this key, the same each time.
pub(super) fn claim(key: u8) -> ClaimRequest {
    ClaimRequest {
        lease: lease(key),
        fingerprint: Fingerprint::from_bytes([key; 32]),
        caller: CallerFingerprint::from_bytes([0; 32]),
        retention: Duration::from_secs(600),
        policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: NonZeroU32::MIN },
    }
}

/// The lease of that claim.
pub(super) fn lease(key: u8) -> Lease {
    Lease {
        record: RecordId::from_bytes([key; 32]),
        id: LeaseId::from_bytes([key; 16]),
        duration: Duration::from_secs(60),
    }
}
