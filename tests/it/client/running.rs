//! A retry that arrives while the first attempt still runs waits for that run, and gets its answer.

use axum::Router;
use axum::routing::post;
use client_retry::{Class, ProblemCode};
use idempotency_layer::{IdempotencyLayer, MemoryStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Proxy;
use idempotency_tests::wire::{Served, Version};
use tokio::time::sleep;

use super::*;

/// C2, both sides at their defaults. Fails when a poll counts as an attempt, `InProgress` is not retried, or the
/// layer's 409 has no `Retry-After`.
#[tokio::test]
async fn retry_of_a_run_that_goes_on_gets_its_answer() {
    for version in Version::BOTH {
        tokio::join!(rerun(version, Duration::from_millis(50)), rerun(version, Duration::from_secs(12)));
    }
}

async fn rerun(version: Version, takes: Duration) {
    let gate = Gate::open();
    let entered = gate.clone();
    let handler = post(move || async move {
        let entry = entered.pass().await;
        sleep(takes).await;
        format!("run {entry}")
    });
    let layer = IdempotencyLayer::new(MemoryStore::new()).anonymous(true);
    let service = Served::start(Router::new().route("/charges", handler.layer(layer))).await;
    let proxy = Proxy::start(service.address).await;
    let retry = client(version, IdempotentRetry::default());
    let call = tokio::spawn(retry.post(format!("http://{}/charges", proxy.address())).body(CHARGE).send());
    gate.entered().await;
    proxy.cut().await;
    proxy.mend().await;

    let response = call.await.unwrap().unwrap();
    let report = report(&response);
    assert!(report.is_replayed(), "{version:?} {takes:?}: {report:?}");
    assert_eq!(response.text().await.unwrap(), "run 1");
    assert_eq!(gate.entries(), 1);
    if takes > Duration::from_secs(1) {
        let polls = report.attempts().iter().filter(|attempt| attempt.class() == Class::InProgress);
        assert!(polls.clone().count() >= 3, "{report:?}");
        assert!(polls.clone().all(|attempt| attempt.problem() == Some(ProblemCode::InFlight)));
    }
}
