//! The layer among others: what passes it, readiness, clones, nested routers and layers, pools, warnings.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::{any, post};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use idempotency_layer::{
    IdempotencyLayer, MemoryStore, Operation, RequestBody, SharedStore, SqliteStore, UnknownOutcome,
};
use idempotency_tests::bank;
use idempotency_tests::gate::Gate;
use sqlx::SqlitePool;
use sqlx::sqlite::SqlitePoolOptions;
use tower::{Layer, Service, ServiceExt};
use tracing::Level;

use crate::log::Log;
use crate::request::{again_until, gated, keyed, layer, send, send_unrun};

/// Only a service that was polled ready may be called; a clone was not.
#[derive(Default)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicU32>,
}

impl Clone for Strict {
    fn clone(&self) -> Self {
        Self { ready: false, calls: Arc::clone(&self.calls) }
    }
}

impl Service<Request<RequestBody<Full<Bytes>>>> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<RequestBody<Full<Bytes>>>) -> Self::Future {
        assert!(std::mem::take(&mut self.ready), "called without being polled ready");
        self.calls.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok(Response::new(Full::default())))
    }
}

/// S25. Fails when `call` hands the clone to the run and keeps the ready one.
#[tokio::test]
async fn the_readied_service_is_the_one_that_is_called() {
    let inner = Strict::default();
    let calls = Arc::clone(&inner.calls);
    let mut service = IdempotencyLayer::new(MemoryStore::new()).anonymous(true).layer(inner);
    for at in 0..3 {
        let keyed = Request::post("/").header("idempotency-key", format!("k{at}")).body(Full::default()).unwrap();
        let passing = Request::get("/").body(Full::default()).unwrap();
        for request in [keyed, passing] {
            let response = service.ready().await.unwrap().call(request).await.unwrap();
            assert_eq!(response.status(), 200);
        }
    }
    assert_eq!(calls.load(Ordering::SeqCst), 6);
}

/// S25. Fails when `path` takes the stripped URI.
#[tokio::test]
async fn the_full_path_of_nested_routers_is_in_the_fingerprint() {
    let store = SharedStore::new(MemoryStore::new());
    let inner = || Router::new().route("/pay", post(|| async { "paid" })).layer(layer(&store));
    let router = Router::new().nest("/eu", inner()).nest("/us", inner());
    assert_eq!(send(&router, keyed("/eu/pay", "k"), "").await.status, 200);
    assert_eq!(send(&router, keyed("/us/pay", "k"), "").await.problem(), Some("key-reused"));
    assert!(send(&router, keyed("/eu/pay", "k"), "").await.is_replay());
}

/// Fails when `admit` does not ask for the claims outside: the inner layer would find the key in flight.
#[tokio::test]
async fn a_layer_passes_what_one_like_it_outside_has_claimed() {
    async fn handler(operation: Operation) -> String {
        operation.scope().to_owned()
    }
    let store = SharedStore::new(MemoryStore::new());
    let twice = |inner: &'static str, outer: &'static str| {
        Router::new()
            .route("/pay", post(handler))
            .layer(layer(&store).scope(inner))
            .layer(layer(&store).scope("middle"))
            .layer(layer(&store).scope(outer))
    };
    // The same scope inside and outside: one claim. Another scope between: a claim of its own.
    let same = twice("a", "a");
    assert_eq!(send(&same, keyed("/pay", "k"), "").await.body, "middle");
    assert!(send(&same, keyed("/pay", "k"), "").await.is_replay());
    assert_eq!(send(&twice("b", "c"), keyed("/pay", "l"), "").await.body, "b");
}

/// Fails when the layer outside takes for a result, or for an unknown outcome, that the one inside has not run.
#[tokio::test]
async fn what_a_layer_inside_does_not_run_is_neither_recorded_nor_held_outside() {
    let store = SharedStore::new(MemoryStore::new());
    let gate = Gate::closed();
    let inner = gated(layer(&store).scope("inside").max_running(1), gate.clone());
    let both = inner.clone().layer(layer(&store).scope("outside").unknown_outcome(UnknownOutcome::Hold));
    let running = tokio::spawn(async move { send(&inner, keyed("/pay", "a"), "").await });
    gate.entered().await;
    for (key, problem) in [("a", "overloaded"), ("b", "overloaded")] {
        assert_eq!(send(&both, keyed("/pay", key), "").await.problem(), Some(problem), "{key}");
    }
    gate.release(2);
    assert_eq!(running.await.unwrap().status, 201);
    let again = send(&both, keyed("/pay", "a"), "").await;
    assert!(again.is_replay(), "{again:?}");
    assert_eq!(send(&both, keyed("/pay", "b"), "").await.body, "entry 2, attempt 1");

    let inner = gated(layer(&store).scope("inside"), gate.clone());
    let both = inner.clone().layer(layer(&store).scope("outside"));
    let running = tokio::spawn(async move { send(&inner, keyed("/pay", "c"), "").await });
    gate.entered().await;
    gate.entered().await;
    assert_eq!(send(&both, keyed("/pay", "c"), "").await.problem(), Some("in-flight"));
    gate.release(1);
    assert_eq!(running.await.unwrap().body, "entry 3, attempt 1");
    assert_eq!(send(&both, keyed("/pay", "c"), "").await.body, "entry 3, attempt 1");
}

