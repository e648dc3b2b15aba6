//! A transaction that is kept, dropped or too long, and everyone who waits meanwhile.

use std::error::Error;
use std::time::Duration;

use super::transactions::{INSERT, begun, nothing_happened, open, run};
use super::{Disk, answer, claimed, cut, request, request_for};
use crate::store::{Begin, Claim, Commit, Look, Renewal, SqliteTransaction, Store, StoreErrorKind, TransactionalStore};

/// Fails when dropping the handle does not take the connection out of the cell.
#[tokio::test]
async fn a_dropped_transaction_frees_the_writer() {
    let (disk, store, lease, mut transaction) = begun().await;
    run(&mut transaction, INSERT).await.unwrap();
    drop(transaction);
    claimed(&store).await;
    nothing_happened(&disk, &store, &lease).await;
}

/// Fails when `abandon` does not take the connection out of the cell.
#[tokio::test]
async fn a_kept_transaction_is_revoked_and_the_store_works_on() {
    let (disk, store, lease, mut kept) = begun().await;
    run(&mut kept, INSERT).await.unwrap();
    store.abandon(&lease).await;
    claimed(&store).await;
    let error = kept.connection().await.unwrap_err();
    assert!(error.source().unwrap().to_string().contains("run it belongs to has ended"));
    assert_eq!(store.complete_in(kept, &lease, &answer()).await.unwrap(), Commit::Lost);
    nothing_happened(&disk, &store, &lease).await;
}

/// Fails when the task that waits for the guard ends with `abandon`.
#[tokio::test]
async fn a_kept_guard_is_waited_for_and_the_store_works_on_after_it() {
    let (disk, store, lease, mut kept) = begun().await;
    let store = store.queue_timeout(Duration::from_millis(20));
    let guard = kept.connection().await.unwrap();
    store.abandon(&lease).await;
    assert_eq!(store.claim(&request()).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    drop(guard);
    let store = store.queue_timeout(Duration::from_secs(2));
    claimed(&store).await;
    assert!(kept.connection().await.is_err());
    nothing_happened(&disk, &store, &lease).await;
}

/// Fails when there is no progress handler (the statement then runs for ever).
#[tokio::test]
async fn a_statement_that_runs_too_long_is_interrupted() {
    let (disk, store, lease, transaction) = begun().await;
    store.rollback(transaction).await;
    let store = store.max_transaction(Duration::from_millis(50));
    let mut transaction = open(&store, &lease).await;
    let endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";
    assert!(run(&mut transaction, endless).await.is_err());
    let error = transaction.connection().await.unwrap_err();
    assert!(error.to_string().contains("max_transaction"), "{error}");
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Aborted);
    nothing_happened(&disk, &store.max_transaction(Duration::from_secs(5)), &lease).await;
}

/// Fails when a renewal of the transaction's own lease asks the writer.
#[tokio::test]
async fn while_the_transaction_is_open_its_lease_lives_and_replays_are_served() {
    let (_disk, store, lease, transaction) = begun().await;
    let store = store.queue_timeout(Duration::from_millis(20));
    let (clock, hand) = crate::Clock::manual();
    let store = store.clock(clock);
    assert_eq!(store.renew(&lease).await.unwrap(), Renewal::Renewed { queued: Duration::ZERO });
    hand.advance(Duration::from_secs(3600));
    assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::InFlight { .. }));
    assert!(matches!(store.look(&lease.record).await.unwrap(), Look::Running { lapsed: false, .. }));
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
}

