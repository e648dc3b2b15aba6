//! How a handler with a transaction ends, and what then is in the database: its effect with its answer, or neither.

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::{Operation, PostgresStore, SharedStore, UnknownOutcome};
use idempotency_tests::gate::Gate;

use super::behind::{Behind, EFFECT, LEVELS, paying, write};
use crate::request::{again_until, keyed, layer, send, send_until_ended, sending};

/// Has its effect, and then answers with the status in the request's body, or panics.
async fn mirror(State(store): State<PostgresStore>, operation: Operation, body: String) -> StatusCode {
    let mut transaction = operation.transaction(&store).await.unwrap();
    write(&mut transaction, EFFECT).await.unwrap();
    StatusCode::from_u16(body.parse().expect("a handler that panics")).unwrap()
}

/// S5 and S20 in a transaction. Fails when `Verdict::commits` is true of every answer.
#[tokio::test(flavor = "multi_thread")]
async fn an_effect_is_there_if_its_answer_is_a_success_and_the_key_is_settled_by_policy() {
    let rows = [
        ("201", 201, 1, "replay"),
        ("303", 303, 1, "replay"),
        ("409", 409, 0, "replay"),
        ("400", 400, 0, "run"),
        ("429", 429, 0, "run"),
        ("503", 503, 0, "unknown"),
        ("panic", 500, 0, "unknown"),
    ];
    join_all(LEVELS.map(|level| async move {
        let behind = Behind::share().await;
        let store = behind.store().await.isolation(level);
        for (body, status, effects, then) in rows {
            for unknown in [UnknownOutcome::Rerun, UnknownOutcome::Hold] {
                let case = format!("{level:?}, {body}, {unknown:?}");
                behind.execute("TRUNCATE effect, idempotency_record").await;
                let router = Router::new()
                    .route("/pay", post(mirror))
                    .layer(layer(&SharedStore::new(store.clone())).unknown_outcome(unknown))
                    .with_state(store.clone());
                let answer = send(&router, keyed("/pay", "k"), body).await;
                assert_eq!((answer.status.as_u16(), behind.effects().await), (status, effects), "{case}");
                let again = send(&router, keyed("/pay", "k"), body).await;
                let seen = again.problem().filter(|problem| *problem == "outcome-unknown");
                let seen = seen.unwrap_or(if again.is_replay() { "replay" } else { "run" });
                let expected = match (then, unknown) {
                    ("unknown", UnknownOutcome::Hold) => "outcome-unknown",
                    ("unknown", _) => "run",
                    (then, _) => then,
                };
                assert_eq!((seen, behind.effects().await), (expected, effects), "{case}");
                // A transaction was given, so the key goes on meaning its request.
                let other = send(&router, keyed("/pay", "k"), "207").await;
                assert_eq!((other.status.as_u16(), other.problem()), (422, Some("key-reused")), "{case}");
                assert_eq!(behind.count(OPEN).await, 0, "{case}");
            }
        }
    }))
    .await;
}

/// S3 in a transaction. Fails when `Run::commit` does nothing for a client that has gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_while_its_transaction_is_open_gets_the_one_effect_at_its_retry() {
    join_all(LEVELS.map(|level| async move {
        let (behind, gate) = (Behind::share().await, Gate::closed());
        let store = behind.store().await.isolation(level);
        let router = paying(&store, layer(&SharedStore::new(store.clone())), &gate);
        let gone = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled(), "{level:?}");
        assert_eq!(send(&router, keyed("/pay", "k"), "").await.problem(), Some("in-flight"), "{level:?}");
        assert_eq!(behind.effects().await, 0, "{level:?}");
        gate.release(1);
        let replay = send_until_ended(&router, "k").await;
        assert!(replay.is_replay() && replay.body == "attempt 1", "{level:?}: {replay:?}");
        assert_eq!((behind.effects().await, gate.entries()), (1, 1), "{level:?}");
        again_until(async || behind.count(OPEN).await, |open| *open == 0).await;
    }))
    .await;
}

/// The transactions that are open.
pub(super) const OPEN: &str =
    "pg_stat_activity WHERE state LIKE 'idle in transaction%' AND datname = current_database()";
