//! Replies of the store get lost or come late, and drivers send by themselves a second time: nobody is kept out by itself,
//! and nobody runs without a claim.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use idempotency_layer::{IdempotencyLayer, Operation, UnknownOutcome};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb, lost_if, stopped_if};
use idempotency_tests::stores::all;

use crate::request::{keyed, send, send_until_ended, sending};

/// The first such verb is lost on its way to the store.
struct LosesVerb(Verb, AtomicBool);

impl Hook for LosesVerb {
    fn before(&self, verb: Verb) -> Hooking {
        lost_if(verb == self.0 && !self.1.swap(true, Ordering::SeqCst))
    }
}

/// The reply to the first such verb is lost.
struct LosesReply(Verb, AtomicBool);

impl Hook for LosesReply {
    fn after(&self, verb: Verb) -> Hooking {
        lost_if(verb == self.0 && !self.1.swap(true, Ordering::SeqCst))
    }
}

/// Every such verb arrives twice.
struct SendsTwice(Verb);

impl Hook for SendsTwice {
    fn sends_twice(&self, verb: Verb) -> bool {
        verb == self.0
    }
}

/// Answers its first attempt with a status, and every other with 201.
pub(crate) async fn handler(State(first): State<StatusCode>, operation: Operation) -> Response {
    let status = if operation.attempt() == 1 { first } else { StatusCode::CREATED };
    (status, format!("attempt {}", operation.attempt())).into_response()
}

/// A status and a problem's code.
pub(crate) type Outcome = (u16, Option<&'static str>);

/// Which status makes the layer use which verb, under which policy, and what a retry then gets.
pub(crate) const CASES: [(Verb, u16, UnknownOutcome, Outcome); 5] = [
    (Verb::Claim, 201, UnknownOutcome::Rerun, (201, None)),
    (Verb::Complete, 201, UnknownOutcome::Rerun, (201, None)),
    (Verb::Release, 500, UnknownOutcome::Rerun, (201, None)),
    (Verb::Forget, 400, UnknownOutcome::Rerun, (400, None)),
    (Verb::Hold, 500, UnknownOutcome::Hold, (409, Some("outcome-unknown"))),
];

/// S8. Fails when `service::claim` does not send again, or under another id; when `settle` gives up after one error; and
/// when `machine`, or a script of Redis, answers the duplicate of a claim with `InFlight`, or of a completion with `Fenced`.
#[tokio::test(flavor = "multi_thread")]
async fn a_verb_that_is_lost_or_whose_reply_is_or_that_arrives_twice_changes_nothing_for_the_client() {
    for (verb, first, unknown, retry) in CASES {
        type MakeHook = fn(Verb) -> Arc<dyn Hook>;
        let hooks: [(&str, MakeHook); 3] = [
            ("lost", |verb| Arc::new(LosesVerb(verb, AtomicBool::new(false)))),
            ("with its reply lost", |verb| Arc::new(LosesReply(verb, AtomicBool::new(false)))),
            ("twice", |verb| Arc::new(SendsTwice(verb))),
        ];
        for (how, hook) in hooks {
            for subject in all().await {
                let case = format!("{}: {verb:?} {how}", subject.name);
                let store = Hooked::new(subject.store.clone(), hook(verb));
                let layer = IdempotencyLayer::new(store).anonymous(true).unknown_outcome(unknown);
                let router = Router::new()
                    .route("/pay", post(handler))
                    .layer(layer)
                    .with_state(StatusCode::from_u16(first).unwrap());
                let answer = send(&router, keyed("/pay", "k"), "").await;
                assert_eq!((answer.status.as_u16(), answer.problem()), (first, None), "{case}");
                assert_eq!(answer.body, "attempt 1", "{case}");
                let again = send(&router, keyed("/pay", "k"), "").await;
                assert_eq!((again.status.as_u16(), again.problem()), retry, "{case}");
                assert_eq!(again.is_replay(), retry == (201, None) && first == 201, "{case}");
            }
        }
    }
}

/// Never answers a claim, although it makes it.
struct LosesClaims(AtomicBool);

impl Hook for LosesClaims {
    fn after(&self, verb: Verb) -> Hooking {
        lost_if(verb == Verb::Claim && !self.0.load(Ordering::SeqCst))
    }
}

/// A claim that was made and never answered does not keep its client out for a whole lease. Fails when
/// `claim_failed` spawns no `undo`, and when `give_back` releases a first attempt instead of forgetting it.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_nobody_heard_of_is_taken_back() {
    for subject in all().await {
        let hook = Arc::new(LosesClaims(AtomicBool::new(false)));
        let store = Hooked::new(subject.store.clone(), Arc::clone(&hook) as Arc<dyn Hook>);
        let router = Router::new()
            .route("/pay", post(handler))
            .layer(IdempotencyLayer::new(store).anonymous(true))
            .with_state(StatusCode::CREATED);
        let refused = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((refused.status.as_u16(), refused.problem()), (503, Some("store-unavailable")), "{}", subject.name);
        hook.0.store(true, Ordering::SeqCst);
        // The lease is 30 s, which nothing here waits for: only the undoing ends it.
        let answer = send_until_ended(&router, "k").await;
        assert_eq!((answer.status.as_u16(), answer.problem()), (201, None), "{}", subject.name);
        assert_eq!(answer.body, "attempt 1", "{}", subject.name);
    }
}

/// Keeps back what the second claim was told.
struct KeepsBack(Gate, AtomicU32);

impl Hook for KeepsBack {
    fn after(&self, verb: Verb) -> Hooking {
        stopped_if(verb == Verb::Claim && self.1.fetch_add(1, Ordering::SeqCst) == 1, &self.0)
    }
}

/// Does nothing on its first entry, and says so.
async fn mended(State(gate): State<Gate>, operation: Operation) -> Response {
    let status = if gate.pass().await == 1 { StatusCode::BAD_REQUEST } else { StatusCode::CREATED };
    (status, format!("attempt {}", operation.attempt())).into_response()
}

/// S10. A claim that lost has lost, although there is no record any more when it hears of it. Fails when `keyed` looks for
/// the record of a key that is in flight, and runs where there is none.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_lost_to_a_record_that_has_vanished_is_in_flight_and_not_run() {
    for subject in all().await {
        let (gate, kept) = (Gate::closed(), Gate::closed());
        let store = Hooked::new(subject.store.clone(), Arc::new(KeepsBack(kept.clone(), AtomicU32::new(0))));
        let layer = IdempotencyLayer::new(store).anonymous(true);
        let router = Router::new().route("/pay", post(mended)).layer(layer).with_state(gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        let loser = sending(&router, keyed("/pay", "k"), "");
        kept.entered().await;
        gate.release(2);
        assert_eq!(run.await.unwrap().status, 400, "{}", subject.name);

        kept.release(1);
        let loser = loser.await.unwrap();
        assert_eq!((loser.status.as_u16(), loser.problem()), (409, Some("in-flight")), "{}", subject.name);
        assert_eq!(gate.entries(), 1, "{}", subject.name);
        // A first attempt again: there was no record.
        let retry = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((retry.status.as_u16(), retry.problem()), (201, None), "{}", subject.name);
        assert_eq!(retry.body, "attempt 1", "{}", subject.name);
    }
}
