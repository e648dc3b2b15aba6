//! SQLite has one writer at a time: whoever waits for it keeps its key for a whole lease, or is told to come again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use idempotency_layer::{Operation, SqliteStore, UnknownOutcome};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use sqlx::SqlitePool;
use tokio::task::JoinHandle;

use crate::ledger::{EFFECT, Ledger, layer, write};
use crate::request::{keyed, send, sending};

#[derive(Clone)]
struct Slow {
    store: SqliteStore,
    pool: SqlitePool,
    takes: Duration,
    gate: Gate,
}

/// Holds one of the user's connections, opens its transaction, and takes its time in it. A run that was told that its
/// key is lost says so.
async fn slow(State(slow): State<Slow>, operation: Operation) -> Response {
    let _own = slow.pool.acquire().await.unwrap();
    let mut transaction = match operation.transaction(&slow.store).await {
        Ok(transaction) => transaction,
        Err(error) => return error.into_response(),
    };
    write(&mut transaction, EFFECT).await.unwrap();
    slow.gate.pass().await;
    tokio::time::sleep(slow.takes).await;
    let told = operation.cancellation().is_cancelled();
    if told { StatusCode::GONE.into_response() } else { StatusCode::CREATED.into_response() }
}

/// Under Hold, a run that is taken over while it lives is seen: its key is held.
fn slow_router(ledger: &Ledger, lease: Duration, takes: Duration, gate: Gate) -> Router {
    let (store, pool) = (ledger.store.clone(), ledger.pool.clone());
    let layer = layer(store.clone()).lease(lease).unknown_outcome(UnknownOutcome::Hold);
    Router::new().route("/pay", post(slow)).layer(layer).with_state(Slow { store, pool, takes, gate })
}