/// Fails when `rollback`, `abandon`, `complete_in` or the expiry does not write the renewal.
#[tokio::test]
async fn a_renewal_while_the_transaction_was_open_is_seen_by_other_processes_after_it() {
    for end in ["rolled back", "abandoned", "lost", "expired"] {
        let (clock, hand) = crate::Clock::manual();
        let (disk, store, lease, transaction) = begun().await;
        store.rollback(transaction).await;
        let limit = Duration::from_millis(if end == "expired" { 50 } else { 5000 });
        let store = store.clock(clock.clone()).max_transaction(limit);
        let other = disk.store().await.clock(clock);
        let mut transaction = open(&store, &lease).await;
        hand.advance(lease.duration * 3 / 4);
        assert!(matches!(store.renew(&lease).await.unwrap(), Renewal::Renewed { .. }));
        match end {
            "rolled back" => store.rollback(transaction).await,
            "abandoned" => store.abandon(&lease).await,
            "lost" => {
                run(&mut transaction, "ROLLBACK").await.unwrap();
                assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Lost);
            }
            _ => {}
        }
        hand.advance(lease.duration / 2);
        // The one that expires does so in a task, by the real clock.
        let seen = tokio::time::timeout(Duration::from_secs(10), async {
            while !matches!(other.look(&lease.record).await.unwrap(), Look::Running { lapsed: false, .. }) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
        assert!(seen.await.is_ok(), "{end}: another process sees a lapsed lease");
    }
}

/// Fails when a connection or turn of a `begin` that was dropped is kept.
#[tokio::test(flavor = "multi_thread")]
async fn a_begin_dropped_at_any_point_leaves_the_store_working() {
    let disk = Disk::new();
    let store = disk.store().await;
    let lease = claimed(&store).await;
    for polls in 0..40 {
        drop(cut(store.begin(&lease), polls).await);
        store.rollback(open(&store, &lease).await).await;
    }
}

/// Fails when renewals wait in one line with everything else: the one here is polled last and served first.
#[tokio::test]
async fn renewals_of_other_leases_go_before_begins_that_wait() {
    let (_disk, store, lease, transaction) = begun().await;
    drop(transaction);
    let other = claimed(&store).await;
    let transaction = open(&store, &lease).await;
    let mut begin = Box::pin(store.begin(&lease));
    assert!(futures_util::poll!(begin.as_mut()).is_pending());
    let mut renewal = Box::pin(store.renew(&other));
    assert!(futures_util::poll!(renewal.as_mut()).is_pending());
    store.rollback(transaction).await;
    // `begin` is not polled, so it would keep a turn that it was granted.
    assert!(matches!(renewal.await.unwrap(), Renewal::Renewed { .. }));
    assert!(matches!(begin.await.unwrap(), Begin::Begun(_)));
}

const ENDLESS: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n";

/// Begins a statement that does not end, and gives it up.
async fn give_up(transaction: &mut SqliteTransaction) {
    run(transaction, INSERT).await.unwrap();
    let endless = tokio::time::timeout(Duration::from_millis(20), run(transaction, ENDLESS));
    assert!(endless.await.is_err());
}

/// Fails when `Held::close` or the drop of a `Seat` leaves `is_over` unset: the statement then runs for ever, under the
/// file's write lock.
#[tokio::test]
async fn a_statement_that_was_given_up_ends_with_its_transaction() {
    let (disk, store, lease, mut transaction) = begun().await;
    give_up(&mut transaction).await;
    store.rollback(transaction).await;
    claimed(&store).await;

    let mut transaction = open(&store, &lease).await;
    give_up(&mut transaction).await;
    drop(transaction);
    claimed(&store).await;
    nothing_happened(&disk, &store, &lease).await;
}

/// Fails when `complete_in` gives the transaction back before the statement has ended, so that it cannot expire.
#[tokio::test]
async fn a_transaction_in_which_a_statement_still_runs_expires() {
    let (disk, store, lease, transaction) = begun().await;
    store.rollback(transaction).await;
    let store = store.max_transaction(Duration::from_millis(200));
    let mut transaction = open(&store, &lease).await;
    give_up(&mut transaction).await;
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Aborted);
    claimed(&store).await;
    nothing_happened(&disk, &store, &lease).await;
}

/// Fails when dropping the transaction stops an expiry that waits for the guard: then nobody takes the connection.
#[tokio::test]
async fn a_transaction_that_expires_while_its_guard_is_out_frees_the_writer() {
    let (disk, store, lease, transaction) = begun().await;
    store.rollback(transaction).await;
    let store = store.max_transaction(Duration::from_millis(20));
    for completes in [true, false] {
        let mut transaction = open(&store, &lease).await;
        let guard = transaction.connection().await.unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        drop(guard);
        if completes {
            assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Aborted);
        } else {
            drop(transaction);
        }
        claimed(&store).await;
    }
    nothing_happened(&disk, &store.max_transaction(Duration::from_secs(5)), &lease).await;
}

/// Fails when `begin` does not answer the renewals of its own lease that wait in line, or when a renewal does not look
/// again once it is on the list.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_waits_while_its_transaction_opens_does_not_wait_for_its_end() {
    let disk = Disk::new();
    let store = disk.store().await;
    let lease = claimed(&store).await;
    let mut other = disk.connection().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let opening = tokio::spawn({
        let store = store.clone();
        async move { open(&store, &lease).await }
    });
    // The turn is taken by then, or the renewal goes first, which is no harm.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let renewal = tokio::spawn({
        let store = store.clone();
        async move { store.renew(&lease).await }
    });
    while store.shared.writer.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    let transaction = opening.await.unwrap();
    let renewed = tokio::time::timeout(Duration::from_secs(1), renewal).await;
    let Renewal::Renewed { queued } = renewed.expect("it waits for its own transaction").unwrap().unwrap() else {
        panic!("fenced")
    };
    assert!(queued < Duration::from_secs(1));
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
}
