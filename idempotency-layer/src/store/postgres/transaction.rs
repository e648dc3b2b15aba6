//! The handler's transaction: what it may do on the connection, and how it is taken back.
//!
//! 1. It is the driver's own connection, inside a transaction, and all SQL on it is the handler's. The driver's `begin` on
//!    it makes a savepoint.
//! 2. No COMMIT succeeds on it but the store's: a row that refers to nothing is in the transaction, and the store takes the
//!    reference out with the record. What the handler writes after having ended the transaction is refused, since the
//!    session is one that reads only. There is no effect without its record.
//! 3. The store keeps a hold on it. When the run has ended without giving it back, its connection is dropped as soon as no
//!    [`ConnectionGuard`] is out. What is done under such a guard is never committed.
//! 4. The connection is used for one transaction at a time, and for the next one only after a COMMIT or ROLLBACK of the
//!    store's own. What a handler has set in its session without `LOCAL` outlives a COMMIT; a ROLLBACK
//!    resets it.
//!
//! Beyond rule 2 is code that ends the transaction and asks to write all the same, as with `ROLLBACK AND CHAIN`, `BEGIN READ
//! WRITE`, or with `default_transaction_read_only` turned off in its session; and a pooler that hands out sessions by the
//! transaction; see the [module docs](super).

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sqlx::postgres::PgConnection;
use tokio::sync::{MappedMutexGuard, MutexGuard};

use super::line::Lent;
use super::open::{Ending, Open};

/// The isolation level of a handler's transaction
/// ([PostgreSQL, 13.2](https://www.postgresql.org/docs/current/transaction-iso.html)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Isolation {
    /// READ COMMITTED.
    #[default]
    ReadCommitted,
    /// REPEATABLE READ. What it is in conflict with is answered as `transaction-failed`, to be sent again.
    RepeatableRead,
    /// SERIALIZABLE; conflicts as with [`RepeatableRead`](Self::RepeatableRead). Two keys are never in conflict because of
    /// their records.
    Serializable,
}

impl Isolation {
    pub(super) fn in_sql(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// A handler's transaction. Dropping it rolls back.
///
/// - COMMIT and ROLLBACK are the layer's. The handler's own COMMIT fails, with the constraint
///   `only_the_idempotency_store_commits`.
/// - Nobody else waits for it, except for the rows that it has locked.
/// - The server ends one that does nothing for [`max_idle_transaction`](super::PostgresStore::max_idle_transaction).
///
/// ```no_run
/// # use idempotency_layer::PostgresTransaction;
/// async fn place(transaction: &mut PostgresTransaction) -> sqlx::Result<()> {
///     sqlx::query("INSERT INTO orders (id) VALUES ($1)")
///         .bind(7)
///         .execute(&mut *transaction.connection().await?)
///         .await?;
///     Ok(())
/// }
/// ```
#[must_use = "dropped, it rolls back"]
pub struct PostgresTransaction {
    pub(super) open: Arc<Open>,
}

impl PostgresTransaction {
    /// The connection, until the guard is dropped.
    ///
    /// # Errors
    ///
    /// When the run has ended, and the transaction with it. The error is a [`sqlx::Error`], so that a handler has one kind
    /// of error for its SQL; inside is a [`TransactionEnded`].
    pub async fn connection(&mut self) -> sqlx::Result<ConnectionGuard<'_>> {
        let held = self.open.cell.lock().await;
        if let Some(ending) = self.open.ending.get() {
            return Err(TransactionEnded { ending: *ending }.into());
        }
        MutexGuard::try_map(held, Option::as_mut)
            .map(|connection| ConnectionGuard { connection })
            .map_err(|_| TransactionEnded { ending: Ending::GivenBack }.into())
    }
}

impl Drop for PostgresTransaction {
    fn drop(&mut self) {
        if let Some(connection) = self.open.give_back() {
            connection.discard();
        }
    }
}

impl fmt::Debug for PostgresTransaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresTransaction").field("lease", &self.open.lease).finish_non_exhaustive()
    }
}

/// The connection inside a [`PostgresTransaction`]; `&mut *guard` is an executor.
pub struct ConnectionGuard<'a> {
    connection: MappedMutexGuard<'a, Lent>,
}

impl Deref for ConnectionGuard<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for ConnectionGuard<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
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
            Ending::Abandoned => "the transaction was rolled back: the run it belongs to has ended",
            Ending::GivenBack => "the transaction was given back",
        })
    }
}

impl std::error::Error for TransactionEnded {}

impl From<TransactionEnded> for sqlx::Error {
    fn from(ended: TransactionEnded) -> Self {
        Self::Io(std::io::Error::other(ended))
    }
}