/// S27. Fails when the store sends renewals of the open transaction's lease to the writer, where they wait for the very
/// transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_longer_than_its_lease_commits() {
    let ledger = Ledger::new().await;
    let gate = Gate::closed();
    let router = slow_router(&ledger, Duration::from_millis(600), Duration::ZERO, gate.clone());
    let run = sending(&router, keyed("/pay", "k"), "");
    gate.entered().await;
    let entered = Instant::now();
    while entered.elapsed() < Duration::from_millis(2000) {
        let duplicate = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!(duplicate.problem(), Some("in-flight"), "{duplicate:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    gate.release(1);
    assert_eq!(run.await.unwrap().status, 201);
    assert!(send(&router, keyed("/pay", "k"), "").await.is_replay());
    assert_eq!(ledger.effects().await, 1);
}

/// S27. Lease 2.5 s, run 1.8 s, four handlers that hold all four connections of the user's pool, other keys arriving
/// meanwhile. A renewal may wait for one run, and a slow machine has 0.7 s for the rest. Fails when renewals wait behind
/// queued transactions (`Lane::Renewal` joins `others`).
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_queue_for_the_writer_commit_or_are_refused_before_they_ran() {
    let mut ledger = Ledger::new().await;
    // So that a run may wait for its transaction longer than its lease lasts.
    ledger.store = ledger.store.queue_timeout(Duration::from_secs(4));
    let gate = Gate::open();
    let router = slow_router(&ledger, Duration::from_millis(2500), Duration::from_millis(1800), gate.clone());
    let first = clients(&router, &["a"]);
    gate.entered().await;
    let others = clients(&router, &["b", "c", "d", "e"]);
    for client in first.into_iter().chain(others) {
        tokio::time::timeout(Duration::from_secs(60), client).await.expect("a deadlock").unwrap();
    }
    assert_eq!(ledger.effects().await, 5);
}

/// Sends each key until it is settled, from two clients: whoever finds a lease lapsed takes it over.
fn clients(router: &Router, keys: &[&'static str]) -> Vec<JoinHandle<()>> {
    let client = |key: &'static str| {
        let router = router.clone();
        tokio::spawn(async move {
            loop {
                let answer = send(&router, keyed("/pay", key), "").await;
                match (answer.status.as_u16(), answer.problem()) {
                    (201, None) => return,
                    (503, Some("transaction-failed" | "store-unavailable")) | (409, Some("in-flight")) => {}
                    other => panic!("{key}: {other:?}"),
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
    };
    keys.iter().chain(keys).map(|key| client(key)).collect()
}

/// Lets renewals reach the store until it is told to let none.
#[derive(Default)]
struct NoRenewals(AtomicBool);

impl Hook for NoRenewals {
    fn before(&self, verb: Verb) -> Hooking {
        let stop = verb == Verb::Renew && self.0.load(Ordering::SeqCst);
        Box::pin(async move { if stop { std::future::pending().await } else { Ok(()) } })
    }
}

/// Two routes: the transaction that keeps the writer, until the gate opens, and a run of so many milliseconds without
/// one, which says whether it was told that its key is lost.
struct Contended {
    router: Router,
    transaction: Gate,
    run: Gate,
    hook: Arc<NoRenewals>,
}

impl Contended {
    fn new(ledger: &Ledger, takes: u64) -> Self {
        let (transaction, run, hook) = (Gate::closed(), Gate::open(), Arc::new(NoRenewals::default()));
        let layer = layer(Hooked::new(ledger.store.clone(), Arc::clone(&hook) as Arc<dyn Hook>));
        let (store, pool, entered) = (ledger.store.clone(), ledger.pool.clone(), run.clone());
        let handler = async move |operation: Operation| {
            entered.pass().await;
            tokio::time::sleep(Duration::from_millis(takes)).await;
            if operation.cancellation().is_cancelled() { StatusCode::GONE } else { StatusCode::CREATED }
        };
        let router = Router::new()
            .route("/transaction", post(slow))
            .route("/run", post(handler))
            .layer(layer.lease(Duration::from_millis(1500)))
            .with_state(Slow { store, pool, takes: Duration::ZERO, gate: transaction.clone() });
        Self { router, transaction, run, hook }
    }

    fn send(&self, path: &'static str) -> JoinHandle<u16> {
        let router = self.router.clone();
        tokio::spawn(async move { send(&router, keyed(path, path), "").await.status.as_u16() })
    }

    /// The writer comes free after 1.2 s. What waited for it is served, but no renewal that is sent later.
    async fn starve(&self) {
        tokio::time::sleep(Duration::from_millis(1200)).await;
        self.hook.0.store(true, Ordering::SeqCst);
        self.transaction.release(1);
    }
}

/// S27. Lease 1.5 s, of which the claim waits 1.2 s for the writer; the run ends 2.2 s after the claim was sent. Fails when
/// `keyed` counts the lease from when the claim was sent to the queue instead of from when it left it.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_queued_for_the_writer_holds_its_key_for_a_whole_lease() {
    let ledger = Ledger::new().await;
    let contended = Contended::new(&ledger, 1000);
    let transaction = contended.send("/transaction");
    contended.transaction.entered().await;
    let run = contended.send("/run");
    contended.starve().await;
    assert_eq!((transaction.await.unwrap(), run.await.unwrap()), (201, 201));
}

/// S27. Lease 1.5 s; the first renewal is sent after 0.5 s and waits for the writer until 1.2 s; the run ends after 2.3 s.
/// Fails when `beat` counts the lease from when a renewal was sent to the queue instead of from when it left it.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_queued_for_the_writer_holds_its_key_for_a_whole_lease() {
    let ledger = Ledger::new().await;
    let contended = Contended::new(&ledger, 2300);
    let run = contended.send("/run");
    contended.run.entered().await;
    let transaction = contended.send("/transaction");
    contended.transaction.entered().await;
    contended.starve().await;
    assert_eq!((transaction.await.unwrap(), run.await.unwrap()), (201, 201));
}
