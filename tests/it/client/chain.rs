//! A chain of middlewares makes one call of what each of them does, in any order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use async_trait::async_trait;
use client_retry::{NoRetry, RetryReport, StopReason};
use http::Extensions;
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::Version;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use tokio::time::timeout;

use super::*;

/// Signs each request with a number of its own, and leaves it in the extensions.
#[derive(Clone, Default)]
struct Signature(Arc<AtomicU32>);

/// What [`Signature`] leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Signed(u32);

#[async_trait]
impl Middleware for Signature {
    async fn handle(&self, mut request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let number = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        request.headers_mut().append("x-signature", number.into());
        assert_eq!(extensions.insert(Signed(number)), None, "an attempt finds what another one left");
        next.run(request, extensions).await
    }
}

/// Sends whatever fails once more, as a retry does that knows nothing of this crate.
struct Again;

#[async_trait]
impl Middleware for Again {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let first = next.clone().run(request.try_clone().expect("no stream"), extensions).await;
        match first {
            Ok(response) if response.status().as_u16() < 500 => Ok(response),
            _ => next.run(request, extensions).await,
        }
    }
}

/// Drops a call that takes too long, and makes it once more.
struct Impatient(Duration);

#[async_trait]
impl Middleware for Impatient {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let first = request.try_clone().expect("no stream");
        match timeout(self.0, next.clone().run(first, extensions)).await {
            Ok(answered) => answered,
            Err(_) => next.run(request, extensions).await,
        }
    }
}

/// Makes a call of its own before each attempt, as one that fetches a token does.
struct Token(ClientWithMiddleware, String);

#[async_trait]
impl Middleware for Token {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let token = self.0.post(&self.1).body("{}").send().await?;
        assert_eq!(token.extensions().get::<RetryReport>().map(|report| report.attempts().len()), Some(2));
        next.run(request, extensions).await
    }
}

fn chain(version: Version) -> reqwest_middleware::ClientBuilder {
    reqwest_middleware::ClientBuilder::new(bare(version).build().unwrap())
}

fn retry() -> IdempotentRetry {
    quick().build().unwrap()
}

/// C17. Fails when `handle` does not ask whether it is within an attempt.
#[tokio::test]
async fn attempts_of_two_instances_do_not_multiply() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::unread(Ending::Reset));
        for chain in [
            chain(version).with(retry()).with(retry()),
            chain(version).with(retry()).with(Signature::default()).with(retry()),
        ] {
            let before = provider.received().len();
            let error = charge(&chain.build(), &provider).send().await.unwrap_err();
            let report = client_retry::Error::of(&error).unwrap().report().unwrap();
            assert_eq!((report.attempts().len(), report.stop()), (3, StopReason::AttemptsExhausted));
            assert_eq!(provider.received().len() - before, 3, "{version:?}");
        }
    }
}

/// C17, of a retry that is not ours. Fails when `Legacy` leaves nothing.
#[tokio::test]
async fn retry_outside_repeats_the_call_under_its_key() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::committed(Answer::new(502)));
        let response = charge(&chain(version).with(Again).with(retry()).build(), &provider).send().await.unwrap();
        assert_eq!(response.status(), 502);
        assert_eq!((provider.received().len(), provider.ledger().len()), (6, 1), "{version:?}");
        one_key(&provider.received());
    }
}

/// C17, of a retry that gives up waiting. Fails when `run` leaves its key at its end rather than when it is dropped.
#[tokio::test]
async fn retry_outside_that_drops_the_call_repeats_it_under_its_key() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.script([Fault::committed(Ending::Silence)]);
        let impatient = Impatient(Duration::from_millis(300));
        let response = charge(&chain(version).with(impatient).with(retry()).build(), &provider).send().await.unwrap();
        assert_eq!((response.status().as_u16(), provider.received().len()), (201, 2), "{version:?}");
        assert_eq!(provider.ledger().len(), 1, "{version:?}");
        one_key(&provider.received());
    }
}

