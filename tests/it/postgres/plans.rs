//! What the database does for each statement: which index it takes, and what it writes. The database tells it of the
//! store's own statements as it runs them, with its settings as they come.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use idempotency_layer::store::postgres::Isolation;
use idempotency_layer::store::{
    Begin, Claim, ClaimRequest, Commit, Completion, LapsePolicy, Lease, LeaseId, Page, Renewal, Resolution,
    StoredResponse, Write,
};
use idempotency_layer::{PostgresStore, Store, TransactionalStore, UnknownOutcome};
use idempotency_tests::postgres::PostgresServer;

use crate::counted::{again, request};

/// A server that logs how it ran each statement, and a store on it.
async fn explaining() -> (PostgresServer, PostgresStore) {
    let server = PostgresServer::start_with(&[
        ("shared_preload_libraries", "auto_explain"),
        ("auto_explain.log_min_duration", "0"),
        ("auto_explain.log_analyze", "on"),
        ("auto_explain.log_wal", "on"),
        ("auto_explain.log_timing", "off"),
        ("autovacuum", "off"),
    ])
    .await;
    let store = PostgresStore::connect(&server.url()).await.unwrap();
    store.migrate().await.unwrap();
    (server, store)
}

/// How each statement on the store's tables was run: its text, and its plan.
fn plans(server: &PostgresServer) -> Vec<(String, String)> {
    let log = server.log();
    let told = log.split("plan:\n\tQuery Text: ").skip(1).map(|told| {
        // What goes on in further lines begins with a tab.
        let lines: Vec<&str> = told
            .lines()
            .enumerate()
            .take_while(|(at, line)| *at == 0 || line.starts_with('\t'))
            .map(|(_, line)| line)
            .collect();
        let (query, plan) = lines.split_first().unwrap();
        ((*query).to_owned(), plan.join("\n"))
    });
    told.filter(|(query, _)| query.contains("idempotency_")).collect()
}

fn response() -> Completion {
    Completion::Response(Arc::new(StoredResponse::new(StatusCode::CREATED, Bytes::from_static(b"paid"))))
}

fn held(request: ClaimRequest) -> ClaimRequest {
    ClaimRequest { policy: LapsePolicy { unknown: UnknownOutcome::Hold, ..request.policy }, ..request }
}

fn lapsing(request: ClaimRequest) -> ClaimRequest {
    ClaimRequest { lease: Lease { duration: Duration::from_millis(1), ..request.lease }, ..request }
}

async fn acquire(store: &PostgresStore, request: &ClaimRequest) {
    assert!(matches!(store.claim(request).await.unwrap(), Claim::Acquired(_)));
}

/// Every verb, with every statement that it may need.
async fn use_all(store: &PostgresStore) {
    let recorded = request();
    acquire(store, &recorded).await;
    assert!(matches!(store.renew(&recorded.lease).await.unwrap(), Renewal::Renewed { .. }));
    assert_eq!(store.complete(&recorded.lease, &response()).await.unwrap(), Write::Done);
    assert!(matches!(store.claim(&again(&recorded)).await.unwrap(), Claim::Recorded(_)));
    let _looked = store.look(&recorded.lease.record).await.unwrap();

    let freed = request();
    acquire(store, &freed).await;
    assert_eq!(store.release(&freed.lease).await.unwrap(), Write::Done);
    let next = again(&freed);
    acquire(store, &next).await;
    assert_eq!(store.forget(&next.lease).await.unwrap(), Write::Done);

    let lapsed = lapsing(request());
    acquire(store, &lapsed).await;
    let mut overtaking = again(&lapsed);
    overtaking.policy.max_attempts = std::num::NonZeroU32::MAX;
    // Until its millisecond is over by the database's clock.
    while matches!(store.claim(&overtaking).await.unwrap(), Claim::InFlight { .. }) {}

    for resolution in [Resolution::Free, Resolution::Forget] {
        let hold = held(request());
        acquire(store, &hold).await;
        assert_eq!(store.hold(&hold.lease).await.unwrap(), Write::Done);
        let listed = store.held(&Page::first(NonZeroU16::MAX)).await.unwrap().records;
        let listed = listed.iter().find(|listed| listed.record == hold.lease.record).unwrap();
        assert_eq!(store.resolve(listed, LeaseId::random(), &resolution).await.unwrap(), Write::Done);
    }

    for isolation in [Isolation::ReadCommitted, Isolation::Serializable] {
        let run = request();
        acquire(store, &run).await;
        let begun = store.clone().isolation(isolation).begin(&run.lease).await.unwrap();
        let Begin::Begun(transaction) = begun else { panic!("fenced") };
        assert_eq!(store.complete_in(transaction, &run.lease, &response()).await.unwrap(), Commit::Committed);
        assert_eq!(store.confirm(&run.lease).await.unwrap(), Commit::Committed);
    }
    let _swept = store.sweep().await.unwrap();
}

