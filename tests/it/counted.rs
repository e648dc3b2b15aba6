//! A store whose round trips are counted on the wire, and the requests that a count is for.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use bytes::Bytes;
use http::StatusCode;
use idempotency_layer::store::{
    CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, LapsePolicy, Lease, LeaseId, Renewal,
    StoredResponse, Write,
};
use idempotency_layer::{IdempotencyLayer, RecordId, Store, UnknownOutcome};
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Proxy;

use crate::request::{Answer, gated, keyed, send, sending};

/// A store behind a proxy, over connections that have been used.
pub(crate) struct Counted<S> {
    pub(crate) proxy: Proxy,
    pub(crate) store: S,
}

impl<S: Store> Counted<S> {
    /// Uses the store once, so that what is only done at first is done.
    pub(crate) async fn warm(proxy: Proxy, store: S) -> Self {
        let counted = Self { proxy, store };
        let request = request();
        assert!(matches!(counted.store.claim(&request).await.unwrap(), Claim::Acquired(_)));
        assert!(matches!(counted.store.renew(&request.lease).await.unwrap(), Renewal::Renewed { .. }));
        counted.complete(&request).await;
        counted
    }

    /// How many round trips this takes.
    pub(crate) async fn count<T>(&self, work: impl Future<Output = T>) -> (T, u64) {
        self.proxy.reset_round_trips();
        let done = work.await;
        (done, self.proxy.round_trips())
    }

    /// A key whose first request has been answered.
    async fn record(&self) -> ClaimRequest {
        let request = request();
        assert!(matches!(self.store.claim(&request).await.unwrap(), Claim::Acquired(_)));
        self.complete(&request).await;
        request
    }

    async fn complete(&self, request: &ClaimRequest) {
        let response = StoredResponse::new(StatusCode::CREATED, Bytes::from_static(b"paid"));
        let completed = self.store.complete(&request.lease, &Completion::Response(response.into())).await;
        assert_eq!(completed.unwrap(), Write::Done);
    }

    fn router(&self, gate: Gate) -> Router {
        gated(IdempotencyLayer::new(self.store.clone()).anonymous(true), gate)
    }

    async fn count_send(&self, router: &Router, request: http::request::Builder, body: &'static str) -> (Answer, u64) {
        self.count(send(router, request, body)).await
    }

    /// The verbs of a first request.
    pub(crate) async fn first_is_two(&self) {
        let (_, trips) = self.count(self.record()).await;
        assert_eq!(trips, 2);
    }

    pub(crate) async fn claim_of_a_record_is_one(&self) {
        let recorded = self.record().await;
        let (claim, trips) = self.count(self.store.claim(&again(&recorded))).await;
        assert!(matches!(claim.unwrap(), Claim::Recorded(_)));
        assert_eq!(trips, 1);
    }

    pub(crate) async fn refused_claim_is_one(&self) {
        let recorded = self.record().await;
        let reused = ClaimRequest { fingerprint: Fingerprint::from_bytes([3; 32]), ..again(&recorded) };
        let (claim, trips) = self.count(self.store.claim(&reused)).await;
        assert!(matches!(claim.unwrap(), Claim::Reused));
        assert_eq!(trips, 1);
        let other = ClaimRequest { caller: CallerFingerprint::from_bytes([3; 32]), ..again(&recorded) };
        let (claim, trips) = self.count(self.store.claim(&other)).await;
        assert!(matches!(claim.unwrap(), Claim::CallerChanged));
        assert_eq!(trips, 1);
    }

    pub(crate) async fn claim_in_flight_is_one(&self) {
        let first = request();
        assert!(matches!(self.store.claim(&first).await.unwrap(), Claim::Acquired(_)));
        let (claim, trips) = self.count(self.store.claim(&again(&first))).await;
        assert!(matches!(claim.unwrap(), Claim::InFlight { .. }));
        assert_eq!(trips, 1);
        assert!(matches!(self.store.renew(&first.lease).await.unwrap(), Renewal::Renewed { .. }));
        let (claim, trips) = self.count(self.store.claim(&again(&first))).await;
        assert!(matches!(claim.unwrap(), Claim::InFlight { .. }));
        assert_eq!(trips, 1, "after a renewal");
    }

    pub(crate) async fn renewal_is_one(&self) {
        let first = request();
        assert!(matches!(self.store.claim(&first).await.unwrap(), Claim::Acquired(_)));
        let (renewal, trips) = self.count(self.store.renew(&first.lease)).await;
        assert!(matches!(renewal.unwrap(), Renewal::Renewed { .. }));
        assert_eq!(trips, 1);
    }

    /// Through a service.
    pub(crate) async fn first_request_is_two_and_its_replay_one(&self) {
        let router = self.router(Gate::open());
        let key = own("replay");
        let (answer, trips) = self.count_send(&router, keyed("/pay", &key), "").await;
        assert_eq!((answer.status.as_u16(), trips), (201, 2), "{answer:?}");
        let (answer, trips) = self.count_send(&router, keyed("/pay", &key), "").await;
        assert_eq!((answer.is_replay(), trips), (true, 1), "{answer:?}");
    }

    pub(crate) async fn refused_request_is_one(&self) {
        let router = self.router(Gate::open());
        let key = own("mismatch");
        send(&router, keyed("/pay", &key).header("authorization", "a"), "").await;
        let others = [("key-reused", "a", "another body"), ("caller-changed", "b", "")];
        for (problem, authorization, body) in others {
            let request = keyed("/pay", &key).header("authorization", authorization);
            let (answer, trips) = self.count_send(&router, request, body).await;
            assert_eq!((answer.problem(), trips), (Some(problem), 1), "{answer:?}");
        }
    }

    pub(crate) async fn request_in_flight_is_one(&self) {
        let gate = Gate::closed();
        let router = self.router(gate.clone());
        let key: &'static str = own("in-flight").leak();
        let first = sending(&router, keyed("/pay", key), "");
        gate.entered().await;
        let (answer, trips) = self.count_send(&router, keyed("/pay", key), "").await;
        assert_eq!((answer.problem(), trips), (Some("in-flight"), 1), "{answer:?}");
        gate.release(1);
        assert_eq!(first.await.unwrap().status, 201);
    }
}

/// A claim of a key that nobody has had.
pub(crate) fn request() -> ClaimRequest {
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
pub(crate) fn again(request: &ClaimRequest) -> ClaimRequest {
    let lease = Lease { id: LeaseId::random(), ..request.lease };
    ClaimRequest { lease, ..request.clone() }
}

/// A key of this test's alone, on a server that all tests share.
pub(crate) fn own(key: &str) -> String {
    format!("round-trips-{key}-{}", LeaseId::random().as_bytes().map(|byte| format!("{byte:02x}")).concat())
}
