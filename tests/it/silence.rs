//! A store that does not answer, or says that it cannot: the run is recorded as soon as it can.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use idempotency_layer::{IdempotencyLayer, MemoryStore, StoreError, StoreErrorKind};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use tokio::time::{sleep, timeout};

use crate::request::{gated, keyed, send};

/// The first so many of a verb get no answer, or this one.
struct Fails {
    verb: Verb,
    left: AtomicUsize,
    with: Option<StoreErrorKind>,
}

impl Fails {
    fn new(verb: Verb, times: usize, with: Option<StoreErrorKind>) -> Arc<Self> {
        Arc::new(Self { verb, left: AtomicUsize::new(times), with })
    }
}

impl Hook for Fails {
    fn before(&self, verb: Verb) -> Hooking {
        let less = |left: usize| left.checked_sub(1);
        let fails = verb == self.verb && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok();
        let with = self.with;
        Box::pin(async move {
            match with {
                _ if !fails => Ok(()),
                Some(kind) => Err(StoreError::new(kind)),
                None => pending().await,
            }
        })
    }
}

fn layer(hook: Arc<dyn Hook>) -> IdempotencyLayer<Hooked<MemoryStore>> {
    IdempotencyLayer::new(Hooked::new(MemoryStore::new(), hook)).anonymous(true)
}

/// S9. Fails when `settle` waits for one answer for ever, or gives up at an error that is not about the record.
#[tokio::test(start_paused = true)]
async fn a_record_is_written_however_the_store_failed_before() {
    for with in [None, Some(StoreErrorKind::Unavailable), Some(StoreErrorKind::Misconfigured)] {
        let gate = Gate::open();
        let router = gated(layer(Fails::new(Verb::Complete, 2, with)), gate.clone());
        let answer = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!(answer.status, 201, "{with:?}");
        let replayed = async {
            while !send(&router, keyed("/pay", "k"), "").await.is_replay() {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(Duration::from_secs(120), replayed).await.unwrap_or_else(|_| panic!("never recorded: {with:?}"));
        assert_eq!(gate.entries(), 1, "{with:?}");
    }
}
