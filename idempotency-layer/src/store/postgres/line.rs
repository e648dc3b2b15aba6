//! Connections of the store's own, lent for a statement or for a transaction.
//!
//! 1. A line opens as many as are needed at once, up to its number; whoever finds all of them lent waits. Idle ones are
//!    kept, the last one used is lent first.
//! 2. A connection that breaks is dropped, and all idle ones with it: they have the same age and the same fate. What was
//!    sent on a kept one is sent once more on a new one; every verb may be.
//! 3. A connection whose future was dropped in the midst of a statement is kept: the driver reads what is left of the
//!    answer before it sends anything else. One that did not answer in time, or may have a transaction open, is not; nor is
//!    one lent that has owed an answer for a while, since it may be silent for good, and whoever waits for less than an
//!    answer may take would never learn of that.
//!
//! The driver's pool is not used. It sends a message of its own whenever a connection comes back, so that each verb would
//! be two round trips; and handlers hold its connections, which claims and renewals must not wait for.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions, Connection, SqlSafeStr};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// Some connections with the same options.
#[derive(Debug)]
pub(super) struct Line {
    options: PgConnectOptions,
    idle: Mutex<Vec<Idle>>,
    places: Arc<Semaphore>,
    lends_for: Purpose,
}

/// A connection that nobody has.
#[derive(Debug)]
struct Idle {
    connection: PgConnection,
    /// From when on it may owe an answer to somebody who has gone.
    owes_since: Option<Instant>,
}

/// What is done on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// Single statements, outside of any transaction.
    Statements,
    /// Transactions of the store's own, a statement in each.
    StatementsInTransactions,
    /// Transactions of handlers. The driver is to take all that is sent as part of a transaction that it has begun, so that
    /// a handler's `begin` is a savepoint.
    Handlers,
}

impl Line {
    pub(super) fn for_statements(options: PgConnectOptions, most: u32, is_legacy: bool) -> Arc<Self> {
        let purpose = if is_legacy { Purpose::StatementsInTransactions } else { Purpose::Statements };
        Arc::new(Self::new(options, most, purpose))
    }

    pub(super) fn for_handlers(options: PgConnectOptions, most: u32) -> Arc<Self> {
        Arc::new(Self::new(options, most, Purpose::Handlers))
    }

    fn new(options: PgConnectOptions, most: u32, lends_for: Purpose) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX).clamp(1, Semaphore::MAX_PERMITS);
        Self { options, idle: Mutex::default(), places: Arc::new(Semaphore::new(most)), lends_for }
    }

    /// Waits for a place, and gives an idle connection or a new one.
    pub(super) async fn lend(self: &Arc<Self>) -> sqlx::Result<Lent> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
        let kept = self.take();
        let is_kept = kept.is_some();
        let (connection, owes_since) = match kept {
            Some(Idle { connection, owes_since }) => (connection, owes_since),
            None => (self.open().await?, None),
        };
        let owes_since = owes_since.unwrap_or_else(Instant::now);
        Ok(Lent { line: Arc::clone(self), connection: Some(connection), is_kept, owes_since, _place: place })
    }

    /// Keeps a connection that was opened elsewhere with the same options.
    pub(super) fn keep(&self, connection: PgConnection) {
        self.idle().push(Idle { connection, owes_since: None });
    }

    /// The idle connection that was used last, without those that may be silent.
    fn take(&self) -> Option<Idle> {
        let mut idle = self.idle();
        loop {
            let last = idle.pop()?;
            if last.owes_since.is_none_or(|since| since.elapsed() < PATIENCE) {
                return Some(last);
            }
        }
    }

    async fn open(&self) -> sqlx::Result<PgConnection> {
        let mut connection = self.options.connect().await?;
        if self.lends_for == Purpose::Handlers {
            let begun = connection.begin_with("BEGIN".into_sql_str()).await?;
            // Forgotten, it does not roll back, and the driver goes on counting it as the outer transaction.
            std::mem::forget(begun);
            sqlx::raw_sql("COMMIT").execute(&mut connection).await?;
        }
        Ok(connection)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        // Pushed to and popped from, which is whole at each step.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection, until it is given back.
#[derive(Debug)]
pub(super) struct Lent {
    line: Arc<Line>,
    connection: Option<PgConnection>,
    is_kept: bool,
    /// When it was lent, or the first of those who have gone since its last answer.
    owes_since: Instant,
    _place: OwnedSemaphorePermit,
}

impl Lent {
    /// Whether it was used before.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Keeps the connection for the next, with nothing open on it.
    pub(super) fn give_back(mut self) {
        if let Some(connection) = self.connection.take() {
            self.line.keep(connection);
        }
    }

    /// Drops the connection, which ends whatever is open on it.
    pub(super) fn discard(mut self) {
        drop(self.connection.take());
    }

    /// Drops a broken connection, and those that are as old.
    pub(super) fn discard_all(self) {
        self.line.idle().clear();
        self.discard();
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match &self.connection {
            Some(connection) => connection,
            None => unreachable!("whoever takes the connection takes all of this"),
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match &mut self.connection {
            Some(connection) => connection,
            None => unreachable!("whoever takes the connection takes all of this"),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if self.line.lends_for == Purpose::Statements
            && let Some(connection) = self.connection.take()
        {
            self.line.idle().push(Idle { connection, owes_since: Some(self.owes_since) });
        }
    }
}

/// How long a connection may owe an answer and be lent: many times what a statement takes, and less than a client waits.
const PATIENCE: Duration = Duration::from_secs(1);
