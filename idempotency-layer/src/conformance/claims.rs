//! One holder for each key, however many ask at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Harness;
use super::harness::lapse;
use super::key::{End, Key, Seen, TOMBSTONE, answer_of, lasting};
use super::overlap::overlap;
use crate::Store;
use crate::store::{Claim, Lease, Look, RecordId, Renewal};

/// Of 64 claims that overlap, over several handles, one is acquired and the others are in flight.
///
/// Fails on a store that reads the record in one step and writes it in another.
pub async fn one_of_many_overlapping_claimers_holds<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    let handles = handles(harness).await;
    for _ in 0..ROUNDS {
        let mut holders = 0;
        for claim in overlapping_claims(&any.fresh(), &handles).await {
            match claim {
                Claim::Acquired(_) => holders += 1,
                Claim::InFlight { .. } => {}
                other => panic!("an overlapping claim was neither acquired nor in flight: {other:?}"),
            }
        }
        assert_eq!(holders, 1, "of {CLAIMERS} overlapping claimers, so many hold the key");
    }
}

/// Of overlapping claims for two requests under one key, one is acquired; those for the same request are in flight,
/// those for the other one are told that the key is taken.
///
/// Fails on a store where who loses the race is not compared.
pub async fn of_two_overlapping_requests_one_is_refused<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    let handles = handles(harness).await;
    for _ in 0..ROUNDS {
        let key = any.fresh();
        let requests = [key.through(handles[0].clone()), key.other_request().through(handles[1].clone())];
        let mut calls = Vec::new();
        for at in 0..CLAIMERS {
            let asks = at % 2;
            let handle = requests[asks].clone();
            calls.push(async move { (asks, handle.claim().await) });
        }
        let claims = overlap(calls).await;
        let holders: Vec<_> = claims.iter().filter(|(_, claim)| matches!(claim, Claim::Acquired(_))).collect();
        let [(holds, _)] = holders[..] else { panic!("of two overlapping requests hold the key: {holders:?}") };
        for (asks, claim) in &claims {
            match claim {
                Claim::Acquired(_) => {}
                Claim::InFlight { .. } if asks == holds => {}
                Claim::Reused if asks != holds => {}
                other => {
                    panic!("request {asks} overlapped with request {holds}, which holds the key, and got {other:?}")
                }
            }
        }
    }
}

/// Many claimers that come back until each has had its run never run at the same time, however the runs end.
///
/// Fails on a store that sends a write of its own again without the fence.
pub async fn overlapping_runs_take_turns<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let running = Arc::new(AtomicUsize::new(0));
    let mut calls = Vec::new();
    for at in 0..8 {
        let key = key.through(harness.open().await);
        let running = Arc::clone(&running);
        let end = if at % 2 == 0 { End::Release } else { End::Forget };
        calls.push(async move {
            for _ in 0..4 {
                let lease = turn(&key).await;
                assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "others run already");
                for _ in 0..8 {
                    tokio::task::yield_now().await;
                }
                running.fetch_sub(1, Ordering::SeqCst);
                key.end_held(end, &lease).await;
            }
        });
    }
    overlap(calls).await;
}

/// Claims until the key is free.
async fn turn<S: Store>(key: &Key<S>) -> Lease {
    loop {
        let request = key.request();
        match key.send(&request).await {
            Claim::Acquired(_) => return request.lease,
            Claim::InFlight { .. } => tokio::task::yield_now().await,
            other => panic!("a claim among many got {other:?}"),
        }
    }
}

/// Records whose ids differ in one byte only, be it the first or the last, are two records.
///
/// Fails on a store that shortens the id.
pub async fn keys_are_apart<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let _holder = key.acquire().await;
    for at in 0..32 {
        let mut bytes = *key.record.as_bytes();
        bytes[at] ^= 1;
        key.other_request().at(RecordId::from_bytes(bytes)).acquire_as(1).await;
    }
}

