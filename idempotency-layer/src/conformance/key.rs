//! One key on trial: a fresh record, the requests that ask for it, and each verb with its error turned into a panic.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use super::Harness;
use crate::Store;
use crate::store::{
    CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, HeldCause, HeldRecord, LapsePolicy, Lease,
    LeaseId, Look, RecordId, Renewal, Resolution, StoreError, StoredResponse, Tombstone, TombstoneReason,
    UnknownOutcome, Write,
};

/// A key of its own in a store.
#[derive(Clone, Debug)]
pub(super) struct Key<S> {
    pub(super) store: S,
    pub(super) record: RecordId,
    fingerprint: Fingerprint,
    caller: CallerFingerprint,
    lease: Duration,
    retention: Duration,
    policy: LapsePolicy,
}

impl<S: Store> Key<S> {
    /// A key whose leases and retention outlast the property, however slow the machine.
    pub(super) async fn lasting<H: Harness<Store = S>>(harness: &H) -> Self {
        Self {
            store: harness.open().await,
            record: RecordId::from_bytes(random()),
            fingerprint: Fingerprint::from_bytes(random()),
            caller: CallerFingerprint::from_bytes(random()),
            lease: lasting(harness),
            retention: 2 * lasting(harness),
            policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: NonZeroU32::MAX },
        }
    }

    /// A key whose leases lapse, while its records stay.
    pub(super) async fn lapsing<H: Harness<Store = S>>(harness: &H) -> Self {
        Self { lease: harness.lease(), ..Self::lasting(harness).await }
    }

    /// A key whose records expire.
    pub(super) async fn expiring<H: Harness<Store = S>>(harness: &H) -> Self {
        Self { lease: harness.lease(), retention: harness.retention(), ..Self::lasting(harness).await }
    }

    /// Another key for the like of this one's requests.
    pub(super) fn fresh(&self) -> Self {
        self.other_request().other_caller().at(RecordId::from_bytes(random()))
    }

    pub(super) fn through(&self, store: S) -> Self {
        Self { store, ..self.clone() }
    }

    pub(super) fn at(&self, record: RecordId) -> Self {
        Self { record, ..self.clone() }
    }

    pub(super) fn lease(&self, lease: Duration) -> Self {
        Self { lease, ..self.clone() }
    }

    pub(super) fn retention(&self, retention: Duration) -> Self {
        Self { retention, ..self.clone() }
    }

    pub(super) fn unknown(&self, unknown: UnknownOutcome) -> Self {
        Self { policy: LapsePolicy { unknown, ..self.policy }, ..self.clone() }
    }

    pub(super) fn max_attempts(&self, max_attempts: NonZeroU32) -> Self {
        Self { policy: LapsePolicy { max_attempts, ..self.policy }, ..self.clone() }
    }

    /// The same key, sent with another request.
    pub(super) fn other_request(&self) -> Self {
        Self { fingerprint: Fingerprint::from_bytes(random()), ..self.clone() }
    }

    /// The same key and request, sent with other credentials.
    pub(super) fn other_caller(&self) -> Self {
        Self { caller: CallerFingerprint::from_bytes(random()), ..self.clone() }
    }

    /// A claim under a fresh id.
    pub(super) fn request(&self) -> ClaimRequest {
        ClaimRequest {
            lease: Lease { record: self.record, id: LeaseId::random(), duration: self.lease },
            fingerprint: self.fingerprint,
            caller: self.caller,
            retention: self.retention,
            policy: self.policy,
        }
    }

    pub(super) async fn send(&self, request: &ClaimRequest) -> Claim {
        answered("claim", self.store.claim(request).await)
    }

    /// Claims under a fresh id.
    pub(super) async fn claim(&self) -> Claim {
        self.send(&self.request()).await
    }

    /// Claims under a fresh id, and holds.
    pub(super) async fn acquire(&self) -> Lease {
        let request = self.request();
        assert_is!(self.send(&request).await, Claim::Acquired(_), "a claim that nothing stands against");
        request.lease
    }

    /// Claims under a fresh id, and holds as this attempt.
    pub(super) async fn acquire_as(&self, attempt: u32) -> Lease {
        let request = self.request();
        assert_is!(
            self.send(&request).await,
            Claim::Acquired(acquired) if acquired.attempt == attempt,
            "a claim that becomes attempt {attempt}"
        );
        request.lease
    }

    /// A run of another such key for each of these.
    pub(super) async fn run_for_each<T>(&self, these: impl IntoIterator<Item = T>) -> Vec<(T, Self, Lease)> {
        let mut runs = Vec::new();
        for this in these {
            let key = self.fresh();
            let lease = key.acquire().await;
            runs.push((this, key, lease));
        }
        runs
    }

    pub(super) async fn renew(&self, lease: &Lease) -> Renewal {
        answered("renew", self.store.renew(lease).await)
    }

    /// Makes the last write of a run.
    pub(super) async fn end(&self, how: End, lease: &Lease) -> Write {
        match how {
            End::Complete => self.complete(lease, Completion::Response(answer_of(lease))).await,
            End::Bury => self.complete(lease, Completion::Tombstone(TOMBSTONE)).await,
            End::Release => answered("release", self.store.release(lease).await),
            End::Forget => answered("forget", self.store.forget(lease).await),
            End::Hold => answered("hold", self.store.hold(lease).await),
        }
    }

    /// Makes the last write of a run that still holds the key.
    pub(super) async fn end_held(&self, how: End, lease: &Lease) {
        assert_eq!(self.end(how, lease).await, Write::Done, "{how:?} by the holder");
    }

    pub(super) async fn complete(&self, lease: &Lease, completion: Completion) -> Write {
        answered("complete", self.store.complete(lease, &completion).await)
    }

    /// The hold that is there, as an operator finds it who was told the record's id.
    pub(super) async fn hold(&self) -> HeldRecord {
        match self.look().await {
            Look::Held(held) => held,
            other => panic!("a held key is not seen as held, but {other:?}"),
        }
    }

    /// What an operator decides about who takes the key for one that this id has held.
    pub(super) fn as_held_by(&self, hold: LeaseId) -> HeldRecord {
        HeldRecord { record: self.record, hold, attempt: 1, cause: HeldCause::Unknown, age: Duration::ZERO }
    }

    /// Decides the hold that is there.
    pub(super) async fn decide(&self, resolution: &Resolution) -> Write {
        self.resolve(&self.hold().await, LeaseId::random(), resolution).await
    }

    pub(super) async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Write {
        answered("resolve", self.store.resolve(held, by, resolution).await)
    }

    pub(super) async fn look(&self) -> Look {
        answered("look", self.store.look(&self.record).await)
    }

    /// What [`look`](Self::look) sees, without what changes with time alone.
    pub(super) async fn seen(&self) -> Seen {
        match self.look().await {
            Look::Absent => Seen::Absent,
            Look::Running { lease, .. } => Seen::Running(lease),
            Look::Recorded(response) => Seen::Recorded(response),
            Look::Unavailable(tombstone) => Seen::Unavailable(tombstone),
            Look::Free => Seen::Free,
            Look::Held(held) => Seen::Held(held.hold),
        }
    }
}

