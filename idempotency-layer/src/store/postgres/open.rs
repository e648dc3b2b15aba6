//! Handlers' transactions that are open, as their handles and the store share them.
//!
//! A transaction ends once: whoever sets [`Open::ending`] first has decided how, and takes the connection out of
//! [`Open::cell`]. A connection that is dropped takes its transaction with it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::line::{Lent, Line};
use crate::store::LeaseId;

/// The transactions of a store.
pub(super) struct Transactions {
    pub(super) line: Arc<Line>,
    open: Arc<Registry>,
}

type Registry = Mutex<HashMap<LeaseId, Weak<Open>>>;

/// A transaction that is open.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) lease: LeaseId,
    pub(super) mark: [u8; 16],
    /// The transaction's id, in text.
    pub(super) xid: String,
    /// Set once: whoever sets it takes the connection.
    pub(super) ending: OnceLock<Ending>,
    /// Empty once the transaction has ended. Locked by a guard, and by whoever takes the connection.
    pub(super) cell: tokio::sync::Mutex<Option<Lent>>,
    registry: Weak<Registry>,
}

/// Why nobody gets the connection any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// To be completed, rolled back, or dropped.
    GivenBack,
    /// Its run ended without giving it back.
    Abandoned,
}

impl Transactions {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self { line, open: Arc::default() }
    }

    /// Notes a transaction that was begun.
    pub(super) fn note(&self, lease: LeaseId, mark: [u8; 16], xid: String, connection: Lent) -> Arc<Open> {
        let open = Arc::new(Open {
            lease,
            mark,
            xid,
            ending: OnceLock::new(),
            cell: tokio::sync::Mutex::new(Some(connection)),
            registry: Arc::downgrade(&self.open),
        });
        lock(&self.open).insert(lease, Arc::downgrade(&open));
        open
    }

    /// The transaction that was begun under this lease, if it is open.
    pub(super) fn under(&self, lease: LeaseId) -> Option<Arc<Open>> {
        lock(&self.open).get(&lease).and_then(Weak::upgrade)
    }
}

impl Open {
    /// Gives the connection to the first who asks, if the handler has not kept a guard.
    pub(super) fn give_back(&self) -> Option<Lent> {
        self.ending.set(Ending::GivenBack).ok()?;
        self.take_if_idle()
    }

    /// Drops the connection as soon as no guard is out, unless it has been given back.
    pub(super) async fn abandon(&self) {
        if *self.ending.get_or_init(|| Ending::Abandoned) == Ending::Abandoned
            && let Some(connection) = self.cell.lock().await.take()
        {
            connection.discard();
        }
    }

    pub(super) fn take_if_idle(&self) -> Option<Lent> {
        self.cell.try_lock().ok()?.take()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // Nobody has it any more, so nobody is using the connection; what is open on it goes with it.
        if let Some(connection) = self.cell.get_mut().take() {
            connection.discard();
        }
        if let Some(registry) = self.registry.upgrade() {
            let mut open = lock(&registry);
            if open.get(&self.lease).is_some_and(|other| other.strong_count() == 0) {
                open.remove(&self.lease);
            }
        }
    }
}

fn lock(registry: &Registry) -> MutexGuard<'_, HashMap<LeaseId, Weak<Open>>> {
    // Inserted into and removed from, which is whole at each step.
    registry.lock().unwrap_or_else(PoisonError::into_inner)
}
