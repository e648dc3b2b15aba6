//! A run keeps its key whatever becomes of other runtimes and threads: some are driven by nobody, some end, some are kept.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use idempotency_layer::{IdempotencyLayer, MemoryStore, RequestBody, SharedStore};
use idempotency_tests::gate::Gate;
use tokio::runtime::{Builder, Runtime};
use tower::{Layer, ServiceExt};

use crate::request::{gated, keyed, layer, send};

const LEASE: Duration = Duration::from_millis(300);

/// Runs one key to its end on a runtime that is driven for no longer, and another on one that is.
fn outlives_its_lease(meanwhile: impl FnOnce(&mut Option<Runtime>)) {
    let gate = Gate::closed();
    let router: Router = gated(layer(&SharedStore::new(MemoryStore::new())).lease(LEASE), gate.clone());
    let mut idle = Some(Builder::new_current_thread().enable_all().build().unwrap());
    gate.release(1);
    assert_eq!(idle.as_ref().unwrap().block_on(send(&router, keyed("/pay", "a"), "")).status, 201);

    let driven = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    driven.block_on(async {
        gate.entered().await;
        let (ours, theirs) = (router.clone(), router.clone());
        let run = tokio::spawn(async move { send(&ours, keyed("/pay", "b"), "").await });
        gate.entered().await;
        meanwhile(&mut idle);
        // A store's lease is by its clock.
        tokio::time::sleep(LEASE * 3).await;
        let other = tokio::spawn(async move { send(&theirs, keyed("/pay", "b"), "").await });
        tokio::time::sleep(LEASE / 3).await;
        gate.release(2);
        assert_eq!(other.await.unwrap().problem(), Some("in-flight"));
        assert_eq!(run.await.unwrap().status, 201);
    });
    assert_eq!(gate.entries(), 2);
}

/// Fails when a lease is renewed on another runtime than its run's.
#[test]
fn a_lease_is_renewed_when_another_runtime_of_the_layer_is_not_driven() {
    outlives_its_lease(|_| {});
}

/// Fails when a lease is renewed on another runtime than its run's.
#[test]
fn a_lease_is_renewed_when_another_runtime_of_the_layer_ends() {
    outlives_its_lease(|idle| idle.take().unwrap().shutdown_background());
}

/// Fails when the heartbeat waits for the thread that the handler keeps.
#[test]
fn a_lease_is_renewed_while_a_handler_keeps_its_thread() {
    for in_call in [false, true] {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let inner = tower::service_fn(move |_: Request<RequestBody<Full<Bytes>>>| {
            let counted = Arc::clone(&counted);
            let work = move || {
                counted.fetch_add(1, Ordering::SeqCst);
                std::thread::sleep(LEASE * 4);
            };
            if in_call {
                work();
            }
            async move {
                if !in_call {
                    work();
                }
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
            }
        });
        let service = IdempotencyLayer::new(MemoryStore::new()).anonymous(true).lease(LEASE).layer(inner);
        let request = || Request::post("/").header("idempotency-key", "k").body(Full::default()).unwrap();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let run = tokio::spawn(service.clone().oneshot(request()));
            tokio::time::sleep(LEASE * 2).await;
            let other = tokio::spawn(service.clone().oneshot(request())).await.unwrap().unwrap();
            assert_eq!(other.status(), 409, "in call: {in_call}");
            assert_eq!(run.await.unwrap().unwrap().status(), 200);
        });
        assert_eq!(runs.load(Ordering::SeqCst), 1, "in call: {in_call}");
    }
}
