//! What a handler knows of its run: which key, which attempt, whether it still holds the key, and its transaction.

use std::fmt;
use std::sync::Arc;

use idempotency_shared::IdempotencyKey;
use tokio_util::sync::CancellationToken;

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
    key: IdempotencyKey,
    scope: Arc<str>,
    attempt: u32,
    lease: Lease,
    store: StoreId,
    lost: CancellationToken,
    slot: Slot,
}

impl Operation {
    pub(crate) fn new(
        key: IdempotencyKey,
        scope: Arc<str>,
        attempt: u32,
        lease: Lease,
        store: StoreId,
        lost: CancellationToken,
    ) -> Self {
        Self { inner: Arc::new(Inner { key, scope, attempt, lease, store, lost, slot: Slot::default() }) }
    }

    /// The key, as the client chose it. It stays inside the service: what goes to others is derived from it.
    #[must_use]
    pub fn key(&self) -> &IdempotencyKey {
        &self.inner.key
    }

    /// The scope of the layer that runs this.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.inner.scope
    }

    /// Which run of the key this is; the first is 1. Above 1, an earlier run may have left effects behind.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.inner.attempt
    }

    /// The id of the record, as operators see it.
    #[must_use]
    pub fn record(&self) -> RecordId {
        self.inner.lease.record
    }

    /// Fires when the key is lost to another holder, or must be taken for lost. Stop then: another run may have begun.
    #[must_use]
    pub fn cancellation(&self) -> &CancellationToken {
        &self.inner.lost
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
            .field("scope", &self.inner.scope)
            .field("key", &self.inner.key)
            .field("attempt", &self.inner.attempt)
            .field("record", &self.inner.lease.record)
            .finish_non_exhaustive()
    }
}
