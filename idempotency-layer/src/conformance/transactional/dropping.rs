//! A future that is dropped at any of its polls leaves both effect and record or neither, and a store that works.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::TransactionalHarness;
use super::run::{Run, within};
use crate::TransactionalStore;
use crate::store::Commit;

/// After a begin that was dropped at any of its polls the holder gets a transaction.
///
/// Fails on a store that goes on waiting for a transaction nobody has.
pub async fn a_dropped_begin_leaves_the_store_working<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    for polls in 0..MOST_POLLS {
        let begun = drop_after(polls, run.key.store.begin(&run.lease)).await;
        let done = begun.is_some();
        drop(begun);
        within(run.key.store.rollback(run.begin().await)).await;
        if done {
            return run.left_nothing_and_runs_again("after begins that were dropped").await;
        }
    }
    panic!("a begin did not end within {MOST_POLLS} polls");
}

/// After a commit that was dropped at any of its polls, effect and response are both there or neither is; the store says
/// which, and if neither, the key can be run again.
///
/// Fails on a store that writes the effect in one step and the record in another.
pub async fn a_dropped_commit_is_whole<H: TransactionalHarness>(harness: &H) {
    let any = Run::lasting(harness).await;
    for polls in 0..MOST_POLLS {
        let run = any.fresh().await;
        let transaction = run.begin_and_write().await;
        let completion = run.completion();
        let commit = drop_after(polls, run.key.store.complete_in(transaction, &run.lease, &completion)).await;
        let when = format!("after a commit that was dropped after {polls} polls");
        match run.confirm().await {
            Commit::Committed => run.left_both(&when).await,
            Commit::Aborted => run.left_nothing_and_runs_again(&when).await,
            other => panic!("{other:?} {when}, by a holder that nobody overtook"),
        }
        if let Some(commit) = commit {
            assert_is!(commit, Ok(Commit::Committed), "a commit of which all polls were awaited");
            return;
        }
    }
    panic!("a commit did not end within {MOST_POLLS} polls");
}

/// Polls a future so many times, whenever it is woken, and drops it; its output if it has ended by then.
async fn drop_after<F: Future>(polls: usize, call: F) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut left = polls;
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

const MOST_POLLS: usize = 256;
