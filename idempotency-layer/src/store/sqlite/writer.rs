//! The one connection that writes, and the line before it.
//!
//! 1. Whoever writes holds the [`Turn`]. There is one; dropping it serves the next in line.
//! 2. Two lanes: renewals are served before everything else that waits, since a lease that is not renewed lets a second
//!    run in. Within a lane, first come, first served.
//! 3. A connection that does not come back through [`Turn::give_back`] is closed, and SQLite rolls back what it had
//!    open. So a future that is dropped in mid-statement leaves nothing behind.
//! 4. Nothing here belongs to a runtime: no task, no timer outlives a call.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::failure;
use super::file::File;
use crate::store::StoreError;

pub(super) struct Writer {
    file: Arc<File>,
    line: Mutex<Line>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    Renewal,
    Other,
}

impl Writer {
    pub(super) fn new(file: Arc<File>, connection: SqliteConnection) -> Self {
        Self { file, line: Mutex::new(Line { idle: Some(connection), ..Line::default() }) }
    }

    /// Waits in line until the deadline.
    pub(super) async fn turn(self: &Arc<Self>, lane: Lane, deadline: Instant) -> Result<Turn, StoreError> {
        let waiting = match self.join(lane) {
            Place::First(turn) => return Ok(turn),
            Place::Behind(waiting) => waiting,
        };
        // A turn that is granted as the wait ends is dropped with the receiver, which passes it on.
        match timeout_at(deadline, waiting).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) => Err(failure::unavailable("the writer is gone")),
            Err(_) => Err(failure::unavailable("the writer was busy for too long")),
        }
    }

    fn join(self: &Arc<Self>, lane: Lane) -> Place {
        let mut line = self.lock();
        if line.taken {
            let (grant, waiting) = oneshot::channel();
            match lane {
                Lane::Renewal => line.renewals.push_back(grant),
                Lane::Other => line.others.push_back(grant),
            }
            return Place::Behind(waiting);
        }
        line.taken = true;
        let connection = line.idle.take();
        drop(line);
        Place::First(Turn { writer: Some(Arc::clone(self)), connection })
    }

    fn pass_on(self: Arc<Self>, mut connection: Option<SqliteConnection>) {
        loop {
            let mut line = self.lock();
            let next = line.renewals.pop_front().or_else(|| line.others.pop_front());
            let Some(grant) = next else {
                line.taken = false;
                line.idle = connection;
                return;
            };
            drop(line);
            let turn = Turn { writer: Some(Arc::clone(&self)), connection: connection.take() };
            let Err(mut refused) = grant.send(turn) else { return };
            // Whoever waited here has gone. The turn is disarmed, not dropped: a long line of such would recurse.
            refused.writer = None;
            connection = refused.connection.take();
        }
    }

    /// How many wait in line.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        let line = self.lock();
        line.renewals.len() + line.others.len()
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Line {
    /// Whether somebody holds the turn.
    taken: bool,
    /// The connection, while nobody holds the turn; none where the last one did not give it back.
    idle: Option<SqliteConnection>,
    renewals: VecDeque<oneshot::Sender<Turn>>,
    others: VecDeque<oneshot::Sender<Turn>>,
}

enum Place {
    First(Turn),
    Behind(oneshot::Receiver<Turn>),
}

/// The right to write; dropped, it passes to the next in line.
pub(super) struct Turn {
    /// None once the turn has been passed on.
    writer: Option<Arc<Writer>>,
    connection: Option<SqliteConnection>,
}

impl Turn {
    /// The connection, which is closed unless it is [given back](Self::give_back).
    pub(super) async fn connection(&mut self) -> Result<SqliteConnection, StoreError> {
        match (self.connection.take(), &self.writer) {
            (Some(connection), _) => Ok(connection),
            (None, Some(writer)) => writer.file.writer().await,
            (None, None) => Err(failure::unavailable("the turn is over")),
        }
    }

    /// Gives the connection back, with no transaction open and no statement running.
    pub(super) fn give_back(mut self, connection: SqliteConnection) {
        self.connection = Some(connection);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.pass_on(self.connection.take());
        }
    }
}
