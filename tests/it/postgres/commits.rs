//! The commit of effect and record, where its reply is lost, it is lost itself, or it comes late; and where the server is
//! away: the answer equals what is in the database.

use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use idempotency_layer::Operation;
use idempotency_layer::store::postgres::Isolation;
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Request;
use tokio::task::JoinHandle;

use super::behind::{BEGIN, Behind, COMMIT, COMPLETE_IN, CONFIRM, LEVELS, impatient, pay, paying};
use super::outages::{Fault, persist, promptly};
use crate::request::{Answer, again_until, keyed, send, sending};

/// A run with its transaction open, and its effect in it.
struct Paying {
    behind: Behind,
    router: Router,
    gate: Gate,
    run: JoinHandle<Answer>,
}

impl Paying {
    async fn start(level: Isolation, patience: Duration) -> Self {
        Self::begin(Behind::share().await, level, patience).await
    }

    async fn begin(behind: Behind, level: Isolation, patience: Duration) -> Self {
        let gate = Gate::closed();
        let store = behind.store().await.isolation(level);
        let router = paying(&store, impatient(&store).record_deadline(patience).lease(LEASE), &gate);
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        Self { behind, router, gate, run }
    }

    /// The client's answer, and the effects by then.
    async fn ends(&mut self, case: &str) -> (u16, Option<String>, i64) {
        let answer = promptly(async { (&mut self.run).await.unwrap() }, case).await;
        (answer.status.as_u16(), answer.problem().map(str::to_owned), self.behind.effects().await)
    }

    /// Whatever the first one was told, a retry gets the one effect.
    async fn assert_one_effect(&self, is_replay: bool, case: &str) {
        self.gate.release(10);
        let retry = persist(&self.router, "k").await;
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, is_replay), "{case}");
        assert_eq!(self.behind.effects().await, 1, "{case}");
        assert!(persist(&self.router, "k").await.is_replay(), "{case}");
        self.behind.assert_all_expire(case).await;
    }
}

async fn at_each_level<F: Future<Output = ()>>(test: impl Fn(Isolation) -> F) {
    join_all(LEVELS.map(test)).await;
}

fn is(code: u16, problem: Option<&str>, effects: i64) -> (u16, Option<String>, i64) {
    (code, problem.map(str::to_owned), effects)
}

/// S28 and S8: it is committed, and nobody hears of it. Fails when `confirm` takes a record for none.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_reply_to_a_commit_is_lost_the_client_gets_what_was_committed() {
    at_each_level(|level| async move {
        for is_silent in [false, true] {
            let case = format!("{level:?}, silent: {is_silent}");
            let mut paying = Paying::start(level, PATIENCE).await;
            let proxy = &paying.behind.proxy;
            let commit = Request::With(COMMIT);
            let lost = if is_silent { proxy.silence_reply(commit) } else { proxy.drop_reply(commit) };
            paying.gate.release(1);
            lost.struck().await;
            assert_eq!(paying.ends(&case).await, is(201, None, 1), "{case}");
            paying.assert_one_effect(true, &case).await;
        }
    })
    .await;
}

/// S28 and S8: nor does anybody hear what became of it, at first, over a connection that was there or a new one. Fails when
/// `confirm` in `run.rs` asks once.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_reply_to_the_question_about_a_commit_is_lost_it_is_asked_again() {
    let mut paying = Paying::start(Isolation::ReadCommitted, PATIENCE).await;
    let commit = paying.behind.proxy.drop_reply(Request::With(COMMIT));
    let confirms = [CONFIRM, CONFIRM].map(|confirm| paying.behind.proxy.drop_reply(Request::Runs(confirm)));
    paying.gate.release(1);
    commit.struck().await;
    for confirm in confirms {
        confirm.struck().await;
    }
    assert_eq!(paying.ends("asked again").await, is(201, None, 1));
    paying.assert_one_effect(true, "asked again").await;
}

/// S28 and S8: the connection ends before the COMMIT, or the record, has come to the server. Fails when `confirm` takes a
/// run for a record.
#[tokio::test(flavor = "multi_thread")]
async fn when_a_commit_is_lost_the_client_is_told_that_it_failed_and_a_retry_runs() {
    at_each_level(|level| async move {
        for request in [Request::With(COMMIT), Request::Runs(COMPLETE_IN)] {
            let case = format!("{level:?}, {request:?}");
            let mut paying = Paying::start(level, PATIENCE).await;
            let kept = paying.behind.proxy.hold_request(request);
            paying.gate.release(1);
            kept.struck().await;
            paying.behind.disconnect().await;
            assert_eq!(paying.ends(&case).await, is(503, Some("transaction-failed"), 0), "{case}");
            paying.assert_one_effect(false, &case).await;
        }
    })
    .await;
}

