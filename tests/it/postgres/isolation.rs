//! Handlers' transactions at each isolation level: neither their own heartbeat nor other keys' records are in their way.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post;
use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::Operation;
use idempotency_layer::store::postgres::Isolation;
use idempotency_tests::gate::Gate;
use tokio::sync::Barrier;

use super::behind::{Behind, EFFECT, LEVELS, patient, paying, write};
use crate::request::{again_until, keyed, send, send_unrun, sending};

/// S27. Fails when `RENEW` writes the record's row.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_is_renewed_again_and_again_commits_at_each_isolation_level() {
    join_all(LEVELS.map(|level| async move {
        let (behind, gate) = (Behind::share().await, Gate::closed());
        let store = behind.patient().await.isolation(level);
        let router = paying(&store, patient(&store).lease(LEASE), &gate);
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        for _ in 0..4 {
            let before = renewed_at(&behind).await;
            again_until(async || renewed_at(&behind).await, |renewed| *renewed > before).await;
            let duplicate = send_unrun(&router, keyed("/pay", "k"), "", &gate).await;
            assert_eq!(duplicate.problem(), Some("in-flight"), "{level:?}");
        }
        gate.release(1);
        let answer = run.await.unwrap();
        assert_eq!((answer.status, &answer.body[..]), (StatusCode::CREATED, &b"attempt 1"[..]), "{level:?}");
        assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{level:?}");
        assert_eq!(behind.effects().await, 1, "{level:?}");
    }))
    .await;
}

/// When a lease was renewed last.
async fn renewed_at(behind: &Behind) -> i64 {
    let last = "SELECT coalesce(max(written_at), 0) FROM idempotency_lease";
    sqlx::query_scalar(last).fetch_one(&mut behind.witness().await).await.unwrap()
}

/// S27: transactions that are all open at once, and all committed at once, of keys that are neighbours in the records. Fails
/// when `begin` reads a record in a serializable transaction.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_different_keys_at_once_never_abort_each_other_at_any_isolation_level() {
    join_all(LEVELS.map(|level| async move {
        let behind = Behind::share().await;
        behind.execute(READ_WHOLE).await;
        let store = behind.patient().await.isolation(level);
        let all = Arc::new(Barrier::new(AT_ONCE));
        let own = store.clone();
        let handler = async move |operation: Operation| {
            let mut transaction = match operation.transaction(&own).await {
                Ok(transaction) => transaction,
                Err(error) => return error.into_response(),
            };
            all.wait().await;
            write(&mut transaction, EFFECT).await.unwrap();
            all.wait().await;
            StatusCode::CREATED.into_response()
        };
        let router = Router::new().route("/pay", post(handler)).layer(patient(&store));
        for round in 0..ROUNDS {
            let runs: Vec<_> =
                (0..AT_ONCE).map(|at| sending(&router, keyed("/pay", &format!("{round}-{at}")), "")).collect();
            for run in runs {
                let answer = run.await.unwrap();
                assert_eq!((answer.status.as_u16(), answer.problem()), (201, None), "{level:?}, round {round}");
            }
        }
        assert_eq!(behind.effects().await, (ROUNDS * AT_ONCE) as i64, "{level:?}");
    }))
    .await;
}

/// S27: a conflict of handlers' own is told as such, and the retry commits. Fails when `complete_in` takes a conflict for a
/// transaction that was ended by others.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_of_the_handlers_own_at_the_commit_is_503_and_its_retry_commits() {
    let (behind, gate) = (Behind::share().await, Gate::closed());
    behind
        .execute("CREATE TABLE shift (who text, on_call bool); INSERT INTO shift VALUES ('a', true), ('b', true)")
        .await;
    let store = behind.patient().await.isolation(Isolation::Serializable);
    let (own, entered) = (store.clone(), gate.clone());
    let handler = async move |operation: Operation| {
        let mut transaction = operation.transaction(&own).await.unwrap();
        write(&mut transaction, LEAVE_A).await.unwrap();
        entered.pass().await;
        StatusCode::CREATED
    };
    let router = Router::new().route("/pay", post(handler)).layer(patient(&store));
    let run = sending(&router, keyed("/pay", "k"), "");
    gate.entered().await;
    // Each alone is right, and both at once are not.
    behind.execute(LEAVE_B).await;
    gate.release(2);
    let answer = run.await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("transaction-failed")));
    assert_eq!(behind.count("shift WHERE on_call").await, 1);
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.status, 201);
    assert_eq!(behind.count("shift WHERE on_call").await, 1);
    assert!(send(&router, keyed("/pay", "k"), "").await.is_replay());
}

const LEAVE_A: &str =
    "UPDATE shift SET on_call = false WHERE who = 'a' AND (SELECT count(*) FROM shift WHERE on_call) > 1";
const LEAVE_B: &str = "BEGIN ISOLATION LEVEL SERIALIZABLE; \
     UPDATE shift SET on_call = false WHERE who = 'b' AND (SELECT count(*) FROM shift WHERE on_call) > 1; COMMIT";

const LEASE: Duration = Duration::from_millis(1500);

/// As many as the store has connections for transactions.
const AT_ONCE: usize = 10;

const ROUNDS: usize = 5;

/// Tables are read from end to end, as small ones are, so that whoever reads a row has read all of them.
const READ_WHOLE: &str = "DO $$ BEGIN \
     EXECUTE format('ALTER DATABASE %I SET enable_indexscan = off', current_database()); \
     EXECUTE format('ALTER DATABASE %I SET enable_indexonlyscan = off', current_database()); \
     EXECUTE format('ALTER DATABASE %I SET enable_bitmapscan = off', current_database()); END $$";
