//! Records in PostgreSQL: for many processes, as durable as a commit, and together with effects in the same database.
//!
//! ```no_run
//! # async fn open() -> Result<(), idempotency_layer::store::StoreError> {
//! use idempotency_layer::PostgresStore;
//!
//! let store = PostgresStore::connect("postgres://app@localhost/app").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! 1. A record is as durable as a commit of the database: with `fsync` and `synchronous_commit` on, it survives the
//!    process, the server and the machine's power. The server is PostgreSQL 13 or later.
//! 2. The database's clock decides, for leases and retentions.
//! 3. A claim of a new key, a replay, a refusal, a renewal and the end of a run are one statement and one round trip each. A
//!    replay writes nothing. A claim that takes another's place, after a crash for example, is two: one reads, the other
//!    writes if what was read is still there.
//! 4. A renewal writes a row of its own, `idempotency_lease`, and never the record's, so that a handler's REPEATABLE READ or
//!    SERIALIZABLE transaction is not in conflict with its own heartbeat. There is such a row only for runs that were renewed
//!    or taken over.
//! 5. The store opens its own connections and keeps no state in their sessions. It takes none from the pool that the handlers
//!    use, and none is held while a handler runs, except by a transaction that the handler has asked for.
//! 6. Effects in a [`PostgresTransaction`] are committed together with the record or not at all. A COMMIT of the handler's own
//!    fails.
//!
//! What it does *not* do:
//!
//! - [`watch`](crate::Store::watch) is woken by changes of this store and its clones only; a change by another process is
//!   found by polling.
//! - A pooler that hands out a session per transaction keeps the store from setting up its sessions. Behind one, a handler
//!   that ends its transaction with a ROLLBACK of its own and then goes on writing writes for good; elsewhere the database
//!   refuses that.
//! - Expired records are absent to every verb but stay in the table until they are [swept](PostgresStore::sweep).
//!
//! # Poolers
//!
//! PgBouncer from 1.21 on follows prepared statements, if `max_prepared_statements` is set. It refuses a start-up parameter
//! that the driver sends by itself, unless its `ignore_startup_parameters` has `extra_float_digits`; or leave that out with
//! [`PgConnectOptions::extra_float_digits`] and make the store from the [pool](PostgresStore::new).
//!
//! Older ones in transaction mode break prepared statements, up to wrong values: for those there is
//! [`legacy_pooler`](PostgresStore::legacy_pooler), where each verb is a transaction of several round trips.

mod ask;
mod completion;
mod failure;
mod line;
mod open;
mod row;
mod schema;
mod statements;
mod sweeper;
mod transaction;
mod verbs;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, PgPool};
use tokio::time::timeout;

use self::failure::{is_unknown_parameter, misconfigured, of_statement, unavailable};
use self::line::Line;
use self::open::Transactions;
use self::statements::Statements;
pub use self::transaction::{ConnectionGuard, Isolation, PostgresTransaction, TransactionEnded};
use super::watchers::Watchers;
#[cfg(feature = "conformance")]
use super::{RecordId, StoreErrorKind};
use super::{StoreError, StoreId};

/// A store in a PostgreSQL database; see the [module docs](self). Clones share their connections.
#[must_use]
#[derive(Clone)]
pub struct PostgresStore {
    identity: StoreId,
    statements: Arc<Statements>,
    timeout: Duration,
    isolation: Isolation,
    max_idle: Duration,
    is_legacy: bool,
    shared: Arc<Shared>,
}

/// What clones have in common.
struct Shared {
    verbs: Arc<Line>,
    /// Of its own, so that no number of claims keeps a lease from being renewed; and two, so that one that is silent does not.
    renewals: Arc<Line>,
    transactions: Transactions,
    watchers: Mutex<Watchers>,
}

