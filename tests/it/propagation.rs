//! What a run hands to the calls it makes: the handler has it, its own tasks have it, and each run derives the same keys.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::routing::{any, post};
use futures_util::{FutureExt, stream};
use http::StatusCode;
use http::request::Builder;
use idempotency_layer::{DerivationSecret, IdempotencyLayer, MemoryStore, Operation, Propagation, SharedStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::stores::all;

use crate::request::{keyed, layer, send, send_until_ended, sending};

/// The key of a call, which a run gives away once.
fn derived(run: &Propagation) -> String {
    run.operation("charge").with("order-4711").key().expect("the first use").as_str().to_owned()
}

/// Whether it was given away, by any clone of the run's.
fn is_given(run: &Propagation) -> bool {
    run.operation("charge").with("order-4711").key().is_err()
}

fn memory() -> SharedStore {
    SharedStore::new(MemoryStore::new())
}

/// Fails when `run::start` puts none into the request, or none around the handler.
#[tokio::test]
async fn the_request_the_argument_and_the_task_have_the_same_propagation() {
    async fn handler(argument: Propagation, operation: Operation, request: Request) -> String {
        let extension = request.extensions().get::<Propagation>().unwrap();
        let current = Propagation::current().unwrap();
        derived(extension);
        assert!(is_given(&argument) && is_given(&current));
        let principal = argument.principal().unwrap();
        assert_eq!(argument.parent_key(), operation.key());
        format!("{} of {principal}, attempt {}", argument.scope(), argument.attempt())
    }
    let layer = layer(&memory()).scope("order:create").principal(|_| Some("alice".to_owned()));
    let router = Router::new().route("/pay", post(handler)).layer(layer);
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.body, "order:create of alice, attempt 1");
}

/// Fails when `admit` does not ask for the claims outside, and when the innermost claim leaves the propagation of the one
/// outside in the request or around the handler.
#[tokio::test]
async fn a_handler_has_the_propagation_of_the_innermost_claim() {
    async fn handler(argument: Propagation) -> String {
        assert_eq!(Propagation::current().unwrap().scope(), argument.scope());
        argument.scope().to_owned()
    }
    let store = memory();
    let scoped = |inner: &'static str, outer: &'static str| {
        let router = Router::new().route("/pay", post(handler));
        router.layer(layer(&store).scope(inner)).layer(layer(&store).scope("middle")).layer(layer(&store).scope(outer))
    };
    // The innermost layer passes what the outermost has claimed, and changes nothing.
    assert_eq!(send(&scoped("a", "a"), keyed("/pay", "k"), "").await.body, "middle");
    assert_eq!(send(&scoped("b", "c"), keyed("/pay", "l"), "").await.body, "b");
}

/// Fails when `Propagation::spawn` leaves `around` out, or `run::start` does.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_belongs_to_the_run_if_the_run_says_so() {
    async fn handler(run: Propagation) -> String {
        let of_nobody = tokio::spawn(async { Propagation::current().is_none() }).await.unwrap();
        let of_the_run =
            Propagation::current().unwrap().spawn(async { derived(&Propagation::current().unwrap()) }).await.unwrap();
        assert!(of_nobody && is_given(&run));
        of_the_run
    }
    let router = Router::new().route("/pay", post(handler)).layer(layer(&memory()));
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.status, 200);
}

/// Fails when `run::start` makes it the current one around the call alone, not around the reading of the body.
#[tokio::test]
async fn a_body_that_is_collected_belongs_to_the_run() {
    async fn handler(run: Propagation) -> Body {
        derived(&run);
        let frame = async { is_given(&Propagation::current().unwrap()).to_string() };
        Body::from_stream(stream::once(frame.map(Ok::<_, Infallible>)))
    }
    let router = Router::new().route("/pay", post(handler)).layer(layer(&memory()));
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.body, "true");
}

/// S3. Fails when `run::start` makes it the current one of the request's own future, which its client drops, or of none.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_client_has_gone_still_has_it() {
    async fn handler(State(gate): State<Gate>) -> String {
        gate.pass().await;
        derived(&Propagation::current().unwrap())
    }
    let gate = Gate::closed();
    let router = Router::new().route("/pay", post(handler)).layer(layer(&memory())).with_state(gate.clone());
    let gone = sending(&router, keyed("/pay", "k"), "");
    gate.entered().await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    gate.release(1);
    let replay = send_until_ended(&router, "k").await;
    assert!(replay.is_replay() && replay.status == 200, "{replay:?}");
}

/// Answers 503 to the first run and 201 to the next, each with the key it has derived.
async fn failing_once(run: Propagation) -> (StatusCode, String) {
    let status = if run.attempt().get() == 1 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::CREATED };
    (status, derived(&run))
}

/// Fails when `Shared::propagation` makes the attempt part of the scope.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_after_a_failure_derives_the_same_key() {
    for subject in all().await {
        let router = Router::new().route("/pay", post(failing_once)).layer(layer(&subject.store));
        let first = send(&router, keyed("/pay", "k"), "").await;
        let second = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((first.status.as_u16(), second.status.as_u16()), (503, 201), "{}", subject.name);
        assert_eq!(first.body, second.body, "{}", subject.name);
    }
}

/// Fails when `Shared::propagation` leaves out the scope, the principal, the key or the secret.
#[tokio::test]
async fn another_scope_principal_key_or_secret_derives_another_key() {
    async fn handler(run: Propagation) -> String {
        derived(&run)
    }
    let of = async |configured: IdempotencyLayer<SharedStore>, request: Builder| {
        let configured = configured.principal(|parts| Some(parts.headers.get("x-account")?.to_str().ok()?.to_owned()));
        let router = Router::new().route("/pay", post(handler)).layer(configured);
        send(&router, request, "").await.body
    };
    let fresh = || layer(&memory()).scope("order:create");
    let secret = || DerivationSecret::new(b"at least sixteen bytes").unwrap();
    let alices = || keyed("/pay", "k").header("x-account", "alice");
    let keys = [
        of(fresh(), alices()).await,
        of(fresh().scope("order:change"), alices()).await,
        of(fresh(), keyed("/pay", "k").header("x-account", "bob")).await,
        of(fresh(), keyed("/pay", "k")).await,
        of(fresh(), keyed("/pay", "l").header("x-account", "alice")).await,
        of(fresh().derivation_secret(secret()), alices()).await,
    ];
    for (at, key) in keys.iter().enumerate() {
        assert!(!keys[at + 1..].contains(key), "{at}");
    }
    // Of another process, so to speak: nothing but these goes into it.
    assert_eq!(of(fresh(), alices()).await, keys[0]);
    assert_eq!(of(fresh().derivation_secret(secret()), alices()).await, keys[5]);
}

/// Fails when the extractor's rejection has no text, and when an `Option` is always `None`.
#[tokio::test]
async fn a_request_without_a_key_has_none() {
    let router = Router::new()
        .route("/needed", any(|_: Propagation| async {}))
        .route("/optional", any(|run: Option<Propagation>| async move { run.is_some().to_string() }))
        .layer(layer(&memory()));
    let missing = send(&router, Request::get("/needed"), "").await;
    assert_eq!(missing.status, 500);
    assert!(missing.body.starts_with(b"the request has no key") && missing.problem().is_none(), "{missing:?}");
    assert_eq!(send(&router, Request::get("/optional"), "").await.body, "false");
    assert_eq!(send(&router, keyed("/optional", "k"), "").await.body, "true");
}
