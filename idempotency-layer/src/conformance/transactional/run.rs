//! One run on trial: a key, its holder, and the effect that the holder is about to have.

use std::future::Future;
use std::time::Duration;

use super::super::harness::lapse;
use super::super::key::{Key, Seen, answer_of, answered, lasting, random};
use super::{TransactionOf, TransactionalHarness};
use crate::store::{Begin, Claim, Commit, Completion, Lease, RecordId, StoreError, StoreErrorKind, Write};
use crate::{Store, TransactionalStore};

pub(super) struct Run<'a, H: TransactionalHarness> {
    pub(super) harness: &'a H,
    pub(super) key: Key<H::Store>,
    /// The same key over another handle. It is opened before any transaction is, since to open one may take a write.
    pub(super) elsewhere: Key<H::Store>,
    pub(super) lease: Lease,
    /// The name of the effect, which no other run has.
    pub(super) effect: String,
}

impl<'a, H: TransactionalHarness> Run<'a, H> {
    /// A run whose lease outlasts the property.
    pub(super) async fn lasting(harness: &'a H) -> Self {
        Self::of(harness, Key::lasting(harness).await).await
    }

    /// A run whose lease lapses.
    pub(super) async fn lapsing(harness: &'a H) -> Self {
        Self::of(harness, Key::lapsing(harness).await).await
    }

    async fn of(harness: &'a H, key: Key<H::Store>) -> Self {
        let (elsewhere, lease) = (key.through(harness.open().await), key.acquire().await);
        Self { harness, key, elsewhere, lease, effect: effect() }
    }

    /// A run of another key, over the same handles.
    pub(super) async fn fresh(&self) -> Self {
        let key = self.key.fresh();
        let lease = key.acquire().await;
        Self {
            harness: self.harness,
            elsewhere: key.through(self.elsewhere.store.clone()),
            key,
            lease,
            effect: effect(),
        }
    }

    /// The same run, its own calls over this handle.
    pub(super) fn through(mut self, store: H::Store) -> Self {
        self.key = self.key.through(store);
        self
    }

    /// A transaction for the holder.
    pub(super) async fn begin(&self) -> TransactionOf<H> {
        match answered("begin", within(self.key.store.begin(&self.lease)).await) {
            Begin::Begun(transaction) => transaction,
            Begin::Fenced => panic!("the holder was given no transaction"),
        }
    }

    /// A transaction for the holder, with the effect in it.
    pub(super) async fn begin_and_write(&self) -> TransactionOf<H> {
        let mut transaction = self.begin().await;
        assert!(self.harness.write_effect(&mut transaction, &self.effect).await, "an open transaction took no effect");
        transaction
    }

    pub(super) fn completion(&self) -> Completion {
        Completion::Response(answer_of(&self.lease))
    }

    pub(super) async fn complete_in(&self, transaction: TransactionOf<H>) -> Commit {
        self.complete_under(&self.lease, transaction).await
    }

    /// Completes as if the transaction had been begun under this lease.
    pub(super) async fn complete_under(&self, lease: &Lease, transaction: TransactionOf<H>) -> Commit {
        let completion = self.completion();
        answered("complete_in", within(self.key.store.complete_in(transaction, lease, &completion)).await)
    }

    pub(super) async fn confirm(&self) -> Commit {
        answered("confirm", within(self.key.store.confirm(&self.lease)).await)
    }

    /// Claims the key from elsewhere, under a lease that lasts.
    pub(super) async fn challenge(&self) -> (Lease, Result<Claim, StoreError>) {
        let request = self.elsewhere.lease(lasting(self.harness)).request();
        let claim = within(self.elsewhere.store.claim(&request)).await;
        (request.lease, claim)
    }

    /// Lets the lease lapse and the key be claimed from elsewhere, and gives the transaction back when that was kept out.
    /// Asserts that a holder which was overtaken commits neither effect nor response.
    pub(super) async fn unless_overtaken(&self, transaction: TransactionOf<H>) -> Option<TransactionOf<H>> {
        lapse(self.harness).await;
        let (lease, claim) = self.challenge().await;
        if let Ok(Claim::Acquired(_)) = claim {
            assert_eq!(self.complete_in(transaction).await, Commit::Fenced, "a commit by a holder that was overtaken");
            assert_eq!(self.effects().await, 0, "effects of a holder that was overtaken");
            assert_eq!(self.elsewhere.seen().await, Seen::Running(lease.id), "the record after a fenced commit");
            return None;
        }
        assert!(is_kept_out(&claim), "a claim on a lapsed holder with a transaction got {claim:?}");
        Some(transaction)
    }

    pub(super) async fn effects(&self) -> u64 {
        self.harness.effects(&self.effect).await
    }

    /// Asserts that effect and response are there, once.
    pub(super) async fn left_both(&self, when: &str) {
        assert_eq!(self.effects().await, 1, "effects {when}");
        assert_eq!(self.elsewhere.seen().await, Seen::Recorded(answer_of(&self.lease)), "the record {when}");
    }

    /// Asserts that neither effect nor response is there, and that the holder holds.
    pub(super) async fn left_nothing(&self, when: &str) {
        assert_eq!(self.effects().await, 0, "effects {when}");
        assert_eq!(self.elsewhere.seen().await, Seen::Running(self.lease.id), "the record {when}");
    }

    /// Asserts that nothing is there and that nothing is in the way: the holder gets another transaction, and after a
    /// release the next attempt has its effect.
    pub(super) async fn left_nothing_and_runs_again(&self, when: &str) {
        self.left_nothing(when).await;
        within(self.key.store.rollback(self.begin().await)).await;
        let released = answered("release", within(self.key.store.release(&self.lease)).await);
        assert_eq!(released, Write::Done, "a release {when}");
        let mut next = self.clone();
        next.lease = self.key.acquire_as(2).await;
        assert_eq!(next.complete_in(next.begin_and_write().await).await, Commit::Committed, "the next attempt {when}");
        next.left_both(when).await;
    }
}

// Not derived: that would ask for a harness that is `Clone`.
impl<H: TransactionalHarness> Clone for Run<'_, H> {
    fn clone(&self) -> Self {
        let (key, elsewhere) = (self.key.clone(), self.elsewhere.clone());
        Self { harness: self.harness, key, elsewhere, lease: self.lease, effect: self.effect.clone() }
    }
}

/// The name of an effect of its own.
pub(super) fn effect() -> String {
    RecordId::from_bytes(random()).to_string()
}

/// Whether the store could not answer just then, as it may while a transaction is open.
pub(super) fn is_unavailable<T>(answer: &Result<T, StoreError>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == StoreErrorKind::Unavailable)
}

/// Whether a claim was kept out by a lease that is live, or by a transaction that is open.
pub(super) fn is_kept_out(claim: &Result<Claim, StoreError>) -> bool {
    is_unavailable(claim) || matches!(claim, Ok(Claim::InFlight { .. }))
}

/// Asserts that there is an answer in time. The time is real, and only runs out on failure.
pub(super) async fn within<T>(call: impl Future<Output = T>) -> T {
    let Ok(answer) = tokio::time::timeout(ANSWERED_WITHIN, call).await else {
        panic!("the store did not answer within {ANSWERED_WITHIN:?}")
    };
    answer
}

const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
