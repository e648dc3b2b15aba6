//! A handler that ends its transaction by itself has no effect and no record, and the key can be run again.

use super::run::{Run, effect};
use super::{Ending, TransactionalHarness};
use crate::store::Commit;

/// A COMMIT of the handler's own makes nothing durable, and there is no record.
///
/// Fails on a store whose handlers can commit.
pub async fn a_commit_behind_our_back_is_lost<H: TransactionalHarness>(harness: &H) {
    is_lost(Ending::Commit, harness).await;
}

/// After a ROLLBACK of the handler's own, or one by the database, there is no record, and what is written afterwards does
/// not count either.
///
/// Fails on a store that records whatever became of the transaction.
pub async fn a_rollback_behind_our_back_is_lost<H: TransactionalHarness>(harness: &H) {
    is_lost(Ending::Rollback, harness).await;
    is_lost(Ending::Failure, harness).await;
}

/// Another transaction on the same connection is not the one that was begun: it does not commit, and there is no record.
///
/// Fails on a store that commits whichever transaction is open.
pub async fn a_transaction_put_in_its_place_is_lost<H: TransactionalHarness>(harness: &H) {
    is_lost(Ending::CommitThenBegin, harness).await;
    is_lost(Ending::RollbackThenBegin, harness).await;
}

async fn is_lost<H: TransactionalHarness>(how: Ending, harness: &H) {
    let run = Run::lasting(harness).await;
    let mut transaction = run.begin_and_write().await;
    let then = effect();
    if !harness.end_behind(&mut transaction, how, &then).await {
        return;
    }
    let commit = run.complete_in(transaction).await;
    // What the database rolled back because of a conflict may be said to be that.
    let told = commit == Commit::Lost || how == Ending::Failure && commit == Commit::Aborted;
    assert!(told, "a commit after {how:?} behind our back got {commit:?}");
    assert_eq!(harness.effects(&then).await, 0, "effects that were written after {how:?} behind our back");
    run.left_nothing_and_runs_again(&format!("after {how:?} behind our back")).await;
}

/// A holder whose transaction was ended behind our back and who was overtaken since is told of the latter.
///
/// Fails on a store that looks no further than at the transaction.
pub async fn an_overtaken_holder_of_a_lost_transaction_is_fenced<H: TransactionalHarness>(harness: &H) {
    let run = Run::lapsing(harness).await;
    let mut transaction = run.begin_and_write().await;
    if !harness.end_behind(&mut transaction, Ending::Rollback, &effect()).await {
        return;
    }
    let Some(transaction) = run.unless_overtaken(transaction).await else { return };
    assert_eq!(run.complete_in(transaction).await, Commit::Lost, "a commit by a holder that nobody overtook");
    run.left_nothing("after the commit of a lost transaction").await;
}
