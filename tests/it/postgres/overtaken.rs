//! A holder that cannot reach Postgres for as long as its lease lasts: it is told, and what it writes later is fenced, also
//! in its transaction.
//!
//! To the server, a process that stays cut off is one that was killed.

use std::num::NonZeroU16;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::store::postgres::Isolation;
use idempotency_layer::store::{HeldCause, LeaseId, Page, Resolution, Write};
use idempotency_layer::{Operation, PostgresStore, SharedStore, Store, UnknownOutcome};
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::{Proxy, Request};
use tokio::time::{Instant, timeout};

use super::behind::{Behind, COMMIT, EFFECT, LEVELS, connect, impatient, patient, paying, write};
use super::outages::{Fault, persist, promptly};
use crate::request::{Answer, PATIENCE, again_until, gated, keyed, layer, send, send_until, send_until_ended, sending};

/// Runs until it is told that its key is lost, and then until it is released.
async fn until_told(State(gate): State<Gate>, operation: Operation) -> &'static str {
    gate.pass().await;
    let told = timeout(PATIENCE, operation.cancellation().cancelled()).await;
    gate.pass().await;
    if told.is_ok() { "late" } else { "not told" }
}

#[track_caller]
fn assert_lost(answer: &Answer, case: &str) {
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("lease-lost")), "{case}");
}

/// S6, however the server is away, and if nobody takes over. Fails when `until_lost` fires no token, and when `SETTLE` fences a lease that has lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_outlives_its_lease_is_told_and_is_recorded_where_nobody_took_over() {
    join_all(Fault::ALL.map(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::closed());
        let layer = layer(&SharedStore::new(behind.store().await)).record_deadline(PATIENCE).lease(LEASE);
        let router = Router::new().route("/pay", any(until_told)).layer(layer).with_state(gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        fault.strike(&behind).await;
        gate.release(1);
        gate.entered().await;
        fault.mend(&behind).await;
        // Its record is what confirms its answer; without one it would be answered all the same.
        gate.release(1);
        assert_eq!(run.await.unwrap().body, "late", "{case}");
        let replay = send_until_ended(&behind.heir(&Gate::open()).await, "k").await;
        assert!(replay.is_replay() && replay.body == "late", "{case}: {replay:?}");
        behind.assert_all_expire(&case).await;
    }))
    .await;
}

/// S6, while nobody can say whose the key is. Fails when `Run::answer_to` takes a write without an answer for one that is
/// done, whatever the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_outlives_its_lease_is_503_in_bounded_time_where_its_record_gets_no_answer() {
    join_all(Fault::ALL.map(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::closed());
        let layer = impatient(&behind.store().await).lease(LEASE);
        let router = Router::new().route("/pay", any(until_told)).layer(layer).with_state(gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        fault.strike(&behind).await;
        gate.release(1);
        gate.entered().await;
        gate.release(1);
        assert_lost(&promptly(async { run.await.unwrap() }, &case).await, &case);
    }))
    .await;
}

/// What has become of a key by the time at which its first holder writes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Since {
    Running,
    Recorded,
    Freed,
    Gone,
}

impl Since {
    const ALL: [Self; 4] = [Self::Running, Self::Recorded, Self::Freed, Self::Gone];
}

/// S6 and S26. Fails when `SETTLE` does not ask whose lease it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_overtaken_holder_writes_late_is_fenced_whatever_has_become_of_its_key() {
    let cases = [Fault::Cut, Fault::Hung].into_iter().flat_map(|fault| Since::ALL.map(|since| (fault, since)));
    join_all(cases.map(|(fault, since)| async move {
        let (case, behind, gate) = (format!("{fault:?}, {since:?}"), Behind::share().await, Gate::closed());
        let layer = impatient(&behind.store().await).lease(LEASE);
        let router = Router::new().route("/pay", any(until_told)).layer(layer).with_state(gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        fault.strike(&behind).await;
        gate.release(1);
        gate.entered().await;
        let late = async {
            fault.mend(&behind).await;
            gate.release(1);
            assert_lost(&run.await.unwrap(), &case);
        };
        overtakes(&behind, Isolation::ReadCommitted, since, late, &case).await;
    }))
    .await;
}

