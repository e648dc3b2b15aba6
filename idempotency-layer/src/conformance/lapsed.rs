//! A run that lapsed under Hold is held in the eyes of everyone but its holder, although nobody asked for its key since.

use std::num::NonZeroU16;

use futures_util::FutureExt;

use super::Harness;
use super::duplicates::resolutions;
use super::harness::{expire, lapse};
use super::held::{is_not_listed, listed, neighbours};
use super::key::{End, Key, Seen, answer_of, answered, lasting};
use super::overlap::overlap;
use crate::Store;
use crate::store::{Claim, HeldCause, HeldRecord, LeaseId, Look, Page, Renewal, Resolution, UnknownOutcome, Write};

/// A run that went silent under Hold is there after its retention.
///
/// Fails on a store where it expires like any other run.
pub async fn a_run_that_lapsed_under_hold_does_not_expire<H: Harness>(harness: &H) {
    let key = Key::expiring(harness).await.unknown(UnknownOutcome::Hold);
    key.acquire().await;
    expire(harness).await;
    let claim = key.other_request().claim().await;
    assert_is!(claim, Claim::Reused, "another request after a silent run under Hold and the retention");
    assert_is!(key.claim().await, Claim::Held, "a claim after a silent run under Hold and the retention");
}

/// A run that lapsed under Hold is listed: under its own id, and held since its lease lapsed.
///
/// Fails on a store that lists what a claim has found lapsed, and nothing else.
pub async fn a_run_that_lapsed_under_hold_is_listed<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    key.end_held(End::Release, &key.acquire_as(1).await).await;
    let lease = key.acquire_as(2).await;
    lapse(harness).await;
    let held = listed(&key).await;
    assert!(held.age < harness.lease(), "held for {:?}, a quarter of a lease after it lapsed", held.age);
    let expected =
        HeldRecord { record: key.record, hold: lease.id, attempt: 2, cause: HeldCause::Lapsed, age: held.age };
    assert_eq!(held, expected);
}

/// Who looks at a run that lapsed under Hold is told what the list tells.
///
/// Fails on a store that shows it as a run that has lapsed.
pub async fn a_run_that_lapsed_under_hold_is_seen_as_held<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    key.acquire().await;
    lapse(harness).await;
    let (listed, found) = (listed(&key).await, key.hold().await);
    assert!(found.age >= listed.age, "held for {:?} and then for {:?}", listed.age, found.age);
    assert_eq!(found, HeldRecord { age: found.age, ..listed }, "found, and listed");
}

/// A run whose lease is live is not held, whatever its policy.
///
/// Fails on a store that looks at the policy alone.
pub async fn a_run_that_lives_under_hold_is_not_held<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await.unknown(UnknownOutcome::Hold);
    let lease = key.acquire().await;
    is_a_run(&key, lease.id).await;
    assert_is!(key.claim().await, Claim::InFlight { .. }, "a claim on a live run under Hold");
}

/// A run that lapsed under Rerun is not held: it waits for its retry.
///
/// Fails on a store that looks at the time alone.
pub async fn a_run_that_lapsed_under_rerun_is_not_held<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    let lease = key.acquire().await;
    lapse(harness).await;
    is_a_run(&key, lease.id).await;
    key.acquire_as(2).await;
}

/// Runs that live under Hold take no place in the list: a page that is followed by more is full.
///
/// Fails on a store that leaves them out after it has cut the page.
pub async fn a_page_passes_over_runs_that_live<H: Harness>(harness: &H) {
    let lapses = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    let lives = lapses.lease(lasting(harness));
    let ids = neighbours(10);
    let lapsed = [2, 5, 9];
    for (at, id) in ids.iter().enumerate().skip(1) {
        let key = if lapsed.contains(&at) { &lapses } else { &lives };
        key.at(*id).acquire().await;
    }
    lapse(harness).await;
    let two = Page::first(NonZeroU16::MIN.saturating_add(1)).after(ids[0]);
    let held = answered("held", lapses.store.held(&two).await);
    let records: Vec<_> = held.records.iter().map(|held| held.record).collect();
    assert_eq!(records, [ids[2], ids[5]], "the first page of two");
    let Some(next) = held.next else { panic!("no page after the first, although there is more") };
    let held = answered("held", lapses.store.held(&next).await);
    assert_eq!(held.records.first().map(|held| held.record), Some(ids[9]), "the second page begins");
}

