//! A mutant with transactions on trial.

use std::time::Duration;

use idempotency_layer::conformance::transactional::{Ending, TransactionalHarness};
use idempotency_layer::conformance::{Harness, MemoryHarness};
use idempotency_layer::store::{RecordId, StoreErrorKind};

use super::Mutation;
use super::store::{Ledger, Transaction};

#[derive(Debug)]
pub(crate) struct LedgerHarness {
    records: MemoryHarness,
    mutation: Option<Mutation>,
    ledger: tokio::sync::OnceCell<Ledger>,
}

impl LedgerHarness {
    /// A store that keeps every property.
    pub(crate) fn whole() -> Self {
        Self::with(None)
    }

    pub(crate) fn broken(mutation: Mutation) -> Self {
        Self::with(Some(mutation))
    }

    fn with(mutation: Option<Mutation>) -> Self {
        Self { records: MemoryHarness::new(), mutation, ledger: tokio::sync::OnceCell::new() }
    }
}

impl Harness for LedgerHarness {
    type Store = Ledger;

    async fn open(&self) -> Ledger {
        let open = || async { Ledger::new(self.records.open().await, self.mutation) };
        self.ledger.get_or_init(open).await.clone()
    }

    async fn open_elsewhere(&self) -> Ledger {
        Ledger::new(self.records.open_elsewhere().await, self.mutation)
    }

    async fn pass(&self, by: Duration) {
        self.records.pass(by).await;
    }

    async fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
        self.records.damage(record, kind).await;
    }

    fn lease(&self) -> Duration {
        self.records.lease()
    }

    fn retention(&self) -> Duration {
        self.records.retention()
    }

    fn pushes(&self) -> bool {
        true
    }
}

impl TransactionalHarness for LedgerHarness {
    async fn write_effect(&self, transaction: &mut Transaction, name: &str) -> bool {
        transaction.write(name);
        true
    }

    async fn effects(&self, name: &str) -> u64 {
        self.open().await.effects(name)
    }

    async fn end_behind(&self, transaction: &mut Transaction, how: Ending, then: &str) -> bool {
        transaction.end_behind(how, then);
        true
    }
}
