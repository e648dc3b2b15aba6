//! A store with a hook before and after each verb: where a test hangs, fails, loses the reply, or sends twice.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use idempotency_layer::store::{
    Begin, Claim, ClaimRequest, Commit, Completion, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId,
    Renewal, Resolution, StoreId, Watch, Write,
};
use idempotency_layer::{Store, StoreError, StoreErrorKind, TransactionalStore};

use crate::gate::Gate;

/// The verbs that a hook is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// [`Store::claim`].
    Claim,
    /// [`Store::renew`].
    Renew,
    /// [`Store::complete`].
    Complete,
    /// [`Store::release`].
    Release,
    /// [`Store::forget`].
    Forget,
    /// [`Store::hold`].
    Hold,
    /// [`TransactionalStore::begin`].
    Begin,
    /// [`TransactionalStore::complete_in`].
    CompleteIn,
    /// [`TransactionalStore::confirm`].
    Confirm,
}

/// What a hook awaits before the verb goes on.
pub type Hooking = Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>;

/// What a hook answers that loses a verb or its reply, if so.
pub fn lost_if(is_lost: bool) -> Hooking {
    Box::pin(async move { if is_lost { Err(StoreError::new(StoreErrorKind::Unavailable)) } else { Ok(()) } })
}

/// What a hook answers that stops at a gate, if so.
pub fn stopped_if(is_stopped: bool, gate: &Gate) -> Hooking {
    let gate = is_stopped.then(|| gate.clone());
    Box::pin(async move {
        if let Some(gate) = gate {
            gate.pass().await;
        }
        Ok(())
    })
}

/// Decides what happens around each verb.
pub trait Hook: Send + Sync + 'static {
    /// Before the verb; an `Err` means that it never reaches the store.
    fn before(&self, _verb: Verb) -> Hooking {
        Box::pin(async { Ok(()) })
    }

    /// After the verb; an `Err` means that it happened and its reply is lost.
    fn after(&self, _verb: Verb) -> Hooking {
        Box::pin(async { Ok(()) })
    }

    /// Whether the verb is sent a second time before its reply is read, as drivers do that re-send by themselves.
    fn sends_twice(&self, _verb: Verb) -> bool {
        false
    }
}

/// A store and its hook.
#[derive(Clone)]
pub struct Hooked<S> {
    inner: S,
    hook: Arc<dyn Hook>,
}

impl<S> Hooked<S> {
    /// Puts a hook around a store.
    pub fn new(inner: S, hook: Arc<dyn Hook>) -> Self {
        Self { inner, hook }
    }

    async fn around<T, F>(&self, verb: Verb, mut send: impl FnMut() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        self.hook.before(verb).await?;
        if self.hook.sends_twice(verb) {
            drop(send().await);
        }
        let answer = send().await;
        self.hook.after(verb).await?;
        answer
    }
}

impl<S> fmt::Debug for Hooked<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooked").finish_non_exhaustive()
    }
}

impl<S: Store> Store for Hooked<S> {
    fn identity(&self) -> StoreId {
        self.inner.identity()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.around(Verb::Claim, || self.inner.claim(request)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        self.around(Verb::Renew, || self.inner.renew(lease)).await
    }

    async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
        self.around(Verb::Complete, || self.inner.complete(lease, completion)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.around(Verb::Release, || self.inner.release(lease)).await
    }

    async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.around(Verb::Forget, || self.inner.forget(lease)).await
    }

    async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.around(Verb::Hold, || self.inner.hold(lease)).await
    }

    async fn held(&self, page: &Page) -> Result<HeldPage, StoreError> {
        self.inner.held(page).await
    }

    async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Result<Write, StoreError> {
        self.inner.resolve(held, by, resolution).await
    }

    async fn look(&self, record: &RecordId) -> Result<Look, StoreError> {
        self.inner.look(record).await
    }

    async fn watch(&self, record: &RecordId) -> Result<Watch, StoreError> {
        self.inner.watch(record).await
    }
}

impl<S: TransactionalStore> TransactionalStore for Hooked<S> {
    type Transaction = S::Transaction;

    async fn begin(&self, lease: &Lease) -> Result<Begin<Self::Transaction>, StoreError> {
        self.hook.before(Verb::Begin).await?;
        let begin = self.inner.begin(lease).await;
        self.hook.after(Verb::Begin).await?;
        begin
    }

    async fn complete_in(
        &self,
        transaction: Self::Transaction,
        lease: &Lease,
        completion: &Completion,
    ) -> Result<Commit, StoreError> {
        self.hook.before(Verb::CompleteIn).await?;
        let commit = self.inner.complete_in(transaction, lease, completion).await;
        self.hook.after(Verb::CompleteIn).await?;
        commit
    }

    async fn rollback(&self, transaction: Self::Transaction) {
        self.inner.rollback(transaction).await;
    }

    async fn abandon(&self, lease: &Lease) {
        self.inner.abandon(lease).await;
    }

    async fn confirm(&self, lease: &Lease) -> Result<Commit, StoreError> {
        self.around(Verb::Confirm, || self.inner.confirm(lease)).await
    }
}
