//! The memory store on trial, and the example of a harness with an injected clock.

use std::time::Duration;

use super::Harness;
use crate::store::{RecordId, StoreErrorKind};
use crate::{Clock, ClockHand, MemoryStore};

/// A [`MemoryStore`] on a clock that stands still between [passes](Harness::pass).
#[derive(Clone, Debug)]
pub struct MemoryHarness {
    store: MemoryStore,
    hand: ClockHand,
}

impl MemoryHarness {
    /// A harness with an empty store.
    #[must_use]
    pub fn new() -> Self {
        let (clock, hand) = Clock::manual();
        Self { store: MemoryStore::with_clock(clock), hand }
    }
}

impl Default for MemoryHarness {
    fn default() -> Self {
        Self::new()
    }
}

impl Harness for MemoryHarness {
    type Store = MemoryStore;

    async fn open(&self) -> MemoryStore {
        self.store.clone()
    }

    async fn open_elsewhere(&self) -> MemoryStore {
        MemoryStore::new()
    }

    async fn pass(&self, by: Duration) {
        self.hand.advance(by);
    }

    async fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
        self.store.damage(record, kind);
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn retention(&self) -> Duration {
        Duration::from_secs(4)
    }

    fn pushes(&self) -> bool {
        true
    }
}
