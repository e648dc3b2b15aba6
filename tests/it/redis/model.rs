//! Any sequence of verbs, duplicates and passing time gets from Redis the answers that a plain model gives.

use idempotency_layer::conformance::RedisHarness;
use idempotency_tests::redis::shared;

use crate::model::{LEASE, agrees};

/// Fails when `renew.lua` leaves the lease as it was.
#[tokio::test(flavor = "multi_thread")]
async fn redis_answers_like_the_model() {
    let url = shared().await.url();
    agrees(64, || RedisHarness::single(url.clone()).lease_of(LEASE * 2)).await;
}
