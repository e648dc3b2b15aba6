//! The payments example as a process with its records on a server, and a client with an account.

use std::time::Duration;

use idempotency_tests::client::{self, Answer};
use idempotency_tests::server::{Server, example};
use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A server of payments whose leases are short.
pub(crate) async fn start(store: &str) -> Server {
    start_leasing(store, "0.7").await
}

/// A server of payments whose leases do not lapse while a test runs, however slow the machine.
pub(crate) async fn start_patient(store: &str) -> Server {
    start_leasing(store, "30").await
}

async fn start_leasing(store: &str, lease: &str) -> Server {
    Server::start(&example("payments"), ["--listen", "127.0.0.1:0", "--store", store, "--lease", lease]).await
}

/// Sends the order under a key until it has its answer.
pub(crate) fn persisting(payments: &Server, key: &'static str) -> JoinHandle<Answer> {
    let (url, order) = (format!("{}/payments", payments.url()), order());
    tokio::spawn(async move {
        let client = alice();
        client::persist(&client, || url.clone(), key, &order).await
    })
}

pub(crate) async fn persist(payments: &Server, key: &'static str) -> Answer {
    timeout(PATIENCE, persisting(payments, key)).await.expect("a key that never gets its answer").unwrap()
}

/// A client with an account.
pub(crate) fn alice() -> Client {
    let account = HeaderMap::from_iter([(HeaderName::from_static("x-account"), HeaderValue::from_static("alice"))]);
    Client::builder().default_headers(account).build().unwrap()
}

pub(crate) fn order() -> Value {
    json!({ "amount": 1050, "currency": "EUR" })
}

/// How many lines the ledger has.
pub(crate) async fn lines(payments: &Server) -> usize {
    let ledger: Vec<Value> = reqwest::get(format!("{}/ledger", payments.url())).await.unwrap().json().await.unwrap();
    ledger.len()
}

/// Many leases long.
const PATIENCE: Duration = Duration::from_secs(20);
