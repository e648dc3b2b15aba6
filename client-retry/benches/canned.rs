//! Calls that succeed at once without a network, so that what is counted is what a middleware adds.
//!
//! The response has no body: to read one is a cost of its own, which the peer does not have because it does not do it.

use async_trait::async_trait;
use client_retry::{IdempotentRetry, NoRetry, RetryReport};
use http::Extensions;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Client, Method, Request, Response, Url};
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, Middleware, Next, Result};
use reqwest_retry::RetryTransientMiddleware;
use reqwest_retry::policies::ExponentialBackoff;

/// One kind of call.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// A POST through a middleware that does nothing.
    Nothing,
    /// The same through `reqwest-retry`.
    Peer,
    /// The same through this crate, which makes a key for it.
    Keyed,
    /// A GET through a middleware that copies the request and leaves something of a report's size with the response.
    Floor,
    /// The same through this crate.
    Get,
    /// A GET that opts out of retries, through a middleware that does nothing.
    OptedOutNothing,
    /// The same through this crate.
    OptedOut,
}

impl Kind {
    pub(crate) fn client(self) -> ClientWithMiddleware {
        let builder = ClientBuilder::new(Client::new());
        match self {
            Self::Nothing | Self::OptedOutNothing => builder.with(Nothing),
            Self::Peer => builder.with(RetryTransientMiddleware::new_with_policy(
                ExponentialBackoff::builder().build_with_max_retries(2),
            )),
            Self::Keyed | Self::Get | Self::OptedOut => builder.with(IdempotentRetry::default()),
            Self::Floor => builder.with(Floor),
        }
        .with(Canned)
        .build()
    }

    pub(crate) async fn call(self, client: &ClientWithMiddleware, url: &Url) -> Response {
        let mut request = Request::new(self.method(), url.clone());
        if request.method() == Method::POST {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            *request.body_mut() = Some(r#"{"amount": 1050, "currency": "EUR"}"#.into());
        }
        let mut extensions = Extensions::new();
        if matches!(self, Self::OptedOut | Self::OptedOutNothing) {
            extensions.insert(NoRetry);
        }
        client.execute_with_extensions(request, &mut extensions).await.expect("a canned response")
    }

    fn method(self) -> Method {
        match self {
            Self::Nothing | Self::Peer | Self::Keyed => Method::POST,
            _ => Method::GET,
        }
    }
}

struct Canned;

#[derive(Clone)]
struct Address;

#[async_trait]
impl Middleware for Canned {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let mut response = http::Response::new("");
        // As from the network, where it holds the remote address.
        response.extensions_mut().insert(Address);
        Ok(Response::from(response))
    }
}

struct Nothing;

#[async_trait]
impl Middleware for Nothing {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        next.run(request, extensions).await
    }
}

struct Floor;

#[async_trait]
impl Middleware for Floor {
    async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        let copy = request.try_clone().expect("no stream");
        let mut response = next.run(copy, extensions).await?;
        response.extensions_mut().insert([0_u8; size_of::<RetryReport>()]);
        Ok(response)
    }
}
