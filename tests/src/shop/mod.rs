//! A shop whose orders are charged by a provider and written into its books, once for each key: the service in the middle
//! of a chain.
//!
//! ```text
//! caller ──key──► shop ──a key for each charge, derived from the caller's──► provider
//! ```
//!
//! `POST /orders` with an `x-account`, which is the principal:
//!
//! 1. has the price charged, a call that has a name;
//! 2. has the delivery charged, a call that is known by where it goes;
//! 3. writes the order into the [`Books`].
//!
//! `GET /orders` says how many orders the account has.
//!
//! What the provider does not charge is answered with 502, and the layer decides what becomes of the key.

mod books;
mod postgres;
mod redis;
mod sqlite;
mod till;

pub use books::Books;
pub use postgres::PostgresBooks;
pub use redis::RedisBooks;
pub use sqlite::SqliteBooks;
pub use till::{DELIVERY, Till};

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use idempotency_layer::{IdempotencyLayer, Operation, Propagation, TransactionError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::failpoint::{Failpoint, Point};
use crate::hooked::Hooked;

/// What a caller asks for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Order {
    /// What is bought.
    pub item: String,
    /// Its price.
    pub amount: i64,
}

/// The shop as a service.
#[derive(Clone, Debug)]
pub struct Shop<B: Books> {
    books: B,
    store: Hooked<B::Store>,
    till: Till,
    failpoint: Failpoint,
}

impl<B: Books> Shop<B> {
    /// A shop that keeps these books.
    pub fn new(books: B, till: Till, failpoint: Failpoint) -> Self {
        let store = Hooked::new(books.store().clone(), Arc::new(failpoint.clone()));
        Self { books, store, till, failpoint }
    }

    /// The routes. The lease is how long the order of a process that has died is not taken up.
    pub fn router(self, lease: Duration) -> Router {
        let layer = IdempotencyLayer::new(self.store.clone())
            .scope("order:create")
            .principal(|parts| account(&parts.headers).map(str::to_owned))
            .lease(lease);
        Router::new()
            .route("/orders", post(order::<B>).route_layer(layer).get(orders::<B>))
            .layer(from_fn_with_state(self.failpoint.clone(), answer))
            .with_state(self)
    }
}

async fn order<B: Books>(
    State(shop): State<Shop<B>>,
    operation: Operation,
    run: Propagation,
    Json(order): Json<Order>,
) -> Response {
    match shop.order(&operation, &run, &order).await {
        Ok(receipt) => (StatusCode::CREATED, Json(receipt)).into_response(),
        Err(failure) => match failure.downcast::<TransactionError>() {
            Ok(refused) => refused.into_response(),
            Err(failure) => {
                tracing::warn!(failure, "an order failed");
                StatusCode::BAD_GATEWAY.into_response()
            }
        },
    }
}

impl<B: Books> Shop<B> {
    async fn order(&self, operation: &Operation, run: &Propagation, order: &Order) -> Result<Value, Failure> {
        self.failpoint.pass(Point::Handler).await;
        let price = self.till.price(run, order).await?;
        let delivery = self.till.delivery().await?;
        self.failpoint.pass(Point::Charged).await;
        self.books.write(&self.store, operation, run.principal().ok_or("an order of nobody")?, order).await?;
        Ok(json!({ "attempt": operation.attempt(), "price": price, "delivery": delivery }))
    }
}

async fn orders<B: Books>(State(shop): State<Shop<B>>, headers: HeaderMap) -> Result<String, StatusCode> {
    let account = account(&headers).ok_or(StatusCode::UNAUTHORIZED)?;
    let count = shop.books.count(account).await;
    count.map(|count| count.to_string()).map_err(|failure| {
        tracing::warn!(failure, "the books cannot be read");
        StatusCode::SERVICE_UNAVAILABLE
    })
}

async fn answer(State(failpoint): State<Failpoint>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status() == StatusCode::CREATED {
        failpoint.pass(Point::Answer).await;
    }
    response
}

fn account(headers: &HeaderMap) -> Option<&str> {
    headers.get("x-account")?.to_str().ok()
}

/// Whatever keeps an order from being made.
pub type Failure = Box<dyn Error + Send + Sync>;
