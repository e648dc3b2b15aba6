//! What the list needs to know about a store beyond its verbs: how to open it, let time pass on it, and break a record.

use std::future::Future;
use std::time::Duration;

use crate::store::{RecordId, StoreErrorKind};
use crate::{SharedStore, Store};

/// A store on trial.
///
/// This one is for a store on a clock that it cannot set. It has a connection of its own to the store's database, to
/// break records by:
///
/// ```
/// use std::time::Duration;
///
/// use idempotency_layer::conformance::Harness;
/// use idempotency_layer::store::{RecordId, StoreErrorKind};
/// # use idempotency_layer::MemoryStore as MyStore;
/// # struct MyDatabase;
/// # impl MyDatabase {
/// #     async fn set_format(&self, _: &RecordId, _: u8) {}
/// # }
///
/// struct MyHarness {
///     store: MyStore,
///     database: MyDatabase,
/// }
///
/// impl Harness for MyHarness {
///     type Store = MyStore;
///
///     async fn open(&self) -> MyStore {
///         self.store.clone()
///     }
///
///     async fn open_elsewhere(&self) -> MyStore {
///         MyStore::new()
///     }
///
///     async fn pass(&self, by: Duration) {
///         tokio::time::sleep(by).await;
///     }
///
///     async fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
///         // Formats that no version of the store has written: one of the future, and one that will never be.
///         let format = if kind == StoreErrorKind::Newer { u8::MAX } else { 0 };
///         self.database.set_format(record, format).await;
///     }
///
///     fn lease(&self) -> Duration {
///         Duration::from_millis(500)
///     }
///
///     fn retention(&self) -> Duration {
///         Duration::from_millis(1_500)
///     }
///
///     fn pushes(&self) -> bool {
///         true
///     }
/// }
/// ```
///
/// A harness may be used for one property or for all of them, one at a time or all at once; if at once, its clock
/// must be one that nobody advances.
pub trait Harness: Send + Sync + 'static {
    /// The store.
    type Store: Store;

    /// Opens another handle on the same records, over connections of its own where the store has connections.
    fn open(&self) -> impl Future<Output = Self::Store> + Send;

    /// Opens an empty store of the same kind: another file, database or prefix each time.
    fn open_elsewhere(&self) -> impl Future<Output = Self::Store> + Send;

    /// Lets time pass on the store's clock, by no less than this: sleeps for a database's clock, advances an injected
    /// one.
    fn pass(&self, by: Duration) -> impl Future<Output = ()> + Send;

    /// Makes the record one that no verb can read: `kind` is [`Corrupt`](StoreErrorKind::Corrupt) or
    /// [`Newer`](StoreErrorKind::Newer). The record exists, in whatever state.
    fn damage(&self, record: &RecordId, kind: StoreErrorKind) -> impl Future<Output = ()> + Send;

    /// The shortest lease that is practical: a verb, even on a busy machine, takes less than a tenth of it. Most
    /// properties that let time pass let a little more than this pass.
    fn lease(&self) -> Duration;

    /// The shortest retention that is practical: at least twice the lease.
    fn retention(&self) -> Duration;

    /// Whether the store pushes changes to whoever watches. If not, a [`Watch`](crate::store::Watch) may never end.
    fn pushes(&self) -> bool;
}

/// Forwards what does not depend on the type of the store to the harness that is erased.
macro_rules! forward_harness {
    () => {
        async fn pass(&self, by: Duration) {
            self.0.pass(by).await;
        }

        async fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
            self.0.damage(record, kind).await;
        }

        fn lease(&self) -> Duration {
            self.0.lease()
        }

        fn retention(&self) -> Duration {
            self.0.retention()
        }

        fn pushes(&self) -> bool {
            self.0.pushes()
        }
    };
}
pub(super) use forward_harness;

/// The harness of the same store behind a [`SharedStore`].
#[derive(Clone, Debug)]
pub struct Erased<H>(
    /// The harness of the store itself.
    pub H,
);

impl<H: Harness> Harness for Erased<H> {
    type Store = SharedStore;

    async fn open(&self) -> SharedStore {
        SharedStore::new(self.0.open().await)
    }

    async fn open_elsewhere(&self) -> SharedStore {
        SharedStore::new(self.0.open_elsewhere().await)
    }

    forward_harness!();
}

/// Lets a lease of the harness's length lapse.
pub(super) async fn lapse<H: Harness>(harness: &H) {
    harness.pass(harness.lease() * 5 / 4).await;
}

/// Lets a retention of the harness's length end.
pub(super) async fn expire<H: Harness>(harness: &H) {
    harness.pass(harness.retention() * 5 / 4).await;
}
