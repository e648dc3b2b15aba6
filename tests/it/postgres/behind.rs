//! A PostgreSQL server behind a proxy, seen by two processes: one whose network the test breaks, and one that has its own.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use idempotency_layer::store::postgres::Isolation;
use idempotency_layer::{IdempotencyLayer, Operation, PostgresStore, PostgresTransaction, SharedStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::postgres::{PostgresServer, shared, url_at};
use idempotency_tests::proxy::Proxy;
use sqlx::{Connection, PgConnection};

use crate::request::{PATIENCE, gated, layer};

/// A database with the store's tables and one for effects, and the only way to it for whoever is under test.
pub(super) struct Behind {
    pub(super) postgres: Server,
    pub(super) proxy: Proxy,
    database: String,
}

/// Whose the server is.
pub(super) enum Server {
    Own(Box<PostgresServer>),
    Shared(&'static PostgresServer),
}

impl Deref for Server {
    type Target = PostgresServer;

    fn deref(&self) -> &PostgresServer {
        match self {
            Self::Own(server) => server,
            Self::Shared(server) => server,
        }
    }
}

impl Behind {
    /// A server of the test's own, which it may harm.
    pub(super) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub(super) async fn start_with(settings: &[(&str, &str)]) -> Self {
        let server = PostgresServer::start_with(settings).await;
        Self::new(Server::Own(Box::new(server)), "postgres".to_owned()).await
    }

    /// A database of the test's own on the server that all share.
    pub(super) async fn share() -> Self {
        static DATABASES: AtomicU64 = AtomicU64::new(0);
        let database = format!("behind_{}", DATABASES.fetch_add(1, Ordering::SeqCst));
        let server = shared().await;
        server.create_database(&database).await;
        Self::new(Server::Shared(server), database).await
    }

    async fn new(postgres: Server, database: String) -> Self {
        let proxy = Proxy::start(postgres.address()).await;
        let behind = Self { postgres, proxy, database };
        behind.elsewhere().await.migrate().await.unwrap();
        behind.execute(EFFECTS).await;
        behind
    }

    /// What leads to the database, and past no proxy.
    pub(super) fn direct(&self) -> String {
        url_at(self.postgres.address(), &self.database)
    }

    /// What leads to the database through another proxy.
    pub(super) fn through(&self, proxy: &Proxy) -> String {
        url_at(proxy.address(), &self.database)
    }

    /// What leads to the database through the proxy.
    pub(super) fn url(&self) -> String {
        self.through(&self.proxy)
    }

    /// A store behind the proxy that waits for its server however slow the machine.
    pub(super) async fn patient(&self) -> PostgresStore {
        self.store().await.timeout(PATIENCE)
    }

    /// A store behind the proxy. It is connected.
    pub(super) async fn store(&self) -> PostgresStore {
        connect(&self.url()).await
    }

    /// A store of another process, which the proxy's faults do not concern.
    pub(super) async fn elsewhere(&self) -> PostgresStore {
        connect(&self.direct()).await
    }

    /// A connection to the database beside all stores.
    pub(super) async fn witness(&self) -> PgConnection {
        PgConnection::connect(&self.direct()).await.unwrap()
    }

    pub(super) async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.witness().await).await.unwrap();
    }

    /// How many rows a statement counts.
    pub(super) async fn count(&self, sql: &'static str) -> i64 {
        let sql = format!("SELECT count(*) FROM {sql}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).fetch_one(&mut self.witness().await).await.unwrap()
    }

    /// How many statements wait for somebody's lock.
    pub(super) async fn waiting(&self) -> i64 {
        self.count("pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()").await
    }

    /// Ends all connections to the database, as an operator does; they are gone when this returns.
    pub(super) async fn disconnect(&self) {
        self.execute(
            "SELECT pg_terminate_backend(pid, 20000) FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        .await;
    }

    /// A gated service of another process.
    pub(super) async fn heir(&self, gate: &Gate) -> Router {
        gated(layer(&SharedStore::new(self.elsewhere().await)), gate.clone())
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

/// A layer whose clients wait for its store however slow the machine. A request may have to wait for a connection before
/// its claim is sent, and on a busy machine a login to the server takes half a second.
pub(super) fn patient(store: &PostgresStore) -> IdempotencyLayer<SharedStore> {
    layer(&SharedStore::new(store.clone())).record_deadline(PATIENCE)
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
pub(super) const CLAIM: &str = "WITH found AS";
pub(super) const REPLACE: &str = "UPDATE \"public\".idempotency_record r SET state = $8";
pub(super) const SETTLE: &str = "SET state = $3";
pub(super) const FORGET: &str = "DELETE FROM \"public\".idempotency_record r WHERE r.id = $1";
pub(super) const LOOK: &str = "WHERE r.id = $1\0";
pub(super) const COMPLETE_IN: &str = "WITH marked AS";
pub(super) const CONFIRM: &str = "FOR SHARE OF r";
pub(super) const UNEXPIRING: &str = "WHERE r.sweep_from IS NULL";
pub(super) const BEGIN: &str = "BEGIN ISOLATION LEVEL";
/// Alone in its message, where `READ COMMITTED` is not.
pub(super) const COMMIT: &str = "COMMIT\0";
