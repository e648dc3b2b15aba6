//! A handler that says when it is entered and leaves when it is told, so that tests overlap without sleeping.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Counts entries, and holds each until it may leave.
#[derive(Clone, Debug)]
pub struct Gate {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    entered: Semaphore,
    leave: Semaphore,
    entries: AtomicU32,
}

impl Gate {
    /// A gate that holds everyone.
    #[must_use]
    pub fn closed() -> Self {
        Self {
            inner: Arc::new(Inner { entered: Semaphore::new(0), leave: Semaphore::new(0), entries: AtomicU32::new(0) }),
        }
    }

    /// A gate that only counts.
    #[must_use]
    pub fn open() -> Self {
        let gate = Self::closed();
        gate.release(Semaphore::MAX_PERMITS / 2);
        gate
    }

    /// For the handler: enters, waits, and says which entry it was, counted from 1.
    pub async fn pass(&self) -> u32 {
        let entry = self.inner.entries.fetch_add(1, Ordering::SeqCst) + 1;
        self.inner.entered.add_permits(1);
        self.inner.leave.acquire().await.expect("never closed").forget();
        entry
    }

    /// For the test: waits until one more handler has entered.
    pub async fn entered(&self) {
        let entered = timeout(Duration::from_secs(20), self.inner.entered.acquire());
        entered.await.expect("no handler was entered").expect("never closed").forget();
    }

    /// For the test: lets so many handlers leave.
    pub fn release(&self, handlers: usize) {
        self.inner.leave.add_permits(handlers);
    }

    /// How many handlers have entered.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.inner.entries.load(Ordering::SeqCst)
    }
}
