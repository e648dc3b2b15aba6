//! A store that does not answer, or says that it cannot: the run is recorded as soon as it can, and nothing piles up.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use idempotency_layer::{
    IdempotencyLayer, MemoryStore, Operation, Outcome, SqliteStore, StoreError, StoreErrorKind, UnknownOutcome,
};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use idempotency_tests::stores::sqlite_in;
use tokio::runtime::Handle;
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

/// Fails when `undo` waits for one answer for ever, or when there is one for every claim, however many fail at once.
#[tokio::test(start_paused = true)]
async fn claims_without_an_answer_do_not_pile_up() {
    for with in [None, Some(StoreErrorKind::Unavailable)] {
        let router = gated(layer(Fails::new(Verb::Claim, usize::MAX, with)).max_running(8), Gate::open());
        let before = Handle::current().metrics().num_alive_tasks();
        for round in 0..20 {
            let key = |at| format!("{round}-{at}");
            let refused = (0..8).map(|at| {
                let router = router.clone();
                async move { send(&router, keyed("/pay", &key(at)), "").await }
            });
            for refused in futures_util::future::join_all(refused).await {
                assert_eq!(refused.problem(), Some("store-unavailable"), "{with:?}");
            }
        }
        let undoing = Handle::current().metrics().num_alive_tasks() - before;
        assert!(undoing <= 8, "{with:?}: {undoing} claims are being taken back");
        sleep(Duration::from_secs(120)).await;
        assert_eq!(Handle::current().metrics().num_alive_tasks(), before, "{with:?}: some never end");
    }
}

/// Had an effect elsewhere before it asked for its transaction, and says so.
async fn declares(State(store): State<Hooked<SqliteStore>>, operation: Operation) -> Response {
    assert!(operation.transaction(&store).await.is_err());
    let mut response = StatusCode::BAD_GATEWAY.into_response();
    response.extensions_mut().insert(Outcome::Unknown);
    response
}

/// Fails when `Run::transaction` answers for a handler without a transaction that has said what its answer means.
#[tokio::test]
async fn a_run_that_got_no_transaction_is_held_when_its_handler_says_that_its_outcome_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let hook = Fails::new(Verb::Begin, 1, Some(StoreErrorKind::Unavailable));
    let store = Hooked::new(sqlite_in(&folder).await, hook);
    let layer = IdempotencyLayer::new(store.clone()).anonymous(true).unknown_outcome(UnknownOutcome::Hold);
    let router = Router::new().route("/pay", post(declares)).layer(layer).with_state(store);
    let answer = send(&router, keyed("/pay", "k"), "").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (502, None));
    let retry = send(&router, keyed("/pay", "k"), "").await;
    assert_eq!((retry.status.as_u16(), retry.problem()), (409, Some("outcome-unknown")));
}
