//! Each client that is compared is set up as its own documentation shows, by someone who knows that the call carries a key:
//! three attempts, and a retry wherever the client lets its user ask for one.
//!
//! - `reqwest-retry`: `RetryTransientMiddleware` with an `ExponentialBackoff`, whose defaults are left as they are, over a
//!   `reqwest::Client` that is left as it is.
//! - `reqwest`: nothing is set. It then repeats what HTTP/2 says was not processed.
//! - `for_host`: reqwest's own retry with a classifier that asks for a retry after every error and after 408, 429 and 5xx.
//! - `tower`: `Retry` over `reqwest::Client`, with a policy that does the same, and tower's `ExponentialBackoff`.
//! - `client-retry`: the set-up of its docs.
//!
//! A limit for the whole call is reqwest's own, `reqwest-retry`'s total retry duration beside that of an attempt, tower's
//! `Timeout` around the `Retry`, or `total_timeout`.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use client_retry::NoIdempotencyKey;
use http::Extensions;
use reqwest::{Client, Request, StatusCode};
use reqwest_middleware::Middleware;
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;
use tower::ServiceExt;
use tower::retry::backoff::{self, Backoff as _, ExponentialBackoffMaker, MakeBackoff as _};
use tower::retry::{Policy, Retry};
use tower::timeout::Timeout;
use tower::util::MapRequestLayer;

use super::super::*;

/// One of those that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    ReqwestRetry,
    Reqwest,
    ForHost,
    Tower,
    Ours,
    /// Ours, told that the call has no key.
    OursUnkeyed,
}

/// How long a call may take, where its caller says so.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limit {
    /// For an attempt, or for the call where a client has no other limit.
    Attempt(Duration),
    /// For the call.
    Call(Duration),
}

/// A client that is ready to send.
pub(super) enum Caller {
    Plain(Client),
    Tower(Timeout<Retry<Transient, Client>>),
    Chain(ClientWithMiddleware, Extensions),
}

impl Peer {
    /// Those of calls whose caller sets a key, which ours mints.
    pub(super) const KEYED: [Self; 5] = [Self::ReqwestRetry, Self::Reqwest, Self::ForHost, Self::Tower, Self::Ours];

    /// Those of calls whose caller sets none.
    pub(super) const UNKEYED: [Self; 6] =
        [Self::ReqwestRetry, Self::Reqwest, Self::ForHost, Self::Tower, Self::Ours, Self::OursUnkeyed];

    /// As the head of its column.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ReqwestRetry => "reqwest-retry",
            Self::Reqwest => "reqwest",
            Self::ForHost => "reqwest `for_host`",
            Self::Tower => "tower",
            Self::Ours => "client-retry",
            Self::OursUnkeyed => "the same with `NoIdempotencyKey`",
        }
    }

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Ours | Self::OursUnkeyed)
    }

    /// How long it waits of its own accord before so many further attempts together, at most.
    pub(super) fn waits(self, retries: usize) -> Duration {
        let first = match self {
            Self::Reqwest | Self::ForHost => 0,
            // Ours waits ten times as long after a 429 or 503; those here say themselves for how long.
            Self::Tower | Self::Ours | Self::OursUnkeyed => 100,
            Self::ReqwestRetry => 1000,
        };
        Duration::from_millis((0..retries).map(|retry| first << retry).sum())
    }

    /// Ready for one call, in which each attempt to connect is counted.
    pub(super) fn caller(self, version: Version, limit: Option<Limit>, dials: &Arc<AtomicUsize>) -> Caller {
        let (for_attempt, for_call) = match limit {
            None => (None, None),
            Some(Limit::Attempt(limit)) => (Some(limit), None),
            Some(Limit::Call(limit)) => (None, Some(limit)),
        };
        let client = |limit: Option<Duration>| {
            let client = counted(speaking(Client::builder(), version), dials);
            match limit {
                Some(limit) => client.timeout(limit),
                None => client,
            }
        };
        match self {
            Self::ReqwestRetry => {
                let policy = ExponentialBackoff::builder()
                    .build_with_total_retry_duration_and_max_retries(for_call.unwrap_or(Duration::MAX), 2);
                let retry = RetryTransientMiddleware::new_with_policy(policy);
                chain(client(for_attempt.or(for_call)), retry, Extensions::new())
            }
            Self::Reqwest => Caller::Plain(client(for_attempt.or(for_call)).build().unwrap()),
            Self::ForHost => Caller::Plain(client(for_attempt.or(for_call)).retry(for_host()).build().unwrap()),
            Self::Tower => {
                let transient = Transient { retries: 2, backoff: ExponentialBackoffMaker::default().make_backoff() };
                let retry = Retry::new(transient, client(for_attempt).build().unwrap());
                Caller::Tower(Timeout::new(retry, for_call.unwrap_or(Duration::MAX)))
            }
            Self::Ours => chain(counted(bare(version), dials), ours(limit), Extensions::new()),
            Self::OursUnkeyed => {
                let mut extensions = Extensions::new();
                extensions.insert(NoIdempotencyKey);
                chain(counted(bare(version), dials), ours(limit), extensions)
            }
        }
    }
}