/// C17, of a retry that is not ours. Fails when the key is written where each attempt has its own.
#[tokio::test]
async fn retry_inside_repeats_the_attempt_under_its_key() {
    let provider = Provider::start(Version::Http1).await;
    provider.script([Fault::committed(Answer::new(502))]);
    let response = charge(&chain(Version::Http1).with(retry()).with(Again).build(), &provider).send().await.unwrap();
    assert_eq!((response.status().as_u16(), provider.ledger().len()), (201, 1));
    assert_eq!(report(&response).attempts().len(), 1);
    one_key(&provider.received());
}

/// C17, of a call within a call. Fails when `is_within_attempt` is content with there being one.
#[tokio::test]
async fn call_within_a_call_is_one_of_its_own() {
    fetch_tokens().await;
}

/// C19, of calls that are no calls of the run's. Fails when `propagation` asks for the current one within an attempt.
#[tokio::test]
async fn call_within_a_call_of_a_run_may_be_made_with_each_attempt() {
    let key = client_retry::IdempotencyKey::random();
    client_retry::Propagation::builder("order:create", key).build().around(fetch_tokens()).await;
}

async fn fetch_tokens() {
    let tokens = Provider::start(Version::Http1).await;
    tokens.script([Some(Fault::unread(Ending::Reset)), None, Some(Fault::unread(Ending::Reset))]);
    let provider = Provider::start(Version::Http1).await;
    provider.script([Fault::committed(Ending::Reset)]);
    let token = Token(quick_client(Version::Http1), format!("{}/tokens", tokens.url()));
    let response = charge(&chain(Version::Http1).with(retry()).with(token).build(), &provider).send().await.unwrap();
    assert_eq!((response.status().as_u16(), provider.ledger().len()), (201, 1));
    let keys: Vec<_> = tokens.received().into_iter().map(|request| request.keys).collect();
    assert_eq!(keys.len(), 4);
    assert_eq!((&keys[0], &keys[2]), (&keys[1], &keys[3]));
    assert_ne!(keys[0], keys[2]);
}

/// C18. Fails when the loop calls the rest of the chain once, or each attempt gets the extensions of the one before.
#[tokio::test]
async fn inner_middleware_runs_on_each_attempt() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.script([Fault::committed(Ending::Reset), Fault::committed(Answer::new(503))]);
        let client = chain(version).with(retry()).with(Signature::default()).build();
        let request = charge(&client, &provider).build().unwrap();
        let mut extensions = Extensions::new();
        let response = client.execute_with_extensions(request, &mut extensions).await.unwrap();
        assert_eq!((response.status().as_u16(), provider.ledger().len()), (201, 1), "{version:?}");
        let signatures = provider.received();
        let signatures: Vec<_> = signatures.iter().map(|request| &request.headers["x-signature"]).collect();
        assert_eq!(signatures, ["1", "2", "3"]);
        assert_eq!(extensions.get(), Some(&Signed(3)), "those of the last attempt are the caller's");
    }
}

/// Fails when `handle` leaves no key for a call that opts out.
#[tokio::test]
async fn retry_outside_repeats_a_call_that_opts_out_under_its_key() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.script([Fault::committed(Answer::new(502))]);
        let chain = chain(version).with(Again).with(retry()).build();
        let response = charge(&chain, &provider).with_extension(NoRetry).send().await.unwrap();
        assert_eq!((response.status().as_u16(), provider.received().len()), (201, 2), "{version:?}");
        assert_eq!(provider.ledger().len(), 1);
        one_key(&provider.received());
    }
}

/// Fails when `handle` does not ask for `NoRetry`, or asks before it has the key.
#[tokio::test]
async fn call_that_opts_out_is_sent_once_under_a_key() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::unread(Answer::new(503)));
        let call = charge(&quick_client(version), &provider).with_extension(NoRetry);
        let response = call.send().await.unwrap();
        assert!(response.extensions().get::<RetryReport>().is_none());
        assert_eq!((response.status().as_u16(), provider.received().len()), (503, 1), "{version:?}");
        one_key(&provider.received());
    }
}
