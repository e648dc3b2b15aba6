//! A transaction that is not committed leaves nothing, whoever ends it, and nothing in the way.

use super::TransactionalHarness;
use super::run::{Run, within};
use crate::TransactionalStore;
use crate::store::Commit;

/// A transaction that was rolled back leaves neither effect nor response, and the key can be run again.
///
/// Fails on a store that commits what it should roll back.
pub async fn a_transaction_rolled_back_leaves_nothing<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    within(run.key.store.rollback(run.begin_and_write().await)).await;
    run.left_nothing_and_runs_again("after a rollback").await;
}

/// A transaction that was dropped leaves neither effect nor response, and the key can be run again.
///
/// Fails on a store that commits what is let go.
pub async fn a_transaction_dropped_leaves_nothing<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    drop(run.begin_and_write().await);
    run.left_nothing_and_runs_again("after a drop").await;
}

/// A transaction that a handler keeps is rolled back all the same: nothing that is written into it later counts, it
/// does not commit any more, and the key can be run again.
///
/// Fails on a store that waits for what does not come back.
pub async fn a_transaction_kept_and_abandoned_leaves_nothing<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    let mut kept = run.begin_and_write().await;
    within(run.key.store.abandon(&run.lease)).await;
    // Whether the database takes it is for the driver to say.
    let _taken: bool = harness.write_effect(&mut kept, &run.effect).await;
    run.left_nothing("after it was abandoned").await;
    assert_eq!(run.complete_in(kept).await, Commit::Lost, "a commit of what was abandoned");
    run.left_nothing_and_runs_again("after it was abandoned").await;
}
