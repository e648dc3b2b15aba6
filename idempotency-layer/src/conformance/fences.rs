//! A holder that lost the key writes nothing, whatever became of the record since.

use std::future::Future;

use futures_util::FutureExt;

use super::Harness;
use super::harness::lapse;
use super::key::{End, Key, Seen, lasting};
use super::overlap::overlap;
use super::stage::scenes;
use crate::Store;
use crate::store::{Claim, Lease, Renewal, Write};

/// A holder that was overtaken, or whose record somebody else ended, is told so when it renews.
///
/// Fails on a store that renews whatever run it finds.
pub async fn a_late_renewal_is_fenced<H: Harness>(harness: &H) {
    for scene in scenes(harness).await.iter().filter(|scene| !scene.stage.is_own()) {
        let answer = scene.key.renew(&scene.first.lease).await;
        assert_is!(answer, Renewal::Fenced, "{:?}: a late renewal", scene.stage);
    }
}

/// A holder that lost the key records no response.
///
/// Fails on a store that completes whatever run it finds.
pub async fn a_late_completion_is_fenced<H: Harness>(harness: &H) {
    is_fenced(End::Complete, harness).await;
}

/// A holder that lost the key leaves no tombstone.
///
/// Fails on a store that fences responses only.
pub async fn a_late_tombstone_is_fenced<H: Harness>(harness: &H) {
    is_fenced(End::Bury, harness).await;
}

/// A holder that lost the key does not free it.
///
/// Fails on a store that frees whatever run it finds.
pub async fn a_late_release_is_fenced<H: Harness>(harness: &H) {
    is_fenced(End::Release, harness).await;
}

/// A holder that lost the key does not forget another's record. Where there is none, nothing is left to forget.
///
/// Fails on a store that removes whatever run it finds.
pub async fn a_late_forget_is_fenced<H: Harness>(harness: &H) {
    is_fenced(End::Forget, harness).await;
}

/// A holder that lost the key does not hold it.
///
/// Fails on a store that holds whatever run it finds.
pub async fn a_late_hold_is_fenced<H: Harness>(harness: &H) {
    is_fenced(End::Hold, harness).await;
}

async fn is_fenced<H: Harness>(end: End, harness: &H) {
    for scene in scenes(harness).await.iter().filter(|scene| !scene.stage.is_own()) {
        let nothing_left = end == End::Forget && scene.key.seen().await == Seen::Absent;
        let expected = if nothing_left { Write::Done } else { Write::Fenced };
        assert_eq!(scene.key.end(end, &scene.first.lease).await, expected, "{:?}: a late {end:?}", scene.stage);
    }
}

/// After its own last write a holder makes no other one: what it freed it cannot complete, what it recorded it cannot
/// forget.
///
/// Fails on a store that fences by the id alone and not by the state.
pub async fn an_ended_run_is_not_ended_otherwise<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for first in End::ALL {
        let key = any.fresh();
        let lease = key.acquire().await;
        key.end_held(first, &lease).await;
        let before = key.seen().await;
        for second in End::ALL.into_iter().filter(|second| !same_verb(first, *second)) {
            assert_eq!(key.end(second, &lease).await, Write::Fenced, "{second:?} after {first:?} by the same holder");
            assert_eq!(key.seen().await, before, "the record after {first:?} and then {second:?}");
        }
    }
}

fn same_verb(first: End, second: End) -> bool {
    let completes = |end| matches!(end, End::Complete | End::Bury);
    first == second || completes(first) && completes(second)
}

/// When a completion and a takeover of a lapsed lease overlap, one of the two wins: either the response is recorded
/// and nobody runs, or the next attempt runs and the response is fenced.
///
/// Fails on a store that checks the holder in one step and completes in another.
pub async fn a_completion_and_a_takeover_do_not_both_win<H: Harness>(harness: &H) {
    let other = harness.open().await;
    for (key, lease) in lapsed(harness).await {
        let holder = key.through(other.clone());
        let completion = async move { holder.end(End::Complete, &lease).await == Write::Done };
        let [completed, _] = one_wins(completion, &key).await;
        let seen = key.seen().await;
        assert_eq!(completed, matches!(seen, Seen::Recorded(_)), "completed: {completed}, and then {seen:?}");
    }
}

/// When a renewal and a takeover of a lapsed lease overlap, one of the two wins.
///
/// Fails on a store that checks the holder in one step and renews in another.
pub async fn a_renewal_and_a_takeover_do_not_both_win<H: Harness>(harness: &H) {
    let other = harness.open().await;
    for (key, lease) in lapsed(harness).await {
        let holder = key.through(other.clone());
        let renewal = Lease { duration: lasting(harness), ..lease };
        let renewal = async move { matches!(holder.renew(&renewal).await, Renewal::Renewed { .. }) };
        let [renewed, _] = one_wins(renewal, &key).await;
        let seen = key.seen().await;
        assert_eq!(renewed, seen == Seen::Running(lease.id), "renewed: {renewed}, and then {seen:?}");
    }
}

/// Runs whose lease has lapsed. On one thread the order of two calls decides who goes first, so there are many runs, and
/// [`one_wins`] tries both orders.
async fn lapsed<H: Harness>(harness: &H) -> Vec<(Key<H::Store>, Lease)> {
    let mut runs = Vec::new();
    let any = Key::lapsing(harness).await;
    for _ in 0..PAIRS {
        let key = any.fresh();
        runs.push((key.lease(lasting(harness)), key.acquire().await));
    }
    lapse(harness).await;
    runs
}

/// Lets a holder's write and a claim overlap, and tells which of them counted.
async fn one_wins<S: Store>(write: impl Future<Output = bool> + Send + 'static, key: &Key<S>) -> [bool; 2] {
    let challenger = key.clone();
    let claim = async move { matches!(challenger.claim().await, Claim::Acquired(_)) };
    let mut calls = vec![write.map(|won| (0, won)).boxed(), claim.map(|won| (1, won)).boxed()];
    if key.record.as_bytes()[0].is_multiple_of(2) {
        calls.reverse();
    }
    let mut won = [false; 2];
    for (who, counted) in overlap(calls).await {
        won[who] = counted;
    }
    assert_ne!(won[0], won[1], "a holder's write and a takeover overlapped; [written, overtaken] was {won:?}");
    won
}

const PAIRS: usize = 16;
