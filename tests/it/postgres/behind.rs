//! A PostgreSQL server behind a proxy, seen by two processes: one whose network the test breaks, and one that has its own.

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency_layer::store::postgres::Isolation;
use idempotency_layer::{IdempotencyLayer, Operation, PostgresStore, PostgresTransaction, SharedStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::postgres::{PostgresServer, url_at};
use idempotency_tests::proxy::Proxy;
use std::time::Duration;

use crate::request::{gated, layer};

/// The server, and the only way to it for whoever is under test.
pub(super) struct Behind {
    pub(super) postgres: PostgresServer,
    pub(super) proxy: Proxy,
}

impl Behind {
    /// A server with the store's tables, and one for effects.
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(super) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let postgres = PostgresServer::start_with(settings).await;
        connect(&postgres.url()).await.migrate().await.unwrap();
        postgres.execute(EFFECTS).await;
        let proxy = Proxy::start(postgres.address()).await;
        Self { postgres, proxy }
    }

    /// Where the proxy is.
    pub(super) fn url(&self) -> String {
        url_at(self.proxy.address(), "postgres")
    }

    /// A store behind the proxy. It is connected.
    pub(super) async fn store(&self) -> PostgresStore {
        connect(&self.url()).await
    }

    /// A store of another process, which the proxy's faults do not concern.
    pub(super) async fn elsewhere(&self) -> PostgresStore {
        connect(&self.postgres.url()).await
    }

    /// A gated service of another process.
    pub(super) async fn heir(&self, gate: &Gate) -> Router {
        gated(layer(&SharedStore::new(self.elsewhere().await)), gate.clone())
    }

    /// How many rows a statement counts.
    pub(super) async fn count(&self, sql: &str) -> i64 {
        self.postgres.fetch(&format!("SELECT count(*) FROM {sql}")).await
    }

    pub(super) async fn effects(&self) -> i64 {
        self.count("effect").await
    }

    /// However a process ends, what it has left goes by itself.
    pub(super) async fn assert_all_expire(&self, case: &str) {
        assert_eq!(self.count("idempotency_record WHERE sweep_from IS NULL").await, 0, "{case}");
    }
}

/// A store as a process has it.
pub(super) async fn connect(url: &str) -> PostgresStore {
    PostgresStore::connect(url).await.unwrap()
}

/// A layer that does not let its clients wait for long.
pub(super) fn impatient(store: &PostgresStore) -> IdempotencyLayer<SharedStore> {
    layer(&SharedStore::new(store.clone())).record_deadline(DEADLINE)
}

/// How long an impatient layer's clients wait for its store.
pub(super) const DEADLINE: Duration = Duration::from_millis(500);

/// The levels at which handlers' transactions may run.
pub(super) const LEVELS: [Isolation; 3] =
    [Isolation::ReadCommitted, Isolation::RepeatableRead, Isolation::Serializable];

/// Sends a handler's statements over the connection of its transaction.
pub(super) async fn write(transaction: &mut PostgresTransaction, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut *transaction.connection().await?).await.map(drop)
}

/// Writes one effect, passes the gate with the transaction open, and says which attempt it was.
pub(super) async fn pay(store: &PostgresStore, gate: &Gate, operation: Operation) -> Response {
    let mut transaction = match operation.transaction(store).await {
        Ok(transaction) => transaction,
        Err(error) => return error.into_response(),
    };
    if let Err(error) = write(&mut transaction, EFFECT).await {
        return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
    }
    gate.pass().await;
    (StatusCode::CREATED, format!("attempt {}", operation.attempt())).into_response()
}

/// A service whose handler is [`pay`].
pub(super) fn paying(store: &PostgresStore, layer: IdempotencyLayer<SharedStore>, gate: &Gate) -> Router {
    let (store, gate) = (store.clone(), gate.clone());
    let handler = move |operation: Operation| {
        let (store, gate) = (store.clone(), gate.clone());
        async move { pay(&store, &gate, operation).await }
    };
    Router::new().route("/pay", axum::routing::post(handler)).layer(layer)
}

const EFFECTS: &str = "CREATE TABLE effect (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL)";

pub(super) const EFFECT: &str = "INSERT INTO effect (what) VALUES ('paid')";

// What tells the verbs' statements apart on the wire.
pub(super) const CLAIM: &str = "WITH made AS";
pub(super) const RENEW: &str = "WHERE NOT l.is_closed";
pub(super) const SETTLE: &str = "SET state = $3";
pub(super) const FORGET: &str = "DELETE FROM \"public\".idempotency_record r WHERE r.id = $1";
pub(super) const LOOK: &str = "WHERE r.id = $1\0";
pub(super) const COMPLETE_IN: &str = "WITH marked AS";
pub(super) const CONFIRM: &str = "FOR SHARE OF r";
pub(super) const UNEXPIRING: &str = "WHERE r.sweep_from IS NULL";
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL";
/// Alone in its message, where `READ COMMITTED` is not.
pub(super) const COMMIT: &str = "COMMIT\0";
