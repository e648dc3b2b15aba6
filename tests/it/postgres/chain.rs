//! The chain from a caller to a provider, with the records and books of the shop in PostgreSQL.

use idempotency_tests::postgres::shared;

use crate::chain::{callers, faults, kills, network};

/// E1. Fails when `Shared::propagation` makes the attempt part of the scope.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_the_provider_fails_with_each_order_is_made_and_charged_once() {
    let url = shared().await.create_database("chain_faults").await;
    faults::strike(|_| url.clone()).await;
}

/// E2. Fails when `COMPLETE_IN` leaves the state as it was.
#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_lost_before_the_service_each_order_is_made_and_charged_once() {
    let url = shared().await.create_database("chain_network").await;
    network::strike(|_| url.clone()).await;
}

/// E3. Fails when `machine::claim` never takes over a lease that has lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn wherever_the_service_is_killed_each_order_is_made_and_charged_once() {
    let url = shared().await.create_database("chain_kills").await;
    kills::kill(|_| url.clone()).await;
}

/// E4. Fails when `machine::claim` takes over a lease that has not lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn two_attempts_at_once_under_one_key_are_one_order_and_another_key_is_another() {
    let url = shared().await.create_database("chain_callers").await;
    callers::order_at_once(|_| url.clone()).await;
}
