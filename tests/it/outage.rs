//! The store goes away in mid-run, or the machine's clock jumps: what the handler, the client and the retry see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::any;
use http::StatusCode;
use idempotency_layer::{IdempotencyLayer, MemoryStore, Operation, StoreError, StoreErrorKind};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use idempotency_tests::stores::{all, embedded};
use tokio::time::Instant;

use crate::request::{gated, keyed, layer, send, send_unrun, send_until_ended, sending};

/// Cuts the store off for some verbs, while it is told to.
#[derive(Clone)]
pub(crate) struct Cut {
    verbs: &'static [Verb],
    how: How,
    side: Side,
    on: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    /// An error at once.
    Fails,
    /// No answer, ever.
    Hangs,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    /// The verb does not reach the store.
    Asking,
    /// Its answer does not come back.
    Answering,
}

impl Cut {
    pub(crate) fn off(verbs: &'static [Verb], how: How) -> Self {
        Self { verbs, how, side: Side::Asking, on: Arc::new(AtomicBool::new(true)) }
    }

    fn on(self, side: Side) -> Self {
        Self { side, ..self }
    }

    fn mend(&self) {
        self.on.store(false, Ordering::SeqCst);
    }
}

impl Hook for Cut {
    fn before(&self, verb: Verb) -> Hooking {
        self.pass(Side::Asking, verb)
    }

    fn after(&self, verb: Verb) -> Hooking {
        self.pass(Side::Answering, verb)
    }
}

impl Cut {
    fn pass(&self, side: Side, verb: Verb) -> Hooking {
        let cut = (self.side == side && self.verbs.contains(&verb)).then(|| self.clone());
        Box::pin(async move {
            let Some(cut) = cut else { return Ok(()) };
            while cut.on.load(Ordering::SeqCst) {
                if cut.how == How::Fails {
                    return Err(StoreError::new(StoreErrorKind::Unavailable));
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        })
    }
}

/// Runs until it is told that its key is lost.
async fn until_lost(State(gate): State<Gate>, operation: Operation) -> &'static str {
    let told = tokio::time::timeout(Duration::from_secs(5), operation.cancellation().cancelled()).await;
    gate.pass().await;
    if told.is_ok() { "late" } else { "not told" }
}

/// S6. Fails when a renewal that fails or hangs never fires the token, and when the late write is not tried, or its `Fenced`
/// is answered as success.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_outlives_its_lease_is_told_and_only_what_the_store_confirms_is_success() {
    for how in [How::Fails, How::Hangs] {
        for overtaken in [false, true] {
            for subject in all().await {
                let case = format!("{how:?}, overtaken: {overtaken}, {}", subject.name);
                let cut = Cut::off(&[Verb::Renew], how);
                let store = Hooked::new(subject.store.clone(), Arc::new(cut.clone()));
                let gate = Gate::closed();
                let layer = IdempotencyLayer::new(store).anonymous(true).lease(Duration::from_millis(300));
                let router = Router::new().route("/pay", any(until_lost)).layer(layer).with_state(gate.clone());
                let run = tokio::spawn(async move { send(&router, keyed("/pay", "k"), "").await });
                gate.entered().await;

                // By the store's clock the lease lives until this.
                subject.hand.pass(Duration::from_millis(301)).await;
                if overtaken {
                    let heir = gated(self::layer(&subject.store), Gate::open());
                    assert_eq!(send(&heir, keyed("/pay", "k"), "").await.body, "entry 1, attempt 2", "{case}");
                }
                gate.release(1);
                let answer = run.await.unwrap();
                let expected = if overtaken { (503, Some("lease-lost")) } else { (200, None) };
                assert_eq!((answer.status.as_u16(), answer.problem()), expected, "{case}");

                let heir = gated(self::layer(&subject.store), Gate::open());
                let replay = send(&heir, keyed("/pay", "k"), "").await;
                assert!(replay.is_replay(), "{case}: {replay:?}");
                assert_eq!(replay.body, if overtaken { "entry 1, attempt 2" } else { "late" }, "{case}");
            }
        }
    }
}

/// S6. Fails when `beat` waits for its next renewal, or for the answer to one, without looking at the end of the lease.
#[tokio::test(start_paused = true)]
async fn a_run_whose_renewals_fail_or_hang_is_told_as_its_lease_ends() {
    const LEASE: Duration = Duration::from_secs(3);
    async fn told_after(operation: Operation) -> String {
        let began = Instant::now();
        let told = tokio::time::timeout(LEASE * 3, operation.cancellation().cancelled()).await;
        told.map_or("not told".to_owned(), |()| format!("told after {} s", began.elapsed().as_secs()))
    }
    for how in [How::Fails, How::Hangs] {
        let store = Hooked::new(MemoryStore::new(), Arc::new(Cut::off(&[Verb::Renew], how)));
        let layer = IdempotencyLayer::new(store).anonymous(true).lease(LEASE);
        let router = Router::new().route("/pay", any(told_after)).layer(layer);
        assert_eq!(send(&router, keyed("/pay", "k"), "").await.body, "told after 3 s", "{how:?}");
    }
}

