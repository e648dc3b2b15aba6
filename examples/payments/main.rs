//! A payments service that can be killed at any moment without charging twice or losing what it answered.
//!
//! - `POST /payments` with `{"amount": 1050, "currency": "EUR"}` (in the currency's smallest unit), an
//!   `Idempotency-Key` and an `x-account` writes one line into the ledger, however often it is sent.
//! - `GET /ledger` shows every line.
//!
//! On SQLite and PostgreSQL the line and the record of the answer are committed in one transaction: after a `kill -9` there are both
//! or none, and the retry gets the same answer or makes the payment. In memory both are gone together with the process.
//! On Redis they are two writes: the line is written once for each operation, so that a run that is repeated finds it, and
//! both last as long as the server's data.
//!
//! `x-account` stands for what authentication would have established; a service behind a gateway reads it there.

mod ledger;
mod payment;
mod servers;

use std::error::Error;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::Parser;
use idempotency_layer::{IdempotencyLayer, MemoryStore, Operation, SharedStore};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::task::TaskTracker;

use crate::ledger::{Ledger, LedgerError};
use crate::payment::{Order, Payment};
use crate::servers::Servers;

/// An idempotent payments service.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
    /// Where records and ledger live: `memory`, `sqlite:PATH`, `postgres://USER@HOST/DATABASE`, `redis://HOST:PORT` or
    /// `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`.
    #[arg(long, default_value = "memory")]
    store: String,
    /// How long a dead process keeps a key, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = seconds, allow_negative_numbers = true)]
    lease: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "expected a number of seconds, as in 30 or 0.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[derive(Clone)]
enum StoreOption {
    Memory,
    Sqlite(String),
    Postgres(String),
    Redis(Servers),
}

impl FromStr for StoreOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "memory" => Ok(Self::Memory),
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(text.to_owned())),
            Some(("postgres" | "postgresql", _)) => Ok(Self::Postgres(text.to_owned())),
            _ => Servers::read(text).map(Self::Redis).ok_or_else(|| EXPECTED.to_owned()),
        }
    }
}

const EXPECTED: &str = "expected `memory`, `sqlite:PATH`, `postgres://USER@HOST/DATABASE`, `redis://HOST:PORT` or \
     `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`";

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(tracing::Level::WARN).init();
    match serve(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Each cause has its own words: what a store could not do, and then why.
            eprint!("payments: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                eprint!(": {error}");
                cause = error.source();
            }
            eprintln!();
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), Box<dyn Error>> {
    // Read here and not by the command line's parser, which would print what it cannot read, and a password with it.
    let (ledger, store) = match &options.store.parse()? {
        StoreOption::Memory => (Ledger::memory(), SharedStore::new(MemoryStore::new())),
        StoreOption::Sqlite(url) => {
            let (ledger, store) = ledger::sqlite(url).await?;
            (ledger, SharedStore::new(store))
        }
        StoreOption::Postgres(url) => {
            let (ledger, store) = ledger::postgres(url).await?;
            (ledger, SharedStore::new(store))
        }
        StoreOption::Redis(servers) => {
            let (ledger, store) = ledger::redis(servers).await?;
            (ledger, SharedStore::new(store))
        }
    };
    let runs = TaskTracker::new();
    let layer = IdempotencyLayer::new(store)
        .scope("payment:create")
        .principal(account_of)
        .lease(options.lease)
        .tracker(runs.clone())
        .validate()?;
    let app =
        Router::new().route("/payments", post(pay)).route("/ledger", get(show)).route_layer(layer).with_state(ledger);

    let bound = tokio::net::TcpListener::bind(&options.listen).await;
    let listener = bound.map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    println!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(stopped(signal(SignalKind::terminate())?, runs.clone())).await?;
    // The runs under way finish, also those whose clients have gone.
    runs.wait().await;
    Ok(())
}

/// Makes one payment. The layer commits it together with the answer.
async fn pay(
    State(ledger): State<Ledger>,
    Account(account): Account,
    operation: Operation,
    Json(order): Json<Order>,
) -> Result<(StatusCode, Json<Payment>), Failure> {
    let order = order.checked().map_err(Failure::Order)?;
    let payment = ledger.append(&operation, &account, order).await?;
    Ok((StatusCode::CREATED, Json(payment)))
}

async fn show(State(ledger): State<Ledger>) -> Result<Json<Vec<Payment>>, Failure> {
    Ok(Json(ledger.payments().await?))
}

/// Whose request it is, for handlers.
struct Account(String);

impl<S: Send + Sync> FromRequestParts<S> for Account {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        account_of(parts).map(Self).ok_or((StatusCode::UNAUTHORIZED, "the x-account header is missing\n"))
    }
}

/// Whose request it is, for the layer: two accounts never share a key.
fn account_of(parts: &Parts) -> Option<String> {
    let account = parts.headers.get("x-account")?.to_str().ok()?;
    (!account.is_empty()).then(|| account.to_owned())
}

enum Failure {
    Order(&'static str),
    Ledger(LedgerError),
}

impl From<LedgerError> for Failure {
    fn from(error: LedgerError) -> Self {
        Self::Ledger(error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match self {
            Self::Order(why) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
            Self::Ledger(LedgerError::Transaction(error)) => error.into_response(),
            Self::Ledger(LedgerError::Sql(error)) => ledger_failed(&error),
            Self::Ledger(LedgerError::Redis(error)) => ledger_failed(&error),
        }
    }
}

/// Nobody knows what was written: the key is free for a retry, which finds out.
fn ledger_failed(error: &(dyn Error + 'static)) -> Response {
    tracing::error!(error, "the ledger failed");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

/// SIGINT or SIGTERM. From then on there are no new runs.
async fn stopped(mut terminate: Signal, runs: TaskTracker) {
    tokio::select! {
        Some(()) = terminate.recv() => {}
        Ok(()) = tokio::signal::ctrl_c() => {}
        else => std::future::pending().await,
    }
    runs.close();
}