/// S6, S26 and S27: its effect is not in the database either, at any isolation level, although its transaction was open all
/// the time. Fails when `COMPLETE_IN` does not ask whose lease it is.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_overtaken_holder_commits_late_is_fenced_with_its_effect_at_each_isolation_level() {
    let cases = LEVELS.into_iter().flat_map(|level| Since::ALL.map(|since| (level, since)));
    join_all(cases.map(|(level, since)| async move {
        let (case, behind, gate) = (format!("{level:?}, {since:?}"), Behind::share().await, Gate::closed());
        let store = behind.store().await.isolation(level);
        let router = paying(&store, impatient(&store).lease(LEASE), &gate);
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        // What is sent meanwhile arrives later, so that the transaction lives.
        let _hung = behind.proxy.hang();
        let late = async {
            behind.proxy.mend().await;
            gate.release(1);
            assert_lost(&run.await.unwrap(), &case);
        };
        overtakes(&behind, level, since, late, &case).await;
    }))
    .await;
}

/// Another process takes the key over, and the first holder writes late.
async fn overtakes(behind: &Behind, level: Isolation, since: Since, late: impl Future<Output = ()>, case: &str) {
    let work = Gate::closed();
    let status = if since == Since::Freed { 500 } else { 201 };
    let heir = answering(behind.elsewhere().await.isolation(level), status, &work);
    let mut late = std::pin::pin!(late);
    let (answer, ()) = tokio::join!(send_until_ended(&heir, "k"), async {
        work.entered().await;
        if since == Since::Running {
            late.as_mut().await;
        }
        work.release(1);
    });
    assert_eq!(answer.body, "attempt 2", "{case}");
    if since == Since::Gone {
        behind.execute("DELETE FROM idempotency_record").await;
    }
    if since != Since::Running {
        late.await;
    }

    work.release(1);
    let after = send_until_ended(&heir, "k").await;
    let (body, is_replay, effects) = match since {
        Since::Running | Since::Recorded => ("attempt 2", true, 1),
        Since::Freed => ("attempt 3", false, 0),
        Since::Gone => ("attempt 1", false, 2),
    };
    assert_eq!((&after.body[..], after.is_replay()), (body.as_bytes(), is_replay), "{case}");
    assert_eq!(behind.effects().await, effects, "{case}");
    behind.assert_all_expire(case).await;
}

/// A service that has an effect and answers so, once its gate is open.
fn answering(store: PostgresStore, status: u16, gate: &Gate) -> Router {
    let (own, status) = (store.clone(), StatusCode::from_u16(status).unwrap());
    let handler = move |State(gate): State<Gate>, operation: Operation| {
        let own = own.clone();
        async move {
            let mut transaction = operation.transaction(&own).await.unwrap();
            write(&mut transaction, EFFECT).await.unwrap();
            gate.pass().await;
            (status, format!("attempt {}", operation.attempt()))
        }
    };
    Router::new().route("/pay", any(handler)).layer(layer(&SharedStore::new(store))).with_state(gate.clone())
}

