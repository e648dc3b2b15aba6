//! What a keyed request costs in Redis, as a ratio to bare commands that are measured in the same run.
//!
//! The floors are the commands that keep and give the same bytes without deciding anything, on one multiplexed connection
//! as the store has one, to the same server:
//!
//! - *first* (a claim and its completion, 512 bytes of response): one `SET … PX` of the record as the claim leaves it, one
//!   of the record as the completion leaves it. Bar: 1.25.
//! - *replay* (a claim that finds the response): one `GET` of that record. Bar: 1.25.
//!
//! Each with one at once, where the round trip decides, and with 32 at once, where the server's and the client's processor
//! do. The server is one of the bench's own, keeps nothing on disk, and has the same machine.
//!
//! With `load` as its argument it measures the layer in an axum service instead: see [`load`].

mod load;
mod verbs;

use std::time::Duration;

use criterion::{Criterion, Throughput};
use tokio::runtime::Runtime;

use crate::verbs::{Bench, Measured, Work};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    if std::env::args().any(|argument| argument == "load") {
        runtime.block_on(load::compare());
        return;
    }
    let bench = runtime.block_on(Bench::start());
    let mut criterion = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for at_once in AT_ONCE {
        let mut group = criterion.benchmark_group(format!("redis-{at_once}"));
        group.throughput(Throughput::Elements(1));
        for work in [Work::FirstFloor, Work::First, Work::ReplayFloor, Work::Replay] {
            group.bench_function(work.name(), |bencher| {
                bencher.iter_custom(|runs| runtime.block_on(bench.measure(work, at_once, runs)));
            });
        }
        group.finish();
    }
    criterion.final_summary();
    if std::env::args().any(|argument| argument == "--profile-time") {
        return;
    }
    for (work, floor) in [(Work::First, Work::FirstFloor), (Work::Replay, Work::ReplayFloor)] {
        for at_once in AT_ONCE {
            report(&runtime, &bench, (work, floor), at_once);
        }
    }
}

/// Prints the median of the ratios of many short rounds, in each of which both are measured one after the other: what slows
/// the machine down for longer than a round slows both.
fn report(runtime: &Runtime, bench: &Bench, (work, floor): (Work, Work), at_once: u32) {
    let runs = RUNS * u64::from(at_once).min(16);
    let round = |_| {
        let measured = |work| runtime.block_on(bench.measure(work, at_once, runs));
        Measured { work: measured(work), floor: measured(floor) }
    };
    let rounds: Vec<_> = (0..ROUNDS).map(round).collect();
    let ratio = median(rounds.iter().map(Measured::ratio));
    let runs = f64::from(u32::try_from(runs).expect("few runs"));
    let seconds = median(rounds.iter().map(|round| round.work.as_secs_f64())) / runs;
    let floor = median(rounds.iter().map(|round| round.floor.as_secs_f64())) / runs;
    println!(
        "{}, {at_once} at once: {ratio:.2} x its floor (bar 1.25); {:.1} us, {:.0}/s; the floor {:.1} us, {:.0}/s",
        work.name(),
        seconds * MICROS,
        seconds.recip(),
        floor * MICROS,
        floor.recip(),
    );
}

/// The value in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

const AT_ONCE: [u32; 2] = [1, 32];
const ROUNDS: usize = 101;
const RUNS: u64 = 200;
const MICROS: f64 = 1e6;
