//! The handler's transaction: what it may do on the connection, and how it is taken back.
//!
//! 1. It is the driver's own connection, inside `BEGIN IMMEDIATE`, and all SQL on it is the handler's. The driver's
//!    `begin` on it makes a savepoint.
//! 2. No COMMIT succeeds on it but the store's: the handler's own is turned into a rollback, and so is whatever it writes
//!    after having ended the transaction. There is no effect without its record.
//! 3. The store keeps a hold on it. After [`max_transaction`](super::SqliteStore::max_transaction), or when the run has
//!    ended without giving it back, it is rolled back as soon as no [`ConnectionGuard`] is out, and a statement that
//!    still runs is interrupted.
//! 4. The connection is the transaction's alone and is closed with it, so that no `PRAGMA`, temporary table or attached
//!    database of one handler is met by another.
//!
//! Two things are beyond it. A guard that is never dropped cannot be taken back: it keeps the file's write lock, and every
//! other write answers `Unavailable` meanwhile. And code that removes the connection's commit hook through
//! `lock_handle` has removed rule 2.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{MappedMutexGuard, MutexGuard};

use super::open::{Ending, Open};

/// A handler's transaction. Dropping it rolls back.
///
/// - While it is open, nobody else writes to the file: other claims and renewals wait. Make no network call inside.
/// - It ends after [`max_transaction`](super::SqliteStore::max_transaction) at the latest, but not under a
///   [`ConnectionGuard`]: one that is held across other work suspends that limit, and one that is never dropped stops
///   every write to the file. Take a guard for a statement, as below.
/// - COMMIT and ROLLBACK are the layer's. The handler's own COMMIT rolls back.
/// - It opens a connection of its own, so that no `PRAGMA` or temporary table of one handler is met by another. What it
///   writes into an attached database is committed with it but, in the write-ahead log, not atomically after a crash.
///
/// ```no_run
/// # use idempotency_layer::SqliteTransaction;
/// async fn place(transaction: &mut SqliteTransaction) -> sqlx::Result<()> {
///     sqlx::query("INSERT INTO orders (id) VALUES (?)")
///         .bind(7)
///         .execute(&mut *transaction.connection().await?)
///         .await?;
///     Ok(())
/// }
/// ```
#[must_use = "dropped, it rolls back"]
pub struct SqliteTransaction {
    pub(super) open: Arc<Open>,
}

impl SqliteTransaction {
    /// The connection, until the guard is dropped. Keep the guard for a statement or a few, not for the whole run and not
    /// across an `.await` on anything else.
    ///
    /// # Errors
    ///
    /// When the transaction has ended: it took longer than it may, SQLite rolled it back because of a conflict clause or
    /// a trigger, or the handler's SQL ended it. The error is a [`sqlx::Error`], so that a handler has one kind of error
    /// for its SQL; inside is a [`TransactionEnded`].
    pub async fn connection(&mut self) -> sqlx::Result<ConnectionGuard<'_>> {
        let held = self.open.cell.lock().await;
        if let Some(ending) = self.open.fate.ending.get() {
            return Err(TransactionEnded { ending: *ending }.into());
        }
        if self.open.fate.rolled_back.load(Ordering::SeqCst) {
            return Err(TransactionEnded { ending: Ending::BySql }.into());
        }
        MutexGuard::try_map(held, |held| held.as_mut().map(|held| &mut held.connection))
            .map(|connection| ConnectionGuard { connection })
            .map_err(|_| TransactionEnded { ending: Ending::GivenBack }.into())
    }
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        // Whoever was first takes the connection. An expiry that was first may be about to, and is not to be stopped.
        if self.open.fate.ending.set(Ending::GivenBack).is_ok() {
            self.open.stop_expiry();
        }
        drop(self.open.take_if_idle());
    }
}

impl fmt::Debug for SqliteTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteTransaction").field("lease", &self.open.lease).finish_non_exhaustive()
    }
}

/// The connection inside a [`SqliteTransaction`]; `&mut *guard` is an executor.
pub struct ConnectionGuard<'a> {
    connection: MappedMutexGuard<'a, SqliteConnection>,
}

impl Deref for ConnectionGuard<'_> {
    type Target = SqliteConnection;

    fn deref(&self) -> &SqliteConnection {
        &self.connection
    }
}

impl DerefMut for ConnectionGuard<'_> {
    fn deref_mut(&mut self) -> &mut SqliteConnection {
        &mut self.connection
    }
}

impl fmt::Debug for ConnectionGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionGuard").finish_non_exhaustive()
    }
}

/// The transaction is over, and nothing that was done in it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionEnded {
    ending: Ending,
}

impl fmt::Display for TransactionEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.ending {
            Ending::Expired => "the transaction was rolled back: it was open for longer than `max_transaction`",
            Ending::Abandoned => "the transaction was rolled back: the run it belongs to has ended",
            Ending::GivenBack => "the transaction was given back",
            Ending::BySql => {
                "the transaction was rolled back: by a conflict clause, by a trigger, or by a COMMIT or ROLLBACK of the \
                 handler's own"
            }
        })
    }
}

impl std::error::Error for TransactionEnded {}

impl From<TransactionEnded> for sqlx::Error {
    fn from(ended: TransactionEnded) -> Self {
        Self::Io(std::io::Error::other(ended))
    }
}
