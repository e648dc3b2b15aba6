//! The books in one PostgreSQL database, for several banks.

use std::time::Duration;

use idempotency_layer::PostgresStore;
use idempotency_layer::store::PostgresTransaction;
use sqlx::{Connection, PgConnection};

use super::{Books, Transfer};

/// A database with the tables in it.
#[derive(Clone, Debug)]
pub struct PostgresBooks {
    store: PostgresStore,
}

impl PostgresBooks {
    /// Connects, and makes what is missing: the tables, and ten accounts of 1000 each. A transaction that does nothing for
    /// `max_idle` is ended.
    pub async fn open(url: &str, max_idle: Duration) -> Self {
        let store = PostgresStore::connect(url).await.expect("a store").max_idle_transaction(max_idle);
        store.migrate().await.expect("a migrated store");
        let mut connection = PgConnection::connect(url).await.expect("a connection");
        sqlx::raw_sql(CREATE).execute(&mut connection).await.expect("tables");
        connection.close().await.expect("a connection that ends");
        Self { store }
    }
}

impl Books for PostgresBooks {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn pay(transaction: &mut PostgresTransaction, transfer: &Transfer) -> sqlx::Result<Option<i64>> {
        let mut connection = transaction.connection().await?;
        // In the order of their numbers: transfers that cross wait for each other and are in no deadlock.
        sqlx::query("SELECT FROM account WHERE id IN ($1, $2) ORDER BY id FOR UPDATE")
            .bind(transfer.from)
            .bind(transfer.to)
            .execute(&mut *connection)
            .await?;
        let paid = sqlx::query("UPDATE account SET balance = balance - $1 WHERE id = $2 AND balance >= $1")
            .bind(transfer.amount)
            .bind(transfer.from)
            .execute(&mut *connection)
            .await?;
        if paid.rows_affected() == 0 {
            return Ok(None);
        }
        sqlx::query("UPDATE account SET balance = balance + $1 WHERE id = $2")
            .bind(transfer.amount)
            .bind(transfer.to)
            .execute(&mut *connection)
            .await?;
        sqlx::query_scalar(
            "INSERT INTO transfer (reference, payer, payee, amount) VALUES ($1, $2, $3, $4) RETURNING id",
        )
        .bind(&transfer.reference)
        .bind(transfer.from)
        .bind(transfer.to)
        .bind(transfer.amount)
        .fetch_one(&mut *connection)
        .await
        .map(Some)
    }
}

/// Two processes that make the tables at once would be in each other's way.
const CREATE: &str = "
SELECT pg_advisory_xact_lock(4711);
SET LOCAL client_min_messages = warning;
CREATE TABLE IF NOT EXISTS account (id bigint PRIMARY KEY, balance bigint NOT NULL CHECK (balance >= 0));
CREATE TABLE IF NOT EXISTS transfer (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    reference text   NOT NULL,
    payer     bigint NOT NULL REFERENCES account,
    payee     bigint NOT NULL REFERENCES account,
    amount    bigint NOT NULL CHECK (amount > 0)
);
INSERT INTO account SELECT id, 1000 FROM generate_series(1, 10) id WHERE NOT EXISTS (SELECT FROM account);";
