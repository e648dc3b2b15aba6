//! A bank whose sum never changes: accounts and transfers in the database that also holds the records.
//!
//! `POST /transfers` moves money in the transaction of the operation. What a transfer was asked for under is written
//! into the books as its `reference`, without any constraint: if a key ever takes effect twice, the books show it.
//!
//! Where a provider is named, a transfer is charged there first, under a key derived from its own.
//!
//! The books are in a [file of SQLite's](SqliteBooks) or in a [database of PostgreSQL's](PostgresBooks).

mod postgres;
mod sqlite;

pub use postgres::PostgresBooks;
pub use sqlite::{SqliteBooks, effects, open, running, sum};

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use idempotency_layer::{
    DerivedKeyReused, IdempotencyLayer, Operation, Propagation, TransactionError, TransactionalStore,
};
use reqwest::Client;
use serde::{Deserialize, Serialize};
use serde_json::json;

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

/// The accounts and transfers, in the database of the store.
pub trait Books: Clone + Send + Sync + 'static {
    /// Where the records are.
    type Store: TransactionalStore;

    /// The store of the records.
    fn store(&self) -> &Self::Store;

    /// Writes a transfer and gives its line, unless there is not enough money.
    fn pay(
        transaction: &mut <Self::Store as TransactionalStore>::Transaction,
        transfer: &Transfer,
    ) -> impl Future<Output = sqlx::Result<Option<i64>>> + Send;
}

/// The bank as a service.
#[derive(Clone, Debug)]
pub struct Bank<B: Books> {
    store: Hooked<B::Store>,
    failpoint: Failpoint,
    delay: Duration,
    provider: Option<(Client, Arc<str>)>,
}

impl<B: Books> Bank<B> {
    /// A bank that keeps these books.
    pub fn new(books: &B, failpoint: Failpoint, delay: Duration) -> Self {
        let store = Hooked::new(books.store().clone(), Arc::new(failpoint.clone()));
        Self { store, failpoint, delay, provider: None }
    }

    /// A bank that charges each transfer at this address first.
    #[must_use]
    pub fn provider(self, url: &str) -> Self {
        Self { provider: Some((Client::new(), Arc::from(url))), ..self }
    }

    /// The routes inside a layer, which `configure` may change.
    pub fn router(
        self,
        configure: impl FnOnce(IdempotencyLayer<Hooked<B::Store>>) -> IdempotencyLayer<Hooked<B::Store>>,
    ) -> Router {
        let layer = IdempotencyLayer::new(self.store.clone()).scope("transfer").anonymous(true);
        Router::new()
            .route("/transfers", post(transfer::<B>))
            .layer(configure(layer))
            .layer(from_fn_with_state(self.failpoint.clone(), answer))
            .with_state(self)
    }
}

async fn transfer<B: Books>(
    State(bank): State<Bank<B>>,
    operation: Operation,
    run: Propagation,
    Json(transfer): Json<Transfer>,
) -> Result<(StatusCode, Json<Receipt>), Refusal> {
    bank.failpoint.pass(Point::Handler).await;
    tokio::time::sleep(bank.delay).await;
    if let Some((client, url)) = &bank.provider {
        let key = run.operation("charge").with(&transfer.reference).key()?;
        let charge = json!({ "amount": transfer.amount, "currency": "EUR" });
        let call = client.post(&**url).header("idempotency-key", key.quoted()).json(&charge);
        call.send().await?.error_for_status()?;
    }
    let mut transaction = operation.transaction(&bank.store).await?;
    let Some(id) = B::pay(&mut transaction, &transfer).await? else { return Err(Refusal::Funds) };
    bank.failpoint.pass(Point::Effect).await;
    Ok((StatusCode::CREATED, Json(Receipt { id, attempt: operation.attempt() })))
}

enum Refusal {
    Funds,
    Transaction(TransactionError),
    Sql(sqlx::Error),
    Provider(reqwest::Error),
    Reused(DerivedKeyReused),
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

impl From<reqwest::Error> for Refusal {
    fn from(error: reqwest::Error) -> Self {
        Self::Provider(error)
    }
}

impl From<DerivedKeyReused> for Refusal {
    fn from(error: DerivedKeyReused) -> Self {
        Self::Reused(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Funds => (StatusCode::PAYMENT_REQUIRED, "not enough money").into_response(),
            Self::Transaction(error) => error.into_response(),
            Self::Sql(error) => failed(&error),
            Self::Provider(error) => failed(&error),
            Self::Reused(error) => failed(&error),
        }
    }
}

fn failed(error: &(dyn Error + 'static)) -> Response {
    tracing::error!(error, "a transfer failed");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

async fn answer(State(failpoint): State<Failpoint>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status().is_success() {
        failpoint.pass(Point::Answer).await;
    }
    response
}

/// Ten accounts of 1000.
pub const TOTAL: i64 = 10_000;