/// S9 at the record. Fails when `settle` gives up, when the client waits for longer than the deadline, and when the key
/// is freed because its record could not be written.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_store_is_away_at_the_record_the_client_is_answered_and_the_record_follows() {
    for how in [How::Fails, How::Hangs] {
        for subject in all().await {
            let case = format!("{how:?}, {}", subject.name);
            let cut = Cut::off(&[Verb::Complete], how);
            let store = Hooked::new(subject.store.clone(), Arc::new(cut.clone()));
            let gate = Gate::open();
            let layer = IdempotencyLayer::new(store).anonymous(true).record_deadline(Duration::from_millis(200));
            let router = gated(layer, gate.clone());
            let started = Instant::now();
            let answer = send(&router, keyed("/pay", "k"), "").await;
            assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, &b"entry 1, attempt 1"[..]), "{case}");
            let waited = started.elapsed();
            assert!(waited >= Duration::from_millis(200) && waited < Duration::from_secs(5), "{case}: {waited:?}");

            for _ in 0..3 {
                assert_eq!(send(&router, keyed("/pay", "k"), "").await.problem(), Some("in-flight"), "{case}");
            }
            cut.mend();
            let replay = send_until_ended(&router, "k").await;
            assert!(replay.is_replay() && replay.body == answer.body, "{case}: {replay:?}");
            assert_eq!(gate.entries(), 1, "{case}");
        }
    }
}

/// S9 before the claim, when the store hangs. Fails when a claim may take for ever, or its late success is not undone.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_hangs_at_the_claim_is_503_after_a_bounded_wait() {
    for side in [Side::Asking, Side::Answering] {
        for subject in all().await {
            let case = format!("{side:?}, {}", subject.name);
            let cut = Cut::off(&[Verb::Claim], How::Hangs).on(side);
            let store = Hooked::new(subject.store.clone(), Arc::new(cut.clone()));
            let gate = Gate::open();
            let layer = IdempotencyLayer::new(store).anonymous(true).record_deadline(Duration::from_millis(200));
            let router = gated(layer, gate.clone());
            let refused = send(&router, keyed("/pay", "k"), "").await;
            assert_eq!(refused.problem(), Some("store-unavailable"), "{case}");
            assert_eq!(gate.entries(), 0, "{case}");
            cut.mend();
            // The lease is 30 s, which nothing here waits for: only the undoing ends it.
            let answer = send_until_ended(&router, "k").await;
            assert_eq!(answer.body, "entry 1, attempt 1", "{case}");
        }
    }
}

/// S13. Fails when `Leases::liveness` goes by the wall clock for a lease of this process.
#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_jumps_an_hour_either_way_changes_nothing() {
    for forward in [true, false] {
        for subject in embedded().await {
            let case = format!("forward: {forward}, {}", subject.name);
            let hour = Duration::from_secs(60 * 60);
            let gate = Gate::closed();
            let router = gated(layer(&subject.store), gate.clone());
            let run = sending(&router, keyed("/pay", "k"), "");
            gate.entered().await;
            if forward {
                subject.hand.set_wall_forward(hour);
            } else {
                subject.hand.set_wall_back(hour);
            }
            let again = send_unrun(&router, keyed("/pay", "k"), "", &gate).await;
            assert_eq!(again.problem(), Some("in-flight"), "{case}");
            gate.release(1);
            let answer = run.await.unwrap();
            assert_eq!(answer.status, 201, "{case}");
            assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{case}");
            assert_eq!(gate.entries(), 1, "{case}");
        }
    }
}

/// S29, the other half: whoever answers is never held, however often it fails, and has not used up the attempts of a run
/// that then lapses. Fails when `machine::release` counts as a lapse, or a free key does for Redis's `claim.lua`.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_outage_of_5xx_and_429_is_never_held() {
    async fn failing(State(gate): State<Gate>, operation: Operation) -> StatusCode {
        match operation.attempt() {
            41.. => StatusCode::CREATED,
            40 => {
                gate.pass().await;
                StatusCode::CREATED
            }
            attempt if attempt % 2 == 0 => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_GATEWAY,
        }
    }
    for subject in all().await {
        let gate = Gate::closed();
        let silent = Hooked::new(subject.store.clone(), Arc::new(Cut::off(&[Verb::Renew], How::Fails)));
        let layer = IdempotencyLayer::new(silent).anonymous(true).lease(LEASE).max_attempts(2);
        let router = Router::new().route("/pay", any(failing)).layer(layer).with_state(gate.clone());
        for attempt in 1..40 {
            let status = if attempt % 2 == 0 { 429 } else { 502 };
            assert_eq!(send(&router, keyed("/pay", "k"), "").await.status, status, "{}", subject.name);
        }
        let lapsed = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        subject.hand.pass(LEASE).await;
        let next = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((next.status.as_u16(), next.problem()), (201, None), "{}", subject.name);
        gate.release(1);
        assert_eq!(lapsed.await.unwrap().problem(), Some("lease-lost"), "{}", subject.name);
        assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{}", subject.name);
    }
}

/// Long enough for a run to begin in.
const LEASE: Duration = Duration::from_secs(1);
