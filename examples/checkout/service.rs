//! A service that takes orders: it has each one charged by the provider and writes it into its books, once for each
//! key.
//!
//! `POST /orders` with an `Idempotency-Key` and an `x-account` orders; `GET /orders` says how many there are.
//! `x-account` stands for what authentication would have established.

use std::error::Error;
use std::future::pending;
use std::path::Path;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use client_retry::{IdempotentRetry, redirect_policy};
use idempotency_layer::{IdempotencyLayer, Operation, Propagation, SqliteStore};
use reqwest::header::CONTENT_TYPE;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde::Deserialize;
use serde_json::{Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use tokio::net::TcpListener;

use crate::narrator::Narrator;
use crate::script::Kill;

#[derive(Clone)]
struct Shop {
    pool: SqlitePool,
    store: SqliteStore,
    client: ClientWithMiddleware,
    charges: String,
    stop: Stop,
}

#[derive(Deserialize)]
struct Order {
    item: String,
    amount: i64,
}

/// Serves until it is killed. The first line that it prints is its address.
pub(crate) async fn run(
    listen: &str,
    provider: &str,
    database: &Path,
    stop: Option<Kill>,
) -> Result<(), Box<dyn Error>> {
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(database).create_if_missing(true)).await?;
    let store = SqliteStore::new(pool.clone()).await?;
    store.migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (item TEXT, amount INTEGER, charge TEXT)").execute(&pool).await?;

    // What the provider has not answered by then, it is asked again.
    let retry = IdempotentRetry::builder().attempt_timeout(Duration::from_secs(1)).build()?;
    let client =
        reqwest::Client::builder().redirect(redirect_policy()).retry(reqwest::retry::never()).no_proxy().build()?;
    let client = ClientBuilder::new(client).with(retry).with(Narrator(say)).build();
    let layer = IdempotencyLayer::new(store.clone())
        .scope("order:create")
        .principal(|parts| Some(parts.headers.get("x-account")?.to_str().ok()?.to_owned()))
        // How long a dead process keeps its orders from being taken up.
        .lease(Duration::from_secs(1))
        .validate()?;

    let stop = Stop(stop);
    let shop = Shop { pool, store, client, charges: format!("{provider}/charges"), stop };
    let app = Router::new()
        .route("/orders", post(order).route_layer(layer).get(orders))
        .layer(from_fn_with_state(stop, before_the_answer))
        .with_state(shop);
    let listener = TcpListener::bind(listen).await?;
    say(&listener.local_addr()?.to_string());
    Ok(axum::serve(listener, app).await?)
}

/// Charges and writes down, as often as it runs, to the effect of once.
async fn order(
    State(shop): State<Shop>,
    propagation: Propagation,
    operation: Operation,
    Json(order): Json<Order>,
) -> Result<(StatusCode, Json<Value>), Failure> {
    say(&format!("run {} of this order", operation.attempt()));
    shop.stop.at(Kill::Begun).await;
    let key = propagation.operation("charge").key()?;
    let asked = shop.client.post(&shop.charges).header(CONTENT_TYPE, "application/json").with_extension(key);
    let charged = asked.body(json!({ "amount": order.amount, "currency": "EUR" }).to_string()).send().await?;
    if charged.status() != StatusCode::CREATED {
        return Err(Failure);
    }
    let charge = charged.text().await?;
    shop.stop.at(Kill::Answered).await;

    let mut transaction = operation.transaction(&shop.store).await?;
    sqlx::query("INSERT INTO orders (item, amount, charge) VALUES (?, ?, ?)")
        .bind(&order.item)
        .bind(order.amount)
        .bind(&charge)
        .execute(&mut *transaction.connection().await?)
        .await?;
    Ok((StatusCode::CREATED, Json(json!({ "ordered": order.item, "paid": charge }))))
}

async fn orders(State(shop): State<Shop>) -> Result<String, Failure> {
    let orders: i64 = sqlx::query_scalar("SELECT count(*) FROM orders").fetch_one(&shop.pool).await?;
    Ok(format!("{orders} order{}", if orders == 1 { "" } else { "s" }))
}

/// What the layer has recorded has not left yet.
async fn before_the_answer(State(stop): State<Stop>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    if response.status() == StatusCode::CREATED {
        stop.at(Kill::Recorded).await;
    }
    response
}

/// Where this process waits until it is killed.
#[derive(Clone, Copy)]
struct Stop(Option<Kill>);

impl Stop {
    async fn at(self, here: Kill) {
        if self.0 == Some(here) {
            say(STOPPED);
            pending().await
        }
    }
}

/// Tells whoever started this process.
fn say(what: &str) {
    println!("{what}");
}

/// The line that says that this process waits to be killed.
pub(crate) const STOPPED: &str = "!";

/// What went wrong is told, and the layer decides what becomes of the key.
struct Failure;

impl<E: Error> From<E> for Failure {
    fn from(error: E) -> Self {
        say(&format!("fails: {error}"));
        Self
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        StatusCode::BAD_GATEWAY.into_response()
    }
}
