//! The way to the provider: each charge of an order is one call that is retried under one key, the same on every run.

use std::sync::Arc;
use std::time::Duration;

use client_retry::{Backoff, IdempotentRetry, Propagation, RetryBudget, redirect_policy};
use http::StatusCode;
use reqwest::header::CONTENT_TYPE;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware, RequestBuilder};
use serde_json::{Value, json};

use super::{Failure, Order};
use crate::wire::Version;

/// Asks for charges.
#[derive(Clone, Debug)]
pub struct Till {
    client: ClientWithMiddleware,
    charges: Arc<str>,
}

impl Till {
    /// One that asks there.
    pub fn new(charges: &str, version: Version) -> Self {
        let client = reqwest::Client::builder().redirect(redirect_policy()).retry(reqwest::retry::never()).no_proxy();
        let client = match version {
            Version::Http1 => client.http1_only(),
            Version::Http2 => client.http2_prior_knowledge(),
        };
        let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(20)).expect("a back-off");
        let retry = IdempotentRetry::builder()
            .max_attempts(5)
            .backoff(backoff)
            .throttled_backoff(backoff)
            .attempt_timeout(Duration::from_millis(400))
            .budget(RetryBudget::unlimited())
            .build()
            .expect("limits");
        let client = ClientBuilder::new(client.build().expect("a client")).with(retry).build();
        Self { client, charges: Arc::from(charges) }
    }

    /// What the order costs. The call has a name.
    pub(super) async fn price(&self, run: &Propagation, order: &Order) -> Result<Value, Failure> {
        let key = run.operation("charge").key()?;
        charged(self.charge(order.amount).with_extension(key)).await
    }

    /// What bringing it costs. The call is known by where it goes.
    pub(super) async fn delivery(&self) -> Result<Value, Failure> {
        charged(self.charge(DELIVERY)).await
    }

    fn charge(&self, amount: i64) -> RequestBuilder {
        let charge = json!({ "amount": amount, "currency": "EUR" }).to_string();
        self.client.post(&*self.charges).header(CONTENT_TYPE, "application/json").body(charge)
    }
}

async fn charged(call: RequestBuilder) -> Result<Value, Failure> {
    let response = call.send().await?;
    match response.status() {
        StatusCode::CREATED => Ok(response.json().await?),
        status => Err(format!("the provider answers {status}").into()),
    }
}

/// What each delivery costs.
pub const DELIVERY: i64 = 490;