/// S28 and S8: the record was in the transaction, which ends with its connection. Fails when `confirm` takes a run for a
/// record.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_reply_to_a_record_in_its_transaction_is_lost_nothing_is_committed_and_a_retry_runs() {
    at_each_level(|level| async move {
        for is_silent in [false, true] {
            let case = format!("{level:?}, silent: {is_silent}");
            let mut paying = Paying::start(level, PATIENCE).await;
            let (proxy, record) = (&paying.behind.proxy, Request::Runs(COMPLETE_IN));
            let lost = if is_silent { proxy.silence_reply(record) } else { proxy.drop_reply(record) };
            paying.gate.release(1);
            lost.struck().await;
            assert_eq!(paying.ends(&case).await, is(503, Some("transaction-failed"), 0), "{case}");
            paying.assert_one_effect(false, &case).await;
        }
    })
    .await;
}

/// S28 and S8: the COMMIT arrives while it is asked what became of it. Fails when `CONFIRM` does not wait for whoever is
/// writing the row.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_late_is_waited_for() {
    at_each_level(|level| async move {
        let (case, mut paying) = (format!("{level:?}"), Paying::start(level, PATIENCE).await);
        let late = paying.behind.proxy.hold_request(Request::With(COMMIT));
        paying.gate.release(1);
        late.struck().await;
        again_until(async || paying.run.is_finished() || paying.behind.waiting().await > 0, |asked| *asked).await;
        late.release().await;
        assert_eq!(paying.ends(&case).await, is(201, None, 1), "{case}");
        paying.assert_one_effect(true, &case).await;
    })
    .await;
}

/// S9 and S28: the server is away when effect and record are to be committed, until the client has its answer. Fails when
/// `Run::commit` takes a commit about which nothing can be learnt for one that was made.
#[tokio::test(flavor = "multi_thread")]
async fn away_at_the_commit_it_is_503_in_bounded_time_and_one_effect_once_it_is_back() {
    // A transaction that has read the records is in the way of whoever would lock them, and one that was begun to write
    // does so.
    let is_for = |fault: &Fault| !matches!(fault, Fault::Locked | Fault::ReadOnly);
    join_all(Fault::ALL.into_iter().filter(is_for).map(|fault| async move {
        let case = format!("{fault:?}");
        let behind = Behind::start().await;
        let mut paying = Paying::begin(behind, Isolation::ReadCommitted, Duration::from_millis(500)).await;
        fault.strike(&paying.behind).await;
        paying.gate.release(1);
        let answer = promptly(async { (&mut paying.run).await.unwrap() }, &case).await;
        let (status, problem) = (answer.status.as_u16(), answer.problem());
        assert_eq!((status, problem), (503, Some("store-unavailable")), "{case}");
        fault.mend(&paying.behind).await;
        paying.assert_one_effect(false, &case).await;
    }))
    .await;
}

/// S9: likewise after the claim and before the transaction. Fails when `begin` waits for as long as it takes.
#[tokio::test(flavor = "multi_thread")]
async fn away_at_the_begin_it_is_503_in_bounded_time_and_one_effect_once_it_is_back() {
    let is_for = |fault: &Fault| *fault != Fault::ReadOnly;
    join_all(Fault::ALL.into_iter().filter(is_for).map(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::closed());
        let store = behind.store().await.timeout(Duration::from_secs(1));
        let layer = impatient(&store).lease(LEASE);
        let (own, entered) = (store.clone(), gate.clone());
        let handler = async move |operation: Operation| {
            entered.pass().await;
            pay(&own, &Gate::open(), operation).await
        };
        let router = Router::new().route("/pay", axum::routing::post(handler)).layer(layer);
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        fault.strike(&behind).await;
        gate.release(10);
        let answer = promptly(async { run.await.unwrap() }, &case).await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("transaction-failed")), "{case}");
        fault.mend(&behind).await;
        let retry = persist(&router, "k").await;
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, false), "{case}");
        assert_eq!(behind.effects().await, 1, "{case}");
        assert!(persist(&router, "k").await.is_replay(), "{case}");
    }))
    .await;
}

/// S8: a transaction that has begun, and nobody hears of it. Fails when `begin` does not send again on a new connection
/// what it has sent on a kept one.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_reply_to_a_begin_is_lost_another_transaction_is_begun() {
    at_each_level(|level| async move {
        let (case, behind, gate) = (format!("{level:?}"), Behind::share().await, Gate::open());
        let store = behind.store().await.isolation(level);
        let router = paying(&store, impatient(&store), &gate);
        assert_eq!(send(&router, keyed("/pay", "before"), "").await.status, 201, "{case}");
        let lost = behind.proxy.drop_reply(Request::Runs(BEGIN));
        let answer = send(&router, keyed("/pay", "k"), "").await;
        lost.struck().await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, &b"attempt 1"[..]), "{case}");
        assert_eq!(behind.effects().await, 2, "{case}");
        assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{case}");
    })
    .await;
}

/// Long enough for a run to begin in, short enough to wait for.
const LEASE: Duration = Duration::from_secs(2);

/// How long a client waits for a commit.
const PATIENCE: Duration = Duration::from_millis(1500);
