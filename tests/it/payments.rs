//! The README's first program does what the README says.

use std::path::Path;

use idempotency_tests::postgres::{PostgresServer, shared};
use idempotency_tests::redis::RedisServer;
use idempotency_tests::server::{Server, example};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tokio::process::Command;

async fn start(store: &str) -> Server {
    Server::start(&example("payments"), ["--listen", "127.0.0.1:0", "--store", store, "--lease", "0.5"]).await
}

async fn pay(payments: &Server, account: &str, key: &str, order: &Value) -> Response {
    let request = Client::new().post(format!("{}/payments", payments.url()));
    request.header("x-account", account).header("idempotency-key", key).json(order).send().await.unwrap()
}

async fn ledger(payments: &Server) -> Vec<Value> {
    let response = reqwest::get(format!("{}/ledger", payments.url())).await.unwrap();
    serde_json::from_str(&response.text().await.unwrap()).unwrap()
}

fn in_folder(folder: &Path) -> String {
    format!("sqlite:{}", folder.join("payments.db").display())
}

/// Fails when the layer answers with a new run instead of `replay`, or `record_id` leaves out the principal.
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_is_made_once_for_each_account_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let redis = RedisServer::start().await;
    let postgres = shared().await.create_database("payments_once").await;
    for store in ["memory".to_owned(), in_folder(folder.path()), redis.url(), postgres] {
        let payments = start(&store).await;
        let order = json!({ "amount": 1050, "currency": "EUR" });
        let first = pay(&payments, "alice", "order-1", &order).await;
        assert_eq!(first.status(), 201, "{store}");
        assert!(first.headers().get("idempotent-replayed").is_none(), "{store}");
        let second = pay(&payments, "alice", "order-1", &order).await;
        assert_eq!(second.headers()["idempotent-replayed"], "true", "{store}");
        assert_eq!(first.text().await.unwrap(), second.text().await.unwrap(), "{store}");
        assert_eq!(pay(&payments, "bob", "order-1", &order).await.status(), 201, "{store}");

        let lines = ledger(&payments).await;
        let expected = [
            json!({ "id": 1, "account": "alice", "amount": 1050, "currency": "EUR" }),
            json!({ "id": 2, "account": "bob", "amount": 1050, "currency": "EUR" }),
        ];
        assert_eq!(lines, expected, "{store}");
    }
}

/// Fails when 422 is recorded (`policy::outcome`), or a forgotten key keeps its fingerprint.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_order_may_be_mended_under_its_key() {
    let payments = start("memory").await;
    let refused = pay(&payments, "alice", "k", &json!({ "amount": -1, "currency": "EUR" })).await;
    assert_eq!(refused.status(), 422);
    let mended = pay(&payments, "alice", "k", &json!({ "amount": 1, "currency": "EUR" })).await;
    assert_eq!(mended.status(), 201);
    assert_eq!(ledger(&payments).await.len(), 1);
}

/// Fails when `complete_in` commits the ledger's line without the record.
#[tokio::test(flavor = "multi_thread")]
async fn a_kill_loses_nothing_that_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    a_kill_loses_nothing(&in_folder(folder.path())).await;
}

/// The process is killed, and the server is not. Fails when `end.lua` writes no response.
#[tokio::test(flavor = "multi_thread")]
async fn on_redis_a_kill_of_the_process_loses_nothing_that_was_answered() {
    let redis = RedisServer::start().await;
    a_kill_loses_nothing(&redis.url()).await;
}

/// And after it the server is killed, too. Fails when `COMPLETE_IN` writes no response, or `complete_in` does not commit.
#[tokio::test(flavor = "multi_thread")]
async fn on_postgres_a_kill_of_the_process_or_the_server_loses_nothing_that_was_answered() {
    let postgres = PostgresServer::start().await;
    let answered = a_kill_loses_nothing(&postgres.url()).await;
    postgres.kill();
    postgres.restart().await;
    let payments = start(&postgres.url()).await;
    are_replayed(&payments, &answered).await;
    assert_eq!(ledger(&payments).await.len(), answered.len());
}

/// Fails when `postgres` in the example says which URL it was that is none, and when an error of the store's shows one.
#[tokio::test]
async fn a_bad_url_of_postgres_is_told_without_its_password() {
    let right = shared().await.create_database("payments_refused").await;
    let (before, after) = right.split_once("not-to-be-told").unwrap();
    let nowhere = right.replace("payments_refused", "nowhere");
    for (store, says) in [
        (format!("{before}wrong-and-secret{after}"), "password authentication failed"),
        (nowhere, "database \"nowhere\" does not exist"),
        (right.replace("@127.0.0.1:", "@127.0.0.1:port"), "not a URL as postgres://user:password@host:5432/database"),
        (right.replace("postgres://", "postgre://"), "expected `memory`"),
    ] {
        let refused = Command::new(example("payments")).args(["--store", &store]).output().await.unwrap();
        let told = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && told.contains(says), "{told}");
        assert!(!told.contains("not-to-be-told") && !told.contains("wrong-and-secret"), "{told}");
    }
}

/// Gives what was answered, under its keys.
async fn a_kill_loses_nothing(store: &str) -> Vec<(String, String)> {
    let mut answered: Vec<(String, String)> = Vec::new();
    for round in 0..5 {
        let payments = start(store).await;
        are_replayed(&payments, &answered).await;
        let key = format!("order-{round}");
        let answer = pay(&payments, "alice", &key, &json!({ "amount": 7, "currency": "EUR" })).await;
        assert_eq!(answer.status(), 201);
        answered.push((key, answer.text().await.unwrap()));
        assert_eq!(ledger(&payments).await.len(), answered.len());
        payments.kill().await;
    }
    answered
}

async fn are_replayed(payments: &Server, answered: &[(String, String)]) {
    for (key, body) in answered {
        let again = pay(payments, "alice", key, &json!({ "amount": 7, "currency": "EUR" })).await;
        assert_eq!(again.headers()["idempotent-replayed"], "true");
        assert_eq!(again.text().await.unwrap(), *body);
    }
}
