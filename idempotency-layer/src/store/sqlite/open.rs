//! The one transaction that is open, as its handle, the store and the connection's hooks share it.
//!
//! 1. It ends once: whoever sets [`Fate::ending`] first has decided how, and takes the connection out of [`Open::cell`].
//! 2. The place in [`Current`] and the writer's turn end with the connection, in that order, however it goes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::task::AbortHandle;

use super::writer::Turn;
use crate::store::{Lease, LeaseId};

/// A transaction that is open, as its handle and the store share it.
pub(super) struct Open {
    pub(super) lease: LeaseId,
    pub(super) mark: [u8; 16],
    pub(super) fate: Arc<Fate>,
    /// Empty once the transaction has ended. Locked by a [`ConnectionGuard`], and by whoever takes the connection.
    pub(super) cell: tokio::sync::Mutex<Option<Held>>,
    pub(super) expiry: OnceLock<AbortHandle>,
    /// The latest renewal that was answered while this was open: it is in no row, since nobody else can write.
    pub(super) renewal: Mutex<Option<Lease>>,
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

    /// Waits for a statement that its handler gave up and that still runs. The transaction can expire meanwhile.
    pub(super) async fn fall_silent(&self) {
        if let Ok(mut cell) = self.cell.try_lock()
            && let Some(held) = cell.as_mut()
        {
            // Whether it answers or is gone, nothing runs on it any more.
            let _silent = held.connection.ping().await;
        }
    }

    pub(super) fn take_if_idle(&self) -> Option<Held> {
        self.cell.try_lock().ok()?.take()
    }

    pub(super) fn renewal(&self) -> MutexGuard<'_, Option<Lease>> {
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn stop_expiry(&self) {
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
        seat.fate.is_over.store(true, Ordering::SeqCst);
        // A connection that does not close in order is gone all the same, and its transaction with it.
        let _closed = connection.close().await;
        drop(seat);
    }
}

/// The place of the one open transaction, cleared when it is left.
pub(super) struct Seat {
    pub(super) current: Arc<Current>,
    pub(super) fate: Arc<Fate>,
    pub(super) _turn: Turn,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // A connection that was dropped with a statement running holds the file's write lock until that ends.
        self.fate.is_over.store(true, Ordering::SeqCst);
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
    /// Whether the connection is being closed, and whatever still runs on it is of no use to anybody.
    pub(super) is_over: AtomicBool,
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
        self.is_over.load(Ordering::SeqCst) || matches!(self.ending.get(), Some(Ending::Expired | Ending::Abandoned))
    }
}

/// So many steps of SQLite's virtual machine, some tens of microseconds, may pass before a revoked statement stops.
const STEPS_BETWEEN_LOOKS: i32 = 1000;