impl Caller {
    pub(super) async fn send(self, request: Request) -> Result<Response, Box<dyn Error + Send + Sync>> {
        Ok(match self {
            Self::Plain(client) => client.execute(request).await?,
            Self::Tower(retry) => retry.oneshot(request).await?,
            Self::Chain(client, mut extensions) => client.execute_with_extensions(request, &mut extensions).await?,
        })
    }
}

fn chain(client: ClientBuilder, retry: impl Middleware, extensions: Extensions) -> Caller {
    let client = reqwest_middleware::ClientBuilder::new(client.build().unwrap());
    Caller::Chain(client.with(retry).build(), extensions)
}

fn ours(limit: Option<Limit>) -> IdempotentRetry {
    let retry = match limit {
        None => IdempotentRetry::builder(),
        Some(Limit::Attempt(limit)) => IdempotentRetry::builder().attempt_timeout(limit),
        Some(Limit::Call(limit)) => IdempotentRetry::builder().total_timeout(limit),
    };
    retry.build().unwrap()
}

fn counted(client: ClientBuilder, dials: &Arc<AtomicUsize>) -> ClientBuilder {
    let dials = Arc::clone(dials);
    client.connector_layer(MapRequestLayer::new(move |destination| {
        dials.fetch_add(1, Ordering::SeqCst);
        destination
    }))
}

/// The statuses after which `reqwest-retry` tries again, so that none is asked for less.
fn is_transient(status: StatusCode) -> bool {
    status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS)
}

fn for_host() -> reqwest::retry::Builder {
    // The certificate is for a name.
    struct Here;

    impl PartialEq<&str> for Here {
        fn eq(&self, host: &&str) -> bool {
            matches!(*host, "127.0.0.1" | "localhost")
        }
    }

    reqwest::retry::for_host(Here).max_retries_per_request(2).classify_fn(|attempt| match attempt.status() {
        Some(status) if !is_transient(status) => attempt.success(),
        _ => attempt.retryable(),
    })
}

/// The policy for tower.
#[derive(Clone)]
pub(super) struct Transient {
    retries: u32,
    backoff: backoff::ExponentialBackoff,
}

impl Policy<Request, Response, reqwest::Error> for Transient {
    type Future = tokio::time::Sleep;

    fn retry(&mut self, _: &mut Request, result: &mut reqwest::Result<Response>) -> Option<Self::Future> {
        if self.retries == 0 || result.as_ref().is_ok_and(|response| !is_transient(response.status())) {
            return None;
        }
        self.retries -= 1;
        Some(self.backoff.next_backoff())
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        request.try_clone()
    }
}
