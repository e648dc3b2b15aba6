//! What a handler leaves lying when it is done: statements that still run, guards inside its body or in nobody's hands.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::StatusCode;
use idempotency_layer::{Operation, SqliteStore};
use tokio::time::timeout;

use crate::ledger::{EFFECT, Ledger, layer, write};
use crate::request::{keyed, send};

fn routes(store: &SqliteStore, record_deadline: Duration) -> Router {
    Router::new()
        .route("/export", post(export))
        .route("/impatient/{status}", post(impatient))
        .route("/keep", post(keep))
        .route("/pay", post(pay))
        .layer(layer(store.clone()).record_deadline(record_deadline))
        .with_state(store.clone())
}

async fn pay(State(store): State<SqliteStore>, operation: Operation) -> Response {
    let mut transaction = match operation.transaction(&store).await {
        Ok(transaction) => transaction,
        Err(error) => return error.into_response(),
    };
    write(&mut transaction, EFFECT).await.unwrap();
    StatusCode::CREATED.into_response()
}

/// Streams what it reads in the transaction, from inside its body, and more than is collected.
async fn export(State(store): State<SqliteStore>, operation: Operation) -> Response {
    let (rows, read) = tokio::sync::mpsc::channel::<Bytes>(1);
    let reading = async move {
        let mut transaction = operation.transaction(&store).await.unwrap();
        let _connection = transaction.connection().await.unwrap();
        while rows.send(Bytes::from(vec![b'x'; 64 * 1024])).await.is_ok() {}
    };
    let read = stream::unfold(read, |mut read| async move { Some((read.recv().await?, read)) });
    let body = stream::select(read, reading.into_stream().filter_map(|()| async { None }));
    Body::from_stream(body.map(Ok::<_, std::io::Error>)).into_response()
}

/// A body that is read on by its client holds the transaction: the transaction is lost, and nobody waits for the client.
/// Fails when `Run::transaction` keeps the handler's response while it takes the transaction back.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_inside_a_body_that_is_not_read_to_its_end_is_taken_back() {
    let ledger = Ledger::new().await;
    let router = routes(&ledger.store, DEADLINE);
    let lost = timeout(Duration::from_secs(20), send(&router, keyed("/export", "k"), "")).await.expect("an answer");
    assert_eq!((lost.status.as_u16(), lost.problem()), (500, Some("transaction-lost")));
    let next = send(&router, keyed("/pay", "l"), "").await;
    assert_eq!((next.status.as_u16(), next.problem()), (201, None), "the writer is not free");
    assert_eq!(ledger.effects().await, 1);
}

const ENDLESS: &str = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";

/// Gives up a statement and answers all the same.
async fn impatient(Path(status): Path<u16>, State(store): State<SqliteStore>, operation: Operation) -> Response {
    if operation.attempt() > 1 {
        return StatusCode::CREATED.into_response();
    }
    let mut transaction = operation.transaction(&store).await.unwrap();
    let mut connection = transaction.connection().await.unwrap();
    sqlx::raw_sql(EFFECT).execute(&mut *connection).await.unwrap();
    let endless = sqlx::raw_sql(ENDLESS).execute(&mut *connection);
    assert!(timeout(Duration::from_millis(100), endless).await.is_err());
    StatusCode::from_u16(status).unwrap().into_response()
}

/// A statement that its handler gave up does not go on under the write lock. Fails when a transaction that is closed does
/// not interrupt what runs on its connection, and when `complete_in` stops the expiry before it waits for the statement.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_given_up_by_its_handler_does_not_keep_the_writer() {
    for (path, expected) in [
        ("/impatient/201", (503, Some("transaction-failed"))),
        ("/impatient/402", (402, None)),
        ("/impatient/503", (503, None)),
    ] {
        let ledger = Ledger::new().await;
        // Nobody else gives the transaction up before it expires.
        let router = routes(&ledger.store.clone().max_transaction(Duration::from_millis(500)), DEADLINE * 60);
        let answer = timeout(Duration::from_secs(20), send(&router, keyed(path, "k"), "")).await.expect("an answer");
        assert_eq!((answer.status.as_u16(), answer.problem()), expected, "{path}");
        assert_eq!(ledger.effects().await, 0, "{path}");
        let next = send(&router, keyed("/pay", "l"), "").await;
        assert_eq!((next.status.as_u16(), next.problem()), (201, None), "{path}: the writer is not free");
    }
}

/// Never gives its connection back.
async fn keep(State(store): State<SqliteStore>, operation: Operation) -> Response {
    let mut transaction = operation.transaction(&store).await.unwrap();
    std::mem::forget(transaction.connection().await.unwrap());
    StatusCode::PAYMENT_REQUIRED.into_response()
}

/// The file's write lock is lost with the guard, but not the client. Fails when `Run::roll_back` waits for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_never_dropped_leaves_its_client_an_answer() {
    let ledger = Ledger::new().await;
    let answer =
        timeout(Duration::from_secs(20), send(&routes(&ledger.store, DEADLINE), keyed("/keep", "k"), "")).await;
    assert_eq!(answer.expect("an answer").status, 402);
}

const DEADLINE: Duration = Duration::from_secs(1);
