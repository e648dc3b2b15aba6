//! HELD records, written as such or lapsed under Hold, and the three ways in which an operator ends one.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use super::{LeaseId, RecordId, StoredResponse};

/// Which held records to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    pub(crate) after: Option<RecordId>,
    pub(crate) limit: NonZeroU16,
}

impl Page {
    /// The first `limit` records.
    #[must_use]
    pub const fn first(limit: NonZeroU16) -> Self {
        Self { after: None, limit }
    }

    /// As many records again, after this one.
    #[must_use]
    pub const fn after(&self, record: RecordId) -> Self {
        Self { after: Some(record), limit: self.limit }
    }

    /// The record that the page begins after; none for the first page.
    #[must_use]
    pub const fn start(&self) -> Option<&RecordId> {
        self.after.as_ref()
    }

    /// How many records are listed at most.
    #[must_use]
    pub const fn limit(&self) -> NonZeroU16 {
        self.limit
    }
}

/// Some held records, in the order of their ids. Exhaustive: a store answers with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldPage {
    /// The records.
    pub records: Vec<HeldRecord>,
    /// Where to go on; none when this was the last page.
    pub next: Option<Page>,
}

impl HeldPage {
    /// The page out of all records that come after its start, in the order of their ids.
    pub(crate) fn cut(mut records: Vec<HeldRecord>, page: &Page) -> Self {
        let limit = usize::from(page.limit.get());
        let more = records.len() > limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| page.after(last.record));
        Self { records, next }
    }
}

/// A record that waits for a decision: listed by [`held`](super::Store::held), or looked up by its id with
/// [`look`](super::Store::look). Exhaustive: a store answers with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldRecord {
    /// Its id, as in the `record` member of the problem that clients get.
    pub record: RecordId,
    /// The id that wrote the hold. A decision counts for this hold and for no later one.
    ///
    /// Of a run that lapsed under [`Hold`](super::UnknownOutcome::Hold), the id of its run, until the first claim after
    /// that makes the hold its own. However often such a run is renewed late and lapses again, it is one hold.
    pub hold: LeaseId,
    /// How often it was run.
    pub attempt: u32,
    /// Why it is held.
    pub cause: HeldCause,
    /// For how long, by the store's clock: since the hold was written or, where nobody has written one, since the lease
    /// of the run lapsed.
    pub age: Duration,
}

/// Why a record is held. Exhaustive, so that a store writes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeldCause {
    /// Its holder said that the outcome is unknown: a 5xx, a panic.
    Unknown,
    /// Its holder went silent, and the policy of its claim said to hold or the attempts were used up.
    Lapsed,
}

/// How a held record ends. Exhaustive, so that a store carries out each.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolution {
    /// It took effect: retries get this response from now on.
    Settle(Arc<StoredResponse>),
    /// It may be run again by the same request, as the next attempt.
    Free,
    /// It never happened: the key is new again.
    Forget,
}
