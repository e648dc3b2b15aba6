//! A small service around each store, and requests to it without a socket.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::Bytes;
use http::request::Builder;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use idempotency_layer::{IdempotencyLayer, Operation, SharedStore, Store};
use idempotency_tests::gate::Gate;
use tokio::task::JoinHandle;
use tower::ServiceExt;

/// A router whose every path passes the gate and says which run it was.
pub(crate) fn gated<S: Store>(layer: IdempotencyLayer<S>, gate: Gate) -> Router {
    Router::new().route("/{*path}", any(handler)).layer(layer).with_state(gate)
}

/// A layer for gated routers: POST and PUT, callers as they come.
pub(crate) fn layer(store: &SharedStore) -> IdempotencyLayer<SharedStore> {
    IdempotencyLayer::new(store.clone()).methods([http::Method::POST, http::Method::PUT]).anonymous(true)
}

async fn handler(State(gate): State<Gate>, operation: Operation) -> impl IntoResponse {
    let entry = gate.pass().await;
    (StatusCode::CREATED, format!("entry {entry}, attempt {}", operation.attempt()))
}

/// An answer, whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn read(response: axum::response::Response) -> Self {
        let (parts, body) = response.into_parts();
        Self { status: parts.status, headers: parts.headers, body: body.collect().await.unwrap().to_bytes() }
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.headers.get("idempotency-problem").map(|code| code.to_str().unwrap())
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }
}

/// Sends a request to a router, and waits no longer than any run here lasts.
pub(crate) async fn send(router: &Router, request: Builder, body: &'static str) -> Answer {
    let request: Request<Body> = request.body(Body::from(body)).unwrap();
    let answered = tokio::time::timeout(PATIENCE, router.clone().oneshot(request)).await;
    Answer::read(answered.expect("a request without an answer").unwrap()).await
}

/// As [`send`], beside the test.
pub(crate) fn sending(router: &Router, request: Builder, body: &'static str) -> JoinHandle<Answer> {
    let router = router.clone();
    tokio::spawn(async move { send(&router, request, body).await })
}

/// Sends a request that must not come to its handler, where it would wait at the gate.
pub(crate) async fn send_unrun(router: &Router, request: Builder, body: &'static str, gate: &Gate) -> Answer {
    tokio::select! {
        answer = send(router, request, body) => answer,
        () = gate.entered() => panic!("it was run"),
    }
}

/// Sends again until an answer is final.
pub(crate) async fn again_until<T>(mut send: impl AsyncFnMut() -> T, is_final: impl Fn(&T) -> bool) -> T {
    let sent = async {
        loop {
            let answer = send().await;
            if is_final(&answer) {
                return answer;
            }
            // What a client does between attempts; nothing waits for this to be over.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, sent).await.expect("no answer was final")
}

/// Sends the same request under a key until an answer is final.
pub(crate) async fn send_until(router: &Router, key: &str, is_final: impl Fn(&Answer) -> bool) -> Answer {
    again_until(async || send(router, keyed("/pay", key), "").await, is_final).await
}

/// Sends the same request under a key until it is not in flight.
pub(crate) async fn send_until_ended(router: &Router, key: &str) -> Answer {
    send_until(router, key, |answer| answer.problem() != Some("in-flight")).await
}

/// A JSON request under a key.
pub(crate) fn keyed(path: &str, key: &str) -> Builder {
    Request::post(path).header("idempotency-key", key).header("content-type", "application/json")
}

/// Longer than any run here lasts.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
