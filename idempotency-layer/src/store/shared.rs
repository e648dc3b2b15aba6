//! One type for any store, so that a program picks its database when it starts.
//!
//! [`SharedStore`] erases the store; [`SharedTransactionalStore`] erases it but for the type of its transactions, so
//! that a handler still gets the driver's own. Both forward every verb and the identity, and add nothing else: the
//! conformance list runs on each store bare and erased.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::{
    Begin, Claim, ClaimRequest, Commit, Completion, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId,
    Renewal, Resolution, Store, StoreError, StoreId, TransactionalStore, Watch, Write,
};

/// Any [`Store`], behind an `Arc`.
///
/// ```
/// use idempotency_layer::{IdempotencyLayer, MemoryStore, SharedStore};
///
/// let store = SharedStore::new(MemoryStore::new());
/// let layer: IdempotencyLayer<SharedStore> = IdempotencyLayer::new(store);
/// ```
#[derive(Clone)]
pub struct SharedStore {
    inner: Arc<dyn ErasedStore>,
}

impl SharedStore {
    /// Erases a store.
    #[must_use]
    pub fn new<S: Store>(store: S) -> Self {
        Self { inner: Arc::new(store) }
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStore").field("identity", &self.inner.identity()).finish_non_exhaustive()
    }
}

/// Any [`TransactionalStore`] whose transactions are `T`, behind an `Arc`.
pub struct SharedTransactionalStore<T> {
    inner: Arc<dyn ErasedTransactionalStore<T>>,
}

impl<T: Send + 'static> SharedTransactionalStore<T> {
    /// Erases a store.
    #[must_use]
    pub fn new<S: TransactionalStore<Transaction = T>>(store: S) -> Self {
        Self { inner: Arc::new(store) }
    }
}

impl<T> Clone for SharedTransactionalStore<T> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<T: 'static> fmt::Debug for SharedTransactionalStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTransactionalStore").field("identity", &self.inner.identity()).finish_non_exhaustive()
    }
}

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type Answer<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// [`Store`] with boxed futures.
trait ErasedStore: Send + Sync + 'static {
    fn identity(&self) -> StoreId;
    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> Answer<'a, Claim>;
    fn renew<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Renewal>;
    fn complete<'a>(&'a self, lease: &'a Lease, completion: &'a Completion) -> Answer<'a, Write>;
    fn release<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Write>;
    fn forget<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Write>;
    fn hold<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Write>;
    fn held<'a>(&'a self, page: &'a Page) -> Answer<'a, HeldPage>;
    fn resolve<'a>(&'a self, held: &'a HeldRecord, by: LeaseId, resolution: &'a Resolution) -> Answer<'a, Write>;
    fn look<'a>(&'a self, record: &'a RecordId) -> Answer<'a, Look>;
    fn watch<'a>(&'a self, record: &'a RecordId) -> Answer<'a, Watch>;
}

impl<S: Store> ErasedStore for S {
    fn identity(&self) -> StoreId {
        Store::identity(self)
    }

    fn claim<'a>(&'a self, request: &'a ClaimRequest) -> Answer<'a, Claim> {
        Box::pin(Store::claim(self, request))
    }

    fn renew<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Renewal> {
        Box::pin(Store::renew(self, lease))
    }

    fn complete<'a>(&'a self, lease: &'a Lease, completion: &'a Completion) -> Answer<'a, Write> {
        Box::pin(Store::complete(self, lease, completion))
    }

    fn release<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Write> {
        Box::pin(Store::release(self, lease))
    }

    fn forget<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Write> {
        Box::pin(Store::forget(self, lease))
    }

    fn hold<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Write> {
        Box::pin(Store::hold(self, lease))
    }

    fn held<'a>(&'a self, page: &'a Page) -> Answer<'a, HeldPage> {
        Box::pin(Store::held(self, page))
    }

    fn resolve<'a>(&'a self, held: &'a HeldRecord, by: LeaseId, resolution: &'a Resolution) -> Answer<'a, Write> {
        Box::pin(Store::resolve(self, held, by, resolution))
    }

    fn look<'a>(&'a self, record: &'a RecordId) -> Answer<'a, Look> {
        Box::pin(Store::look(self, record))
    }

    fn watch<'a>(&'a self, record: &'a RecordId) -> Answer<'a, Watch> {
        Box::pin(Store::watch(self, record))
    }
}

/// [`TransactionalStore`] with boxed futures.
trait ErasedTransactionalStore<T>: ErasedStore {
    fn begin<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Begin<T>>;
    fn complete_in<'a>(&'a self, transaction: T, lease: &'a Lease, completion: &'a Completion) -> Answer<'a, Commit>;
    fn rollback<'a>(&'a self, transaction: T) -> BoxFuture<'a, ()>;
    fn abandon<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, ()>;
    fn confirm<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Commit>;
}

impl<S: TransactionalStore> ErasedTransactionalStore<S::Transaction> for S {
    fn begin<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Begin<S::Transaction>> {
        Box::pin(TransactionalStore::begin(self, lease))
    }

    fn complete_in<'a>(
        &'a self,
        transaction: S::Transaction,
        lease: &'a Lease,
        completion: &'a Completion,
    ) -> Answer<'a, Commit> {
        Box::pin(TransactionalStore::complete_in(self, transaction, lease, completion))
    }

    fn rollback<'a>(&'a self, transaction: S::Transaction) -> BoxFuture<'a, ()> {
        Box::pin(TransactionalStore::rollback(self, transaction))
    }

    fn abandon<'a>(&'a self, lease: &'a Lease) -> BoxFuture<'a, ()> {
        Box::pin(TransactionalStore::abandon(self, lease))
    }

    fn confirm<'a>(&'a self, lease: &'a Lease) -> Answer<'a, Commit> {
        Box::pin(TransactionalStore::confirm(self, lease))
    }
}

/// Forwards every verb of [`Store`] to the erased store in `inner`.
macro_rules! forward_store {
    () => {
        fn identity(&self) -> StoreId {
            self.inner.identity()
        }

        async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
            self.inner.claim(request).await
        }

        async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
            self.inner.renew(lease).await
        }

        async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
            self.inner.complete(lease, completion).await
        }

        async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
            self.inner.release(lease).await
        }

        async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
            self.inner.forget(lease).await
        }

        async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
            self.inner.hold(lease).await
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
    };
}

impl Store for SharedStore {
    forward_store!();
}

impl<T: Send + 'static> Store for SharedTransactionalStore<T> {
    forward_store!();
}

impl<T: Send + 'static> TransactionalStore for SharedTransactionalStore<T> {
    type Transaction = T;

    async fn begin(&self, lease: &Lease) -> Result<Begin<T>, StoreError> {
        self.inner.begin(lease).await
    }

    async fn complete_in(&self, transaction: T, lease: &Lease, completion: &Completion) -> Result<Commit, StoreError> {
        self.inner.complete_in(transaction, lease, completion).await
    }

    async fn rollback(&self, transaction: T) {
        self.inner.rollback(transaction).await;
    }

    async fn abandon(&self, lease: &Lease) {
        self.inner.abandon(lease).await;
    }

    async fn confirm(&self, lease: &Lease) -> Result<Commit, StoreError> {
        self.inner.confirm(lease).await
    }
}
