//! Records in a SQLite file: durable, for every process of one machine, without a server.
//!
//! ```no_run
//! # async fn open() -> Result<(), idempotency_layer::store::StoreError> {
//! use idempotency_layer::SqliteStore;
//!
//! let store = SqliteStore::connect("sqlite://app.db").await?;
//! store.migrate().await?;
//! # Ok(())
//! # }
//! ```
//!
//! 1. A record is as durable as a commit in the write-ahead log with `synchronous=FULL`: it survives the process and the
//!    machine's power. The file is on a local disk; SQLite's locks and its log do not work on network file systems.
//! 2. The store opens its own connections, one to write and a few to read. It never takes one from the pool that the
//!    handlers use, so handlers that hold every connection of that pool do not stop it.
//! 3. Each verb that changes something is one `BEGIN IMMEDIATE` transaction. A claim whose answer is already there, a
//!    replay above all, is read without writing and without waiting for a writer.
//! 4. SQLite has one writer at a time. Verbs wait in line for it; claims wait [`queue_timeout`], which also covers other
//!    processes on the file, and then fail as [`Unavailable`]. Renewals go before everything else and are written together.
//! 5. A lease of this process runs by the monotonic clock: setting the wall clock neither lapses nor prolongs it.
//!    Between processes the wall clock decides, and so it does for the retention. What a process knows of its leases is
//!    in its own list of held records; another's may show a run as lapsed under Hold that goes on inside a transaction.
//!
//! What it does not do: [`watch`](Store::watch) is woken by changes of this store and its clones only; a change by another
//! process is found by polling. Connections of the user's that ask for another journal mode than `WAL` on this file fail
//! while the store is open.
//!
//! [`queue_timeout`]: SqliteStore::queue_timeout
//! [`Unavailable`]: StoreErrorKind::Unavailable

mod completion;
mod failure;
mod file;
mod leases;
mod open;
mod readers;
mod renewals;
mod row;
mod schema;
mod sweeper;
mod transaction;
mod verbs;
mod writer;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::time::Instant;

use self::file::File;
use self::leases::Leases;
use self::open::Current;
use self::readers::Readers;
use self::renewals::Renewals;
pub use self::transaction::{ConnectionGuard, SqliteTransaction, TransactionEnded};
use self::writer::{Lane, Writer};
#[cfg(feature = "conformance")]
use super::RecordId;
#[cfg(doc)]
use super::Store;
use super::watchers::Watchers;
use super::{StoreError, StoreErrorKind, StoreId};
use crate::Clock;

/// A store in a SQLite file; see the [module docs](self). Clones share the file's connections.
#[must_use]
#[derive(Clone)]
pub struct SqliteStore {
    identity: StoreId,
    clock: Clock,
    queue_timeout: Duration,
    max_transaction: Duration,
    shared: Arc<Shared>,
}

/// What clones have in common.
struct Shared {
    file: Arc<File>,
    current: Arc<Current>,
    writer: Arc<Writer>,
    readers: Readers,
    renewals: Renewals,
    leases: Leases,
    watchers: Mutex<Watchers>,
}

impl SqliteStore {
    /// Opens the file at this URL, and creates it where it is missing.
    ///
    /// # Errors
    ///
    /// - [`Misconfigured`](StoreErrorKind::Misconfigured), with the reason as the source, when the URL is none of SQLite's
    ///   or the database cannot hold records: in memory, temporary, read-only, or without a write-ahead log.
    /// - [`Unavailable`](StoreErrorKind::Unavailable) when SQLite cannot open the file: its folder is missing, or another
    ///   process has it for itself.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let options: SqliteConnectOptions =
            url.parse().map_err(|error: sqlx::Error| StoreError::with_source(StoreErrorKind::Misconfigured, error))?;
        Self::open(options.create_if_missing(true)).await
    }

    /// Opens the file that this pool is on, with the pool's options, and takes no connection from it.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect).
    pub async fn new(pool: SqlitePool) -> Result<Self, StoreError> {
        Self::open(SqliteConnectOptions::clone(&pool.connect_options())).await
    }

    async fn open(options: SqliteConnectOptions) -> Result<Self, StoreError> {
        let (file, connection) = File::open(options).await?;
        let file = Arc::new(file);
        let shared = Shared {
            writer: Arc::new(Writer::new(Arc::clone(&file), connection)),
            readers: Readers::new(Arc::clone(&file)),
            file,
            current: Arc::default(),
            renewals: Renewals::default(),
            leases: Leases::default(),
            watchers: Mutex::default(),
        };
        Ok(Self {
            identity: StoreId::random(),
            clock: Clock::system(),
            queue_timeout: QUEUE_TIMEOUT,
            max_transaction: MAX_TRANSACTION,
            shared: Arc::new(shared),
        })
    }

    /// The clock that leases and retention go by; the machine's by default.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// How long claims and the opening of transactions wait for the writer; 2 s by default, a day at most.
    pub fn queue_timeout(mut self, timeout: Duration) -> Self {
        self.queue_timeout = timeout.min(LONGEST);
        self
    }

    /// How long a handler's transaction may stay open before it is rolled back; 5 s by default, a day at most. Nobody
    /// else writes to the file meanwhile.
    pub fn max_transaction(mut self, duration: Duration) -> Self {
        self.max_transaction = duration.min(LONGEST);
        self
    }

    /// Creates the tables, or brings them to this version. To be called once at start-up; doing so again, or from
    /// several processes at once, does no harm.
    ///
    /// The same SQL is in the package under `migrations/sqlite`, for those who migrate with tools of their own. Tables:
    /// `idempotency_record`, `idempotency_schema`.
    ///
    /// # Errors
    ///
    /// - [`Misconfigured`](StoreErrorKind::Misconfigured) when a newer version has migrated the file, or other tables
    ///   have these names.
    /// - [`Unavailable`](StoreErrorKind::Unavailable) when others wrote to the file for too long.
    pub async fn migrate(&self) -> Result<(), StoreError> {
        let deadline = self.settle_deadline();
        let mut turn = self.shared.writer.turn(Lane::Other, deadline).await?;
        let mut connection = turn.connection().await?;
        file::begin(&mut connection, deadline).await?;
        schema::migrate(&mut connection).await?;
        file::commit(&mut connection).await?;
        turn.give_back(connection);
        Ok(())
    }

    /// Makes a record that cannot be read, for the conformance list.
    #[cfg(feature = "conformance")]
    pub(crate) async fn damage(&self, id: &RecordId, kind: StoreErrorKind) -> Result<(), StoreError> {
        let deadline = self.settle_deadline();
        let mut turn = self.shared.writer.turn(Lane::Other, deadline).await?;
        let mut connection = turn.connection().await?;
        row::damage(&mut connection, id, kind).await.map_err(failure::of_statement)?;
        turn.give_back(connection);
        Ok(())
    }

    fn queue_deadline(&self) -> Instant {
        Instant::now() + self.queue_timeout
    }

    /// By then a transaction that was open has ended, and whoever waited before this verb has had the writer.
    fn settle_deadline(&self) -> Instant {
        self.queue_deadline() + self.max_transaction
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// Whoever asks for more wants no bound; clocks cannot count to [`Duration::MAX`].
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

const QUEUE_TIMEOUT: Duration = Duration::from_secs(2);

const MAX_TRANSACTION: Duration = Duration::from_secs(5);
