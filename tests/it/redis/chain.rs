//! The chain from a caller to a provider, with the records and books of the shop in Redis.

use idempotency_tests::redis::shared;

use crate::chain::{callers, faults, kills, network};

/// E1. Fails when `Shared::propagation` makes the attempt part of the scope.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_provider_fails_with_each_order_is_made_and_charged_once() {
    let url = shared().await.url();
    faults::strike(|_| url.clone()).await;
}

/// E2. Fails when `met` takes a record for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_lost_before_the_service_each_order_is_made_and_charged_once() {
    let url = shared().await.url();
    network::strike(|_| url.clone()).await;
}

/// E3. Fails when `claim.lua` never takes over a lease that has lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_service_is_killed_each_order_is_made_and_charged_once() {
    let url = shared().await.url();
    kills::kill(|_| url.clone()).await;
}

/// E4. Fails when `record_id` leaves out the key.
#[tokio::test(flavor = "multi_thread")]
async fn two_attempts_at_once_under_one_key_are_one_order_and_another_key_is_another() {
    let url = shared().await.url();
    callers::order_at_once(|_| url.clone()).await;
}