/// Fails when `admit` asks for the key before the method.
#[tokio::test]
async fn other_methods_and_grpc_pass_untouched() {
    async fn handler(operation: Option<Operation>) -> String {
        format!("{}", operation.is_some())
    }
    let router = Router::new().route("/pay", any(handler)).layer(layer(&SharedStore::new(MemoryStore::new())));
    for method in [Method::GET, Method::DELETE, Method::PATCH] {
        let request = Request::builder().method(method).uri("/pay").header("idempotency-key", ",");
        assert_eq!(send(&router, request, "").await.body, "false");
    }
    let grpc = Request::post("/pay").header("content-type", "application/grpc");
    assert_eq!(send(&router, grpc, "").await.body, "false");
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.body, "true");
}

/// S24. Fails when the store takes connections from the handlers' pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_of_one_and_handlers_that_use_it_do_not_deadlock() {
    async fn handler(State(pool): State<SqlitePool>) -> StatusCode {
        let mut connection = pool.acquire().await.unwrap();
        sqlx::query("SELECT 1").execute(&mut *connection).await.unwrap();
        tokio::task::yield_now().await;
        StatusCode::CREATED
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.db");
    drop(bank::open(path.to_str().unwrap()).await);
    let url = format!("sqlite:{}", path.display());
    let pool = SqlitePoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let store = SqliteStore::new(pool.clone()).await.unwrap();
    store.migrate().await.unwrap();
    let router = Router::new().route("/pay", any(handler)).layer(layer(&SharedStore::new(store))).with_state(pool);
    let runs: Vec<_> = (0..32)
        .map(|at| {
            let router = router.clone();
            tokio::spawn(async move { send(&router, keyed("/pay", &format!("k{at}")), "").await.status })
        })
        .collect();
    for run in runs {
        let status = tokio::time::timeout(Duration::from_secs(30), run).await.expect("a deadlock").unwrap();
        assert_eq!(status, 201);
    }
}

/// S30, the bytes. Fails when bytes are not counted, or not given back.
#[tokio::test(flavor = "multi_thread")]
async fn buffered_bytes_are_bounded_over_all_runs() {
    let gate = Gate::closed();
    let layer = layer(&SharedStore::new(MemoryStore::new())).max_request_body(8).max_buffered(16);
    let router = gated(layer, gate.clone());
    let run = |key: &'static str| {
        let router = router.clone();
        tokio::spawn(async move { send(&router, keyed("/pay", key), "12345678").await })
    };
    let held = [run("a"), run("b")];
    gate.entered().await;
    gate.entered().await;
    let refused = send_unrun(&router, keyed("/pay", "c"), "12345678", &gate).await;
    assert_eq!((refused.status.as_u16(), refused.problem()), (503, Some("overloaded")));
    gate.release(3);
    for run in held {
        assert_eq!(run.await.unwrap().status, 201);
    }
    // They are given back a moment after the answers.
    let again = async || run("c").await.unwrap();
    assert_eq!(again_until(again, |answer| answer.problem() != Some("overloaded")).await.status, 201);
}

/// S31 and the rule of the log. Fails when the warning is repeated or missing, or when anything logs a key, a body or a
/// credential whole.
#[tokio::test]
async fn no_credentials_are_warned_of_once_and_no_secret_is_logged() {
    async fn handler(operation: Operation, body: String) -> impl IntoResponse {
        assert!(body != "panic-secret-body", "{operation:?}");
        (StatusCode::INTERNAL_SERVER_ERROR, body)
    }
    let (log, _guard) = Log::collect(Level::TRACE);
    let router =
        Router::new().route("/pay", any(handler)).layer(IdempotencyLayer::new(MemoryStore::new()).max_request_body(64));
    for (key, body) in [
        ("a-key-that-is-secret", "secret-body"),
        ("another-secret-key", "panic-secret-body"),
        ("a-key-that-is-secret", "other-secret-body"),
        ("a-key-that-is-secret", "secret-body"),
    ] {
        send(&router, keyed("/pay", key), body).await;
    }
    let signed = keyed("/pay", "a-key-that-is-secret").header("authorization", "Signature very-secret");
    send(&router, signed, "secret-body").await;
    let log = log.text();
    assert_eq!(log.matches("carries no credentials").count(), 1, "{log}");
    assert!(log.contains("panicked"), "{log}");
    for secret in ["secret-body", "a-key-that-is-secret", "another-secret-key", "very-secret"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }

    let (meant, _guard) = Log::collect(Level::INFO);
    let router = gated(IdempotencyLayer::new(MemoryStore::new()).anonymous(true), Gate::open());
    send(&router, keyed("/pay", "k"), "").await;
    assert_eq!(meant.text(), "");
}

/// A body is any body. Fails when the layer asks for one of its own, or an error of the inner service is swallowed.
#[tokio::test]
async fn an_error_of_the_inner_service_is_passed_through_and_its_key_freed() {
    let attempts = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&attempts);
    let inner = tower::service_fn(move |_: Request<RequestBody<Full<Bytes>>>| {
        let attempt = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            match attempt {
                0 => Err("the inner service's own"),
                _ => Ok(Response::new(Full::<Bytes>::from("done"))),
            }
        }
    });
    let mut service = IdempotencyLayer::new(MemoryStore::new()).anonymous(true).layer(inner);
    let request = || Request::post("/").header("idempotency-key", "k").body(Full::default()).unwrap();
    assert_eq!(service.ready().await.unwrap().call(request()).await.unwrap_err(), "the inner service's own");
    let response = service.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "done");
}
