//! The books in one SQLite file.

use std::str::FromStr;

use idempotency_layer::SqliteStore;
use idempotency_layer::store::SqliteTransaction;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use super::{Books, Transfer};

/// A file with the tables in it.
#[derive(Clone, Debug)]
pub struct SqliteBooks {
    store: SqliteStore,
}

impl SqliteBooks {
    /// Opens the file and makes what is missing in it: the tables, and ten accounts of 1000 each.
    pub async fn open(path: &str) -> Self {
        let pool = open(path).await;
        let store = SqliteStore::new(pool.clone()).await.expect("a store");
        store.migrate().await.expect("a migrated store");
        sqlx::raw_sql(CREATE).execute(&pool).await.expect("tables");
        Self { store }
    }
}

impl Books for SqliteBooks {
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn pay(transaction: &mut SqliteTransaction, transfer: &Transfer) -> sqlx::Result<Option<i64>> {
        let mut connection = transaction.connection().await?;
        let paid = sqlx::query("UPDATE account SET balance = balance - ?1 WHERE id = ?2 AND balance >= ?1")
            .bind(transfer.amount)
            .bind(transfer.from)
            .execute(&mut *connection)
            .await?;
        if paid.rows_affected() == 0 {
            return Ok(None);
        }
        sqlx::query("UPDATE account SET balance = balance + ? WHERE id = ?")
            .bind(transfer.amount)
            .bind(transfer.to)
            .execute(&mut *connection)
            .await?;
        let written = sqlx::query("INSERT INTO transfer (reference, payer, payee, amount) VALUES (?, ?, ?, ?)")
            .bind(&transfer.reference)
            .bind(transfer.from)
            .bind(transfer.to)
            .bind(transfer.amount)
            .execute(&mut *connection)
            .await?;
        Ok(Some(written.last_insert_rowid()))
    }
}

/// Opens a bank's file beside its servers, to read the books.
pub async fn open(path: &str) -> SqlitePool {
    let options = SqliteConnectOptions::from_str(&format!("sqlite:{path}")).expect("a path").create_if_missing(true);
    SqlitePoolOptions::new().max_connections(4).connect_with(options).await.expect("a database")
}

/// How many keys are held by a run, dead or alive.
pub async fn running(books: &SqlitePool) -> i64 {
    let running = "SELECT count(*) FROM idempotency_record WHERE state = 1";
    sqlx::query_scalar(running).fetch_one(books).await.expect("a count")
}

/// The sum of all accounts.
pub async fn sum(books: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT sum(balance) FROM account").fetch_one(books).await.expect("a sum")
}

/// How often this reference is in the books.
pub async fn effects(books: &SqlitePool, reference: &str) -> i64 {
    let effects = "SELECT count(*) FROM transfer WHERE reference = ?";
    sqlx::query_scalar(effects).bind(reference).fetch_one(books).await.expect("a count")
}

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0)) STRICT;
CREATE TABLE IF NOT EXISTS transfer (
    id        INTEGER PRIMARY KEY,
    reference TEXT    NOT NULL,
    payer     INTEGER NOT NULL REFERENCES account,
    payee     INTEGER NOT NULL REFERENCES account,
    amount    INTEGER NOT NULL CHECK (amount > 0)
) STRICT;
WITH RECURSIVE n (id) AS (VALUES (1) UNION ALL SELECT id + 1 FROM n WHERE id < 10)
INSERT OR IGNORE INTO account SELECT id, 1000 FROM n;";
