//! What a sweep of a million expired records costs the claims beside it, and how long its batches are.
//!
//! Claims and completions go on all the time, four at once. Their rate is measured by turns with a sweep under way and
//! without, on the same tables. Bar: beside a sweep no less than 0.9 of the rate without.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use idempotency_layer::PostgresStore;
use idempotency_tests::postgres::PostgresServer;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::median;
use crate::verbs::first;

pub(crate) async fn compare() {
    let server = PostgresServer::start_with(&[("log_min_duration_statement", "0")]).await;
    let store = PostgresStore::connect(&server.url()).await.expect("a store");
    store.migrate().await.expect("tables");
    server.execute(MILLION).await;
    let done = Arc::new(AtomicU64::new(0));
    let is_over = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (store, done, is_over) = (store.clone(), Arc::clone(&done), Arc::clone(&is_over));
        clients.spawn(async move {
            let mut at = client << 40;
            while !is_over.load(Ordering::Relaxed) {
                first(&store, at).await;
                at += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let rate = async || {
        let (before, started) = (done.load(Ordering::Relaxed), Instant::now());
        sleep(TURN).await;
        let answered = done.load(Ordering::Relaxed) - before;
        f64::from(u32::try_from(answered).expect("a short turn")) / started.elapsed().as_secs_f64()
    };
    sleep(TURN).await;
    let mut ratios = Vec::new();
    for _ in 0..TURNS {
        let without = rate().await;
        let sweeping = store.clone();
        let sweep = tokio::spawn(async move { sweeping.sweep().await });
        let beside = rate().await;
        assert!(!sweep.is_finished(), "the sweep has ended before it was measured: {:?}", sweep.await);
        // In the midst of a batch, or between two.
        sweep.abort();
        ratios.push(beside / without);
    }
    is_over.store(true, Ordering::Relaxed);
    clients.join_all().await;
    let turns = ratios.len();
    println!(
        "claims beside a sweep: {:.2} of their rate without (bar 0.90), {turns} turns",
        median(ratios.into_iter())
    );
    let log = server.log();
    let batches: Vec<f64> = log.lines().filter(|line| line.contains("WITH expired AS")).filter_map(millis).collect();
    let longest = batches.iter().copied().fold(0.0, f64::max);
    let middle = median(batches.iter().copied());
    println!("{} batches: {middle:.1} ms each, {longest:.1} ms the longest", batches.len());
}

/// How long the server says that a statement took.
fn millis(line: &str) -> Option<f64> {
    line.split_once("duration: ")?.1.split_once(" ms")?.0.parse().ok()
}

const CLIENTS: u64 = 4;
const TURNS: u32 = 30;
const TURN: Duration = Duration::from_secs(1);

const MILLION: &str = "INSERT INTO idempotency_record (id, format, state, fingerprint, caller, lease, attempt, lapsed, \
         on_unknown, max_lapsed, retention, claimed_at, lease_until, written_at, sweep_from, status, headers, body) \
     SELECT sha256(n::text::bytea), 1, 2, sha256('f'), sha256('c'), substr(sha256(n::text::bytea), 1, 16), 1, 0, 1, 5, \
         1000, n, n, n, n + 1000, 200, '\\x00000000', 'paid' \
     FROM generate_series(1, 1000000) n; ANALYZE";
