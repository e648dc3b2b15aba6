//! The database file, and how this store opens it: write-ahead log, `synchronous=FULL`, a private cache.
//!
//! Every other option is the user's: VFS, encryption key, foreign keys, collations. What cannot keep a record is
//! refused when the file is first opened: a database in memory or in a temporary file, a file that may only be read,
//! and a file system on which SQLite has no write-ahead log.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteLockingMode, SqliteSynchronous};
use sqlx::{ConnectOptions, SqlSafeStr};
use tokio::time::Instant;

use super::failure;
use crate::store::StoreError;

pub(super) struct File {
    options: SqliteConnectOptions,
}

impl File {
    /// Opens the file for the first time, and says why it cannot hold records.
    pub(super) async fn open(options: SqliteConnectOptions) -> Result<(Self, SqliteConnection), StoreError> {
        let options = options
            .shared_cache(false)
            .locking_mode(SqliteLockingMode::Normal)
            .synchronous(SqliteSynchronous::Full)
            .optimize_on_close(false, None)
            .busy_timeout(BUSY_SLICE);
        let mut connection = options.connect().await.map_err(failure::of_statement)?;
        let name: Option<String> = sqlx::query_scalar("SELECT file FROM pragma_database_list WHERE name = 'main'")
            .fetch_optional(&mut connection)
            .await
            .map_err(failure::of_statement)?
            .flatten();
        if name.is_none_or(|name| name.is_empty()) {
            return Err(failure::misconfigured(
                "a database in memory or in a temporary file forgets every key with its last connection; give a file, \
                 or use `MemoryStore`",
            ));
        }
        use_write_ahead_log(&mut connection).await?;
        // Later connections keep to the log, whatever mode the user's options ask for. Nor do they create a file: one
        // that was deleted meanwhile would come back empty, and every key in it be new.
        let file = Self { options: options.journal_mode(SqliteJournalMode::Wal).create_if_missing(false) };
        try_to_write(&mut connection).await?;
        Ok((file, connection))
    }

    /// Another connection that may write.
    pub(super) async fn writer(&self) -> Result<SqliteConnection, StoreError> {
        self.options.connect().await.map_err(failure::of_statement)
    }

    /// Another connection that cannot write.
    pub(super) async fn reader(&self) -> Result<SqliteConnection, StoreError> {
        self.options.clone().pragma("query_only", "ON").connect().await.map_err(failure::of_statement)
    }
}

/// `BEGIN IMMEDIATE` alone succeeds on a read-only database.
async fn try_to_write(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    begin(connection, Instant::now() + FIRST_OPEN).await?;
    let probe = sqlx::query("CREATE TABLE idempotency_probe (probe INTEGER)");
    probe.execute(&mut *connection).await.map_err(failure::of_statement)?;
    rollback(connection).await
}

async fn use_write_ahead_log(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let deadline = Instant::now() + FIRST_OPEN;
    let mode = loop {
        // The change of mode needs the file for itself for a moment, and SQLite does not wait for that by itself.
        let changed = sqlx::query_scalar::<_, String>("PRAGMA journal_mode = WAL").fetch_one(&mut *connection).await;
        match changed {
            Ok(mode) => break mode,
            Err(error) if failure::is_busy(&error) && Instant::now() < deadline => {
                tokio::time::sleep(MODE_RETRY).await;
            }
            Err(error) => return Err(failure::of_statement(error)),
        }
    };
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(failure::misconfigured(
        "this database has no write-ahead log (a read-only file, or a file system or VFS without shared memory); put \
         the file on a local, writable disk",
    ))
}

/// Takes SQLite's write lock, waiting for other processes until the deadline.
pub(super) async fn begin(connection: &mut SqliteConnection, deadline: Instant) -> Result<(), StoreError> {
    loop {
        match sqlx::query("BEGIN IMMEDIATE").execute(&mut *connection).await {
            Ok(_) => return Ok(()),
            Err(error) => wait_or_fail(error, deadline)?,
        }
    }
}

/// As [`begin`], in such a way that the driver's own `begin` on this connection makes a savepoint from now on.
pub(super) async fn begin_outermost(connection: &mut SqliteConnection, deadline: Instant) -> Result<(), StoreError> {
    loop {
        match sqlx::Connection::begin_with(&mut *connection, "BEGIN IMMEDIATE".into_sql_str()).await {
            Ok(transaction) => {
                // Forgotten, it does not roll back, and the driver goes on counting it as the outer transaction.
                std::mem::forget(transaction);
                return Ok(());
            }
            Err(error) => wait_or_fail(error, deadline)?,
        }
    }
}

pub(super) async fn commit(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    sqlx::query("COMMIT").execute(connection).await.map_err(failure::of_statement)?;
    Ok(())
}

pub(super) async fn rollback(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    sqlx::query("ROLLBACK").execute(connection).await.map_err(failure::of_statement)?;
    Ok(())
}

/// A busy database may be asked again until the deadline; SQLite has waited for [`BUSY_SLICE`] already.
fn wait_or_fail(error: sqlx::Error, deadline: Instant) -> Result<(), StoreError> {
    if failure::is_busy(&error) && Instant::now() < deadline {
        return Ok(());
    }
    Err(failure::of_statement(error))
}

/// How long SQLite itself waits for a lock. Short, since its wait cannot be cut short from outside; who may wait longer
/// asks again.
const BUSY_SLICE: Duration = Duration::from_millis(100);

/// How long the first opening waits for other processes: longer than the default of `max_transaction`, so that a start
/// beside a transaction that uses its time up does not fail.
const FIRST_OPEN: Duration = Duration::from_secs(10);

const MODE_RETRY: Duration = Duration::from_millis(5);
