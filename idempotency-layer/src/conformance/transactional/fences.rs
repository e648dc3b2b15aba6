//! Only the holder gets a transaction, and only under its own lease does that commit.

use super::super::key::Key;
use super::super::stage::scenes;
use super::TransactionalHarness;
use super::run::{Run, within};
use crate::TransactionalStore;
use crate::store::{Begin, Commit, Lease, LeaseId};

/// A holder whose run has ended, whatever came since, is given no transaction; nor is an id that never held, or that asks
/// for a record which is not there.
///
/// Fails on a store that gives a transaction to whoever asks.
pub async fn only_the_holder_begins<H: TransactionalHarness>(harness: &H) {
    for scene in scenes(harness).await {
        is_fenced(&scene.key, &scene.first.lease, &format!("{:?}: the first holder", scene.stage)).await;
    }
    let running = Key::lasting(harness).await;
    running.acquire().await;
    is_fenced(&running, &running.request().lease, "an id that does not hold the running record").await;
    let absent = running.fresh();
    is_fenced(&absent, &absent.request().lease, "an id that asks for an absent record").await;
}

async fn is_fenced<S: TransactionalStore>(key: &Key<S>, lease: &Lease, who: &str) {
    let before = key.seen().await;
    match within(key.store.begin(lease)).await {
        Ok(Begin::Fenced) => {}
        Ok(Begin::Begun(_)) => panic!("{who} was given a transaction"),
        Err(error) => panic!("{who} got no answer from the store: {error:?}"),
    }
    assert_eq!(key.seen().await, before, "the record after {who} asked for a transaction");
}

/// A holder that was overtaken while its transaction was open commits neither effect nor response. Where the open
/// transaction keeps others out, nobody overtakes, and it commits both.
///
/// Fails on a store that looks at the holder when the transaction begins and not when it commits.
pub async fn an_overtaken_holder_commits_nothing<H: TransactionalHarness>(harness: &H) {
    let run = Run::lapsing(harness).await;
    let Some(transaction) = run.unless_overtaken(run.begin_and_write().await).await else { return };
    assert_eq!(run.complete_in(transaction).await, Commit::Committed, "a commit by a holder that nobody overtook");
    run.left_both("after the commit of a holder that nobody overtook").await;
}

/// A transaction that was begun under one lease commits under no other: not that of another run that lives, not another
/// id on its own record, not its own id on another record. Nothing is left of it.
///
/// Fails on a store that takes the lease from whoever completes.
pub async fn a_transaction_commits_under_its_own_lease_only<H: TransactionalHarness>(harness: &H) {
    let run = Run::lasting(harness).await;
    let other = run.fresh().await;
    let leases = [
        ("that of another run", other.lease),
        ("another id on its record", Lease { id: LeaseId::random(), ..run.lease }),
        ("its id on another record", Lease { id: run.lease.id, ..other.lease }),
    ];
    for (which, lease) in leases {
        let commit = run.complete_under(&lease, run.begin_and_write().await).await;
        assert_ne!(commit, Commit::Committed, "a commit under {which}");
        run.left_nothing(&format!("after a commit under {which}")).await;
        other.left_nothing(&format!("of the other run, after a commit under {which}")).await;
    }
    run.left_nothing_and_runs_again("after commits under other leases").await;
}
