//! A provider that is down is not asked oftener than its callers pay for, and is theirs again as soon as it is back.
//!
//! A thousand callers make a call each, all at once, then the next thousand calls follow. All share one connection,
//! over HTTP/2: over HTTP/1.1 they would take more files than a process may have open on many machines. How a server
//! fares that only falls behind is simulated in the client's own module `storm`.

use std::cell::Cell;

use client_retry::StopReason;
use futures_util::future::join_all;
use idempotency_tests::provider::{Answer, Fault, Provider};
use idempotency_tests::wire::Version;
use tokio::time::{Instant, sleep};

use super::*;

/// C9. Fails when `Balance::withdraw` takes nothing.
#[tokio::test]
async fn provider_that_refuses_connections_gets_no_more_than_the_budget_pays_for() {
    let provider = Provider::start(Version::Http2).await;
    let down = async {
        provider.down().await;
        sleep(OUTAGE).await;
        provider.up().await;
    };
    survive(&provider, down).await;
}

/// C9, where each attempt arrives. Fails when `Balance::withdraw` takes nothing.
#[tokio::test]
async fn provider_that_answers_503_gets_no_more_than_the_budget_pays_for() {
    let provider = Provider::start(Version::Http2).await;
    let down = async {
        // What is answered unread is reset as well, and after a thousand of those h2 gives up the connection.
        provider.always(Fault::uncommitted(Answer::new(503)));
        sleep(OUTAGE).await;
        provider.mend();
    };
    let sent = survive(&provider, down).await;
    assert_eq!(provider.received().len(), sent);
}

/// Calls before an outage, during it and after it, and says how many requests that took.
async fn survive(provider: &Provider, outage: impl Future<Output = ()>) -> usize {
    let client = client(Version::Http2, IdempotentRetry::default());
    let began = Instant::now();
    let before = calls(&client, provider).await;
    assert!(before.iter().all(is_success));

    let is_over = Cell::new(false);
    let outage = async {
        outage.await;
        is_over.set(true);
    };
    let callers = async {
        let mut during = Vec::new();
        while !is_over.get() {
            during.extend(calls(&client, provider).await);
        }
        during
    };
    let ((), during) = tokio::join!(outage, callers);

    // Without any retry they would not be served sooner.
    let after = calls(&client, provider).await;
    assert!(after.iter().all(|report| is_success(report) && report.attempts().len() == 1));

    let all = [before, during, after].concat();
    let sent: usize = all.iter().map(|report| report.attempts().len()).sum();
    let successes = all.iter().filter(|report| is_success(report)).count();
    let trickle = began.elapsed().as_secs() as usize;
    let retries = sent - all.len();
    assert!(retries >= BURST, "{retries}");
    assert!(retries <= BURST + (successes + trickle) / 10, "{retries} retries, {successes} successes");
    assert!(sent * 10 <= all.len() * 11 + BURST * 10, "{sent} requests for {} calls", all.len());
    sent
}

/// A call of each caller, all at once.
async fn calls(client: &ClientWithMiddleware, provider: &Provider) -> Vec<RetryReport> {
    let calls = (0..CALLERS).map(|_| async {
        match charge(client, provider).send().await {
            Ok(response) => report(&response),
            Err(error) => client_retry::Error::of(&error).unwrap().report().unwrap().clone(),
        }
    });
    join_all(calls).await
}

fn is_success(report: &RetryReport) -> bool {
    report.stop() == StopReason::Succeeded
}

const CALLERS: usize = 1000;

const OUTAGE: Duration = Duration::from_secs(3);

/// How many retries the full balance of an origin pays for.
const BURST: usize = 100;
