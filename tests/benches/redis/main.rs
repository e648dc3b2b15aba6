//! What a keyed request costs in Redis, as a ratio to bare commands that are measured in the same run.
//!
//! The floors are the commands that keep and give the same bytes without deciding anything, on one multiplexed connection
//! as the store has one, to the same server:
//!
//! - *first* (a claim and its completion, 512 bytes of response): one `SET … PX` of the record as the claim leaves it, one
//!   of the record as the completion leaves it. Bar: 1.25.
//! - *replay* (a claim that finds the response): one `GET` of that record. Bar: 1.25.
//!
//! Beside each stands what the store's own commands cost when nothing builds or reads what they carry: how close to the floor
//! Redis itself lets a store come that fences what it writes. For a first, these are the `SET … NX GET` and the `PTTL` of a
//! claim, and the least script that compares the lease and writes; for a replay, the claim alone.
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

use crate::verbs::{Bench, Work};

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
        for work in WORKS {
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
    for works in [[Work::First, Work::FirstBare, Work::FirstFloor], [Work::Replay, Work::ReplayBare, Work::ReplayFloor]]
    {
        for at_once in AT_ONCE {
            report(&runtime, &bench, works, at_once);
        }
    }
}

/// Prints the medians of many short rounds, in each of which all three are measured by turns.
fn report(runtime: &Runtime, bench: &Bench, works: [Work; 3], at_once: u32) {
    let runs = RUNS * u64::from(at_once).min(16);
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| runtime.block_on(bench.compare(works, at_once, runs)).map(|took| took.as_secs_f64()))
        .collect();
    let ratio = |at: usize| median(rounds.iter().map(|[work, bare, floor]| [work, bare][at] / floor));
    let runs = f64::from(u32::try_from(runs).expect("few runs"));
    let [work, bare, floor] = [0, 1, 2].map(|at| median(rounds.iter().map(|took| took[at])) / runs * MICROS);
    println!(
        "{}, {at_once} at once: {:.2} x its floor (bar 1.25), its commands alone {:.2}; {work:.1} us, alone {bare:.1}, the \
         floor {floor:.1}",
        works[0].name(),
        ratio(0),
        ratio(1),
    );
}

/// The value in the middle.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

const WORKS: [Work; 6] =
    [Work::FirstFloor, Work::FirstBare, Work::First, Work::ReplayFloor, Work::ReplayBare, Work::Replay];
const AT_ONCE: [u32; 2] = [1, 32];
const ROUNDS: usize = 101;
const RUNS: u64 = 200;
const MICROS: f64 = 1e6;
