//! The line before the writer, and what dropped futures leave in it.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::Instant;

use super::{Disk, answer, claimed, cut, request, request_for};
use crate::store::sqlite::writer::Lane;
use crate::store::{Claim, Renewal, Store, StoreErrorKind, Write};

/// Fails when a connection is given back before its verb has ended, or when a turn that is dropped is not passed on. The
/// longest verb takes fewer polls than are tried.
#[tokio::test(flavor = "multi_thread")]
async fn a_verb_dropped_at_any_point_leaves_the_store_working() {
    let disk = Disk::new();
    let store = disk.store().await;
    for polls in 0..40 {
        let request = request();
        let lease = request.lease;
        let _ended = cut(store.claim(&request), polls).await;
        let Claim::Acquired(_) = store.claim(&request).await.unwrap() else { panic!("after {polls} polls") };
        let _ended = cut(store.renew(&lease), polls).await;
        assert!(matches!(store.renew(&lease).await.unwrap(), Renewal::Renewed { .. }));
        let _ended = cut(store.complete(&lease, &answer()), polls).await;
        assert_eq!(store.complete(&lease, &answer()).await.unwrap(), Write::Done);
        let _ended = cut(store.claim(&request_for(lease.record)), polls).await;
        assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::Recorded(_)));
    }
}

/// Fails when `pass_on` does not go on after a receiver that is gone, or a `Turn` that is dropped is not passed on.
#[tokio::test]
async fn a_turn_granted_to_a_waiter_that_has_gone_passes_on() {
    let disk = Disk::new();
    let store = disk.store().await;
    let writer = &store.shared.writer;
    let deadline = Instant::now() + Duration::from_secs(60);
    let turn = writer.turn(Lane::Other, deadline).await.unwrap();
    let mut granted_late = Box::pin(writer.turn(Lane::Other, deadline));
    let mut gone = Box::pin(writer.turn(Lane::Renewal, deadline));
    let mut last = Box::pin(writer.turn(Lane::Other, deadline));
    let mut context = Context::from_waker(Waker::noop());
    assert!(granted_late.as_mut().poll(&mut context).is_pending());
    assert!(gone.as_mut().poll(&mut context).is_pending());
    assert!(last.as_mut().poll(&mut context).is_pending());
    drop(gone);
    drop(turn);
    // Granted by now, and dropped without a look at it.
    drop(granted_late);
    last.await.unwrap();
}