/// Fails when `SWEEP_LEASES` or `SWEEP_RECORDS` is in no order, when the migration makes no index, and when `CLAIM` joins the
/// lease by something else than its key.
#[tokio::test(flavor = "multi_thread")]
async fn every_statement_takes_an_index_among_many_rows() {
    let (server, store) = explaining().await;
    server.execute(MANY).await;
    let before = plans(&server).len();
    use_all(&store).await;
    let plans = &plans(&server)[before..];
    let mut scans: Vec<&str> =
        plans.iter().flat_map(|(_, plan)| plan.lines()).filter(|line| line.contains("Scan")).collect();
    assert!(plans.len() > 30 && scans.len() > plans.len() / 2, "{plans:#?}");
    scans.retain(|line| line.contains(" on idempotency_") && !line.contains("Index") && !line.contains("Bitmap Heap"));
    assert!(scans.is_empty(), "{scans:#?} in {plans:#?}");
}

/// Fails when `CLAIM` locks the row that it finds, with `ON CONFLICT (id) DO UPDATE`.
#[tokio::test(flavor = "multi_thread")]
async fn a_replay_writes_nothing() {
    let (server, store) = explaining().await;
    let recorded = request();
    acquire(&store, &recorded).await;
    assert_eq!(store.complete(&recorded.lease, &response()).await.unwrap(), Write::Done);
    // What can be tidied up on its page has been.
    server.execute("VACUUM idempotency_record").await;
    let claims = || plans(&server).into_iter().filter(|(query, _)| query.contains("WITH found AS")).collect::<Vec<_>>();
    assert!(claims().last().unwrap().1.contains("WAL: records="), "a claim that writes: {:?}", claims());
    let before = claims().len();
    for _ in 0..20 {
        assert!(matches!(store.claim(&again(&recorded)).await.unwrap(), Claim::Recorded(_)));
    }
    let replays = &claims()[before..];
    assert_eq!(replays.len(), 20);
    for (_, plan) in replays {
        assert!(!plan.contains("WAL:"), "{plan}");
    }
}

/// A hundred thousand of each, of all states, as they come in use: some expired, some held, some renewed.
const MANY: &str = "INSERT INTO idempotency_record (id, format, state, fingerprint, caller, lease, attempt, lapsed, \
         on_unknown, max_lapsed, retention, claimed_at, lease_until, written_at, sweep_from, status, headers, body) \
     SELECT sha256(n::text::bytea), 1, 1 + n % 4, sha256('f'), sha256('c'), substr(sha256(('l' || n)::bytea), 1, 16), \
         1, 0, 1, 5, 86400000, t, t + 30000, t, CASE WHEN n % 500 = 0 THEN NULL ELSE t + 86400000 END, 200, \
         '\\x00000000', 'paid' \
     FROM generate_series(1, 100000) n, \
         LATERAL (SELECT (extract(epoch FROM now()) * 1000)::bigint - n * 900 AS t) clock; \
     INSERT INTO idempotency_lease (lease, claimed_at, record, lease_until, written_at) \
     SELECT lease, claimed_at, id, lease_until, written_at FROM idempotency_record; \
     INSERT INTO idempotency_transaction (mark) SELECT sha256(n::text::bytea) FROM generate_series(1, 100000) n; \
     ANALYZE";
