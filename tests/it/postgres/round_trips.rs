//! How often a request goes to the server and back: exactly as often as it must, counted on the wire.
//!
//! | request | round trips |
//! |---|---|
//! | first | 2: the claim and the completion |
//! | replay | 1 |
//! | another request, or another caller, under the key | 1 |
//! | in flight | 1 |
//! | first, with the handler's transaction | 2 more than the transaction by itself, and 1 commit more |
//!
//! That is so once a connection has been used: before, there is the login, and each statement is prepared once. A claim that
//! takes a key over, since it is free or its lease has lapsed, is two.

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use http::StatusCode;
use idempotency_layer::store::postgres::Isolation;
use idempotency_layer::{IdempotencyLayer, Operation, PostgresStore};
use idempotency_tests::postgres::{PostgresServer, shared, url_at};
use idempotency_tests::proxy::Proxy;
use sqlx::{Connection, PgConnection};

use crate::counted::{Counted, own};
use crate::request::{keyed, send};

async fn counted() -> Counted<PostgresStore> {
    Counted::warm_at(shared().await).await
}

impl Counted<PostgresStore> {
    async fn warm_at(server: &PostgresServer) -> Self {
        let proxy = Proxy::start(server.address()).await;
        let store = PostgresStore::connect(&url_at(proxy.address(), "postgres")).await.unwrap().schema("round_trips");
        store.migrate().await.unwrap();
        Self::warm(proxy, store).await
    }
}

/// Fails when `settle` looks first.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_claim_and_its_completion_are_two_round_trips() {
    counted().await.first_is_two().await;
}

/// Fails when `claim` looks again before it answers `Recorded`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_finds_a_record_is_one_round_trip() {
    counted().await.claim_of_a_record_is_one().await;
}

/// Fails when `claim` looks again before it answers `Reused`, or `CallerChanged`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_request_or_caller_is_one_round_trip() {
    counted().await.refused_claim_is_one().await;
}

/// Fails when `claim` looks again before it answers `InFlight`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_flight_is_one_round_trip() {
    counted().await.claim_in_flight_is_one().await;
}

/// Fails when `renew` looks whether it has renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_one_round_trip() {
    counted().await.renewal_is_one().await;
}

/// Fails when `ask` begins a transaction for each statement, as behind an old pooler.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_is_two_round_trips_and_its_replay_one() {
    counted().await.first_request_is_two_and_its_replay_one().await;
}

/// Fails when `ask` begins a transaction for each statement, as behind an old pooler.
#[tokio::test(flavor = "multi_thread")]
async fn another_request_or_caller_under_the_key_is_one_round_trip() {
    counted().await.refused_request_is_one().await;
}

/// Fails when `ask` begins a transaction for each statement, as behind an old pooler.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_is_one_round_trip() {
    counted().await.request_in_flight_is_one().await;
}

async fn insert(connection: &mut PgConnection) {
    sqlx::query("INSERT INTO effect (name) VALUES ($1)").bind("paid").execute(connection).await.unwrap();
}

async fn handler(State(store): State<PostgresStore>, operation: Operation) -> StatusCode {
    let mut transaction = operation.transaction(&store).await.unwrap();
    insert(&mut transaction.connection().await.unwrap()).await;
    StatusCode::CREATED
}

/// Fails when `begin` sends the mark by itself, when `complete_in` reads the record before it writes it, and when the fence
/// of `begin` has a transaction of its own at every isolation level.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_with_a_transaction_is_two_round_trips_and_a_commit_more_than_the_transaction() {
    // Nobody else takes a number for a transaction.
    let server = PostgresServer::start_with(&[("autovacuum", "off")]).await;
    server.execute("CREATE TABLE effect (name text)").await;
    let counted = Counted::warm_at(&server).await;
    let mut by_itself = PgConnection::connect(&url_at(counted.proxy.address(), "postgres")).await.unwrap();
    let mut bare = async || {
        let mut transaction = by_itself.begin().await.unwrap();
        insert(&mut transaction).await;
        transaction.commit().await.unwrap();
    };
    bare().await;
    let before = committed(&server).await;
    let ((), bare_trips) = counted.count(bare()).await;
    let bare_commits = committed(&server).await - before;
    assert_eq!((bare_trips, bare_commits), (3, 1));

    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable] {
        let store = counted.store.clone().isolation(isolation);
        let layer = IdempotencyLayer::new(counted.store.clone()).anonymous(true);
        let router = Router::new().route("/pay", post(handler)).layer(layer).with_state(store);
        send(&router, keyed("/pay", &own("warm")), "").await;
        let before = committed(&server).await;
        let (answer, trips) = counted.count(send(&router, keyed("/pay", &own("transaction")), "")).await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let commits = committed(&server).await - before;
        assert_eq!((trips, commits), (bare_trips + 2, bare_commits + 1), "{isolation:?}");
    }
}

/// How many transactions have written, and been committed or rolled back.
async fn committed(server: &PostgresServer) -> i64 {
    server.fetch("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint").await
}