/// Fails when `pass_on` takes from `others` first.
#[tokio::test]
async fn a_renewal_goes_before_everything_that_waited_longer() {
    let disk = Disk::new();
    let store = disk.store().await;
    let lease = claimed(&store).await;
    let deadline = Instant::now() + Duration::from_secs(60);
    let turn = store.shared.writer.turn(Lane::Other, deadline).await.unwrap();
    let claim = request();
    let mut claim = Box::pin(store.claim(&claim));
    // The claim reads first; it is in line once its read has ended.
    while store.shared.writer.waiting() == 0 {
        assert!(futures_util::poll!(claim.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    let mut renewal = Box::pin(store.renew(&lease));
    assert!(futures_util::poll!(renewal.as_mut()).is_pending());
    drop(turn);
    assert!(matches!(renewal.await.unwrap(), Renewal::Renewed { .. }));
    // Not polled meanwhile, the claim has not been able to take its turn.
    assert!(matches!(claim.await.unwrap(), Claim::Acquired(_)));
}

/// Fails when each renewal begins a transaction of its own.
#[tokio::test]
async fn renewals_that_wait_together_are_written_together() {
    let disk = Disk::new();
    let store = disk.store().await;
    let mut leases = Vec::new();
    for _ in 0..20 {
        leases.push(claimed(&store).await);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let turn = store.shared.writer.turn(Lane::Other, deadline).await.unwrap();
    let mut renewals: Vec<_> = leases.iter().map(|lease| Box::pin(store.renew(lease))).collect();
    for renewal in &mut renewals {
        assert!(futures_util::poll!(renewal.as_mut()).is_pending());
    }
    drop(turn);
    // Only the first is polled, and it has written for all.
    let mut renewals = renewals.into_iter();
    assert!(matches!(renewals.next().unwrap().await.unwrap(), Renewal::Renewed { .. }));
    for mut renewal in renewals {
        let Poll::Ready(answer) = futures_util::poll!(renewal.as_mut()) else { panic!("was not written") };
        assert!(matches!(answer.unwrap(), Renewal::Renewed { .. }));
    }
}

/// Fails when the answers of a writer that was dropped are lost (`Err(_) => continue` returns instead).
#[tokio::test]
async fn renewals_survive_the_one_that_wrote_for_them() {
    let disk = Disk::new();
    let store = disk.store().await;
    for polls in 1..30 {
        let (one, other) = (claimed(&store).await, claimed(&store).await);
        let deadline = Instant::now() + Duration::from_secs(60);
        let turn = store.shared.writer.turn(Lane::Other, deadline).await.unwrap();
        let mut leader = Box::pin(store.renew(&one));
        let mut follower = Box::pin(store.renew(&other));
        assert!(futures_util::poll!(leader.as_mut()).is_pending());
        assert!(futures_util::poll!(follower.as_mut()).is_pending());
        drop(turn);
        let _ended = cut(leader, polls).await;
        assert!(matches!(follower.await.unwrap(), Renewal::Renewed { .. }), "after {polls} polls");
        assert_eq!(store.release(&one).await.unwrap(), Write::Done);
        assert_eq!(store.release(&other).await.unwrap(), Write::Done);
    }
}

/// Fails when a claim asks the writer before it has read.
#[tokio::test]
async fn a_replay_neither_waits_for_the_writer_nor_writes() {
    let disk = Disk::new();
    let store = disk.store().await;
    let lease = claimed(&store).await;
    assert_eq!(store.complete(&lease, &answer()).await.unwrap(), Write::Done);
    let deadline = Instant::now() + Duration::from_secs(60);
    let turn = store.shared.writer.turn(Lane::Other, deadline).await.unwrap();
    let mut other = disk.connection().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::Recorded(_)));
    drop(turn);
}

/// Fails when a claim trusts what it has read (`step` not asked), or decides outside the write transaction.
#[tokio::test(flavor = "multi_thread")]
async fn of_many_claims_through_two_stores_on_one_file_one_wins() {
    let disk = Disk::new();
    let stores = [disk.store().await, disk.store().await];
    for _ in 0..5 {
        let record = request().lease.record;
        let claims = (0..64).map(|n| {
            let store = stores[n % 2].clone().queue_timeout(Duration::from_secs(60));
            tokio::spawn(async move { store.claim(&request_for(record)).await.unwrap() })
        });
        let mut acquired = 0;
        for claim in claims.collect::<Vec<_>>() {
            match claim.await.unwrap() {
                Claim::Acquired(_) => acquired += 1,
                Claim::InFlight { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(acquired, 1);
    }
}

/// Fails when SQLite's own wait is the only one (`is_busy` not asked in `wait_or_fail`), or when it has no end.
#[tokio::test]
async fn another_process_that_writes_is_waited_for_until_the_timeout() {
    let disk = Disk::new();
    let store = disk.store().await;
    let mut other = disk.connection().await;
    sqlx::query("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let hasty = store.clone().queue_timeout(Duration::from_millis(10));
    assert_eq!(hasty.claim(&request()).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    let request = request();
    let mut waits = Box::pin(store.claim(&request));
    // Longer than one wait of SQLite's own, while the claim is polled.
    let early = tokio::time::timeout(Duration::from_millis(300), waits.as_mut()).await;
    assert!(early.is_err(), "{early:?}");
    sqlx::query("COMMIT").execute(&mut other).await.unwrap();
    let Claim::Acquired(acquired) = waits.await.unwrap() else { panic!() };
    assert!(acquired.queued >= Duration::from_millis(300));
}
