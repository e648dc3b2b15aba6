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

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::StatusCode;
use idempotency_layer::store::{
    CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, LapsePolicy, Lease, LeaseId, Renewal,
    StoredResponse, Write,
};
use idempotency_layer::{IdempotencyLayer, RecordId, RedisStore, Store, UnknownOutcome};
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Proxy;
use idempotency_tests::redis::shared;

use crate::request::{Answer, gated, keyed, send, sending};

/// A store whose round trips are counted, and whose connection and scripts are warm.
struct Counted {
    proxy: Proxy,
    store: RedisStore,
}

impl Counted {
    async fn start() -> Self {
        let proxy = Proxy::start(shared().await.address()).await;
        let store = RedisStore::connect(&format!("redis://{}", proxy.address())).await.unwrap();
        let counted = Self { proxy, store };
        counted.record().await;
        counted
    }

    /// A key whose first request has been answered.
    async fn record(&self) -> ClaimRequest {
        let request = request();
        assert!(matches!(self.store.claim(&request).await.unwrap(), Claim::Acquired(_)));
        let response = StoredResponse::new(StatusCode::CREATED, Bytes::from_static(b"paid"));
        let completed = self.store.complete(&request.lease, &Completion::Response(response.into())).await;
        assert_eq!(completed.unwrap(), Write::Done);
        request
    }

    /// How many round trips this takes.
    async fn count<T>(&self, work: impl Future<Output = T>) -> (T, u64) {
        self.proxy.reset_round_trips();
        let done = work.await;
        (done, self.proxy.round_trips())
    }

    fn router(&self, gate: Gate) -> Router {
        gated(IdempotencyLayer::new(self.store.clone()).anonymous(true), gate)
    }

    async fn count_send(&self, router: &Router, request: http::request::Builder, body: &'static str) -> (Answer, u64) {
        self.count(send(router, request, body)).await
    }
}

/// A claim of a key that nobody has had.
fn request() -> ClaimRequest {
    let mut record = [0; 32];
    record[..16].copy_from_slice(LeaseId::random().as_bytes());
    ClaimRequest {
        lease: Lease { record: RecordId::from_bytes(record), id: LeaseId::random(), duration: Duration::from_secs(30) },
        fingerprint: Fingerprint::from_bytes([1; 32]),
        caller: CallerFingerprint::from_bytes([2; 32]),
        retention: Duration::from_secs(60),
        policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: NonZeroU32::MIN },
    }
}

/// The same request again, as a client repeats it.
fn again(request: &ClaimRequest) -> ClaimRequest {
    let lease = Lease { id: LeaseId::random(), ..request.lease };
    ClaimRequest { lease, ..request.clone() }
}

/// A key of this test's alone, on a server that all tests share.
fn own(key: &str) -> String {
    format!("round-trips-{key}-{}", LeaseId::random().as_bytes().map(|byte| format!("{byte:02x}")).concat())
}

/// Fails when `settle` looks first.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_claim_and_its_completion_are_two_round_trips() {
    let counted = Counted::start().await;
    let (_, trips) = counted.count(counted.record()).await;
    assert_eq!(trips, 2);
}

/// Fails when `claim` looks before it answers `Recorded`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_finds_a_record_is_one_round_trip() {
    let counted = Counted::start().await;
    let recorded = counted.record().await;
    let (claim, trips) = counted.count(counted.store.claim(&again(&recorded))).await;
    assert!(matches!(claim.unwrap(), Claim::Recorded(_)));
    assert_eq!(trips, 1);
}

/// Fails when `claim` looks before it answers `Reused`, or `CallerChanged`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_request_or_caller_is_one_round_trip() {
    let counted = Counted::start().await;
    let recorded = counted.record().await;
    let reused = ClaimRequest { fingerprint: Fingerprint::from_bytes([3; 32]), ..again(&recorded) };
    let (claim, trips) = counted.count(counted.store.claim(&reused)).await;
    assert!(matches!(claim.unwrap(), Claim::Reused));
    assert_eq!(trips, 1);
    let other = ClaimRequest { caller: CallerFingerprint::from_bytes([3; 32]), ..again(&recorded) };
    let (claim, trips) = counted.count(counted.store.claim(&other)).await;
    assert!(matches!(claim.unwrap(), Claim::CallerChanged));
    assert_eq!(trips, 1);
}

/// Fails when `claim` looks before it answers `InFlight`.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_flight_is_one_round_trip() {
    let counted = Counted::start().await;
    let first = request();
    assert!(matches!(counted.store.claim(&first).await.unwrap(), Claim::Acquired(_)));
    let (claim, trips) = counted.count(counted.store.claim(&again(&first))).await;
    assert!(matches!(claim.unwrap(), Claim::InFlight { .. }));
    assert_eq!(trips, 1);
}

/// A renewal writes the record otherwise than a claim does. Fails when `plain::running` knows only records whose times are not
/// told.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_flight_is_one_round_trip_also_when_the_run_was_renewed() {
    let counted = Counted::start().await;
    let first = request();
    assert!(matches!(counted.store.claim(&first).await.unwrap(), Claim::Acquired(_)));
    assert!(matches!(counted.store.renew(&first.lease).await.unwrap(), Renewal::Renewed { .. }));
    let (claim, trips) = counted.count(counted.store.claim(&again(&first))).await;
    assert!(matches!(claim.unwrap(), Claim::InFlight { .. }));
    assert_eq!(trips, 1);
}

/// Fails when the service looks at a record before it claims it.
#[tokio::test(flavor = "multi_thread")]
async fn a_first_request_is_two_round_trips_and_its_replay_one() {
    let counted = Counted::start().await;
    let router = counted.router(Gate::open());
    let key = own("replay");
    let (answer, trips) = counted.count_send(&router, keyed("/pay", &key), "").await;
    assert_eq!((answer.status.as_u16(), trips), (201, 2), "{answer:?}");
    let (answer, trips) = counted.count_send(&router, keyed("/pay", &key), "").await;
    assert_eq!((answer.is_replay(), trips), (true, 1), "{answer:?}");
}

/// Fails when the service looks at a record before it claims it.
#[tokio::test(flavor = "multi_thread")]
async fn another_request_or_caller_under_the_key_is_one_round_trip() {
    let counted = Counted::start().await;
    let router = counted.router(Gate::open());
    let key = own("mismatch");
    send(&router, keyed("/pay", &key).header("authorization", "a"), "").await;
    let others = [("key-reused", "a", "another body"), ("caller-changed", "b", "")];
    for (problem, authorization, body) in others {
        let request = keyed("/pay", &key).header("authorization", authorization);
        let (answer, trips) = counted.count_send(&router, request, body).await;
        assert_eq!((answer.problem(), trips), (Some(problem), 1), "{answer:?}");
    }
}

/// Fails when the service looks at a record before it claims it.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_flight_is_one_round_trip() {
    let counted = Counted::start().await;
    let gate = Gate::closed();
    let router = counted.router(gate.clone());
    let key: &'static str = own("in-flight").leak();
    let first = sending(&router, keyed("/pay", key), "");
    gate.entered().await;
    let (answer, trips) = counted.count_send(&router, keyed("/pay", key), "").await;
    assert_eq!((answer.problem(), trips), (Some("in-flight"), 1), "{answer:?}");
    gate.release(1);
    assert_eq!(first.await.unwrap().status, 201);
}
