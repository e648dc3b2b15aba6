//! A transaction that is kept, dropped or too long, and everyone who waits meanwhile.

use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::transactions::{INSERT, begun, nothing_happened, open, run};
use super::{Disk, answer, claimed, request, request_for};
use crate::store::{Begin, Claim, Commit, Look, Renewal, Store, StoreErrorKind, TransactionalStore};

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
    for polls in 0..60 {
        {
            let mut cut = pin!(store.begin(&lease));
            for _ in 0..polls {
                if cut.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(30));
            }
        }
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
