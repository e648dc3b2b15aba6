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
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::{MappedMutexGuard, MutexGuard};
use tokio::task::AbortHandle;

use super::writer::Turn;
use crate::store::LeaseId;

/// A handler's transaction. Dropping it rolls back.
///
/// ```no_run
/// # use idempotency_layer::store::SqliteTransaction;
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
    /// The connection, until the guard is dropped. Keep the guard for a statement or a few, not for the whole run.
    ///
    /// Fails when the transaction has ended: it took longer than it may, SQLite rolled it back because of a conflict
    /// clause or trigger, or the handler's SQL ended it. [`TransactionEnded`] becomes a [`sqlx::Error`] by `?`.
    pub async fn connection(&mut self) -> Result<ConnectionGuard<'_>, TransactionEnded> {
        let held = self.open.cell.lock().await;
        if let Some(ending) = self.open.fate.ending.get() {
            return Err(TransactionEnded { ending: *ending });
        }
        if self.open.fate.rolled_back.load(Ordering::SeqCst) {
            return Err(TransactionEnded { ending: Ending::BySql });
        }
        MutexGuard::try_map(held, |held| held.as_mut().map(|held| &mut held.connection))
            .map(|connection| ConnectionGuard { connection })
            .map_err(|_| TransactionEnded { ending: Ending::GivenBack })
    }
}

impl Drop for SqliteTransaction {
    fn drop(&mut self) {
        // Taking it decides; whoever was first has said why.
        let _first = self.open.fate.ending.set(Ending::GivenBack);
        self.open.stop_expiry();
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

/// Why nobody gets the connection any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// To be completed, rolled back, or dropped.
    GivenBack,
    /// It took longer than `max_transaction`.
    Expired,
    /// Its run ended without giving it back.
    Abandoned,
    /// SQLite rolled it back, or the handler's SQL did.
    BySql,
}

/// What the connection's hooks, which run on the driver's thread, share with everyone else.
#[derive(Default)]
pub(super) struct Fate {
    /// Set once: whoever sets it takes the connection.
    pub(super) ending: OnceLock<Ending>,
    /// Whether a COMMIT succeeds. Set by the store alone, right before its own COMMIT, inside the transaction that was
    /// begun; never otherwise, or a statement in autocommit would be durable by itself.
    pub(super) armed: AtomicBool,
    /// Whether there has been a rollback, whoever asked for it.
    pub(super) rolled_back: AtomicBool,
}

impl Fate {
    /// Makes the connection obey.
    pub(super) async fn govern(self: &Arc<Self>, connection: &mut SqliteConnection) -> sqlx::Result<()> {
        let (commits, rollbacks, steps) = (Arc::clone(self), Arc::clone(self), Arc::clone(self));
        let mut handle = connection.lock_handle().await?;
        handle.set_commit_hook(move || commits.armed.load(Ordering::SeqCst));
        handle.set_rollback_hook(move || rollbacks.rolled_back.store(true, Ordering::SeqCst));
        handle.set_progress_handler(STEPS_BETWEEN_LOOKS, move || !steps.is_revoked());
        Ok(())
    }

    fn is_revoked(&self) -> bool {
        matches!(self.ending.get(), Some(Ending::Expired | Ending::Abandoned))
    }
}

/// A transaction that is open, as its handle and the store share it.
pub(super) struct Open {
    pub(super) lease: LeaseId,
    pub(super) mark: [u8; 16],
    pub(super) fate: Arc<Fate>,
    /// Empty once the transaction has ended. Locked by a [`ConnectionGuard`], and by whoever takes the connection.
    pub(super) cell: tokio::sync::Mutex<Option<Held>>,
    pub(super) expiry: OnceLock<AbortHandle>,
}

impl Open {
    /// Gives the connection to the first who asks, if the handler has not kept a guard.
    pub(super) fn give_back(&self) -> Result<Held, Ending> {
        if self.fate.ending.set(Ending::GivenBack).is_err() {
            return Err(self.fate.ending.get().copied().unwrap_or(Ending::GivenBack));
        }
        self.stop_expiry();
        self.take_if_idle().ok_or(Ending::GivenBack)
    }

    /// Rolls back as soon as no guard is out, unless it has been given back.
    pub(super) async fn revoke(&self, why: Ending) {
        if *self.fate.ending.get_or_init(|| why) != Ending::GivenBack {
            self.close().await;
        }
    }

    /// Waits until no guard is out and the connection is closed.
    pub(super) async fn close(&self) {
        // Locked until it has happened, so that whoever comes second waits for it too.
        let mut cell = self.cell.lock().await;
        if let Some(held) = cell.take() {
            held.close().await;
        }
    }

    fn take_if_idle(&self) -> Option<Held> {
        self.cell.try_lock().ok()?.take()
    }

    fn stop_expiry(&self) {
        if let Some(expiry) = self.expiry.get() {
            expiry.abort();
        }
    }
}

/// The connection with the transaction on it, and the turn that nobody else has meanwhile. Dropped, the connection is
/// closed, which rolls back, and then the next in line is served.
pub(super) struct Held {
    pub(super) connection: SqliteConnection,
    pub(super) seat: Seat,
}

impl Held {
    /// Rolls back and waits for it. The seat is left after that.
    pub(super) async fn close(self) {
        let Self { connection, seat } = self;
        // A connection that does not close in order is gone all the same, and its transaction with it.
        let _closed = connection.close().await;
        drop(seat);
    }
}

/// The place of the one open transaction, cleared when it is left.
pub(super) struct Seat {
    pub(super) current: Arc<Current>,
    pub(super) _turn: Turn,
}

impl Drop for Seat {
    fn drop(&mut self) {
        drop(self.current.replace(None));
    }
}

/// The transaction that is open now; there is one at most, since it has the turn.
#[derive(Default)]
pub(super) struct Current {
    open: Mutex<Option<Arc<Open>>>,
}

impl Current {
    pub(super) fn replace(&self, open: Option<Arc<Open>>) -> Option<Arc<Open>> {
        std::mem::replace(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner), open)
    }

    /// The open transaction, if it was begun under this lease.
    pub(super) fn under(&self, lease: LeaseId) -> Option<Arc<Open>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.as_ref().filter(|open| open.lease == lease).map(Arc::clone)
    }
}

/// So many steps of SQLite's virtual machine, some tens of microseconds, may pass before a revoked statement stops.
const STEPS_BETWEEN_LOOKS: i32 = 1000;
