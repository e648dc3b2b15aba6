//! A bank's database and the processes that serve it.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use idempotency_tests::bank;
use idempotency_tests::client;
use idempotency_tests::failpoint::Point;
use idempotency_tests::postgres::shared;
use idempotency_tests::server::Server;
use reqwest::Client;
use sqlx::PgPool;

/// One database, its books, and a client.
pub(super) struct City {
    url: String,
    pub(super) books: PgPool,
    pub(super) client: Client,
}

impl City {
    /// In a database of its own on the server that tests share.
    pub(super) async fn new() -> Self {
        static CITIES: AtomicU32 = AtomicU32::new(0);
        let name = format!("city_{}", CITIES.fetch_add(1, Ordering::SeqCst));
        Self::at(shared().await.create_database(&name).await)
    }

    /// In the database at this URL.
    pub(super) fn at(url: String) -> Self {
        let books = PgPool::connect_lazy(&url).unwrap();
        Self { url, books, client: client::client() }
    }

    /// Another bank process on the database.
    pub(super) async fn bank(&self, options: &[&str]) -> Server {
        let mut arguments = vec!["--database", &self.url];
        arguments.extend(options);
        Server::start(Path::new(env!("CARGO_BIN_EXE_bank")), arguments).await
    }

    /// Another bank process, of which a request stops at a point.
    pub(super) async fn bank_stopping_at(&self, point: Point, options: &[&str]) -> Server {
        let name = point.name();
        self.bank(&[&["--failpoint", &name], options].concat()).await
    }

    /// How often each reference is in the books, in which no money was made or lost.
    pub(super) async fn effects(&self) -> HashMap<String, i64> {
        let wrong: i64 = sqlx::query_scalar(WRONG).fetch_one(&self.books).await.unwrap();
        assert_eq!(wrong, 0, "accounts that are not what their transfers make them");
        let sum: i64 =
            sqlx::query_scalar("SELECT sum(balance)::bigint FROM account").fetch_one(&self.books).await.unwrap();
        assert_eq!(sum, bank::TOTAL, "money was made or lost");
        let effects = "SELECT reference, count(*) FROM transfer GROUP BY reference";
        sqlx::query_as::<_, (String, i64)>(effects).fetch_all(&self.books).await.unwrap().into_iter().collect()
    }
}

const WRONG: &str = "SELECT count(*) FROM account a WHERE balance <> 1000 \
     + (SELECT coalesce(sum(amount), 0) FROM transfer WHERE payee = a.id) \
     - (SELECT coalesce(sum(amount), 0) FROM transfer WHERE payer = a.id)";
