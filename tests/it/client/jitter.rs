//! Clients that failed together do not come back together.

use std::collections::HashSet;

use client_retry::RetryBudget;
use futures_util::future::join_all;
use idempotency_tests::provider::{Answer, Fault, Provider};
use idempotency_tests::wire::Version;

use super::*;

/// C10. Fails when `decide` draws once for all calls, or `delay` has no jitter.
#[tokio::test]
async fn calls_and_instances_draw_waits_of_their_own() {
    let second = Backoff::new(Duration::from_secs(1), Duration::from_secs(1)).unwrap();
    for answer in [Answer::new(502), Answer::new(429), Answer::new(503).header("retry-after", "1")] {
        let provider = Provider::start(Version::Http1).await;
        provider.always(Fault::unread(answer));
        let retry = || quick().backoff(second).throttled_backoff(second).max_attempts(2).build().unwrap();
        let clients = [client(Version::Http1, retry()), client(Version::Http1, retry())];
        let calls = (0..10).map(|i| charge(&clients[i % 2], &provider).send());
        let delays = join_all(calls).await.into_iter().map(|response| report(&response.unwrap()).last().delay());
        // In steps of a millisecond, of a thousand.
        let delays: HashSet<_> = delays.map(|delay| delay.as_millis()).collect();
        assert!(delays.len() >= 8, "{delays:?}");
    }
}

/// C10. Fails when `ceiling_nanos` multiplies without saturating.
#[tokio::test]
async fn ten_thousandth_attempt_is_like_any_other() {
    let provider = Provider::start(Version::Http1).await;
    provider.always(Fault::unread(Answer::new(502)));
    let tiny = Backoff::new(Duration::from_nanos(1), Duration::from_micros(1)).unwrap();
    let retry = IdempotentRetry::builder()
        .backoff(tiny)
        .budget(RetryBudget::unlimited())
        .max_attempts(10_001)
        .total_timeout(Duration::from_secs(600));
    let response = charge(&client(Version::Http1, retry.build().unwrap()), &provider).send().await.unwrap();
    assert_eq!(report(&response).attempts().len(), 10_001);
    one_key(&provider.received());
}
