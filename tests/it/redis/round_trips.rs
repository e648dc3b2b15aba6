//! How often a request goes to the server and back: exactly as often as it must, counted on the wire.
//!
//! | request | round trips |
//! |---|---|
//! | first | 2: the claim and the completion |
//! | replay | 1 |
//! | another request, or another caller, under the key | 1 |
//! | in flight | 1 |
//!
//! That is so once a connection has been used and the server has each script: before, there is the handshake, and each
//! script is sent whole once. A server before Redis 7.0 refuses one more claim, its first. And a claim that takes a key over,
//! since it is free or its lease has lapsed, is two: what it meets is not for a plain command to decide.

use idempotency_layer::RedisStore;
use idempotency_tests::proxy::Proxy;
use idempotency_tests::redis::shared;

use crate::counted::Counted;

async fn counted() -> Counted<RedisStore> {
    let proxy = Proxy::start(shared().await.address()).await;
    let store = RedisStore::connect(&format!("redis://{}", proxy.address())).await.unwrap();
    Counted::warm(proxy, store).await
}

/// Fails when `settle` looks first.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_claim_and_its_completion_are_two_round_trips() {
    counted().await.first_is_two().await;
}

/// Fails when `claim` looks before it answers `Recorded`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_finds_a_record_is_one_round_trip() {
    counted().await.claim_of_a_record_is_one().await;
}

/// Fails when `claim` looks before it answers `Reused`, or `CallerChanged`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_request_or_caller_is_one_round_trip() {
    counted().await.refused_claim_is_one().await;
}

/// A renewal writes the record otherwise than a claim does. Fails when `claim` looks before it answers `InFlight`, and when
/// `plain::running` knows only records whose times are not told.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_flight_is_one_round_trip() {
    counted().await.claim_in_flight_is_one().await;
}

/// Fails when `renew` looks whether it has renewed.
#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_is_one_round_trip() {
    counted().await.renewal_is_one().await;
}

/// Fails when the service looks at a record before it claims it.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_is_two_round_trips_and_its_replay_one() {
    counted().await.first_request_is_two_and_its_replay_one().await;
}

/// Fails when the service looks at a record before it claims it.
#[tokio::test(flavor = "multi_thread")]
async fn another_request_or_caller_under_the_key_is_one_round_trip() {
    counted().await.refused_request_is_one().await;
}

/// Fails when the service looks at a record before it claims it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_is_one_round_trip() {
    counted().await.request_in_flight_is_one().await;
}
