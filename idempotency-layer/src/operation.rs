//! What a handler knows of its run: which key, which attempt, whether it still holds the key, and its transaction.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use idempotency_shared::{IdempotencyKey, Propagation};
use tokio_util::sync::CancellationToken;

use crate::heartbeat::Beating;
use crate::store::{Begin, Lease, RecordId, StoreId, TransactionalStore};
use crate::transaction::{Opening, Slot, TransactionError, TransactionErrorKind, TransactionGuard};

/// One run of a keyed request, from the request's extensions or, with the feature `axum`, as an extractor.
///
/// Requests that pass the layer without a key carry none; extract an `Option<Operation>` where that may be.
///
/// ```
/// use http::{Request, Response};
/// use idempotency_layer::{Operation, RequestBody};
///
/// async fn handle<B>(request: Request<RequestBody<B>>) -> Response<String> {
///     let operation = request.extensions().get::<Operation>().expect("the layer is there");
///     Response::new(format!("attempt {}", operation.attempt()))
/// }
/// ```
#[derive(Clone)]
pub struct Operation {
    inner: Arc<Inner>,
}

struct Inner {
    /// The one clone that the layer keeps, given to nobody: whoever has this operation could otherwise give keys away after
    /// the layer has asked whether any clone is left.
    propagation: Propagation,
    lease: Lease,
    store: StoreId,
    lost: AtomicBool,
    /// Made when somebody asks for it, which few handlers do.
    cancellation: OnceLock<CancellationToken>,
    /// Empty before the first renewal, and after the run.
    beating: Mutex<Option<Beating>>,
    slot: Slot,
    /// The operation of a layer outside, where there is one.
    outer: Option<Operation>,
}

impl Operation {
    pub(crate) fn new(propagation: Propagation, lease: Lease, store: StoreId, outer: Option<Operation>) -> Self {
        let inner = Inner {
            propagation,
            lease,
            store,
            lost: AtomicBool::new(false),
            cancellation: OnceLock::new(),
            beating: Mutex::default(),
            slot: Slot::default(),
            outer,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The key, as the client chose it; the same on every attempt.
    #[must_use]
    pub fn key(&self) -> &IdempotencyKey {
        self.inner.propagation.parent_key()
    }

    /// The scope of the layer that runs this.
    #[must_use]
    pub fn scope(&self) -> &str {
        self.inner.propagation.scope()
    }

    /// Which run of the key this is; the first is 1. Above 1, an earlier run may have left effects behind.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.propagation.attempt().get()
    }

    /// The id of the record, as operators see it.
    #[must_use]
    pub fn record(&self) -> RecordId {
        self.inner.lease.record
    }

    /// Fires when the key is lost to another holder, or must be taken for lost. Stop then: another run may have begun.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        let token = self.inner.cancellation.get_or_init(CancellationToken::new);
        // Asked after the token is there: whoever loses the key at this moment finds the token, or is found here.
        if self.is_lost() {
            token.cancel();
        }
        token
    }

    /// Opens the transaction of this run in the layer's own store. What is written through it and the record of the
    /// response are committed together by the layer, or not at all.
    ///
    /// - A response below 400 commits. Any other rolls back; one that is a result all the same (a 402, a 409) is then
    ///   recorded by itself.
    /// - Give the guard back by dropping it before the response is made. One that is still out then is rolled back,
    ///   and the client gets `transaction-lost`.
    /// - Do not commit or roll back by yourself, and make no network call while it is open.
    ///
    /// `store` is the store that the layer was made with, or any clone or wrapper of it.
    ///
    /// # Errors
    ///
    /// [`TransactionError`]; its `kind` tells a mistake of the program (another store, a second transaction) from a
    /// store that gave none in time and from a key that was lost. With the feature `axum` it is a response, so that
    /// `?` in a handler answers 503 where a retry helps.
    pub async fn transaction<S: TransactionalStore>(
        &self,
        store: &S,
    ) -> Result<TransactionGuard<S::Transaction>, TransactionError> {
        if store.identity() != self.inner.store {
            return Err(TransactionError::new(TransactionErrorKind::OtherStore));
        }
        let opening: Opening<'_> = self.inner.slot.open()?;
        match store.begin(&self.inner.lease).await {
            Ok(Begin::Begun(transaction)) => opening.begun(store.clone(), transaction),
            Ok(Begin::Fenced) => Err(opening.fenced()),
            Err(error) => Err(opening.refused(error)),
        }
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.inner.lost.load(Ordering::SeqCst)
    }

    /// The key is lost, or must be taken for lost.
    pub(crate) fn lose(&self) {
        self.inner.lost.store(true, Ordering::SeqCst);
        if let Some(token) = self.inner.cancellation.get() {
            token.cancel();
        }
    }

    pub(crate) fn beating(&self) -> MutexGuard<'_, Option<Beating>> {
        self.inner.beating.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this or a layer outside has claimed the key in this store and scope.
    pub(crate) fn holds(&self, store: StoreId, scope: &str) -> bool {
        let mut next = Some(self);
        while let Some(operation) = next {
            if operation.inner.store == store && operation.scope() == scope {
                return true;
            }
            next = operation.inner.outer.as_ref();
        }
        false
    }

    /// Whether the run has given a derived key away, or still can.
    pub(crate) fn may_have_given_key(&self) -> bool {
        self.inner.propagation.may_have_given_key()
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.inner.lease
    }

    pub(crate) fn slot(&self) -> &Slot {
        &self.inner.slot
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("scope", &self.scope())
            .field("key", self.key())
            .field("attempt", &self.attempt())
            .field("record", &self.inner.lease.record)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::LeaseId;

    fn operation(store: StoreId, scope: &str, outer: Option<Operation>) -> Operation {
        let lease =
            Lease { record: RecordId::from_bytes([0; 32]), id: LeaseId::random(), duration: Duration::from_secs(1) };
        Operation::new(Propagation::builder(scope, IdempotencyKey::random()).build(), lease, store, outer)
    }

    /// Fails when `holds` compares only one of the two, or looks at the innermost claim only.
    #[test]
    fn a_claim_counts_for_its_own_store_and_scope() {
        let (one, two) = (StoreId::random(), StoreId::random());
        let inner = operation(two, "b", Some(operation(one, "a", None)));
        assert!(inner.holds(one, "a") && inner.holds(two, "b"));
        assert!(!inner.holds(one, "b") && !inner.holds(two, "a"));
    }

    /// Fails when `cancellation` does not ask again once its token is there, or `lose` does not tell the token.
    #[test]
    fn a_lost_key_fires_the_token_whoever_comes_first() {
        for asked_before in [true, false] {
            let operation = operation(StoreId::random(), "a", None);
            let before = asked_before.then(|| operation.cancellation().clone());
            assert!(before.as_ref().is_none_or(|token| !token.is_cancelled()));
            operation.lose();
            assert!(operation.cancellation().is_cancelled());
            assert!(before.is_none_or(|token| token.is_cancelled()));
        }
    }
}