impl PostgresStore {
    /// Connects to the database at this URL, as `postgres://user:password@host:5432/database`, over 10 connections at
    /// most for the verbs, as many for handlers' transactions, and two for renewals. They are opened when they are needed.
    ///
    /// `sslmode=require` needs TLS in the `sqlx` crate: depend on it with one of its `tls-` features.
    ///
    /// # Errors
    ///
    /// - [`Misconfigured`](super::StoreErrorKind::Misconfigured), with the reason as the source, when the URL is none of
    ///   PostgreSQL's, the server refuses the credentials or the database, is older than 13, or is an old pooler.
    /// - [`Unavailable`](super::StoreErrorKind::Unavailable) when the server does not answer.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::open(parse(url)?, CONNECTIONS, false).await
    }

    /// Connects with the options of this pool, over as many connections for the verbs and for handlers' transactions as
    /// the pool may have, and takes none from it.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn new(pool: PgPool) -> Result<Self, StoreError> {
        let most = pool.options().get_max_connections();
        Self::open(PgConnectOptions::clone(&pool.connect_options()), most, false).await
    }

    /// Connects through a pooler that hands out sessions by the transaction and does not follow prepared statements, as
    /// PgBouncer before 1.21 in transaction mode. Each verb is a transaction of its own, with a statement that is prepared
    /// anew. The server ends one whose process stands still in it, after the store's [`timeout`](Self::timeout).
    ///
    /// A handler's SQL is sent as the handler sends it. Statements that it has had prepared are closed with its
    /// transaction.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn legacy_pooler(url: &str) -> Result<Self, StoreError> {
        Self::open(parse(url)?.extra_float_digits(None), CONNECTIONS, true).await
    }

    async fn open(options: PgConnectOptions, most: u32, is_legacy: bool) -> Result<Self, StoreError> {
        let (first, statements, transactions) = sessions(options, is_legacy).await?;
        if first.server_version_num().is_some_and(|version| version < OLDEST) {
            return Err(misconfigured("the server is older than PostgreSQL 13"));
        }
        let verbs = Line::for_statements(statements.clone(), most, is_legacy);
        verbs.keep(first);
        let shared = Shared {
            verbs,
            renewals: Line::for_statements(statements, 2, is_legacy),
            transactions: Transactions::new(Line::for_handlers(transactions, most)),
            watchers: Mutex::default(),
        };
        Ok(Self {
            identity: StoreId::random(),
            statements: Arc::new(Statements::new(SCHEMA)),
            timeout: TIMEOUT,
            isolation: Isolation::ReadCommitted,
            max_idle: MAX_IDLE,
            is_legacy,
            shared: Arc::new(shared),
        })
    }

    /// The schema of the store's tables; `public` by default. Set it before [`migrate`](Self::migrate), which creates it
    /// where it is missing.
    pub fn schema(mut self, name: &str) -> Self {
        self.statements = Arc::new(Statements::new(name));
        self.identity = StoreId::random();
        self
    }

    /// How long a verb waits for a connection and its answer before it is
    /// [`Unavailable`](super::StoreErrorKind::Unavailable); 5 s by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.clamp(Duration::from_millis(1), LONGEST);
        self
    }

    /// The isolation level of handlers' transactions; READ COMMITTED by default.
    ///
    /// A handler that needs another level than the rest takes its transaction from a clone:
    /// `op.transaction(&store.clone().isolation(Isolation::Serializable))`.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = isolation;
        self
    }

    /// How long a handler's transaction may do nothing before the server ends it and its session
    /// (`idle_in_transaction_session_timeout`); 60 s by default. It is what frees the locks of a process that stands still.
    pub fn max_idle_transaction(mut self, duration: Duration) -> Self {
        self.max_idle = duration.clamp(Duration::from_millis(1), LONGEST);
        self
    }

    /// Creates the tables, or brings them to this version. To be called once at start-up; doing so again, or from several
    /// processes at once, does no harm.
    ///
    /// The same SQL is in the package under `migrations/postgres`, for those who migrate with tools of their own. Tables:
    /// `idempotency_record`, `idempotency_lease`, `idempotency_transaction`, `idempotency_commit`, `idempotency_schema`. A role
    /// that does not own them needs SELECT, INSERT, UPDATE and DELETE on the first three.
    ///
    /// # Errors
    ///
    /// - [`Misconfigured`](super::StoreErrorKind::Misconfigured) when a newer version has migrated the schema, other tables
    ///   have these names, or the role may not create any.
    /// - [`Unavailable`](super::StoreErrorKind::Unavailable) when the server does not answer in time, as when somebody else
    ///   keeps the tables locked.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        schema::migrate(self).await
    }

    /// Makes a record that cannot be read, for the conformance list.
    #[cfg(feature = "conformance")]
    pub(crate) async fn damage(&self, id: &RecordId, kind: StoreErrorKind) -> Result<(), StoreError> {
        let format = if kind == StoreErrorKind::Newer { i16::MAX } else { 0 };
        let damage = || sqlx::query(self.statements.damage.clone()).bind(&id.as_bytes()[..]).bind(format);
        self.ask(&self.shared.verbs, damage).await.map(drop)
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        // Every change is made whole under the lock.
        self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("identity", &self.identity).finish_non_exhaustive()
    }
}

fn parse(url: &str) -> Result<PgConnectOptions, StoreError> {
    // The driver takes a URL of any scheme.
    let is_of_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme));
    // Its error may quote what it could not read of the URL.
    let options = if is_of_postgres { url.parse().ok() } else { None };
    options.ok_or_else(|| misconfigured("not a URL as postgres://user:password@host:5432/database"))
}

/// The first connection, and the options of sessions for statements and for handlers' transactions, as far as the server
/// takes them.
///
/// Whatever the database's defaults, statements are READ COMMITTED, and what a handler's session writes outside of the
/// transaction that was begun for it is refused. A statement that waits for a lock is given up by the server too: it does not
/// see that its client has gone, and while somebody has the tables locked there would be more of them with each that has.
async fn sessions(
    options: PgConnectOptions,
    is_legacy: bool,
) -> Result<(PgConnection, PgConnectOptions, PgConnectOptions), StoreError> {
    let statements = options.clone().options([
        ("default_transaction_isolation", "read committed".to_owned()),
        ("lock_timeout", format!("{}ms", TIMEOUT.as_millis())),
    ]);
    let transactions = options.clone().options([("default_transaction_read_only", "on")]);
    if !is_legacy {
        match connect(&statements).await? {
            Err(error) if is_unknown_parameter(&error) => {}
            first => return Ok((first.map_err(of_statement)?, statements, transactions)),
        }
    }
    let first = connect(&options).await?.map_err(of_statement)?;
    Ok((first, options.clone(), options))
}

async fn connect(options: &PgConnectOptions) -> Result<sqlx::Result<PgConnection>, StoreError> {
    timeout(TIMEOUT, options.connect()).await.map_err(|_| unavailable("Postgres did not take the connection in time"))
}

const SCHEMA: &str = "public";

const CONNECTIONS: u32 = 10;

const TIMEOUT: Duration = Duration::from_secs(5);

const MAX_IDLE: Duration = Duration::from_secs(60);

/// Whoever asks for more wants no bound.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// `pg_current_xact_id` and `xid8` are in 13.
const OLDEST: u32 = 130_000;