/// A run that lapsed under Hold is decided like any other hold, once and however often the decision is sent; its holder,
/// should it live on, is fenced.
///
/// Fails on a store that decides what a claim has found lapsed, and nothing else.
pub async fn a_run_that_lapsed_under_hold_is_decided_and_its_holder_fenced<H: Harness>(harness: &H) {
    let any = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    let runs = any.run_for_each(resolutions()).await;
    lapse(harness).await;
    for (resolution, key, lease) in runs {
        let key = key.lease(lasting(harness));
        let (held, by) = (listed(&key).await, LeaseId::random());
        for _ in 0..2 {
            let answer = key.resolve(&held, by, &resolution).await;
            assert_eq!(answer, Write::Done, "{resolution:?} of a run that lapsed under Hold");
        }
        assert!(is_not_listed(&key).await, "a run that lapsed is still listed after {resolution:?}");
        assert_is!(key.renew(&lease).await, Renewal::Fenced, "a renewal by the holder after {resolution:?}");
        let late = key.end(End::Complete, &lease).await;
        assert_eq!(late, Write::Fenced, "a completion by the holder after {resolution:?}");
        match resolution {
            Resolution::Settle(response) => {
                assert_is!(key.claim().await, Claim::Recorded(found) if found.response == response, "a claim on a settled key");
            }
            Resolution::Free => {
                key.acquire_as(2).await;
            }
            Resolution::Forget => {
                key.other_request().acquire_as(1).await;
            }
        }
    }
}

/// A holder that lapsed under Hold renews as long as nobody claimed or decided, and its run is held no longer.
///
/// Fails on a store that renews no run which it lists.
pub async fn a_holder_that_lapsed_under_hold_still_renews<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    let lease = key.acquire().await;
    lapse(harness).await;
    assert_eq!(key.seen().await, Seen::Held(lease.id), "a run that lapsed under Hold");
    assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal by a holder that nobody overtook");
    is_a_run(&key, lease.id).await;
}

/// A holder that lapsed under Hold ends its run in each of the ways, as long as nobody claimed or decided.
///
/// Fails on a store that takes the end of no run which it lists.
pub async fn a_holder_that_lapsed_under_hold_still_ends_its_run<H: Harness>(harness: &H) {
    let any = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    let runs = any.run_for_each(End::ALL).await;
    lapse(harness).await;
    for (end, key, lease) in runs {
        assert_eq!(key.seen().await, Seen::Held(lease.id), "a run that lapsed under Hold");
        key.end_held(end, &lease).await;
        assert_eq!(is_not_listed(&key).await, end != End::Hold, "not listed after {end:?}");
    }
}

/// When the completion of a holder that lapsed under Hold and an operator's decision overlap, one of the two wins.
///
/// Fails on a store that reads that a run has lapsed in one step and decides it in another.
pub async fn a_completion_and_a_decision_do_not_both_win<H: Harness>(harness: &H) {
    let [_, free, _] = resolutions();
    let any = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    let runs = any.run_for_each(0..PAIRS).await;
    let other = harness.open().await;
    lapse(harness).await;
    for (at, key, lease) in runs {
        let hold = key.hold().await;
        let (holder, operator, free) = (key.through(other.clone()), key.clone(), free.clone());
        let completion = async move { holder.end(End::Complete, &lease).await };
        let decision = async move { operator.resolve(&hold, LeaseId::random(), &free).await };
        let mut calls = vec![completion.map(|answer| (0, answer)).boxed(), decision.map(|answer| (1, answer)).boxed()];
        if at % 2 == 1 {
            calls.reverse();
        }
        let mut done = [false; 2];
        for (who, answer) in overlap(calls).await {
            done[who] = answer == Write::Done;
        }
        let expected = match done {
            [true, false] => Seen::Recorded(answer_of(&lease)),
            [false, true] => Seen::Free,
            both => panic!("a completion and a decision overlapped; [completed, decided] was {both:?}"),
        };
        assert_eq!(key.seen().await, expected, "[completed, decided] was {done:?}");
    }
}

/// Asserts that the key is a run in everybody's eyes, and no hold.
async fn is_a_run<S: Store>(key: &Key<S>, holder: LeaseId) {
    assert!(is_not_listed(key).await, "a run that is not held is listed");
    for resolution in resolutions() {
        let answer = key.resolve(&key.as_held_by(holder), LeaseId::random(), &resolution).await;
        assert_eq!(answer, Write::Fenced, "{resolution:?} of a run that is not held");
    }
    assert_is!(key.look().await, Look::Running { lease, .. } if lease == holder, "a run that is not held");
}

const PAIRS: usize = 16;
