//! Calls of reqwest through the retrying client, to servers that fail on real sockets.
//!
//! The situations are in the table of `main.rs`. Whatever exists on both versions of HTTP is tried on both.

mod answers;
mod bodies;
mod chain;
mod deadlines;
mod dropped;
mod errors;
mod jitter;
mod keys;
pub(crate) mod lost;
mod peers;
mod redirects;
mod running;
mod storm;
mod unsent;
mod waits;

use std::time::Duration;

use bytes::Bytes;
use client_retry::{Backoff, Builder, IdempotentRetry, RetryReport, redirect_policy};
use idempotency_tests::provider::{Provider, Received};
use idempotency_tests::wire::Version;
use reqwest::header::CONTENT_TYPE;
use reqwest::{ClientBuilder, Response};
use reqwest_middleware::{ClientWithMiddleware, RequestBuilder};

/// The set-up of the client's docs, for one version of HTTP.
pub(crate) fn bare(version: Version) -> ClientBuilder {
    let client = reqwest::Client::builder()
        .connect_timeout(Duration::from_secs(3))
        .redirect(redirect_policy())
        .retry(reqwest::retry::never());
    speaking(client, version)
}

/// A client of the servers here.
fn speaking(client: ClientBuilder, version: Version) -> ClientBuilder {
    match version {
        Version::Http1 => client.no_proxy().http1_only(),
        Version::Http2 => client.no_proxy().http2_prior_knowledge(),
    }
}

fn client(version: Version, retry: IdempotentRetry) -> ClientWithMiddleware {
    reqwest_middleware::ClientBuilder::new(bare(version).build().unwrap()).with(retry).build()
}

/// A client whose waits are short.
fn quick() -> Builder {
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(20)).unwrap();
    IdempotentRetry::builder().backoff(backoff).throttled_backoff(backoff)
}

fn quick_client(version: Version) -> ClientWithMiddleware {
    client(version, quick().build().unwrap())
}

/// A charge that is asked for.
fn charge(client: &ClientWithMiddleware, provider: &Provider) -> RequestBuilder {
    client.post(provider.charges()).header(CONTENT_TYPE, "application/json").body(CHARGE)
}

fn report(response: &Response) -> RetryReport {
    response.extensions().get::<RetryReport>().expect("every response has a report").clone()
}

/// The one key that all of these carry.
fn one_key(received: &[Received]) -> Bytes {
    let [key] = received[0].keys.as_slice() else { panic!("not one key: {received:?}") };
    assert!(received.iter().all(|request| request.keys == [key]), "attempts differ in their keys");
    key.clone()
}

const CHARGE: &str = r#"{"amount": 1050, "currency": "EUR"}"#;
