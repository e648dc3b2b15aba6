//! A lease keeps others out while it is live, and lets one of them in when it has lapsed.

use super::Harness;
use super::claims::{CLAIMERS, handles, overlapping_claims};
use super::harness::lapse;
use super::key::{End, Key, lasting};
use crate::store::{Claim, Renewal};

/// A lease of which a quarter is left keeps others out.
///
/// Fails on a store whose leases are too short.
pub async fn a_live_lease_keeps_others_out<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    key.acquire().await;
    harness.pass(harness.lease() * 3 / 4).await;
    assert_is!(key.claim().await, Claim::InFlight { .. }, "a claim on a live lease");
}

/// A lapsed lease is taken over by the same request, as the next attempt.
///
/// Fails on a store that does not count the attempt that lapsed.
pub async fn a_lapsed_lease_is_taken_over_as_the_next_attempt<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    key.acquire_as(1).await;
    lapse(harness).await;
    key.acquire_as(2).await;
    lapse(harness).await;
    key.acquire_as(3).await;
}

/// Of 64 claims that overlap on a lapsed lease, over several handles, one takes over and the others are in flight.
///
/// Fails on a store that takes over in one step what it saw lapsed in another.
pub async fn one_of_many_overlapping_claimers_takes_over<H: Harness>(harness: &H) {
    let mut keys = Vec::new();
    let any = Key::lapsing(harness).await;
    for _ in 0..ROUNDS {
        let key = any.fresh();
        key.acquire().await;
        keys.push(key.lease(lasting(harness)));
    }
    let handles = handles(harness).await;
    lapse(harness).await;
    for key in keys {
        let mut attempts = Vec::new();
        for claim in overlapping_claims(&key, &handles).await {
            match claim {
                Claim::Acquired(acquired) => attempts.push(acquired.attempt),
                Claim::InFlight { .. } => {}
                other => panic!("an overlapping claim was neither acquired nor in flight: {other:?}"),
            }
        }
        assert_eq!(attempts, [2], "of {CLAIMERS} overlapping claimers, one takes over as the second attempt");
    }
}

/// A renewed lease lives for its whole duration again, counted from the renewal.
///
/// Fails on a store that answers a renewal and leaves the lease as it was.
pub async fn a_renewed_lease_lives_for_its_duration_again<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    let lease = key.acquire().await;
    harness.pass(harness.lease() * 3 / 4).await;
    assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal by the holder");
    harness.pass(harness.lease() * 3 / 4).await;
    assert_is!(key.claim().await, Claim::InFlight { .. }, "a claim at 1.5 times the lease, renewed at 0.75");
}

/// A renewed lease lapses like any other.
///
/// Fails on a store that takes a holder which renewed once for one that lives on.
pub async fn a_renewed_lease_lapses<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    let lease = key.acquire().await;
    assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal by the holder");
    lapse(harness).await;
    key.acquire_as(2).await;
}

/// A holder whose lease has lapsed, and that nobody overtook, renews and is live again.
///
/// Fails on a store that fences by time.
pub async fn a_lapsed_holder_that_nobody_overtook_renews<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    let lease = key.acquire().await;
    lapse(harness).await;
    assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal by a holder that nobody overtook");
    assert_is!(key.claim().await, Claim::InFlight { .. }, "a claim on the lease that was renewed late");
}

/// A holder whose lease has lapsed, and that nobody overtook, ends its run in each of the ways.
///
/// Fails on a store that fences a completion by time.
pub async fn a_lapsed_holder_that_nobody_overtook_ends_its_run<H: Harness>(harness: &H) {
    let runs = Key::lapsing(harness).await.run_for_each(End::ALL).await;
    lapse(harness).await;
    for (end, key, lease) in runs {
        key.end_held(end, &lease).await;
    }
}

/// A renewal that crosses its holder's own last write is no loss, and leaves the record as that write made it.
///
/// Fails on a store that renews running records only.
pub async fn a_renewal_that_crosses_the_last_write_is_no_loss<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for end in [End::Complete, End::Bury, End::Release, End::Hold] {
        let key = any.fresh();
        let lease = key.acquire().await;
        key.end_held(end, &lease).await;
        let before = key.seen().await;
        assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal after the holder's own {end:?}");
        assert_eq!(key.seen().await, before, "the record after {end:?} and a renewal that crossed it");
    }
}

const ROUNDS: usize = 4;
