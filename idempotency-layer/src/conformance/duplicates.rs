//! Every verb may arrive twice, at once or much later: the answer is the same, and the record is as it was.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;

use super::Harness;
use super::harness::lapse;
use super::key::{End, Key, Seen};
use super::overlap::overlap;
use super::stage::{Scene, scenes};
use crate::Store;
use crate::store::{Claim, LeaseId, Renewal, Resolution, StoredResponse, UnknownOutcome, Write};

/// A claim whose reply was lost is acquired again, as the same attempt; nobody is in flight with itself.
///
/// Fails on a store that knows its holder by the time alone.
pub async fn a_claim_sent_again_is_acquired_again<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    key.end_held(End::Release, &key.acquire_as(1).await).await;
    let request = key.request();
    for _ in 0..3 {
        assert_is!(key.send(&request).await, Claim::Acquired(acquired) if acquired.attempt == 2, "the second attempt");
    }
    assert_eq!(key.seen().await, Seen::Running(request.lease.id));
}

/// A claim that arrives again starts its lease anew.
///
/// Fails on a store that answers the duplicate and leaves the lease as it was.
pub async fn a_claim_sent_again_starts_its_lease_anew<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    let request = key.request();
    assert_is!(key.send(&request).await, Claim::Acquired(_), "a first claim");
    harness.pass(harness.lease() * 3 / 4).await;
    assert_is!(key.send(&request).await, Claim::Acquired(_), "the same claim again");
    harness.pass(harness.lease() * 3 / 4).await;
    assert_is!(key.claim().await, Claim::InFlight { .. }, "another claim within the second lease");
}

/// One claim that arrives many times at once is one run.
///
/// Fails on a store where a duplicate that overlaps its original is refused.
pub async fn overlapping_duplicates_of_a_claim_are_one_run<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let request = key.request();
    let mut calls = Vec::new();
    for _ in 0..8 {
        let (key, request) = (key.through(harness.open().await), request.clone());
        calls.push(async move { key.send(&request).await });
    }
    for claim in overlap(calls).await {
        assert_is!(claim, Claim::Acquired(acquired) if acquired.attempt == 1, "a duplicate beside its original");
    }
}

/// A claim that turned a lapsed run into a held record finds it held again.
///
/// Fails on a store that takes the duplicate for the holder that lapsed.
pub async fn a_claim_that_held_the_key_finds_it_held<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    let _silent = key.acquire().await;
    lapse(harness).await;
    let request = key.request();
    for _ in 0..3 {
        assert_is!(key.send(&request).await, Claim::Held, "a claim on a run that lapsed under Hold");
    }
}

/// A renewal whose reply was lost is renewed again.
///
/// Fails on a store that renews once only.
pub async fn a_renewal_sent_again_is_renewed_again<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let lease = key.acquire().await;
    for _ in 0..3 {
        assert_is!(key.renew(&lease).await, Renewal::Renewed { .. }, "a renewal by the holder");
    }
    assert_eq!(key.seen().await, Seen::Running(lease.id));
}

/// A completion whose reply was lost is done when it is sent again, with a response or without.
///
/// Fails on a store whose RECORDED does not keep the id that wrote it.
pub async fn a_completion_sent_again_is_done<H: Harness>(harness: &H) {
    is_done_again(End::Complete, harness).await;
    is_done_again(End::Bury, harness).await;
}

/// A release whose reply was lost is done when it is sent again.
///
/// Fails on a store whose FREE does not keep the id that wrote it.
pub async fn a_release_sent_again_is_done<H: Harness>(harness: &H) {
    is_done_again(End::Release, harness).await;
}

/// A forget whose reply was lost is done when it is sent again.
///
/// Fails on a store that has to find what it forgets.
pub async fn a_forget_sent_again_is_done<H: Harness>(harness: &H) {
    is_done_again(End::Forget, harness).await;
}

/// A hold whose reply was lost is done when it is sent again.
///
/// Fails on a store whose HELD does not keep the id that wrote it.
pub async fn a_hold_sent_again_is_done<H: Harness>(harness: &H) {
    is_done_again(End::Hold, harness).await;
}

async fn is_done_again<H: Harness>(end: End, harness: &H) {
    let key = Key::lasting(harness).await;
    let lease = key.acquire().await;
    key.end_held(end, &lease).await;
    let before = key.seen().await;
    for _ in 0..3 {
        assert_eq!(key.end(end, &lease).await, Write::Done, "{end:?} sent again");
        assert_eq!(key.seen().await, before, "the record after {end:?} sent again");
    }
}

/// An operator's decision whose reply was lost is done when it is sent again under the same id.
///
/// Fails on a store whose records do not keep the id of the decision.
pub async fn a_decision_sent_again_is_done<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for resolution in resolutions() {
        let key = any.fresh();
        key.end_held(End::Hold, &key.acquire().await).await;
        let (held, by) = (key.hold().await, LeaseId::random());
        assert_eq!(key.resolve(&held, by, &resolution).await, Write::Done, "{resolution:?} of a held key");
        let before = key.seen().await;
        for _ in 0..3 {
            assert_eq!(key.resolve(&held, by, &resolution).await, Write::Done, "{resolution:?} sent again");
            assert_eq!(key.seen().await, before, "the record after {resolution:?} sent again");
        }
    }
}

