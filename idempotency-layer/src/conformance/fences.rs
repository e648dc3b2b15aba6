//! A holder that lost the key writes nothing, whatever became of the record since.

use futures_util::FutureExt;

use super::Harness;
use super::harness::lapse;
use super::key::{End, Key, Seen, lasting};
use super::overlap::overlap;
use super::stage::scenes;
use crate::store::{Claim, Renewal, Write};

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
    for first in End::ALL {
        let key = Key::lasting(harness).await;
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
/// Fails on a store that checks the holder in one step and writes in another.
pub async fn a_completion_and_a_takeover_do_not_both_win<H: Harness>(harness: &H) {
    let mut runs = Vec::new();
    for _ in 0..PAIRS {
        let key = Key::lapsing(harness).await;
        runs.push((key.lease(lasting(harness)), key.acquire().await));
    }
    lapse(harness).await;
    for (at, (key, lease)) in runs.into_iter().enumerate() {
        let holder = key.through(harness.open().await);
        let challenger = key.clone();
        let mut calls = vec![
            async move { ("completed", holder.end(End::Complete, &lease).await == Write::Done) }.boxed(),
            async move { ("overtaken", matches!(challenger.claim().await, Claim::Acquired(_))) }.boxed(),
        ];
        // On one thread the order decides who goes first, so both orders are tried.
        if at % 2 == 0 {
            calls.reverse();
        }
        let won: Vec<_> = overlap(calls).await.into_iter().filter_map(|(what, won)| won.then_some(what)).collect();
        assert_eq!(won.len(), 1, "a completion and a takeover overlapped, and the key was {won:?}");
        let seen = key.seen().await;
        assert_eq!(won == ["completed"], matches!(seen, Seen::Recorded(_)), "the key was {won:?}, and now {seen:?}");
    }
}

const PAIRS: usize = 16;