/// S6 and S32: a machine that vanishes with its transaction open, and its record in it, which is locked. Its key is in flight
/// until the server gives the transaction up, and whoever asks meanwhile is told so at once. Fails when `begin` sets no
/// `idle_in_transaction_session_timeout`, when `CLAIM` tries to insert where there is a row, and when `SEEN` waits for locks.
#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_vanishes_with_its_record_locked_keeps_others_out_until_the_server_ends_its_transaction() {
    join_all(LEVELS.map(|level| async move {
        let (case, behind, gate) = (format!("{level:?}"), Behind::share().await, Gate::closed());
        let store = behind.store().await.isolation(level).max_idle_transaction(LEASE * 3);
        let router = paying(&store, impatient(&store).lease(LEASE), &gate);
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        let vanished = behind.proxy.hold_request(Request::With(COMMIT));
        gate.release(1);
        vanished.struck().await;
        let _silent = behind.proxy.hang();

        let work = Gate::open();
        let other = behind.elsewhere().await;
        let heir = paying(&other, layer(&SharedStore::new(other.clone())), &work);
        let (refused, lapses) = (AtomicU32::new(0), Instant::now() + LEASE);
        let answer = send_until(&heir, "k", |answer| {
            let is_refused = answer.problem() == Some("in-flight");
            refused.fetch_add(u32::from(is_refused && Instant::now() > lapses), Ordering::SeqCst);
            !is_refused
        })
        .await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, &b"attempt 2"[..]), "{case}");
        assert!(refused.load(Ordering::SeqCst) > 5, "{case}: {refused:?}");
        assert_eq!((behind.effects().await, work.entries()), (1, 1), "{case}");
        assert_ne!(run.await.unwrap().status, 201, "{case}");
    }))
    .await;
}

/// S1 under Hold. A holder that never comes back is listed and kept until somebody decides; nothing else is kept. Fails when
/// `make` gives a run under Hold an expiry, and when `bind` gives a record that is freed none.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_never_comes_back_is_held_under_hold_and_kept_until_an_operator_decides() {
    let (behind, gate) = (Behind::share().await, Gate::closed());
    let holder = impatient(&behind.store().await).unknown_outcome(UnknownOutcome::Hold).lease(LEASE).retention(LEASE);
    let _lost = sending(&gated(holder, gate.clone()), keyed("/pay", "k"), "");
    gate.entered().await;
    behind.proxy.cut().await;

    let store = behind.elsewhere().await;
    let page = Page::first(NonZeroU16::MAX);
    let held =
        again_until(async || store.held(&page).await.unwrap().records, |records: &Vec<_>| !records.is_empty()).await;
    let [held] = &held[..] else { panic!("{held:?}") };
    assert_eq!((held.cause, held.attempt), (HeldCause::Lapsed, 1));
    // The server's clock passes its retention.
    tokio::time::sleep(LEASE * 2).await;
    assert_eq!(store.sweep().await.unwrap(), 0);
    // The heir would run it again; the claim was made under Hold.
    let heir = behind.heir(&gate).await;
    let refused = send(&heir, keyed("/pay", "k"), "").await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, Some("outcome-unknown")));
    assert_eq!(store.sweep().await.unwrap(), 0);

    let held = store.held(&page).await.unwrap().records.remove(0);
    assert_eq!(store.resolve(&held, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Done);
    behind.assert_all_expire("resolved").await;
}

/// S29. Fails when `machine::claim` counts no lapses, or holds at one more or less; and when `bind` gives what is held an
/// expiry.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_holders_never_come_back_is_held_after_its_last_attempt() {
    let behind = Behind::share().await;
    for _ in 0..3 {
        let (proxy, gate) = (Proxy::start(behind.postgres.address()).await, Gate::closed());
        let store = connect(&behind.through(&proxy)).await;
        let doomed = gated(patient(&store).lease(LEASE).max_attempts(3), gate.clone());
        tokio::select! {
            answer = send_until_ended(&doomed, "k") => panic!("{answer:?}"),
            () = gate.entered() => {}
        }
        behind.assert_all_expire("running").await;
        proxy.cut().await;
    }
    let heir = behind.heir(&Gate::open()).await;
    let refused = persist(&heir, "k").await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, Some("outcome-unknown")));
    assert_eq!(behind.count("idempotency_record WHERE state = 5 AND sweep_from IS NULL").await, 1);
}

/// Long enough for a run to begin in, short enough to wait for.
const LEASE: Duration = Duration::from_millis(1500);
