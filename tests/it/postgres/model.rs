//! Any sequence of verbs, duplicates and passing time gets from Postgres the answers that a plain model gives.

use idempotency_layer::conformance::Erased;

use super::conformance::{pooled, straight};
use crate::model::{LEASE, agrees};

/// Fails when `RENEW` leaves the lease as it was, and when `SEEN` passes by no lease that was renewed.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_answers_like_the_model() {
    let harness = straight().await;
    agrees(32, || harness.beside().lease_of(LEASE * 2)).await;
}

/// Fails when `RENEW` leaves the lease as it was.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_behind_a_pooler_answers_like_the_model() {
    let harness = pooled().await;
    agrees(16, || harness.beside().lease_of(LEASE * 2)).await;
}

/// Fails when `SharedStore` renews with another lease than it was told.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_behind_a_shared_store_answers_like_the_model() {
    let straight = straight().await;
    agrees(16, || Erased(straight.beside().lease_of(LEASE * 2))).await;
}

/// Fails when `SharedStore` renews with another lease than it was told.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_behind_a_pooler_and_a_shared_store_answers_like_the_model() {
    let harness = pooled().await;
    agrees(8, || Erased(harness.beside().lease_of(LEASE * 2))).await;
}
