//! Where a record can be when a message of its first holder arrives late: how that run ended, and what came since.
//!
//! The stages are the product of both, less what cannot be, so that none is left out by hand.

use super::Harness;
use super::harness::lapse;
use super::key::{End, Key, answer_of, lasting};
use crate::Store;
use crate::store::{Claim, ClaimRequest, Resolution, UnknownOutcome, Write};

/// A record at a late stage, and the claim of its first holder.
#[derive(Debug)]
pub(super) struct Scene<S> {
    pub(super) stage: Stage,
    pub(super) key: Key<S>,
    pub(super) first: ClaimRequest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stage {
    /// The first holder's last write; none if its lease lapsed.
    pub(super) ended: Option<End>,
    pub(super) since: Since,
}

/// What came after the first holder's run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Nothing,
    AnotherRuns,
    AnotherRan(End),
    HeldByLapse,
    Settled,
    FreedByOperator,
    FreedByOperatorAndRuns,
    ForgottenByOperator,
}

impl Stage {
    /// Whether the record is as the first holder's own last write left it.
    pub(super) fn is_own(self) -> bool {
        self.since == Since::Nothing
    }

    fn is_possible(self) -> bool {
        match self.since {
            Since::Nothing => self.ended.is_some(),
            Since::AnotherRuns | Since::AnotherRan(_) => {
                matches!(self.ended, Some(End::Release | End::Forget) | None)
            }
            Since::HeldByLapse => self.ended.is_none(),
            Since::Settled | Since::FreedByOperator | Since::FreedByOperatorAndRuns | Since::ForgottenByOperator => {
                matches!(self.ended, Some(End::Hold) | None)
            }
        }
    }

    /// Whether the first holder's run is held when its lease lapses.
    fn is_held_by_lapse(self) -> bool {
        self.ended.is_none() && !matches!(self.since, Since::AnotherRuns | Since::AnotherRan(_))
    }
}

/// A record of its own at every stage. The first holder's lease has lapsed; any later one lasts.
pub(super) async fn scenes<H: Harness>(harness: &H) -> Vec<Scene<H::Store>> {
    let any = Key::lapsing(harness).await;
    let mut scenes = Vec::new();
    for stage in stages() {
        scenes.push(first_run(stage, any.fresh()).await);
    }
    lapse(harness).await;
    for scene in &mut scenes {
        scene.key = scene.key.lease(lasting(harness));
        afterwards(scene.stage.since, &scene.key).await;
    }
    scenes
}

fn stages() -> impl Iterator<Item = Stage> {
    let since = SINCE.into_iter().chain(End::ALL.map(Since::AnotherRan));
    let ended = || End::ALL.map(Some).into_iter().chain([None]);
    since.flat_map(move |since| ended().map(move |ended| Stage { ended, since })).filter(|stage| stage.is_possible())
}

async fn first_run<S: Store>(stage: Stage, key: Key<S>) -> Scene<S> {
    let policy = if stage.is_held_by_lapse() { UnknownOutcome::Hold } else { UnknownOutcome::Rerun };
    let first = key.unknown(policy).request();
    assert_is!(key.send(&first).await, Claim::Acquired(_), "the first claim");
    if let Some(end) = stage.ended {
        key.end_held(end, &first.lease).await;
    }
    Scene { stage, key, first }
}

async fn afterwards<S: Store>(since: Since, key: &Key<S>) {
    match since {
        Since::Nothing => {}
        Since::AnotherRuns => {
            key.acquire().await;
        }
        Since::AnotherRan(end) => key.end_held(end, &key.acquire().await).await,
        Since::HeldByLapse => assert_is!(key.claim().await, Claim::Held, "a claim on a run that lapsed under Hold"),
        Since::Settled => decide(key, Resolution::Settle(answer_of(&key.request().lease))).await,
        Since::FreedByOperator => decide(key, Resolution::Free).await,
        Since::FreedByOperatorAndRuns => {
            decide(key, Resolution::Free).await;
            key.acquire().await;
        }
        Since::ForgottenByOperator => decide(key, Resolution::Forget).await,
    }
}

async fn decide<S: Store>(key: &Key<S>, resolution: Resolution) {
    assert_eq!(key.decide(&resolution).await, Write::Done, "{resolution:?} by the operator");
}

const SINCE: [Since; 7] = [
    Since::Nothing,
    Since::AnotherRuns,
    Since::HeldByLapse,
    Since::Settled,
    Since::FreedByOperator,
    Since::FreedByOperatorAndRuns,
    Since::ForgottenByOperator,
];
