//! A lease is renewed for as long as its run lasts and no longer, and a run that has lost it is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use http::StatusCode;
use idempotency_layer::{IdempotencyLayer, Operation};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use idempotency_tests::stores::{all, embedded};
use tokio::sync::Notify;

use crate::request::{again_until, gated, keyed, layer, send, send_until_ended, sending};

/// Three renewals of it take as long as it does.
const LEASE: Duration = Duration::from_millis(300);

/// Waits until it is told that its key is lost.
async fn until_told(State(gate): State<Gate>, operation: Operation) -> StatusCode {
    gate.pass().await;
    let told = tokio::time::timeout(Duration::from_secs(10), operation.cancellation().cancelled());
    if told.await.is_ok() { StatusCode::CREATED } else { StatusCode::INTERNAL_SERVER_ERROR }
}

/// The store says so while it answers every renewal, so that no clock of the process does. Fails when `beat` ends at a
/// fenced renewal without telling the operation.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_overtaken_is_told_by_its_next_renewal() {
    for subject in embedded().await {
        let gate = Gate::open();
        let router = Router::new()
            .route("/pay", any(until_told))
            .layer(layer(&subject.store).lease(LEASE))
            .with_state(gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        // The store's clock alone passes the lease; the renewals that go on meanwhile are those of the first run.
        let heir = gated(layer(&subject.store), Gate::open());
        let overtaking = async || {
            subject.hand.advance(LEASE);
            send(&heir, keyed("/pay", "k"), "").await
        };
        let answer = again_until(overtaking, |answer| answer.problem() != Some("in-flight")).await;
        assert_eq!(answer.body, "entry 1, attempt 2", "{}", subject.name);
        // Its result is not the key's; the failure of one that was not told would have been its answer.
        let answer = run.await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("lease-lost")), "{}", subject.name);
    }
}

/// Counts renewals.
#[derive(Default)]
struct Renewals(AtomicU32);

impl Hook for Renewals {
    fn before(&self, verb: Verb) -> Hooking {
        self.0.fetch_add(u32::from(verb == Verb::Renew), Ordering::SeqCst);
        Box::pin(async { Ok(()) })
    }
}

/// Fails when a `Beating` that is dropped does not end its task.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_has_ended_is_not_renewed() {
    for subject in all().await {
        let (gate, renewals) = (Gate::closed(), Arc::new(Renewals::default()));
        let store = Hooked::new(subject.store.clone(), Arc::clone(&renewals) as Arc<dyn Hook>);
        let router = gated(IdempotencyLayer::new(store).anonymous(true).lease(LEASE), gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        again_until(async || renewals.0.load(Ordering::SeqCst), |renewed| *renewed > 0).await;
        gate.release(1);
        assert_eq!(run.await.unwrap().status, 201, "{}", subject.name);

        let renewed = renewals.0.load(Ordering::SeqCst);
        tokio::time::sleep(LEASE * 2).await;
        // One may have been under way when the client was answered, before the heartbeat was let go.
        let later = renewals.0.load(Ordering::SeqCst);
        assert!(later <= renewed + 1, "{}: {renewed}, then {later}", subject.name);
    }
}

/// Keeps the first reply to a claim back for as long as its lease lasts.
#[derive(Default)]
struct SlowReply {
    claims: AtomicU32,
    claimed: Arc<Notify>,
}

impl Hook for SlowReply {
    fn after(&self, verb: Verb) -> Hooking {
        let is_first = verb == Verb::Claim && self.claims.fetch_add(1, Ordering::SeqCst) == 0;
        let claimed = Arc::clone(&self.claimed);
        Box::pin(async move {
            if is_first {
                claimed.notify_one();
                tokio::time::sleep(LEASE).await;
            }
            Ok(())
        })
    }
}

/// A run that has the word of the store only when its lease has passed may have an heir already. Fails when `drive` calls
/// the handler without asking `is_late`.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_lease_has_passed_before_it_began_is_not_begun() {
    for has_heir in [false, true] {
        for subject in embedded().await {
            let (gate, slow) = (Gate::open(), Arc::new(SlowReply::default()));
            let store = Hooked::new(subject.store.clone(), Arc::clone(&slow) as Arc<dyn Hook>);
            let router = gated(IdempotencyLayer::new(store).anonymous(true).lease(LEASE), gate.clone());
            let late = sending(&router, keyed("/pay", "k"), "");
            slow.claimed.notified().await;
            if has_heir {
                subject.hand.advance(LEASE);
                let heir = send(&router, keyed("/pay", "k"), "").await;
                assert_eq!(heir.body, "entry 1, attempt 2", "{}", subject.name);
            }
            let late = late.await.unwrap();
            assert_eq!((late.status.as_u16(), late.problem()), (503, Some("lease-lost")), "{}", subject.name);

            // Its key was given back, unless it is the heir's.
            let retry = send_until_ended(&router, "k").await;
            let expected = if has_heir { "entry 1, attempt 2" } else { "entry 1, attempt 1" };
            assert_eq!((&retry.body[..], gate.entries()), (expected.as_bytes(), 1), "{}", subject.name);
            assert_eq!(retry.is_replay(), has_heir, "{}", subject.name);
        }
    }
}