/// Every write of a first holder that arrives after its run has ended, whatever came since, leaves the record as it
/// was: others see the same, and the next claim gets the same.
///
/// Fails on a store where a write counts again because its id once counted.
pub async fn a_late_write_changes_nothing<H: Harness>(harness: &H) {
    for Scene { stage, key, first } in scenes(harness).await {
        let before = key.seen().await;
        for end in End::ALL {
            // Whether the holder is told `Done` or `Fenced` is for the fences to check.
            let _answer: Write = key.end(end, &first.lease).await;
            assert_eq!(key.seen().await, before, "{stage:?}: the record after a late {end:?}");
        }
        let _answer: Renewal = key.renew(&first.lease).await;
        assert_eq!(key.seen().await, before, "{stage:?}: the record after a late renewal");
        follows(&before, &key).await;
    }
}

/// A first holder's claim that arrives after its run has ended, whatever came since, changes nothing, or at worst
/// leaves a lease on a free or absent record that nobody holds and that lapses, as the policy of its claim says.
///
/// Fails on a store where an id that once held takes the key back.
pub async fn a_late_claim_loses_nothing<H: Harness>(harness: &H) {
    let mut later = Vec::new();
    for Scene { stage, key, first } in scenes(harness).await {
        let before = key.seen().await;
        let claim = key.send(&first).await;
        let mut after = key.seen().await;
        if after == Seen::Running(first.lease.id) {
            assert!(
                matches!(before, Seen::Absent | Seen::Free),
                "{stage:?}: a late claim took over {before:?}: {claim:?}"
            );
            after = match first.policy.unknown {
                UnknownOutcome::Rerun => Seen::Free,
                UnknownOutcome::Hold => Seen::Held(first.lease.id),
            };
        } else {
            assert_eq!(after, before, "{stage:?}: the record after a late claim that got {claim:?}");
        }
        later.push((key, after));
    }
    lapse(harness).await;
    for (key, expected) in later {
        follows(&expected, &key).await;
    }
}

/// A claim that arrives again after its own run was released finds the key in flight: nobody would run it.
///
/// Fails on a store whose FREE lets any id claim.
pub async fn a_late_claim_does_not_rerun_what_it_freed<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let request = key.request();
    assert_is!(key.send(&request).await, Claim::Acquired(_), "a first claim");
    key.end_held(End::Release, &request.lease).await;
    assert_is!(key.send(&request).await, Claim::InFlight { .. }, "the claim of the run that freed the key");
    key.acquire_as(2).await;
}

/// An operator's decision that arrives again after the key went on changes nothing.
///
/// Fails on a store that carries out a decision whatever the record's state.
pub async fn a_late_decision_changes_nothing<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for resolution in resolutions() {
        for then in [None, Some(End::Complete), Some(End::Bury), Some(End::Release), Some(End::Forget)] {
            let key = any.fresh();
            key.end_held(End::Hold, &key.acquire().await).await;
            let (held, by) = (key.hold().await, LeaseId::random());
            assert_eq!(key.resolve(&held, by, &resolution).await, Write::Done, "{resolution:?} of a held key");
            if !matches!(resolution, Resolution::Settle(_)) {
                let lease = key.acquire().await;
                if let Some(end) = then {
                    key.end_held(end, &lease).await;
                }
            }
            let before = key.seen().await;
            let answer = key.resolve(&held, by, &resolution).await;
            assert_eq!(key.seen().await, before, "after {then:?} a late {resolution:?} got {answer:?}");
            follows(&before, &key).await;
        }
    }
}

/// A decision that arrives when the key is held again does not decide that hold, whether it has counted before or not,
/// and whether its holder held the key since or it lapsed, found by a claim or by nobody.
///
/// Fails on a store that decides whatever hold it finds.
pub async fn a_late_decision_does_not_decide_a_later_hold<H: Harness>(harness: &H) {
    for (lapses, is_found) in [(false, false), (true, true), (true, false)] {
        for ended_by in [Resolution::Free, Resolution::Forget] {
            for late in resolutions() {
                let key = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
                key.end_held(End::Hold, &key.acquire().await).await;
                let (held, by) = (key.hold().await, LeaseId::random());
                let counted = late == ended_by;
                let first = if counted { by } else { LeaseId::random() };
                assert_eq!(key.resolve(&held, first, &ended_by).await, Write::Done, "{ended_by:?} of the first hold");
                let lease = key.acquire().await;
                if lapses {
                    lapse(harness).await;
                    if is_found {
                        assert_is!(key.claim().await, Claim::Held, "a claim on a run that lapsed under Hold");
                    }
                } else {
                    key.end_held(End::Hold, &lease).await;
                }
                let before = key.seen().await;
                let answer = key.resolve(&held, by, &late).await;
                let when = format!(
                    "after {ended_by:?} and another hold, lapsed: {lapses}, found: {is_found}, a late {late:?}"
                );
                assert_eq!(key.seen().await, before, "{when} got {answer:?}");
                assert_eq!(answer, Write::Fenced, "{when}");
            }
        }
    }
}

pub(super) fn resolutions() -> [Resolution; 3] {
    let response = StoredResponse::new(StatusCode::ACCEPTED, Bytes::from_static(b"settled by hand"));
    [Resolution::Settle(Arc::new(response)), Resolution::Free, Resolution::Forget]
}

/// Asserts that the next claim gets what the state promises.
async fn follows<S: Store>(state: &Seen, key: &Key<S>) {
    let claim = key.claim().await;
    let as_promised = match (state, &claim) {
        (Seen::Absent | Seen::Free, Claim::Acquired(_))
        | (Seen::Running(_), Claim::InFlight { .. })
        | (Seen::Held(_), Claim::Held) => true,
        (Seen::Recorded(before), Claim::Recorded(after)) => *before == after.response,
        (Seen::Unavailable(before), Claim::Unavailable(after)) => before == after,
        _ => false,
    };
    assert!(as_promised, "a claim on {state:?} got {claim:?}");
}
