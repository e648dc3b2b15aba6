//! What a keyed request costs in PostgreSQL, as a ratio to bare statements that are measured in the same run.
//!
//! The floors are the statements that keep and give the same bytes without deciding anything, prepared, through the pool
//! that the store was made with:
//!
//! - *first* (a claim and its completion, 512 bytes of response): one `INSERT` of the record as the claim leaves it, one
//!   `UPDATE` to what the completion leaves, of a table with a primary key. Bar: 1.15.
//! - *replay* (a claim that finds the response): one `SELECT` of that row by its key. Bar: 1.2.
//!
//! Each with one at once and with 32 at once, on a server that forces each commit to the disk and on one with
//! `synchronous_commit=off`. The servers are the bench's own and have the same machine. The pool does not ask whether a
//! connection is alive before it lends it, which the store does not either.
//!
//! With `sweep` as its argument it measures claims beside a sweep of a million expired records instead: see [`sweep`].

mod sweep;
mod verbs;

use std::time::Duration;

use idempotency_tests::postgres::PostgresServer;
use sqlx::postgres::PgPoolOptions;
use tokio::runtime::Runtime;

use crate::verbs::{Bench, Work};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    if std::env::args().any(|argument| argument == "sweep") {
        runtime.block_on(sweep::compare());
        return;
    }
    for (how, settings) in [("fsync", ("fsync", "on")), ("synchronous_commit=off", ("synchronous_commit", "off"))] {
        let server = runtime.block_on(PostgresServer::start_with(&[settings]));
        let bench = runtime.block_on(async {
            let pool = PgPoolOptions::new().test_before_acquire(false);
            Bench::start(pool.connect(&server.url()).await.expect("a pool")).await
        });
        for (work, floor, bar) in [(Work::First, Work::FirstFloor, 1.15), (Work::Replay, Work::ReplayFloor, 1.2)] {
            for at_once in AT_ONCE {
                println!("{how}, {}", report(&runtime, &bench, (work, floor, bar), at_once));
            }
        }
    }
}

/// The median of the ratios of many short rounds, in each of which both are measured one after the other: what slows the
/// machine down for longer than a round slows both.
fn report(runtime: &Runtime, bench: &Bench, (work, floor, bar): (Work, Work, f64), at_once: u32) -> String {
    let runs = RUNS * u64::from(at_once).min(4);
    let round = |at: u32| {
        let measured = |work| runtime.block_on(bench.measure(work, at_once, runs));
        // In turn, so that neither always comes after the other.
        if at.is_multiple_of(2) {
            (measured(work), measured(floor))
        } else {
            let floor = measured(floor);
            (measured(work), floor)
        }
    };
    let rounds: Vec<(Duration, Duration)> = (0..ROUNDS).map(round).collect();
    let ratio = median(rounds.iter().map(|(work, floor)| work.as_secs_f64() / floor.as_secs_f64()));
    let runs = f64::from(u32::try_from(runs).expect("few runs"));
    let seconds = median(rounds.iter().map(|(work, _)| work.as_secs_f64())) / runs;
    let floor = median(rounds.iter().map(|(_, floor)| floor.as_secs_f64())) / runs;
    format!(
        "{}, {at_once} at once: {ratio:.2} x its floor (bar {bar}); {:.0} us, {:.0}/s; the floor {:.0} us, {:.0}/s",
        work.name(),
        seconds * MICROS,
        seconds.recip(),
        floor * MICROS,
        floor.recip(),
    )
}

/// The value in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

const AT_ONCE: [u32; 2] = [1, 32];
const ROUNDS: u32 = 41;
const RUNS: u64 = 200;
const MICROS: f64 = 1e6;
