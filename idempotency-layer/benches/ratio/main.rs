//! What a keyed request costs, as a ratio to a floor that is measured in the same run.
//!
//! The floor does by hand, in one place and without a layer, what cannot be left out:
//!
//! - *first*: the body read, the three hashes of a request with credentials, a task spawned for the handler, one map
//!   insert and one update, the response copied. Bar: 1.6.
//! - *replay*: the body read, the hashes, one lookup, one clone of the response. Bar: 1.6.
//!
//! 256 bytes in, 512 bytes out, a current-thread runtime, the memory store. The last lines printed are the ratios; absolute
//! times say more of the machine than of the layer.

#[path = "../payment.rs"]
mod payment;

use std::collections::HashMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::Criterion;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use sha2::{Digest, Sha256};
use tokio::runtime::Runtime;

use crate::payment::{call, handle, layered, request};

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(60);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    // Before the groups, which fill and drop maps of a hundred thousand records: what they leave of the heap is nobody's.
    let (first_ratio, replay_ratio) = (ratio(&runtime, first, first_floor), ratio(&runtime, replay, replay_floor));
    let mut group = criterion.benchmark_group("layer");
    group.bench_function("first-floor", |bencher| bencher.iter_custom(|runs| first_floor(&runtime, runs)));
    group.bench_function("first", |bencher| bencher.iter_custom(|runs| first(&runtime, runs)));
    group.bench_function("replay-floor", |bencher| bencher.iter_custom(|runs| replay_floor(&runtime, runs)));
    group.bench_function("replay", |bencher| bencher.iter_custom(|runs| replay(&runtime, runs)));
    group.finish();
    criterion.final_summary();
    println!("first: {first_ratio:.2} x its floor (bar 1.60)");
    println!("replay: {replay_ratio:.2} x its floor (bar 1.60)");
}

/// The median of the ratios of many short rounds, in each of which both are measured one after the other: what slows the
/// machine down for longer than a round slows both.
fn ratio(runtime: &Runtime, real: Measured, floor: Measured) -> f64 {
    let round = || real(runtime, RUNS).as_secs_f64() / floor(runtime, RUNS).as_secs_f64();
    let mut ratios: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    ratios.sort_unstable_by(f64::total_cmp);
    ratios[ROUNDS / 2]
}

type Measured = fn(&Runtime, u64) -> Duration;

const ROUNDS: usize = 301;
const RUNS: u64 = 1000;

fn first(runtime: &Runtime, runs: u64) -> Duration {
    let keys = keys(runs);
    runtime.block_on(async {
        let mut service = layered();
        let started = Instant::now();
        for key in keys {
            black_box(call(&mut service, key).await);
        }
        started.elapsed()
    })
}

fn replay(runtime: &Runtime, runs: u64) -> Duration {
    runtime.block_on(async {
        let mut service = layered();
        let key = HeaderValue::from_static("key-00000000");
        drop(call(&mut service, key.clone()).await);
        let started = Instant::now();
        for _ in 0..runs {
            black_box(call(&mut service, key.clone()).await);
        }
        started.elapsed()
    })
}

fn first_floor(runtime: &Runtime, runs: u64) -> Duration {
    let keys = keys(runs);
    runtime.block_on(async {
        let mut records: HashMap<[u8; 32], Option<(HeaderMap, Bytes)>> = HashMap::new();
        let started = Instant::now();
        for key in keys {
            let (parts, body) = request(key).into_parts();
            let body = body.collect().await.expect("infallible").to_bytes();
            let (id, fingerprint, caller) = hashes(&parts, &body);
            records.insert(id, None);
            let request = Request::from_parts(parts, body);
            let handled = tokio::spawn(async move { handle(request).await });
            let (parts, body) = handled.await.expect("no panic").expect("infallible").into_parts();
            let data = body.collect().await.expect("infallible").to_bytes();
            records.insert(id, Some((parts.headers.clone(), data.clone())));
            black_box((fingerprint, caller, Response::from_parts(parts, data)));
        }
        started.elapsed()
    })
}

fn replay_floor(runtime: &Runtime, runs: u64) -> Duration {
    runtime.block_on(async {
        let key = HeaderValue::from_static("key-00000000");
        let (parts, body) = request(key.clone()).into_parts();
        let body = body.collect().await.expect("infallible").to_bytes();
        let (id, ..) = hashes(&parts, &body);
        let (response, data) = handle(Request::from_parts(parts, body)).await.expect("infallible").into_parts();
        let data = data.collect().await.expect("infallible").to_bytes();
        let records = HashMap::from([(id, (response.headers, data))]);
        let started = Instant::now();
        for _ in 0..runs {
            let (parts, body) = request(key.clone()).into_parts();
            let body = body.collect().await.expect("infallible").to_bytes();
            let (id, fingerprint, caller) = hashes(&parts, &body);
            let (headers, data) = records.get(&id).expect("a record");
            let mut response = Response::new(data.clone());
            *response.headers_mut() = headers.clone();
            black_box((fingerprint, caller, response));
        }
        started.elapsed()
    })
}

/// The bytes of the record id, the fingerprint and the caller, as the layer hashes them.
fn hashes(parts: &http::request::Parts, body: &Bytes) -> ([u8; 32], [u8; 32], [u8; 32]) {
    let key = parts.headers["idempotency-key"].as_bytes();
    let id = hash(&[b"idempotency record v1", b"default", b"0", b"", key]);
    let path = parts.uri.path().as_bytes();
    let (kind, body): (&[u8], &[u8]) = (parts.headers["content-type"].as_bytes(), body);
    let fingerprint =
        hash(&[b"idempotency fingerprint v1", b"POST", path, b"00000000", b"bytes", b"00000001", kind, body]);
    let names: [&[u8]; 3] = [b"authorization", b"cookie", b"x-api-key"];
    let zero: &[u8] = b"00000000";
    let token = parts.headers["authorization"].as_bytes();
    let caller = hash(&[b"idempotency caller v1", names[0], b"00000001", token, names[1], zero, names[2], zero]);
    (id, fingerprint, caller)
}

fn hash(fields: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for field in fields {
        hash.update((field.len() as u64).to_be_bytes());
        hash.update(field);
    }
    hash.finalize().into()
}

fn keys(runs: u64) -> Vec<HeaderValue> {
    (0..runs).map(|at| HeaderValue::try_from(format!("key-{at:08}")).expect("a header value")).collect()
}
