//! What a call costs that succeeds, in time, as a ratio to what `reqwest-retry` adds to it in the same run, the key included.
//!
//! The bars are on instructions and allocations, which `tests/figures` counts; time has in it what the system does for a call,
//! which reads its clock twice and its source of randomness once. A current-thread runtime, no network, a response without a body. The last line
//! printed is the ratio; absolute times say more of the machine than of the client.

#[path = "../canned.rs"]
mod canned;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use reqwest::Url;
use tokio::runtime::Runtime;

use crate::canned::Kind;

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(60);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let ratio = ratio(&runtime);
    let mut group = criterion.benchmark_group("call");
    for (name, kind) in [("nothing", Kind::Nothing), ("reqwest-retry", Kind::Peer), ("client-retry", Kind::Keyed)] {
        group.bench_function(name, |bencher| bencher.iter_custom(|runs| measure(&runtime, kind, runs)));
    }
    let gets = [
        ("get-floor", Kind::Floor),
        ("get", Kind::Get),
        ("get-opted-out-floor", Kind::OptedOutNothing),
        ("get-opted-out", Kind::OptedOut),
    ];
    for (name, kind) in gets {
        group.bench_function(name, |bencher| bencher.iter_custom(|runs| measure(&runtime, kind, runs)));
    }
    group.finish();
    criterion.final_summary();
    println!("a keyed call adds {ratio:.2} x what reqwest-retry adds, in time");
}

/// The median of the ratios of many short rounds, in each of which all are measured one after the other: what slows the
/// machine down for longer than a round slows all.
fn ratio(runtime: &Runtime) -> f64 {
    let round = || {
        let [nothing, peer, keyed] =
            [Kind::Nothing, Kind::Peer, Kind::Keyed].map(|kind| measure(runtime, kind, RUNS).as_secs_f64());
        (keyed - nothing) / (peer - nothing)
    };
    let mut ratios: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

fn measure(runtime: &Runtime, kind: Kind, runs: u64) -> Duration {
    runtime.block_on(async {
        let client = kind.client();
        let url = Url::parse("https://pay.example/charges").expect("a URL");
        let started = Instant::now();
        for _ in 0..runs {
            black_box(kind.call(&client, &url).await);
        }
        started.elapsed()
    })
}

const ROUNDS: usize = 301;
const RUNS: u64 = 1000;
