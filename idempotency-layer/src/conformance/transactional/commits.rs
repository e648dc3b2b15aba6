//! Effect and record appear together, each once.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;

use super::super::claims::handles;
use super::super::harness::lapse;
use super::super::key::{Seen, TOMBSTONE, answered};
use super::super::responses::{headers, is_replayed};
use super::TransactionalHarness;
use super::run::{Run, is_unavailable, within};
use crate::TransactionalStore;
use crate::store::{Begin, Commit, Completion, StoredResponse};

/// Before the commit nobody else sees the effect or the response; after it everybody sees both.
///
/// Fails on a store whose transaction writes through.
pub async fn effect_and_record_appear_together<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    let transaction = run.begin_and_write().await;
    run.left_nothing("before the commit").await;
    assert_eq!(run.complete_in(transaction).await, Commit::Committed, "a commit by the holder");
    run.left_both("after the commit").await;
}

/// A run whose answer is not kept has its effect all the same.
///
/// Fails on a store that commits with a response only.
pub async fn a_tombstone_commits_the_effect<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    let transaction = run.begin_and_write().await;
    let completion = Completion::Tombstone(TOMBSTONE);
    let commit = within(run.key.store.complete_in(transaction, &run.lease, &completion)).await;
    assert_eq!(answered("complete_in", commit), Commit::Committed, "a tombstone by the holder");
    assert_eq!(run.effects().await, 1, "effects of a run that left a tombstone");
    assert_eq!(run.elsewhere.seen().await, Seen::Unavailable(TOMBSTONE), "the record of a run that left a tombstone");
}

/// A response that was committed with an effect is replayed byte for byte.
///
/// Fails on a store that writes less of a response in a transaction than outside of one.
pub async fn a_response_is_replayed_as_it_was_committed<H: TransactionalHarness>(harness: &H) {
    let response = Arc::new(StoredResponse {
        headers: headers(&[("link", b"</b>"), ("x-bytes", b"na\xefve\xff"), ("link", b"</a>"), ("link", b"")]),
        trailers: Some(headers(&[("x-sum", b"\xfe"), ("x-sum", b"2")])),
        ..StoredResponse::new(StatusCode::IM_A_TEAPOT, Bytes::from_static(b"\0\xff not text"))
    });
    let run = Run::lasting(harness).await;
    let transaction = run.begin_and_write().await;
    let completion = Completion::Response(Arc::clone(&response));
    let commit = within(run.key.store.complete_in(transaction, &run.lease, &completion)).await;
    assert_eq!(answered("complete_in", commit), Commit::Committed, "a commit by the holder");
    is_replayed(&run.key, &run.lease, &response).await;
    is_replayed(&run.elsewhere, &run.lease, &response).await;
}

/// A holder whose lease lapsed before its transaction or during it commits, as long as nobody took over.
///
/// Fails on a store that fences transactions by the time.
pub async fn a_lapsed_holder_that_nobody_overtook_commits<H: TransactionalHarness>(harness: &H) {
    let run = Run::lapsing(harness).await;
    lapse(harness).await;
    let transaction = run.begin_and_write().await;
    lapse(harness).await;
    assert_eq!(run.complete_in(transaction).await, Commit::Committed, "a commit by a lapsed holder");
    run.left_both("after the commit of a lapsed holder").await;
}

/// Runs of many keys that overlap, each with a transaction, over several handles, all commit in the end, and each has
/// its effect once. On the way a store may answer that it is unavailable, or abort.
///
/// Fails on a store that writes back what it read when the transaction began.
pub async fn overlapping_runs_commit_once_each<H: TransactionalHarness>(harness: &H) {
    let any = Run::lasting(harness).await;
    let handles = handles(harness).await;
    let mut runs = Vec::new();
    for at in 0..RUNS {
        runs.push(any.fresh().await.through(handles[at % handles.len()].clone()));
    }
    join_all(runs.iter().map(commits)).await;
    for run in &runs {
        run.left_both("after many runs that overlapped").await;
    }
}

/// Runs until the store says that it is committed.
async fn commits<H: TransactionalHarness>(run: &Run<'_, H>) {
    for _ in 0..ATTEMPTS {
        // The others begin meanwhile, where the store lets them.
        tokio::task::yield_now().await;
        let begin = within(run.key.store.begin(&run.lease)).await;
        if is_unavailable(&begin) {
            continue;
        }
        let Begin::Begun(mut transaction) = answered("begin", begin) else {
            panic!("one of many holders was given no transaction")
        };
        tokio::task::yield_now().await;
        if !run.harness.write_effect(&mut transaction, &run.effect).await {
            within(run.key.store.rollback(transaction)).await;
            continue;
        }
        let commit = within(run.key.store.complete_in(transaction, &run.lease, &run.completion())).await;
        let commit = if is_unavailable(&commit) { run.confirm().await } else { answered("complete_in", commit) };
        match commit {
            Commit::Committed => return,
            Commit::Aborted => {}
            other => panic!("one of many holders committed and got {other:?}"),
        }
    }
    panic!("one of {RUNS} overlapping runs did not commit in {ATTEMPTS} attempts");
}

const RUNS: usize = 8;

const ATTEMPTS: usize = 64;
