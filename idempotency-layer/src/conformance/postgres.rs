//! The Postgres store on trial, over one set of connections and over several, straight and through a pooler, at each
//! isolation level of handlers' transactions.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio::sync::OnceCell;
use tokio::time::sleep;

use super::Harness;
use super::key::random;
use super::transactional::{Ending, TransactionalHarness};
use crate::PostgresStore;
use crate::store::postgres::Isolation;
use crate::store::{PostgresTransaction, RecordId, StoreErrorKind};

/// [`PostgresStore`]s on a server of the test's, each harness in a schema of its own. Time passes as the server's does.
#[derive(Clone, Debug)]
pub struct PostgresHarness {
    url: String,
    /// The server itself, where `url` is that of a pooler.
    pooled: Option<String>,
    schema: Arc<str>,
    lease: Duration,
    isolation: Isolation,
    /// None: each handle has connections of its own, as in another process.
    clones: Option<Arc<OnceCell<PostgresStore>>>,
    migrated: Arc<OnceCell<()>>,
}

impl PostgresHarness {
    /// A harness for the database at this URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            pooled: None,
            schema: own_schema().into(),
            lease: Duration::from_secs(1),
            isolation: Isolation::ReadCommitted,
            clones: None,
            migrated: Arc::default(),
        }
    }

    /// A harness whose stores go through an old pooler at `url` to the database at `server`.
    #[must_use]
    pub fn behind_pooler(url: impl Into<String>, server: impl Into<String>) -> Self {
        Self { pooled: Some(server.into()), ..Self::new(url) }
    }

    /// Makes all handles clones of one, as they are within a process.
    #[must_use]
    pub fn clones(self) -> Self {
        Self { clones: Some(Arc::default()), ..self }
    }

    /// Gives handlers' transactions this isolation level.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Self { isolation, ..self }
    }

    /// Gives leases this length, and retentions twice and a half of it. Default: one second.
    #[must_use]
    pub fn lease_of(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// A harness in a schema of its own.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self {
            schema: own_schema().into(),
            clones: self.clones.as_ref().map(|_| Arc::default()),
            migrated: Arc::default(),
            ..self.clone()
        }
    }

    /// Where the tables of this harness are.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.schema
    }

    async fn connect(&self, schema: &str) -> PostgresStore {
        let connected = match &self.pooled {
            Some(_) => PostgresStore::legacy_pooler(&self.url).await,
            None => PostgresStore::connect(&self.url).await,
        };
        let store = connected.unwrap_or_else(|error| panic!("no connection: {error:?}"));
        store.schema(schema).isolation(self.isolation)
    }

    async fn open_own(&self) -> PostgresStore {
        let store = self.connect(&self.schema).await;
        let migrate = || async {
            migrate(&store).await;
            self.execute(&format!("CREATE TABLE \"{}\".effect (name text NOT NULL)", self.schema)).await;
        };
        self.migrated.get_or_init(migrate).await;
        store
    }

    /// A connection beside the store's.
    async fn witness(&self) -> PgConnection {
        let url = self.pooled.as_ref().unwrap_or(&self.url);
        let options: PgConnectOptions = url.parse().unwrap_or_else(|error| panic!("no URL: {error:?}"));
        options.connect().await.unwrap_or_else(|error| panic!("no connection: {error:?}"))
    }

    async fn execute(&self, sql: &str) {
        let mut connection = self.witness().await;
        let executed = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await;
        executed.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        // Whether the server says goodbye does not matter.
        let _closed = connection.close().await;
    }
}

impl Harness for PostgresHarness {
    type Store = PostgresStore;

    async fn open(&self) -> PostgresStore {
        match &self.clones {
            Some(store) => store.get_or_init(|| self.open_own()).await.clone(),
            None => self.open_own().await,
        }
    }

    async fn open_elsewhere(&self) -> PostgresStore {
        let store = self.connect(&own_schema()).await;
        migrate(&store).await;
        store
    }

    async fn pass(&self, by: Duration) {
        sleep(by).await;
    }

    async fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
        let damaged = self.open().await.damage(record, kind).await;
        damaged.unwrap_or_else(|error| panic!("a record cannot be damaged: {error:?}"));
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn retention(&self) -> Duration {
        self.lease * 5 / 2
    }

    fn pushes(&self) -> bool {
        self.clones.is_some()
    }
}

impl TransactionalHarness for PostgresHarness {
    async fn write_effect(&self, transaction: &mut PostgresTransaction, name: &str) -> bool {
        match transaction.connection().await {
            Ok(mut connection) => write_effect(&mut connection, &self.schema, name).await.is_ok(),
            Err(_) => false,
        }
    }

    async fn effects(&self, name: &str) -> u64 {
        let sql = format!("SELECT count(*) FROM \"{}\".effect WHERE name = $1", self.schema);
        let mut connection = self.witness().await;
        let counted: sqlx::Result<i64> =
            sqlx::query_scalar(AssertSqlSafe(sql)).bind(name).fetch_one(&mut connection).await;
        let effects = counted.unwrap_or_else(|error| panic!("effects cannot be counted: {error:?}"));
        let _closed = connection.close().await;
        u64::try_from(effects).unwrap_or(0)
    }

    async fn end_behind(&self, transaction: &mut PostgresTransaction, how: Ending, then: &str) -> bool {
        let statements: &[&'static str] = match how {
            Ending::Commit => &["COMMIT"],
            // Behind a pooler, what comes after is another session's, which the store has not set up.
            Ending::Rollback if self.pooled.is_some() => return false,
            Ending::Rollback => &["ROLLBACK"],
            Ending::Failure => &["SELECT 1 / 0"],
            Ending::CommitThenBegin => &["COMMIT", "BEGIN"],
            Ending::RollbackThenBegin => &["ROLLBACK", "BEGIN"],
        };
        let Ok(mut connection) = transaction.connection().await else { return false };
        for statement in statements {
            // The store may have seen to it that it fails.
            let _refused = sqlx::raw_sql(*statement).execute(&mut *connection).await;
        }
        // After a COMMIT behind a pooler as well.
        if how != Ending::Commit || self.pooled.is_none() {
            let _refused = write_effect(&mut connection, &self.schema, then).await;
        }
        true
    }
}

async fn write_effect(connection: &mut PgConnection, schema: &str, name: &str) -> sqlx::Result<()> {
    let sql = format!("INSERT INTO \"{schema}\".effect (name) VALUES ($1)");
    sqlx::query(AssertSqlSafe(sql)).bind(name).execute(connection).await?;
    Ok(())
}

async fn migrate(store: &PostgresStore) {
    store.migrate().await.unwrap_or_else(|error| panic!("cannot be migrated: {error:?}"));
}

/// A name with what needs quotes in it.
fn own_schema() -> String {
    format!("Own '{}", &RecordId::from_bytes(random()).to_string()[..32])
}
