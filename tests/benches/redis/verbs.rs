//! The verbs of a request, and the bare commands that are their floors.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::ops::Range;
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
use tokio::sync::Barrier;
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
    /// The commands of a first request with nothing around them: a claim, and the least that a script does which writes only
    /// for the holder of that claim.
    FirstBare,
    FirstFloor,
    Replay,
    /// The commands of a replay with nothing around them.
    ReplayBare,
    ReplayFloor,
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
    /// The hash of [`FENCED`].
    fenced: String,
}

impl Work {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::FirstBare => "first-bare",
            Self::FirstFloor => "first-floor",
            Self::Replay => "replay",
            Self::ReplayBare => "replay-bare",
            Self::ReplayFloor => "replay-floor",
        }
    }

    fn is_replay(self) -> bool {
        matches!(self, Self::Replay | Self::ReplayBare | Self::ReplayFloor)
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
        let fenced = server.command(&["SCRIPT", "LOAD", FENCED]).await;
        let (claimed, recorded) = (Bytes::new(), Bytes::new());
        let mut worker = Worker { store, connection, completion: completion(), claimed, recorded, fenced };
        let request = request(0);
        assert!(matches!(worker.store.claim(&request).await, Ok(Claim::Acquired(_))));
        worker.claimed = worker.get(&key(&request)).await.into();
        assert!(matches!(worker.store.complete(&request.lease, &worker.completion).await, Ok(Write::Done)));
        worker.recorded = worker.get(&key(&request)).await.into();
        Self { server, worker }
    }

    /// How long so many runs take, of which so many are under way at once.
    pub(crate) async fn measure(&self, work: Work, at_once: u32, runs: u64) -> Duration {
        let [took] = self.compare([work], at_once, runs).await;
        took
    }

    /// How long so many runs of each take. The same tasks do them in turn, a few of one and a few of the next, so that
    /// wherever the scheduler has put them and the server, it has for all alike.
    pub(crate) async fn compare<const N: usize>(&self, works: [Work; N], at_once: u32, runs: u64) -> [Duration; N] {
        let () = self.server.command(&["FLUSHALL"]).await;
        if works.iter().any(|work| work.is_replay()) {
            for at in 0..u64::from(at_once) {
                self.worker.clone().first(&request(RECORDED + at)).await;
            }
        }
        let barrier = Arc::new(Barrier::new(at_once as usize));
        let at_once = u64::from(at_once);
        let turns = runs.div_ceil(at_once).div_ceil(TURN);
        let share = |at: u64| runs / at_once + u64::from(at < runs % at_once);
        let tasks: JoinSet<[Duration; N]> = (0..at_once)
            .map(|at| (at, self.worker.clone(), barrier.clone()))
            .map(|(at, worker, barrier)| worker.take_turns(works, at, (turns, share(at)), barrier))
            .collect();
        // Each has waited for all others at each end, so that they saw the same.
        tasks.join_all().await[0]
    }
}

impl Worker {
    /// Makes its share of each work, in so many turns.
    async fn take_turns<const N: usize>(
        mut self,
        works: [Work; N],
        at: u64,
        (turns, share): (u64, u64),
        barrier: Arc<Barrier>,
    ) -> [Duration; N] {
        let mut took = [Duration::ZERO; N];
        let mut fresh = at << 32;
        for turn in 0..turns {
            for (work, took) in works.into_iter().zip(&mut took) {
                // Whatever is not the work of a request is done before.
                let requests: Vec<_> = (turn * TURN..share.min((turn + 1) * TURN))
                    .map(|_| {
                        fresh += 1;
                        request(if work.is_replay() { RECORDED + at } else { fresh })
                    })
                    .map(|request| (key(&request), request))
                    .collect();
                barrier.wait().await;
                let started = Instant::now();
                for (key, request) in requests {
                    self.run(work, &key, &request).await;
                }
                barrier.wait().await;
                *took += started.elapsed();
            }
        }
        took
    }

    async fn run(&mut self, work: Work, key: &str, request: &ClaimRequest) {
        match work {
            Work::First => self.first(request).await,
            Work::FirstBare => {
                assert_eq!(self.claim(key).await, None);
                let mut fenced = redis::cmd("EVALSHA");
                fenced.arg(&self.fenced).arg(1).arg(key).arg(&self.claimed[LEASE]).arg(&self.recorded[..]);
                fenced.arg(RETENTION_MILLIS);
                let done: i64 = fenced.query_async(&mut self.connection).await.expect("an answer");
                assert_eq!(done, 1);
            }
            Work::FirstFloor => {
                self.set(key, &self.claimed.clone()).await;
                self.set(key, &self.recorded.clone()).await;
            }
            Work::Replay => self.replay(request).await,
            Work::ReplayBare => {
                black_box(self.claim(key).await.expect("a record"));
            }
            Work::ReplayFloor => {
                black_box(self.get(key).await);
            }
        }
    }

    async fn first(&self, request: &ClaimRequest) {
        let claim = self.store.claim(request).await;
        assert!(matches!(claim, Ok(Claim::Acquired(_))), "{claim:?}");
        let completed = self.store.complete(&request.lease, &self.completion).await;
        assert!(matches!(completed, Ok(Write::Done)), "{completed:?}");
    }

    async fn replay(&self, request: &ClaimRequest) {
        match self.store.claim(request).await {
            Ok(Claim::Recorded(recorded)) => drop(black_box(recorded)),
            other => panic!("no record: {other:?}"),
        }
    }

    /// What a store's claim sends: what was there.
    async fn claim(&mut self, key: &str) -> Option<Vec<u8>> {
        let mut claim = redis::pipe();
        claim.cmd("SET").arg(key).arg(&self.claimed[..]).arg("NX").arg("GET").arg("PX").arg(RETENTION_MILLIS);
        claim.cmd("PTTL").arg(key);
        let (met, _left): (Option<Vec<u8>>, i64) = claim.query_async(&mut self.connection).await.expect("an answer");
        met
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

/// Writes a record whole, if its claim is still there.
const FENCED: &str = "\
    if redis.call('GETRANGE', KEYS[1], 68, 83) ~= ARGV[1] then return 0 end \
    redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) \
    return 1";

/// Where the claim's lease is in its record.
const LEASE: Range<usize> = 68..84;

/// How many runs of one thing a task makes before those of the next.
const TURN: u64 = 32;

/// The records that are replayed are none of the others.
const RECORDED: u64 = u64::MAX >> 1;

/// A day.
const RETENTION_MILLIS: u64 = 86_400_000;
