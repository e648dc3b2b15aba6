//! A bank's file and the processes that serve it.

use std::path::Path;
use std::time::Duration;

use idempotency_layer::SqliteStore;
use idempotency_tests::bank::{self, Receipt};
use idempotency_tests::client::{self, Answer};
use idempotency_tests::failpoint::Point;
use idempotency_tests::server::Server;
use reqwest::Client;
use serde_json::{Value, json};
use sqlx::SqlitePool;
use tempfile::TempDir;

/// One database file, its books, and a client.
pub(crate) struct City {
    folder: TempDir,
    pub(crate) books: SqlitePool,
    pub(crate) client: Client,
}

impl City {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let books = bank::open(folder.path().join("bank.db").to_str().unwrap()).await;
        Self { folder, books, client: client::client() }
    }

    /// Another bank process on the file.
    pub(crate) async fn bank(&self, options: &[&str]) -> Server {
        let database = self.folder.path().join("bank.db");
        let mut arguments = vec!["--database", database.to_str().unwrap()];
        arguments.extend(options);
        Server::start(Path::new(env!("CARGO_BIN_EXE_bank")), arguments).await
    }

    /// Another bank process, whose first request stops at a point.
    pub(crate) async fn bank_stopping_at(&self, point: Point, options: &[&str]) -> Server {
        let name = point.name();
        let mut arguments = vec!["--failpoint", &name];
        arguments.extend(options);
        self.bank(&arguments).await
    }

    /// The records as an operator's process opens them.
    pub(crate) async fn store(&self) -> SqliteStore {
        SqliteStore::connect(&format!("sqlite:{}", self.folder.path().join("bank.db").display())).await.unwrap()
    }

    /// Sends a transfer, and does not wait for it: whoever serves it is about to be killed or paused.
    pub(crate) fn send(&self, bank: &Server, key: &str) -> tokio::task::JoinHandle<reqwest::Result<Answer>> {
        let (client, url, key) = (self.client.clone(), url(bank), key.to_owned());
        tokio::spawn(async move { client::post(&client, &url, &key, &order(&key)).await })
    }

    /// Sends a transfer until it has its answer.
    pub(crate) fn persist(&self, bank: &Server, key: &str) -> impl Future<Output = Answer> + use<> {
        let (client, url, key) = (self.client.clone(), url(bank), key.to_owned());
        async move {
            let order = order(&key);
            let persisted = client::persist(&client, || url.clone(), &key, &order);
            tokio::time::timeout(PATIENCE, persisted).await.expect("a key that never gets its answer")
        }
    }

    /// As [`persist`](Self::persist), beside the test.
    pub(crate) fn persisting(&self, bank: &Server, key: &str) -> tokio::task::JoinHandle<Answer> {
        let (client, url, key) = (self.client.clone(), url(bank), key.to_owned());
        tokio::spawn(async move { client::persist(&client, || url.clone(), &key, &order(&key)).await })
    }

    /// The money is where it was or where it should be, and the key's effect is in the books so often.
    pub(crate) async fn assert_effects(&self, key: &str, effects: i64) {
        assert_eq!(bank::sum(&self.books).await, bank::TOTAL, "money was made or lost");
        assert_eq!(bank::effects(&self.books, key).await, effects, "effects of {key}");
    }
}

/// What the answer of a run says of it.
pub(crate) fn receipt(answer: &Answer) -> Receipt {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn url(bank: &Server) -> String {
    format!("{}/transfers", bank.url())
}

fn order(key: &str) -> Value {
    json!({ "reference": key, "from": 1, "to": 2, "amount": 10 })
}

/// Many leases long.
const PATIENCE: Duration = Duration::from_secs(20);
