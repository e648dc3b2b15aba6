//! A key means one request of one caller, whenever another one comes.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http::request::Builder;
use idempotency_layer::{IdempotencyLayer, SharedStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hooked, Verb};
use idempotency_tests::stores::all;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::outage::{Cut, How};
use crate::request::{gated, keyed, layer, send, sending};

/// The base request differs from each of these in one thing.
fn others() -> [(&'static str, Builder, &'static str); 6] {
    [
        ("body", keyed("/pay?x=1", "k"), "{\"amount\":2}"),
        ("method", keyed("/pay?x=1", "k").method("PUT"), BODY),
        ("path", keyed("/refund?x=1", "k"), BODY),
        ("query", keyed("/pay?x=2", "k"), BODY),
        ("content type", Request::post("/pay?x=1").header("idempotency-key", "k").header("content-type", "a/b"), BODY),
        ("no content type", Request::post("/pay?x=1").header("idempotency-key", "k"), BODY),
    ]
}

const BODY: &str = "{\"amount\":1}";

/// Long enough for a run to begin in.
const LEASE: Duration = Duration::from_secs(1);

/// S14. Fails when `machine::claim`, or Redis's `plain::met`, compares no fingerprint; when the former takes a lapsed record
/// over before it compares; and when `of_fields` or `body` leaves out any of the five.
#[tokio::test(flavor = "multi_thread")]
async fn another_request_under_the_key_gets_422_before_while_and_after_the_run_and_after_a_lapse() {
    for subject in all().await {
        let gate = Gate::closed();
        let silent = Hooked::new(subject.store.clone(), Arc::new(Cut::off(&[Verb::Renew], How::Fails)));
        let silent = layer(&SharedStore::new(silent)).lease(LEASE);
        let holder = gated(silent, gate.clone());
        let router = gated(layer(&subject.store), gate.clone());
        let expect_refusals = async |when: &str| {
            for (what, request, body) in others() {
                let answer = send(&router, request, body).await;
                let case = format!("{}: other {what} {when}", subject.name);
                assert_eq!((answer.status.as_u16(), answer.problem()), (422, Some("key-reused")), "{case}");
            }
        };
        let first = sending(&holder, keyed("/pay?x=1", "k"), BODY);
        gate.entered().await;
        expect_refusals("while it runs").await;

        subject.hand.pass(LEASE).await;
        expect_refusals("after its lease has lapsed").await;
        let second = sending(&router, keyed("/pay?x=1", "k"), BODY);
        gate.entered().await;
        expect_refusals("after it was taken over").await;

        gate.release(2);
        assert_eq!(first.await.unwrap().problem(), Some("lease-lost"), "{}", subject.name);
        let answer = second.await.unwrap();
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, &b"entry 2, attempt 2"[..]), "{}", subject.name);
        expect_refusals("after it is recorded").await;
        assert_eq!(gate.entries(), 2, "{}", subject.name);
        let replay = send(&router, keyed("/pay?x=1", "k"), BODY).await;
        assert!(replay.is_replay() && replay.body == answer.body, "{}", subject.name);
    }
}

/// S14, the other way round: two different requests that arrive at once are one run and one 422. Fails when
/// `machine::claim` compares the fingerprint with settled records only.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_requests_under_one_key_only_the_first_to_claim_runs() {
    for subject in all().await {
        let gate = Gate::closed();
        let router = gated(layer(&subject.store), gate.clone());
        for round in 0..20 {
            let barrier = Arc::new(Barrier::new(2));
            let mut racers = JoinSet::new();
            for body in [BODY, "{\"amount\":2}"] {
                let (router, barrier) = (router.clone(), barrier.clone());
                racers.spawn(async move {
                    barrier.wait().await;
                    send(&router, keyed("/pay", &format!("race-{round}")), body).await.status.as_u16()
                });
            }
            // The one that runs cannot answer before the gate is open, so the other one is refused meanwhile.
            assert_eq!(racers.join_next().await.unwrap().unwrap(), 422, "{}", subject.name);
            gate.release(1);
            assert_eq!(racers.join_next().await.unwrap().unwrap(), 201, "{}", subject.name);
        }
        assert_eq!(gate.entries(), 20, "{}", subject.name);
    }
}

/// S15. Fails when `record_id` leaves out the principal.
#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_of_two_principals_is_two_operations() {
    for subject in all().await {
        let gate = Gate::open();
        let by_account: IdempotencyLayer<_> =
            layer(&subject.store).principal(|parts| Some(parts.headers.get("x-account")?.to_str().ok()?.to_owned()));
        let router = gated(by_account, gate.clone());
        let alice = send(&router, keyed("/pay", "k").header("x-account", "alice"), BODY).await;
        // Even another request: bob's key is not alice's.
        let bob = send(&router, keyed("/pay", "k").header("x-account", "bob"), "{\"amount\":2}").await;
        let nobody = send(&router, keyed("/pay", "k"), BODY).await;
        for (answer, body) in
            [(&alice, "entry 1, attempt 1"), (&bob, "entry 2, attempt 1"), (&nobody, "entry 3, attempt 1")]
        {
            assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, body.as_bytes()), "{}", subject.name);
            assert!(!answer.is_replay(), "{}", subject.name);
        }
        let again = send(&router, keyed("/pay", "k").header("x-account", "alice"), BODY).await;
        assert!(again.is_replay() && again.body == alice.body, "{}", subject.name);
    }
}

/// S15, without principals: another caller's response is never served. Fails when `machine::claim`, or Redis's
/// `plain::met`, compares no caller, or `caller_fingerprint` hashes no credentials.
#[tokio::test(flavor = "multi_thread")]
async fn other_credentials_never_get_the_response() {
    for subject in all().await {
        let gate = Gate::closed();
        let router = gated(layer(&subject.store), gate.clone());
        let alice = || keyed("/pay", "k").header("authorization", "Bearer alice");
        let others = || {
            [
                keyed("/pay", "k"),
                keyed("/pay", "k").header("authorization", "Bearer bob"),
                keyed("/pay", "k").header("cookie", "Bearer alice"),
                alice().header("x-api-key", "1"),
            ]
        };
        let first = sending(&router, alice(), BODY);
        gate.entered().await;
        for request in others() {
            assert_eq!(send(&router, request, BODY).await.problem(), Some("caller-changed"), "{}", subject.name);
        }
        gate.release(1);
        assert_eq!(first.await.unwrap().status, 201);
        for request in others() {
            assert_eq!(send(&router, request, BODY).await.problem(), Some("caller-changed"), "{}", subject.name);
        }
        assert!(send(&router, alice(), BODY).await.is_replay(), "{}", subject.name);
        assert_eq!(gate.entries(), 1, "{}", subject.name);
    }
}
