//! scratch
mod verbs;
use crate::verbs::{Bench, Work};
use std::time::Duration;
fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let url = std::env::var("BENCH_URL").unwrap();
    let bench = runtime.block_on(async {
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(std::env::var("N").map_or(10, |n| n.parse().unwrap()))
            .test_before_acquire(false)
            .connect(&url)
            .await
            .unwrap();
        Bench::start(pool).await
    });
    for at_once in [1u32, 32] {
        for (work, floor) in [(Work::First, Work::FirstFloor), (Work::Replay, Work::ReplayFloor)] {
            let runs = 200 * u64::from(at_once).min(8);
            let mut ratios = vec![];
            let mut w = vec![];
            let mut f = vec![];
            for _ in 0..21 {
                let a = runtime.block_on(bench.measure(work, at_once, runs));
                let b = runtime.block_on(bench.measure(floor, at_once, runs));
                ratios.push(a.as_secs_f64() / b.as_secs_f64());
                w.push(a.as_secs_f64() / runs as f64 * 1e6);
                f.push(b.as_secs_f64() / runs as f64 * 1e6);
            }
            println!("{} at {at_once}: {:.2}; {:.1} us / {:.1} us", work.name(), median(ratios), median(w), median(f));
        }
    }
    let _ = Duration::ZERO;
}
fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}
