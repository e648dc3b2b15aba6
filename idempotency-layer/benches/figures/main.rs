//! One kind of request, so many times, for a profiler to count: `figures first|replay|pass|bare RUNS`.
//!
//! What does not depend on the number of runs, the start of the process above all, cancels out between two counts. With
//! `--allocations` in the place of the number it counts allocations itself, and prints how many a single run makes.

#[path = "../payment.rs"]
mod payment;

use std::hint::black_box;

use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use tower::{Service, ServiceExt};

use crate::payment::{call, handle, layered, request};

#[derive(Clone, Copy)]
enum Kind {
    /// Each under a key of its own.
    First,
    /// All under one key.
    Replay,
    /// A GET through the layer.
    Pass,
    /// The same GET without a layer.
    Bare,
}

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [kind, runs] = &arguments[..] else {
        // Started by `cargo bench` or `cargo test` without arguments of ours.
        return;
    };
    let kind = match kind.as_str() {
        "first" => Kind::First,
        "replay" => Kind::Replay,
        "pass" => Kind::Pass,
        "bare" => Kind::Bare,
        other => panic!("no such kind of request: {other}"),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    if runs == "--allocations" {
        let count = |runs| allocation_counter::measure(|| runtime.block_on(run(kind, runs))).count_total;
        // What grows with the number of records, the map of the store, grows too seldom to show.
        println!("{}", (count(200) - count(100)) / 100);
        return;
    }
    runtime.block_on(run(kind, runs.parse().expect("a number of runs")));
}

async fn run(kind: Kind, runs: usize) {
    let mut service = layered();
    for at in 0..runs {
        match kind {
            Kind::First => drop(black_box(call(&mut service, key(at)).await)),
            Kind::Replay => drop(black_box(call(&mut service, key(0)).await)),
            Kind::Pass => {
                let service = service.ready().await.unwrap_or_else(|never| match never {});
                drop(black_box(service.call(get()).await));
            }
            Kind::Bare => drop(black_box(handle(get()).await)),
        }
    }
}

fn key(at: usize) -> HeaderValue {
    HeaderValue::try_from(format!("key-{at:08}")).expect("a header value")
}

fn get() -> Request<Full<bytes::Bytes>> {
    let mut request = request(HeaderValue::from_static("k"));
    *request.method_mut() = Method::GET;
    request
}
