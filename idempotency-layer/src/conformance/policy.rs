//! What becomes of a run that went silent is said by the claim that began it.

use std::num::NonZeroU32;

use super::Harness;
use super::harness::lapse;
use super::key::{End, Key};
use crate::store::{Claim, Resolution, UnknownOutcome, Write};

/// A run claimed under Hold is held when it lapses, whatever the next claim asks for; one claimed under Rerun is run
/// again, likewise.
///
/// Fails on a store that obeys the policy of the claim that finds the lapsed run.
pub async fn a_lapsed_run_obeys_the_policy_of_its_claim<H: Harness>(harness: &H) {
    let holds = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    let reruns = Key::lapsing(harness).await;
    holds.acquire().await;
    reruns.acquire().await;
    lapse(harness).await;
    let next = holds.unknown(UnknownOutcome::Rerun);
    assert_is!(next.claim().await, Claim::Held, "a claim under Rerun on a run that lapsed under Hold");
    let next = reruns.unknown(UnknownOutcome::Hold);
    next.acquire_as(2).await;
    lapse(harness).await;
    let next = next.unknown(UnknownOutcome::Rerun);
    assert_is!(next.claim().await, Claim::Held, "a claim under Rerun on a second attempt that lapsed under Hold");
}

/// A run under Hold that was released is run again: its holder said what happened.
///
/// Fails on a store that holds whatever was claimed under Hold.
pub async fn a_released_run_is_run_again_under_hold<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await.unknown(UnknownOutcome::Hold);
    key.end_held(End::Release, &key.acquire_as(1).await).await;
    key.acquire_as(2).await;
}

/// After as many lapsed runs as the policy allows the key is held.
///
/// Fails on a store that runs a request again which kills its process each time.
pub async fn too_many_lapsed_runs_are_held<H: Harness>(harness: &H) {
    held_after_two_lapses(harness).await;
}

/// Runs that were released do not count as lapsed.
///
/// Fails on a store that counts attempts.
pub async fn released_runs_do_not_count_as_lapsed<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await.max_attempts(TWO);
    for attempt in 1..=3 {
        key.end_held(End::Release, &key.acquire_as(attempt).await).await;
    }
    key.acquire_as(4).await;
    lapse(harness).await;
    key.acquire_as(5).await;
}

/// Lapsed runs count although others were released in between.
///
/// Fails on a store that counts lapses in a row.
pub async fn lapsed_runs_count_across_releases<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await.max_attempts(TWO);
    key.acquire_as(1).await;
    lapse(harness).await;
    key.end_held(End::Release, &key.acquire_as(2).await).await;
    key.acquire_as(3).await;
    lapse(harness).await;
    assert_is!(key.claim().await, Claim::Held, "a claim after two lapsed runs with a released one between them");
}

/// A key that an operator freed counts its lapsed runs from zero, and its attempts on.
///
/// Fails on a store that holds it again at the first lapse.
pub async fn an_operators_free_counts_lapses_from_zero<H: Harness>(harness: &H) {
    let key = held_after_two_lapses(harness).await;
    assert_eq!(key.decide(&Resolution::Free).await, Write::Done);
    key.acquire_as(3).await;
    lapse(harness).await;
    key.acquire_as(4).await;
}

/// A key of which two runs have lapsed, of at most two.
async fn held_after_two_lapses<H: Harness>(harness: &H) -> Key<H::Store> {
    let key = Key::lapsing(harness).await.max_attempts(TWO);
    key.acquire_as(1).await;
    lapse(harness).await;
    key.acquire_as(2).await;
    lapse(harness).await;
    assert_is!(key.claim().await, Claim::Held, "a claim after two lapsed runs of at most two");
    key
}

const TWO: NonZeroU32 = NonZeroU32::MIN.saturating_add(1);