/// A run that was released is followed by the next attempt, as often as that happens.
///
/// Fails on a store that starts the count anew.
pub async fn attempts_are_counted_across_releases<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    for attempt in 1..=4 {
        key.end_held(End::Release, &key.acquire_as(attempt).await).await;
    }
}

/// Who finds a key in flight is told how long its run has been going.
///
/// Fails on a store that tells no age.
pub async fn the_age_of_a_run_grows<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    key.acquire().await;
    harness.pass(harness.lease()).await;
    let grown = age(&key).await;
    assert!(grown >= harness.lease() * 9 / 10, "a lease's length later the run is {grown:?} old");
    assert!(grown < lasting(harness), "a lease's length later the run is {grown:?} old");
}

/// The age is that of the current run, not of the first.
///
/// Fails on a store that counts from the record's first claim.
pub async fn the_age_is_of_the_current_run<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let first = key.acquire().await;
    harness.pass(harness.lease()).await;
    key.end_held(End::Release, &first).await;
    key.acquire_as(2).await;
    let age = age(&key).await;
    assert!(age < harness.lease() / 2, "a run that has just begun is {age:?} old");
}

/// A renewal prolongs the lease and leaves the run as old as it is.
///
/// Fails on a store that counts the age from the last renewal.
pub async fn a_renewal_does_not_make_the_run_younger<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let lease = key.acquire().await;
    harness.pass(harness.lease()).await;
    assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal by the holder");
    let age = age(&key).await;
    assert!(age >= harness.lease() * 9 / 10, "a lease's length later the renewed run is {age:?} old");
}

/// Looking tells each state as it is, and claims nothing.
///
/// Fails on a store that takes FREE for absent.
pub async fn look_tells_each_state<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    assert_eq!(key.seen().await, Seen::Absent, "before the first claim");
    let any = Key::lasting(harness).await;
    for end in End::ALL {
        let key = any.fresh();
        let lease = key.acquire().await;
        assert_eq!(key.seen().await, Seen::Running(lease.id), "while the first attempt runs");
        key.end_held(end, &lease).await;
        let expected = match end {
            End::Complete => Seen::Recorded(answer_of(&lease)),
            End::Bury => Seen::Unavailable(TOMBSTONE),
            End::Release => Seen::Free,
            End::Forget => Seen::Absent,
            End::Hold => Seen::Held(lease.id),
        };
        for _ in 0..2 {
            assert_eq!(key.seen().await, expected, "after {end:?}");
        }
    }
}

/// Looking tells a run whose lease is live from one whose lease has lapsed.
///
/// Fails on a store that takes every run for a live one.
pub async fn look_tells_whether_a_run_has_lapsed<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    key.acquire().await;
    assert_is!(key.look().await, Look::Running { lapsed: false, .. }, "a run that has just begun");
    lapse(harness).await;
    assert_is!(key.look().await, Look::Running { lapsed: true, .. }, "a run whose lease has lapsed");
}

async fn age<S: Store>(key: &Key<S>) -> Duration {
    let Claim::InFlight { age: told } = key.claim().await else {
        panic!("a claim on a live run was not in flight");
    };
    let Look::Running { age: seen, lapsed: false, .. } = key.look().await else {
        panic!("a live run was not seen running");
    };
    assert!(seen >= told, "a run was {told:?} old and then {seen:?}");
    told
}

/// Several handles on the same records.
pub(super) async fn handles<H: Harness>(harness: &H) -> Vec<H::Store> {
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(harness.open().await);
    }
    handles
}

/// What many get that claim a key at the same time, over these handles in turn.
pub(super) async fn overlapping_claims<S: Store>(key: &Key<S>, handles: &[S]) -> Vec<Claim> {
    let handles = handles.iter().cycle().take(CLAIMERS);
    let calls = handles.map(|handle| {
        let key = key.through(handle.clone());
        async move { key.claim().await }
    });
    overlap(calls.collect()).await
}

pub(super) const CLAIMERS: usize = 64;
const ROUNDS: usize = 4;
