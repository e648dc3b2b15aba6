//! An error says what happened, after how many attempts, and what to do; what came first is in its chain.

use std::error::Error;
use std::iter::successors;

use client_retry::{ErrorKind, RetryBudget, StopReason};
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::Version;
use tracing::Level;

use super::*;
use crate::log::Log;

/// The error and its causes, each in its words.
fn chain(error: &reqwest_middleware::Error) -> Vec<String> {
    let first: &dyn Error = client_retry::Error::of(error).unwrap();
    successors(Some(first), |error| (*error).source()).map(ToString::to_string).collect()
}

/// Fails when `into_error` makes its cause without the first one.
#[tokio::test]
async fn first_cause_is_in_the_chain() {
    let provider = Provider::start(Version::Http1).await;
    let retry = quick_client(Version::Http1);
    provider.script([Fault::committed(Answer::new(502)), Fault::unread(Ending::Reset), Fault::unread(Ending::Close)]);
    let url = format!("{}?card=4242", provider.charges());
    let call = retry.post(url).header("idempotency-key", "a-key-that-nobody-may-see").body(CHARGE);
    let error = call.send().await.unwrap_err();
    let chain = chain(&error);
    let place = provider.charges();
    assert!(
        chain[0].starts_with(&format!(
            "POST {place} got no response: the connection closed before the response after 3 attempts in "
        )),
        "{chain:?}"
    );
    assert!(chain[0].ends_with(": no more attempts are allowed; it may have taken effect: make it again under the same key, never under a new one"), "{chain:?}");
    assert!(chain[1].starts_with("attempt 3: error sending request: "), "{chain:?}");
    assert_eq!(chain[2..], ["attempt 1: answered with 502 Bad Gateway"]);
    let shown = format!("{chain:?} {error:?}");
    for hidden in ["4242", "nobody-may-see", "1050"] {
        assert!(!shown.contains(hidden), "{shown}");
    }
}

/// Fails when `Cause::source` is `None` without a first cause.
#[tokio::test]
async fn single_failure_is_reqwests_error() {
    let provider = Provider::start(Version::Http1).await;
    provider.down().await;
    let retry = client(Version::Http1, quick().max_attempts(1).build().unwrap());
    let error = charge(&retry, &provider).send().await.unwrap_err();
    let error = client_retry::Error::of(&error).unwrap();
    let causes = successors(error.source(), |error| (*error).source());
    let reqwest = causes.filter_map(|error| error.downcast_ref::<reqwest::Error>()).next().unwrap();
    assert!(reqwest.is_connect() && reqwest.url().is_none());
    assert!(error.last_error().unwrap().is_connect());
    assert_eq!(error.kind(), ErrorKind::NoResponse);
}

/// What is logged of a retry may be read by anybody. Fails when `trace` has the whole key, or the URL in the place of its
/// host.
#[tokio::test]
async fn retry_is_logged_without_what_nobody_may_read() {
    let provider = Provider::start(Version::Http1).await;
    provider.script([Fault::committed(Answer::new(502))]);
    let (log, collecting) = Log::collect(Level::TRACE);
    let url = format!("{}?card=4242", provider.charges());
    let call =
        quick_client(Version::Http1).post(url).header("idempotency-key", "a-key-that-nobody-may-see").body(CHARGE);
    assert_eq!(call.send().await.unwrap().status(), 201);
    drop(collecting);
    let text = log.text();
    let line = text.lines().find(|line| line.contains("client_retry")).unwrap();
    for shown in ["retrying", "method=POST", "host=\"127.0.0.1\"", "attempt=1", "502 Bad Gateway", "a-key-th"] {
        assert!(line.contains(shown), "{shown}: {line}");
    }
    for hidden in ["nobody-may-see", "4242", "1050"] {
        assert!(!line.contains(hidden), "{hidden}: {line}");
    }
}

/// Fails when `decide` does not ask the ledger.
#[tokio::test]
async fn empty_budget_says_so() {
    let provider = Provider::start(Version::Http1).await;
    provider.always(Fault::unread(Ending::Reset));
    let budget = RetryBudget::default().cap(10);
    let retry = client(Version::Http1, quick().budget(budget).build().unwrap());
    let errors =
        [charge(&retry, &provider).send().await.unwrap_err(), charge(&retry, &provider).send().await.unwrap_err()];
    let attempts =
        errors.each_ref().map(|error| client_retry::Error::of(error).unwrap().report().unwrap().attempts().len());
    assert_eq!(attempts, [2, 1]);
    let report = client_retry::Error::of(&errors[1]).unwrap().report().unwrap();
    assert_eq!(report.stop(), StopReason::BudgetExhausted);
    assert!(errors[1].to_string().contains("after 1 attempt in "), "{}", errors[1]);
    assert!(
        errors[1].to_string().contains(
            "the retry budget of this origin is empty, because too few requests succeed; it may have taken effect"
        ),
        "{}",
        errors[1]
    );
}
