//! The verbs of a request, and the bare commands that are their floors.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use idempotency_layer::store::{
    CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, LapsePolicy, Lease, LeaseId, StoredResponse, Write,
};
use idempotency_layer::{RecordId, RedisStore, Store, UnknownOutcome};
use idempotency_tests::redis::RedisServer;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::task::JoinSet;

/// A server, a store in it, and a connection beside the store's.
pub(crate) struct Bench {
    server: RedisServer,
    worker: Worker,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    First,
    FirstFloor,
    Replay,
    ReplayFloor,
}

/// One round.
pub(crate) struct Measured {
    pub(crate) work: Duration,
    pub(crate) floor: Duration,
}

/// What each task has.
#[derive(Clone)]
struct Worker {
    store: RedisStore,
    connection: MultiplexedConnection,
    completion: Completion,
    /// The record as a claim leaves it, and as the completion does.
    claimed: Bytes,
    recorded: Bytes,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::FirstFloor => "first-floor",
            Self::Replay => "replay",
            Self::ReplayFloor => "replay-floor",
        }
    }
}

impl Measured {
    pub(crate) fn ratio(&self) -> f64 {
        self.work.as_secs_f64() / self.floor.as_secs_f64()
    }
}

impl Bench {
    pub(crate) async fn start() -> Self {
        let server = RedisServer::start().await;
        let store = RedisStore::connect(&server.url()).await.expect("a store");
        // As the store's: neither waits for more to send, and both wait as long for an answer.
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(2)));
        let client = Client::open(server.url()).expect("an address");
        let connection = client.get_multiplexed_async_connection_with_config(&config).await.expect("a connection");
        let mut worker =
            Worker { store, connection, completion: completion(), claimed: Bytes::new(), recorded: Bytes::new() };
        let request = request(0);
        assert!(matches!(worker.store.claim(&request).await, Ok(Claim::Acquired(_))));
        worker.claimed = worker.get(&key(&request)).await.into();
        assert!(matches!(worker.store.complete(&request.lease, &worker.completion).await, Ok(Write::Done)));
        worker.recorded = worker.get(&key(&request)).await.into();
        Self { server, worker }
    }

    /// How long so many runs take, of which so many are under way at once.
    pub(crate) async fn measure(&self, work: Work, at_once: u32, runs: u64) -> Duration {
        let () = self.server.command(&["FLUSHALL"]).await;
        if matches!(work, Work::Replay | Work::ReplayFloor) {
            for at in 0..u64::from(at_once) {
                self.worker.clone().first(&request(at)).await;
            }
        }
        let share = |at: u64| (at..runs).step_by(at_once as usize);
        // Whatever is not the work of a request is done before.
        let shares: Vec<Vec<_>> = (0..u64::from(at_once))
            .map(|at| share(at).map(request).map(|request| (key(&request), request)).collect())
            .collect();
        let started = Instant::now();
        let tasks: JoinSet<()> =
            (0..).zip(shares).map(|(at, share)| self.worker.clone().run(work, at, share)).collect();
        tasks.join_all().await;
        started.elapsed()
    }
}

impl Worker {
    async fn run(mut self, work: Work, at: u64, share: Vec<(String, ClaimRequest)>) {
        let recorded = key(&request(at));
        for (key, request) in share {
            match work {
                Work::First => self.first(&request).await,
                Work::FirstFloor => {
                    self.set(&key, &self.claimed.clone()).await;
                    self.set(&key, &self.recorded.clone()).await;
                }
                Work::Replay => self.replay(at, request).await,
                Work::ReplayFloor => {
                    black_box(self.get(&recorded).await);
                }
            }
        }
    }

    async fn first(&self, request: &ClaimRequest) {
        let claim = self.store.claim(request).await;
        assert!(matches!(claim, Ok(Claim::Acquired(_))), "{claim:?}");
        let completed = self.store.complete(&request.lease, &self.completion).await;
        assert!(matches!(completed, Ok(Write::Done)), "{completed:?}");
    }

    async fn replay(&self, at: u64, mut request: ClaimRequest) {
        request.lease.record = record(at);
        match self.store.claim(&request).await {
            Ok(Claim::Recorded(recorded)) => drop(black_box(recorded)),
            other => panic!("no record: {other:?}"),
        }
    }

    async fn set(&mut self, key: &str, value: &[u8]) {
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value).arg("PX").arg(RETENTION_MILLIS);
        let () = set.query_async(&mut self.connection).await.expect("an answer");
    }

    async fn get(&mut self, key: &str) -> Vec<u8> {
        redis::cmd("GET").arg(key).query_async(&mut self.connection).await.expect("an answer")
    }
}

fn request(at: u64) -> ClaimRequest {
    ClaimRequest {
        lease: Lease { record: record(at), id: LeaseId::random(), duration: Duration::from_secs(30) },
        fingerprint: Fingerprint::from_bytes([1; 32]),
        caller: CallerFingerprint::from_bytes([2; 32]),
        retention: Duration::from_millis(RETENTION_MILLIS),
        policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: NonZeroU32::new(3).expect("not zero") },
    }
}

fn record(at: u64) -> RecordId {
    let mut bytes = [0xa5; 32];
    bytes[..8].copy_from_slice(&at.to_be_bytes());
    RecordId::from_bytes(bytes)
}

/// Where the store has a record.
fn key(request: &ClaimRequest) -> String {
    format!("idempotency:{}", request.lease.record)
}

fn completion() -> Completion {
    let mut response = StoredResponse::new(StatusCode::CREATED, Bytes::from_static(&[b'y'; 512]));
    response.headers.insert("content-type", HeaderValue::from_static("application/json"));
    Completion::Response(Arc::new(response))
}

/// A day.
const RETENTION_MILLIS: u64 = 86_400_000;
