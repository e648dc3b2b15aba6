//! A handler's transaction goes out once and comes back before the response, or it is rolled back.
//!
//! The [`Slot`] of a run is where it is handed out and where the layer finds it again:
//!
//! ```text
//! unused ──open──► opening ──begun──► open ──close──► closed
//!    │                └──failed or dropped──► failed ──close──► closed
//!    └──close──► closed
//! ```
//!
//! The layer closes the slot exactly once, when the handler's response is there. A `begin` that comes to its end after
//! that finds the slot closed and lets its transaction go, which rolls it back.

use std::error::Error;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use idempotency_shared::Problem;

use crate::store::{Commit, Completion, Lease, StoreError, TransactionalStore};

/// The transaction of a run, lent to its handler. Derefs to the store's own type; dropping it gives it back.
#[must_use = "dropping it gives the transaction back"]
pub struct TransactionGuard<T> {
    transaction: Option<T>,
    back: Arc<Mutex<Option<T>>>,
}

impl<T> Deref for TransactionGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.transaction {
            Some(transaction) => transaction,
            None => unreachable!("only `drop` takes the transaction"),
        }
    }
}

impl<T> DerefMut for TransactionGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.transaction {
            Some(transaction) => transaction,
            None => unreachable!("only `drop` takes the transaction"),
        }
    }
}

impl<T> Drop for TransactionGuard<T> {
    fn drop(&mut self) {
        *lock(&self.back) = self.transaction.take();
    }
}

impl<T> fmt::Debug for TransactionGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionGuard").finish_non_exhaustive()
    }
}

/// A run's place for its one transaction.
#[derive(Default)]
pub(crate) struct Slot(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Unused,
    Opening,
    Failed(Problem),
    Open(Box<dyn Open>),
    Closed,
}

impl Slot {
    /// Reserves the slot for one `begin`.
    pub(crate) fn open(&self) -> Result<Opening<'_>, TransactionError> {
        let mut state = lock(&self.0);
        match *state {
            State::Unused => {
                *state = State::Opening;
                Ok(Opening { slot: self })
            }
            State::Closed => Err(TransactionError::new(TransactionErrorKind::RunEnded)),
            State::Opening | State::Failed(_) | State::Open(_) => {
                Err(TransactionError::new(TransactionErrorKind::SecondTransaction))
            }
        }
    }

    /// Takes what is in the slot and lets nothing in any more.
    pub(crate) fn close(&self) -> Closed {
        match std::mem::replace(&mut *lock(&self.0), State::Closed) {
            State::Open(open) => Closed::Transaction(open),
            // Its `begin` was dropped, or goes on in a task that will find the slot closed.
            State::Opening => Closed::Failed(Problem::transaction_failed()),
            State::Failed(problem) => Closed::Failed(problem),
            State::Unused | State::Closed => Closed::Unused,
        }
    }
}

/// What a run did with its slot.
pub(crate) enum Closed {
    /// It asked for no transaction.
    Unused,
    /// It asked for one and got none, for which this is the client's answer.
    Failed(Problem),
    /// It got this one.
    Transaction(Box<dyn Open>),
}

/// A `begin` under way. Dropped without a transaction, it leaves the slot failed.
pub(crate) struct Opening<'a> {
    slot: &'a Slot,
}

impl Opening<'_> {
    pub(crate) fn begun<S: TransactionalStore>(
        self,
        store: S,
        transaction: S::Transaction,
    ) -> Result<TransactionGuard<S::Transaction>, TransactionError> {
        let mut state = lock(&self.slot.0);
        if matches!(*state, State::Closed) {
            return Err(TransactionError::new(TransactionErrorKind::RunEnded));
        }
        let back = Arc::new(Mutex::new(None));
        *state = State::Open(Box::new(Lent { store, back: Arc::clone(&back) }));
        Ok(TransactionGuard { transaction: Some(transaction), back })
    }

    /// Another run holds the key.
    pub(crate) fn fenced(self) -> TransactionError {
        self.fail(Problem::lease_lost());
        TransactionError::new(TransactionErrorKind::LeaseLost)
    }

    /// The store gave none.
    pub(crate) fn refused(self, error: StoreError) -> TransactionError {
        self.fail(Problem::transaction_failed());
        TransactionError { kind: TransactionErrorKind::Unavailable, source: Some(error) }
    }

    fn fail(&self, problem: Problem) {
        let mut state = lock(&self.slot.0);
        if matches!(*state, State::Opening) {
            *state = State::Failed(problem);
        }
    }
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        self.fail(Problem::transaction_failed());
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An open transaction, whatever its store.
pub(crate) trait Open: Send + Sync {
    /// Whether the handler has given it back.
    fn is_back(&self) -> bool;

    /// Writes the outcome in it and commits; [`Commit::Lost`] when it is not back.
    fn complete<'a>(
        &'a self,
        lease: &'a Lease,
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Commit, StoreError>>;

    /// Asks what became of a commit without an answer.
    fn confirm<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Commit, StoreError>>;

    /// Rolls it back, wherever it is.
    fn roll_back<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, ()>;
}

struct Lent<S: TransactionalStore> {
    store: S,
    /// Filled by the guard's drop.
    back: Arc<Mutex<Option<S::Transaction>>>,
}

impl<S: TransactionalStore> Open for Lent<S> {
    fn is_back(&self) -> bool {
        lock(&self.back).is_some()
    }

    fn complete<'a>(
        &'a self,
        lease: &'a Lease,
        completion: &'a Completion,
    ) -> BoxFuture<'a, Result<Commit, StoreError>> {
        let transaction = lock(&self.back).take();
        Box::pin(async move {
            match transaction {
                Some(transaction) => self.store.complete_in(transaction, lease, completion).await,
                None => {
                    self.store.abandon(lease).await;
                    Ok(Commit::Lost)
                }
            }
        })
    }

    fn confirm<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, Result<Commit, StoreError>> {
        Box::pin(self.store.confirm(lease))
    }

    fn roll_back<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, ()> {
        let transaction = lock(&self.back).take();
        Box::pin(async move {
            match transaction {
                Some(transaction) => self.store.rollback(transaction).await,
                None => self.store.abandon(lease).await,
            }
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each holder replaces the value whole and cannot panic in between.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handler did not get a transaction.
#[derive(Debug)]
pub struct TransactionError {
    kind: TransactionErrorKind,
    source: Option<StoreError>,
}

/// Why a handler did not get a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransactionErrorKind {
    /// The store is not the one that holds this run's record. A mistake of the program.
    OtherStore,
    /// This run has had its transaction. A mistake of the program.
    SecondTransaction,
    /// The run's response is made; its record is being written. A mistake of the program.
    RunEnded,
    /// Another run holds the key.
    LeaseLost,
    /// The store gave none in time. The next attempt may get one.
    Unavailable,
}

impl TransactionError {
    pub(crate) fn new(kind: TransactionErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// Why there is no transaction.
    #[must_use]
    pub fn kind(&self) -> TransactionErrorKind {
        self.kind
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            TransactionErrorKind::OtherStore => {
                "this is not the store of the IdempotencyLayer that runs the operation: pass the one the layer was made \
                 with, or a clone of it"
            }
            TransactionErrorKind::SecondTransaction => {
                "the operation has had its transaction: take it once and pass it on"
            }
            TransactionErrorKind::RunEnded => {
                "the operation has answered: take the transaction before the response is made"
            }
            TransactionErrorKind::LeaseLost => "another run holds the key: stop, and let it answer",
            TransactionErrorKind::Unavailable => "the idempotency store gave no transaction in time: retry later",
        })
    }
}

impl Error for TransactionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
