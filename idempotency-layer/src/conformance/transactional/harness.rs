//! What the list needs to know about the database beside the records: how a handler's effect is written, counted, and
//! how a handler can end a transaction that is not its own to end.

use std::future::Future;
use std::time::Duration;

use super::super::Harness;
use super::super::harness::forward_harness;
use crate::store::{RecordId, StoreErrorKind};
use crate::{SharedTransactionalStore, TransactionalStore};

/// What the handlers of this harness's store get.
pub type TransactionOf<H> = <<H as Harness>::Store as TransactionalStore>::Transaction;

/// A transactional store on trial.
///
/// An effect is a row with a name, in a table of the harness's own in the database of [`open`](Harness::open). The
/// properties make up names that no other run uses.
pub trait TransactionalHarness: Harness<Store: TransactionalStore> {
    /// Writes an effect of this name through the transaction, as a handler does, and says whether the database took it.
    fn write_effect(&self, transaction: &mut TransactionOf<Self>, name: &str) -> impl Future<Output = bool> + Send;

    /// How many effects of this name everybody sees.
    fn effects(&self, name: &str) -> impl Future<Output = u64> + Send;

    /// Ends the transaction without the store, as the SQL of a handler might, and then tries to write an effect of this
    /// name over the same connection, whether or not the database takes either.
    ///
    /// Answers `false` and does nothing where the database has no such way.
    fn end_behind(
        &self,
        transaction: &mut TransactionOf<Self>,
        how: Ending,
        then: &str,
    ) -> impl Future<Output = bool> + Send;
}

/// How a transaction can be ended behind the store's back.
///
/// More may be added: a way that a harness does not know is one that its database does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// By a COMMIT of the handler's own.
    Commit,
    /// By a ROLLBACK of the handler's own.
    Rollback,
    /// By the database itself, because a statement of the handler's failed.
    Failure,
    /// By a COMMIT, after which the handler begins another transaction.
    CommitThenBegin,
    /// By a ROLLBACK, after which the handler begins another transaction.
    RollbackThenBegin,
}

/// The harness of the same store behind a [`SharedTransactionalStore`].
#[derive(Clone, Debug)]
pub struct ErasedTransactional<H>(
    /// The harness of the store itself.
    pub H,
);

impl<H: TransactionalHarness> Harness for ErasedTransactional<H> {
    type Store = SharedTransactionalStore<TransactionOf<H>>;

    async fn open(&self) -> Self::Store {
        SharedTransactionalStore::new(self.0.open().await)
    }

    async fn open_elsewhere(&self) -> Self::Store {
        SharedTransactionalStore::new(self.0.open_elsewhere().await)
    }

    forward_harness!();
}

impl<H: TransactionalHarness> TransactionalHarness for ErasedTransactional<H> {
    async fn write_effect(&self, transaction: &mut TransactionOf<Self>, name: &str) -> bool {
        self.0.write_effect(transaction, name).await
    }

    async fn effects(&self, name: &str) -> u64 {
        self.0.effects(name).await
    }

    async fn end_behind(&self, transaction: &mut TransactionOf<Self>, how: Ending, then: &str) -> bool {
        self.0.end_behind(transaction, how, then).await
    }
}
