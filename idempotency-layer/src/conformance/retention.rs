//! A record is kept for its retention after its last write, neither shorter nor longer, and then the key is new.

use super::Harness;
use super::harness::{expire, lapse};
use super::key::{End, Key, Seen, lasting};
use crate::Store;
use crate::store::{Claim, Renewal, Resolution, UnknownOutcome, Write};

/// A key that was recorded, buried or freed is new after its retention, to any request, whatever the policy of its run.
///
/// Fails on a store that keeps its records for ever.
pub async fn a_settled_key_is_new_after_its_retention<H: Harness>(harness: &H) {
    let mut keys = Vec::new();
    let any = Key::expiring(harness).await;
    for end in [End::Complete, End::Bury, End::Release] {
        for unknown in [UnknownOutcome::Rerun, UnknownOutcome::Hold] {
            let key = any.fresh().unknown(unknown);
            key.end_held(end, &key.acquire().await).await;
            keys.push((end, unknown, key));
        }
    }
    expire(harness).await;
    for (end, unknown, key) in keys {
        assert_eq!(key.seen().await, Seen::Absent, "after {end:?} under {unknown:?} and the retention");
        key.other_request().acquire_as(1).await;
    }
}

/// A run that went silent under Rerun is remembered for its retention, and then the key is new to any request.
///
/// Fails on a store that keeps lapsed runs for ever.
pub async fn a_lapsed_key_is_new_after_its_retention<H: Harness>(harness: &H) {
    let key = Key::expiring(harness).await;
    key.acquire().await;
    expire(harness).await;
    assert_eq!(key.seen().await, Seen::Absent, "after a silent run and the retention");
    key.other_request().acquire_as(1).await;
}

/// A replay tells how long the key still means its request: the retention at first, and less as time passes.
///
/// Fails on a store that tells every replay the whole retention.
pub async fn a_replay_tells_how_long_the_key_is_kept<H: Harness>(harness: &H) {
    let key = Key::expiring(harness).await;
    key.end_held(End::Complete, &key.acquire().await).await;
    let (half, whole) = (harness.retention() / 2, harness.retention());
    assert_is!(
        key.claim().await,
        Claim::Recorded(recorded) if recorded.expires_in > half && recorded.expires_in <= whole,
        "a replay within {half:?} of its record"
    );
    // A record that is moved from one server to another may be kept for as long as that took.
    harness.pass(half + harness.lease() / 10).await;
    assert_is!(key.claim().await, Claim::Recorded(recorded) if recorded.expires_in <= half, "a replay after {half:?}");
}

/// The retention counts from the last write, not from the claim.
///
/// Fails on a store that counts from the claim.
pub async fn the_retention_counts_from_the_last_write<H: Harness>(harness: &H) {
    let runs = Key::expiring(harness).await.run_for_each([End::Complete, End::Bury, End::Release]).await;
    harness.pass(harness.retention() / 2).await;
    for (end, key, lease) in &runs {
        key.end_held(*end, lease).await;
    }
    harness.pass(harness.retention() * 3 / 4).await;
    for (end, key, _) in runs {
        assert_is!(
            key.other_request().claim().await,
            Claim::Reused,
            "another request at 1.25 times the retention, {end:?} at half of it"
        );
    }
}

/// An operator's decision is a write: the retention counts from it.
///
/// Fails on a store that counts from the hold.
pub async fn the_retention_counts_from_the_decision<H: Harness>(harness: &H) {
    let key = Key::expiring(harness).await;
    key.end_held(End::Hold, &key.acquire().await).await;
    expire(harness).await;
    assert_eq!(key.decide(&Resolution::Free).await, Write::Done);
    harness.pass(harness.retention() / 2).await;
    assert_eq!(key.seen().await, Seen::Free, "half a retention after it was freed");
    expire(harness).await;
    assert_eq!(key.seen().await, Seen::Absent, "more than a retention after it was freed");
}

/// A renewal prolongs the retention: the record of a run that then goes silent is kept for the whole of it.
///
/// Fails on a store that renews the lease alone.
pub async fn a_renewal_prolongs_the_retention<H: Harness>(harness: &H) {
    let key = Key::expiring(harness).await;
    let lease = key.acquire().await;
    harness.pass(harness.retention() / 2).await;
    assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal by a holder that nobody overtook");
    harness.pass(harness.retention() * 3 / 4).await;
    let claim = key.other_request().claim().await;
    assert_is!(claim, Claim::Reused, "another request at 1.25 times the retention, renewed at half of it");
}

/// A renewal that crosses its holder's own last write does not prolong the retention of what was written.
///
/// Fails on a store that counts any answered renewal as a write.
pub async fn a_renewal_that_crosses_prolongs_nothing<H: Harness>(harness: &H) {
    let key = Key::expiring(harness).await;
    let lease = key.acquire().await;
    key.end_held(End::Complete, &lease).await;
    harness.pass(harness.retention() / 2).await;
    assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal after the holder's own completion");
    harness.pass(harness.retention() * 3 / 4).await;
    assert_eq!(key.seen().await, Seen::Absent, "at 1.25 times the retention since the completion");
}

/// A run that renews is there for as long as it lives, be it many times the retention.
///
/// Fails on a store that removes running records by the age of their claim.
pub async fn a_live_lease_is_never_removed<H: Harness>(harness: &H) {
    let key = Key::expiring(harness).await.lease(harness.retention());
    let lease = key.acquire().await;
    for _ in 0..3 {
        harness.pass(harness.retention() * 3 / 4).await;
        assert_is!(key.claim().await, Claim::InFlight { .. }, "a claim on a live lease");
        assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal of a live lease");
    }
    key.end_held(End::Complete, &lease).await;
}

/// Each record is kept for the retention of its own claim.
///
/// Fails on a store with one retention for all.
pub async fn the_retention_is_the_records_own<H: Harness>(harness: &H) {
    let short = Key::expiring(harness).await;
    let long = Key::expiring(harness).await.retention(lasting(harness));
    let other = Key::expiring(harness).await;
    for key in [&short, &long, &other] {
        key.end_held(End::Complete, &key.acquire().await).await;
    }
    expire(harness).await;
    assert_eq!(short.seen().await, Seen::Absent, "a short retention before a long one");
    assert_is!(long.seen().await, Seen::Recorded(_), "a long retention between short ones");
    assert_eq!(other.seen().await, Seen::Absent, "a short retention after a long one");
}

/// A lapsed run is remembered until its retention ends, so that another request is refused after a crash.
///
/// Fails on a store that keeps a record no longer than its lease.
pub async fn a_record_outlives_its_lease<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    key.acquire().await;
    lapse(harness).await;
    assert_is!(key.seen().await, Seen::Running(_), "a run whose lease has lapsed");
    assert_is!(key.other_request().claim().await, Claim::Reused, "another request after a crash");
}

/// A forgotten key is new at once, to any request and caller.
///
/// Fails on a store that frees what it should forget.
pub async fn a_forgotten_key_is_new_to_any_request<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    key.end_held(End::Release, &key.acquire_as(1).await).await;
    key.end_held(End::Forget, &key.acquire_as(2).await).await;
    is_new(&key.other_request().other_caller()).await;
}

async fn is_new<S: Store>(key: &Key<S>) {
    assert_eq!(key.seen().await, Seen::Absent, "a forgotten key");
    key.acquire_as(1).await;
}
