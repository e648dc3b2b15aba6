//! What a store answers: who may run, whose write counted, and what a commit came to.
//!
//! These enums are exhaustive on purpose. A new answer is a new case that every caller has to handle.

use std::fmt;
use std::future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{HeldRecord, LeaseId, StoredResponse, Tombstone};

/// The answer to a claim.
#[must_use = "only `Acquired` may run"]
#[derive(Clone, Debug)]
pub enum Claim {
    /// The caller holds the key and runs.
    Acquired(Acquired),
    /// Somebody else holds a live lease on the same request.
    InFlight {
        /// How long that run has been going, by the store's clock.
        age: Duration,
    },
    /// It ran; this was the answer.
    Recorded(Recorded),
    /// It ran; the answer was not kept.
    Unavailable(Tombstone),
    /// What happened is unknown, and an operator decides.
    Held,
    /// The key belongs to another request.
    Reused,
    /// The same request was first sent with other credentials.
    CallerChanged,
}

/// The right to run, as the store gave it. Exhaustive: a store answers with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquired {
    /// Which run of this key this is; the first is 1.
    pub attempt: u32,
    /// How long the claim waited inside this process before it was sent. The lease counts from then.
    pub queued: Duration,
}

/// An answer that a retry gets. Exhaustive: a store answers with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Recorded {
    /// The response.
    pub response: Arc<StoredResponse>,
    /// For how long the key still means this request, by the store's clock.
    pub expires_in: Duration,
}

/// The answer to a renewal.
#[must_use = "a fenced renewal means that the lease is lost"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease runs for its whole duration again.
    Renewed {
        /// How long the renewal waited inside this process before it was sent. The lease counts from then.
        queued: Duration,
    },
    /// Somebody else holds the record, or it is gone.
    Fenced,
}

/// The answer to every other write.
#[must_use = "a fenced write changed nothing"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    /// The record is as asked, now or already.
    ///
    /// An id that completes twice with different outcomes is told this twice, and the first outcome stays.
    Done,
    /// The id does not hold the record; nothing changed.
    Fenced,
}

/// The answer to the opening of a transaction.
#[must_use = "a fenced holder has no transaction"]
#[derive(Debug)]
pub enum Begin<T> {
    /// A transaction with the mark in it.
    Begun(T),
    /// The id does not hold the record.
    Fenced,
}

/// What a commit came to.
#[must_use = "only `Committed` has happened"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// Record and effect are in the database.
    Committed,
    /// Rolled back: somebody else holds the record.
    Fenced,
    /// Rolled back: the transaction was ended behind our back, or is not the one that was begun.
    Lost,
    /// Rolled back by the database: a conflict, a time limit. The next attempt may succeed.
    Aborted,
}

/// What a record looks like to somebody who does not claim it.
#[derive(Clone, Debug)]
pub enum Look {
    /// There is none, or it has expired.
    Absent,
    /// Somebody runs it.
    Running {
        /// Whose run it is.
        lease: LeaseId,
        /// How long it has been going, by the store's clock.
        age: Duration,
        /// Whether its lease has lapsed, so that the next claim makes it the next attempt, or a held record where the
        /// attempts of its [`LapsePolicy`](super::LapsePolicy) are used up. A run that lapsed under
        /// [`Hold`](super::UnknownOutcome::Hold) is [`Held`](Self::Held) instead.
        lapsed: bool,
    },
    /// It ran, and this was the answer.
    Recorded(Arc<StoredResponse>),
    /// It ran, and the answer was not kept.
    Unavailable(Tombstone),
    /// Nobody runs it; the same request may.
    Free,
    /// It waits for an operator, who decides about this hold with [`resolve`](super::Store::resolve).
    Held(HeldRecord),
}

/// Completes at the next change of a record that the store can push; a hint, beside which callers poll.
#[must_use = "futures do nothing unless polled"]
pub struct Watch {
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Watch {
    /// A watch that ends when `changed` does.
    pub fn new(changed: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { changed: Box::pin(changed) }
    }

    /// The watch of a store that cannot push.
    pub fn never() -> Self {
        Self::new(future::pending())
    }
}

impl Future for Watch {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.changed.as_mut().poll(cx)
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}
