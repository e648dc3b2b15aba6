//! What became of a commit can be asked, as often as need be.

use super::super::harness::lapse;
use super::super::key::{End, TOMBSTONE, answered};
use super::TransactionalHarness;
use super::run::{Run, within};
use crate::TransactionalStore;
use crate::store::{Claim, Commit, Completion};

/// A commit that took place is confirmed, each time it is asked, with a response and with a tombstone.
///
/// Fails on a store that takes a recorded run for somebody else's.
pub async fn a_commit_is_confirmed<H: TransactionalHarness>(harness: &H) {
    let any = Run::lasting(harness).await;
    for completion in [any.completion(), Completion::Tombstone(TOMBSTONE)] {
        let run = any.fresh().await;
        let transaction = run.begin_and_write().await;
        let commit = within(run.key.store.complete_in(transaction, &run.lease, &completion)).await;
        assert_eq!(answered("complete_in", commit), Commit::Committed, "a commit by the holder");
        is_confirmed(&run, Commit::Committed, "after a commit").await;
    }
}

/// A holder whose transaction was rolled back, and who holds still, is told so, each time it asks.
///
/// Fails on a store that believes whoever holds the record.
pub async fn a_rollback_is_confirmed<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    within(run.key.store.rollback(run.begin_and_write().await)).await;
    is_confirmed(&run, Commit::Aborted, "after a rollback").await;
    run.left_nothing_and_runs_again("after it was asked what became of a rollback").await;
}

/// A holder that was overtaken is told so, each time it asks, while its successor runs and after that has recorded.
///
/// Fails on a store that takes the record of another's run for the asker's.
pub async fn an_overtaken_holder_is_told_so<H: TransactionalHarness>(harness: &H) {
    let run = Run::lapsing(harness).await;
    within(run.key.store.rollback(run.begin_and_write().await)).await;
    lapse(harness).await;
    let (lease, claim) = run.challenge().await;
    assert_is!(claim, Ok(Claim::Acquired(_)), "a claim on a lapsed holder without a transaction");
    is_confirmed(&run, Commit::Fenced, "while a successor runs").await;
    run.elsewhere.end_held(End::Complete, &lease).await;
    is_confirmed(&run, Commit::Fenced, "after a successor recorded").await;
}

async fn is_confirmed<H: TransactionalHarness>(run: &Run<'_, H>, commit: Commit, when: &str) {
    for _ in 0..2 {
        assert_eq!(run.confirm().await, commit, "what became of a commit {when}");
    }
}
