//! The orders that a shop has taken, where the records of their keys are.
//!
//! - In SQLite and PostgreSQL an order is written in the transaction of its operation, without any constraint: if a key
//!   ever takes effect twice, the books show it.
//! - In Redis, where there is no such transaction, it is written under the id of its operation's record, so that the next
//!   run puts it where it was. These books never show a second run; the provider's ledger does.

use idempotency_layer::{Operation, Store};

use super::{Failure, Order};
use crate::hooked::Hooked;

/// The orders, by account.
pub trait Books: Clone + Send + Sync + 'static {
    /// Where the records are.
    type Store: Store + Clone;

    /// The store of the records.
    fn store(&self) -> &Self::Store;

    /// Writes an order for an operation, which has its record in `store`.
    fn write(
        &self,
        store: &Hooked<Self::Store>,
        operation: &Operation,
        account: &str,
        order: &Order,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// How many orders an account has.
    fn count(&self, account: &str) -> impl Future<Output = Result<i64, Failure>> + Send;
}
