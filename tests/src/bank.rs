//! A bank whose sum never changes: accounts and transfers in the SQLite file that also holds the records.
//!
//! `POST /transfers` moves money in the transaction of the operation. What a transfer was asked for under is written
//! into the books as its `reference`, without any constraint: if a key ever takes effect twice, the books show it.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use idempotency_layer::{IdempotencyLayer, Operation, SqliteStore, TransactionError};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};

use crate::failpoint::{Failpoint, Point};
use crate::hooked::Hooked;

/// What a client asks for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Transfer {
    /// The client's own name for it; here always its key.
    pub reference: String,
    /// The account that pays.
    pub from: i64,
    /// The account that is paid.
    pub to: i64,
    /// How much.
    pub amount: i64,
}

/// What a client gets.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Receipt {
    /// The line in the books.
    pub id: i64,
    /// Which run of the key wrote it.
    pub attempt: u32,
}

/// The bank as a service.
#[derive(Clone, Debug)]
pub struct Bank {
    store: Hooked<SqliteStore>,
    failpoint: Failpoint,
    delay: Duration,
}

impl Bank {
    /// Opens the file and makes what is missing in it: the tables, and ten accounts of 1000 each.
    pub async fn open(path: &str, failpoint: Failpoint, delay: Duration) -> Self {
        let pool = open(path).await;
        let store = SqliteStore::new(pool.clone()).await.expect("a store");
        store.migrate().await.expect("a migrated store");
        sqlx::raw_sql(CREATE).execute(&pool).await.expect("tables");
        Self { store: Hooked::new(store, Arc::new(failpoint.clone())), failpoint, delay }
    }

    /// The routes inside a layer, which `configure` may change.
    pub fn router(
        self,
        configure: impl FnOnce(IdempotencyLayer<Hooked<SqliteStore>>) -> IdempotencyLayer<Hooked<SqliteStore>>,
    ) -> Router {
        let layer = IdempotencyLayer::new(self.store.clone()).scope("transfer").anonymous(true);
        Router::new()
            .route("/transfers", post(transfer))
            .layer(configure(layer))
            .layer(from_fn_with_state(self.failpoint.clone(), answer))
            .with_state(self)
    }
}

async fn transfer(
    State(bank): State<Bank>,
    operation: Operation,
    Json(transfer): Json<Transfer>,
) -> Result<(StatusCode, Json<Receipt>), Refusal> {
    bank.failpoint.pass(Point::Handler).await;
    tokio::time::sleep(bank.delay).await;
    let mut transaction = operation.transaction(&bank.store).await?;
    let id = {
        let mut connection = transaction.connection().await?;
        let paid = sqlx::query("UPDATE account SET balance = balance - ?1 WHERE id = ?2 AND balance >= ?1")
            .bind(transfer.amount)
            .bind(transfer.from)
            .execute(&mut *connection)
            .await?;
        if paid.rows_affected() == 0 {
            return Err(Refusal::Funds);
        }
        sqlx::query("UPDATE account SET balance = balance + ? WHERE id = ?")
            .bind(transfer.amount)
            .bind(transfer.to)
            .execute(&mut *connection)
            .await?;
        sqlx::query("INSERT INTO transfer (reference, payer, payee, amount) VALUES (?, ?, ?, ?)")
            .bind(&transfer.reference)
            .bind(transfer.from)
            .bind(transfer.to)
            .bind(transfer.amount)
            .execute(&mut *connection)
            .await?
            .last_insert_rowid()
    };
    bank.failpoint.pass(Point::Effect).await;
    Ok((StatusCode::CREATED, Json(Receipt { id, attempt: operation.attempt() })))
}

enum Refusal {
    Funds,
    Transaction(TransactionError),
    Sql(sqlx::Error),
}

impl From<TransactionError> for Refusal {
    fn from(error: TransactionError) -> Self {
        Self::Transaction(error)
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Funds => (StatusCode::PAYMENT_REQUIRED, "not enough money").into_response(),
            Self::Transaction(error) => error.into_response(),
            Self::Sql(error) => {
                tracing::error!(%error, "a transfer failed");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

async fn answer(State(failpoint): State<Failpoint>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status().is_success() {
        failpoint.pass(Point::Answer).await;
    }
    response
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

/// Ten accounts of 1000.
pub const TOTAL: i64 = 10_000;

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
