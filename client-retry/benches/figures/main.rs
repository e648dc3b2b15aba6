//! One kind of call, so many times, for a profiler to count: `figures KIND RUNS`.
//!
//! What does not depend on the number of runs, the start of the process above all, cancels out between two counts. With
//! `--allocations` in the place of the number it counts allocations itself, and prints how many a single run makes.

#[path = "../canned.rs"]
mod canned;

use std::hint::black_box;

use reqwest::Url;

use crate::canned::Kind;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [kind, runs] = &arguments[..] else {
        // Started by `cargo bench` or `cargo test` without arguments of ours.
        return;
    };
    let kind = match kind.as_str() {
        "nothing" => Kind::Nothing,
        "peer" => Kind::Peer,
        "keyed" => Kind::Keyed,
        "floor" => Kind::Floor,
        "get" => Kind::Get,
        "opted-out-nothing" => Kind::OptedOutNothing,
        "opted-out" => Kind::OptedOut,
        other => panic!("no such kind of call: {other}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    if runs == "--allocations" {
        let count = |runs| allocation_counter::measure(|| runtime.block_on(run(kind, runs))).count_total;
        println!("{}", (count(200) - count(100)) / 100);
        return;
    }
    runtime.block_on(run(kind, runs.parse().expect("a number of runs")));
}

async fn run(kind: Kind, runs: usize) {
    let client = kind.client();
    let url = Url::parse("https://pay.example/charges").expect("a URL");
    for _ in 0..runs {
        drop(black_box(kind.call(&client, &url).await));
    }
}
