//! The verbs of a request, and the bare statements that are their floors.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use idempotency_layer::store::{
    CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, LapsePolicy, Lease, LeaseId, StoredResponse, Write,
};
use idempotency_layer::{PostgresStore, RecordId, Store, UnknownOutcome};
use sqlx::PgPool;
use sqlx::Row;
use tokio::task::JoinSet;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    First,
    FirstFloor,
    Replay,
    ReplayFloor,
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

/// A store, and the pool whose options it has.
pub(crate) struct Bench {
    worker: Worker,
}

/// What each task has.
#[derive(Clone)]
struct Worker {
    store: PostgresStore,
    pool: PgPool,
    completion: Completion,
}

impl Bench {
    pub(crate) async fn start(pool: PgPool) -> Self {
        let store = PostgresStore::new(pool.clone()).await.expect("a store");
        store.migrate().await.expect("tables");
        sqlx::raw_sql(BARE).execute(&pool).await.expect("a table");
        Self { worker: Worker { store, pool, completion: completion() } }
    }

    /// How long so many runs take, of which so many are under way at once.
    pub(crate) async fn measure(&self, work: Work, at_once: u32, runs: u64) -> Duration {
        sqlx::raw_sql("TRUNCATE idempotency_record, bare").execute(&self.worker.pool).await.expect("empty tables");
        for at in 0..u64::from(at_once) {
            match work {
                Work::Replay => self.worker.first(&request(at)).await,
                Work::ReplayFloor => self.worker.write_bare(&request(at)).await,
                Work::First | Work::FirstFloor => {}
            }
        }
        let shares: Vec<Vec<_>> =
            (0..u64::from(at_once)).map(|at| (at..runs).step_by(at_once as usize).map(request).collect()).collect();
        let started = Instant::now();
        let tasks: JoinSet<()> =
            (0..).zip(shares).map(|(at, share)| self.worker.clone().run(work, at, share)).collect();
        tasks.join_all().await;
        started.elapsed()
    }
}

impl Worker {
    async fn run(self, work: Work, at: u64, share: Vec<ClaimRequest>) {
        for mut request in share {
            match work {
                Work::First => self.first(&request).await,
                Work::FirstFloor => self.write_bare(&request).await,
                Work::Replay => {
                    request.lease.record = record(at);
                    match self.store.claim(&request).await {
                        Ok(Claim::Recorded(recorded)) => drop(black_box(recorded)),
                        other => panic!("no record: {other:?}"),
                    }
                }
                Work::ReplayFloor => {
                    let row = sqlx::query("SELECT head, headers, body FROM bare WHERE id = $1")
                        .bind(&record(at).as_bytes()[..])
                        .fetch_one(&self.pool)
                        .await
                        .expect("a row");
                    black_box((row.get::<Vec<u8>, _>(0), row.get::<Vec<u8>, _>(1), row.get::<Vec<u8>, _>(2)));
                }
            }
        }
    }

    async fn first(&self, request: &ClaimRequest) {
        run_once(&self.store, request, &self.completion).await;
    }

    async fn write_bare(&self, request: &ClaimRequest) {
        let id = &request.lease.record.as_bytes()[..];
        sqlx::query("INSERT INTO bare (id, head) VALUES ($1, $2)")
            .bind(id)
            .bind(&[7_u8; HEAD][..])
            .execute(&self.pool)
            .await
            .expect("an insert");
        sqlx::query("UPDATE bare SET head = $2, headers = $3, body = $4 WHERE id = $1")
            .bind(id)
            .bind(&[8_u8; HEAD][..])
            .bind(&[9_u8; HEADERS][..])
            .bind(&[b'y'; BODY][..])
            .execute(&self.pool)
            .await
            .expect("an update");
    }
}

/// One request that nobody has sent.
pub(crate) async fn first(store: &PostgresStore, at: u64) {
    run_once(store, &request(at), &completion()).await;
}

async fn run_once(store: &PostgresStore, request: &ClaimRequest, completion: &Completion) {
    let claim = store.claim(request).await;
    assert!(matches!(claim, Ok(Claim::Acquired(_))), "{claim:?}");
    let completed = store.complete(&request.lease, completion).await;
    assert!(matches!(completed, Ok(Write::Done)), "{completed:?}");
}

fn request(at: u64) -> ClaimRequest {
    ClaimRequest {
        lease: Lease { record: record(at), id: LeaseId::random(), duration: Duration::from_secs(30) },
        fingerprint: Fingerprint::from_bytes([1; 32]),
        caller: CallerFingerprint::from_bytes([2; 32]),
        retention: Duration::from_secs(86_400),
        policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: NonZeroU32::new(3).expect("not zero") },
    }
}

fn record(at: u64) -> RecordId {
    let mut bytes = [0xa5; 32];
    bytes[..8].copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    RecordId::from_bytes(bytes)
}

fn completion() -> Completion {
    let mut response = StoredResponse::new(StatusCode::CREATED, Bytes::from_static(&[b'y'; BODY]));
    response.headers.insert("content-type", HeaderValue::from_static("application/json"));
    Completion::Response(Arc::new(response))
}

/// As many bytes as a record has beside its response.
const HEAD: usize = 98;
const HEADERS: usize = 41;
const BODY: usize = 512;

const BARE: &str =
    "CREATE TABLE IF NOT EXISTS bare (id bytea PRIMARY KEY, head bytea NOT NULL, headers bytea, body bytea)";
