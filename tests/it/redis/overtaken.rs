//! A holder that cannot reach Redis for as long as its lease lasts: it is told, and what it writes later is fenced.
//!
//! To the server, a process that stays cut off is one that was killed.

use std::num::NonZeroU16;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::store::{HeldCause, LeaseId, Page, Resolution, Write};
use idempotency_layer::{Operation, Store, UnknownOutcome};
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Proxy;
use tokio::time::timeout;

use super::behind::{Behind, connect, impatient};
use super::outages::{Fault, promptly};
use crate::request::{Answer, PATIENCE, again_until, gated, keyed, layer, send, send_until_ended, sending};

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

/// S6, however the server is away, and if nobody takes over. Fails when `beat` fires the token for what the store says
/// alone, and when `end.lua` fences a lease that has lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_outlives_its_lease_is_told_and_is_recorded_where_nobody_took_over() {
    join_all(Fault::ALL.map(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::durable().await, Gate::closed());
        let layer = impatient(&behind.store().await).lease(LEASE);
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
        let (case, behind, gate) = (format!("{fault:?}"), Behind::durable().await, Gate::closed());
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

/// S6 and S26. Fails when `end.lua` does not ask whose lease it is, or `settle.lua`.
#[tokio::test(flavor = "multi_thread")]
async fn what_an_overtaken_holder_writes_late_is_fenced_whatever_has_become_of_its_key() {
    let cases = [Fault::Cut, Fault::Hung].into_iter().flat_map(|fault| {
        [Since::Running, Since::Recorded, Since::Freed, Since::Gone].map(|since| overtaken(fault, since))
    });
    join_all(cases).await;
}

async fn overtaken(fault: Fault, since: Since) {
    let (case, behind, gate) = (format!("{fault:?}, {since:?}"), Behind::durable().await, Gate::closed());
    let layer = impatient(&behind.store().await).lease(LEASE);
    let router = Router::new().route("/pay", any(until_told)).layer(layer).with_state(gate.clone());
    let run = sending(&router, keyed("/pay", "k"), "");
    gate.entered().await;
    fault.strike(&behind).await;
    gate.release(1);
    gate.entered().await;

    let work = Gate::closed();
    let heir = answering(&behind, if since == Since::Freed { 500 } else { 201 }, &work).await;
    let late = async {
        fault.mend(&behind).await;
        gate.release(1);
        assert_lost(&run.await.unwrap(), &case);
    };
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
        let _: () = behind.redis.command(&["FLUSHALL"]).await;
    }
    if since != Since::Running {
        late.await;
    }

    work.release(1);
    let after = send_until_ended(&heir, "k").await;
    let (body, is_replay) = match since {
        Since::Running | Since::Recorded => ("attempt 2", true),
        Since::Freed => ("attempt 3", false),
        Since::Gone => ("attempt 1", false),
    };
    assert_eq!((&after.body[..], after.is_replay()), (body.as_bytes(), is_replay), "{case}");
    behind.assert_all_expire(&case).await;
}

/// A service of another process that answers so, once its gate is open.
async fn answering(behind: &Behind, status: u16, gate: &Gate) -> Router {
    let status = StatusCode::from_u16(status).unwrap();
    let handler = move |State(gate): State<Gate>, operation: Operation| async move {
        gate.pass().await;
        (status, format!("attempt {}", operation.attempt()))
    };
    Router::new().route("/pay", any(handler)).layer(layer(&behind.elsewhere().await)).with_state(gate.clone())
}

/// S1 under Hold. A holder that never comes back is listed and kept until somebody decides; nothing else is kept. Fails when
/// `RedisStore::claim` gives a run under Hold an expiry, when `read.lua` takes no run for held, and when `write.lua` gives a
/// record that is freed none.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_never_comes_back_is_held_under_hold_and_kept_until_an_operator_decides() {
    let (behind, gate) = (Behind::durable().await, Gate::closed());
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
    assert_eq!(behind.records().await.into_values().collect::<Vec<_>>(), [None]);
    // The heir would run it again; the claim was made under Hold.
    let heir = behind.heir(&gate).await;
    let refused = send(&heir, keyed("/pay", "k"), "").await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, Some("outcome-unknown")));
    assert_eq!(behind.records().await.into_values().collect::<Vec<_>>(), [None]);

    let held = store.held(&page).await.unwrap().records.remove(0);
    assert_eq!(store.resolve(&held, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Done);
    behind.assert_all_expire("resolved").await;
}

/// S29. Fails when `claim.lua` counts no lapses, or holds at one more or less; and when `write.lua` gives what is held
/// an expiry.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_holders_never_come_back_is_held_after_its_last_attempt() {
    let behind = Behind::durable().await;
    for _ in 0..3 {
        let (proxy, gate) = (Proxy::start(behind.redis.address()).await, Gate::closed());
        let store = connect(&format!("redis://{}", proxy.address())).await;
        let doomed = gated(impatient(&store).lease(LEASE).max_attempts(3), gate.clone());
        tokio::select! {
            answer = send_until_ended(&doomed, "k") => panic!("{answer:?}"),
            () = gate.entered() => {}
        }
        behind.assert_all_expire("running").await;
        proxy.cut().await;
    }
    let refused = send_until_ended(&behind.heir(&Gate::open()).await, "k").await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (409, Some("outcome-unknown")));
    assert_eq!(behind.records().await.into_values().collect::<Vec<_>>(), [None]);
}

/// Long enough for a run to begin in, short enough to wait for.
const LEASE: Duration = Duration::from_millis(700);