/// A run's last write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With the [answer](answer_of) of the lease.
    Complete,
    /// With a [tombstone](TOMBSTONE).
    Bury,
    Release,
    Forget,
    Hold,
}

impl End {
    pub(super) const ALL: [Self; 5] = [Self::Complete, Self::Bury, Self::Release, Self::Forget, Self::Hold];
}

/// A state of a record that can be compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    Absent,
    Running(LeaseId),
    Recorded(Arc<StoredResponse>),
    Unavailable(Tombstone),
    Free,
    /// By this id.
    Held(LeaseId),
}

/// A duration that no property reaches.
pub(super) fn lasting<H: Harness>(harness: &H) -> Duration {
    (20 * (harness.lease() + harness.retention())).max(Duration::from_secs(60))
}

/// The answer of this holder, which tells it from any other's.
pub(super) fn answer_of(lease: &Lease) -> Arc<StoredResponse> {
    Arc::new(StoredResponse::new(StatusCode::CREATED, Bytes::copy_from_slice(lease.id.as_bytes())))
}

pub(super) fn answered<T>(verb: &str, answer: Result<T, StoreError>) -> T {
    answer.unwrap_or_else(|error| panic!("{verb} got no answer from the store: {error:?}"))
}

pub(super) fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    let (first, second) = bytes.split_at_mut(16);
    first.copy_from_slice(LeaseId::random().as_bytes());
    second.copy_from_slice(LeaseId::random().as_bytes());
    bytes
}

pub(super) const TOMBSTONE: Tombstone = Tombstone { status: StatusCode::OK, reason: TombstoneReason::Streamed };
