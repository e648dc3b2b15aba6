//! A mutant on trial, on a clock of its own that stands still between passes.

use std::time::Duration;

use idempotency_layer::conformance::Harness;
use idempotency_layer::store::{RecordId, StoreErrorKind};

use super::Mutation;
use super::store::MutantStore;

#[derive(Clone, Debug)]
pub(crate) struct MutantHarness {
    store: MutantStore,
}

impl MutantHarness {
    /// A store that keeps every property.
    pub(crate) fn whole() -> Self {
        Self { store: MutantStore::new(None) }
    }

    pub(crate) fn broken(mutation: Mutation) -> Self {
        Self { store: MutantStore::new(Some(mutation)) }
    }
}

impl Harness for MutantHarness {
    type Store = MutantStore;

    async fn open(&self) -> MutantStore {
        self.store.reopen()
    }

    async fn open_elsewhere(&self) -> MutantStore {
        self.store.elsewhere()
    }

    async fn pass(&self, by: Duration) {
        self.store.pass(by);
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
