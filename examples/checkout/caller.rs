//! The caller orders, and needs to know of nothing that happens behind the service: its client retries under one key.

use std::error::Error;
use std::time::Duration;

use client_retry::{IdempotencyKey, IdempotentRetry, RetryReport, redirect_policy};
use reqwest::StatusCode;
use reqwest::header::CONTENT_TYPE;
use reqwest_middleware::ClientBuilder;

use crate::narrator::Narrator;
use crate::timeline::Timeline;

/// What the caller has in the end.
pub(crate) struct Answered {
    pub(crate) key: IdempotencyKey,
    status: StatusCode,
    pub(crate) body: String,
}

impl Answered {
    pub(crate) fn is_order(&self) -> bool {
        self.status == StatusCode::CREATED
    }
}

/// Orders under a key, or under one that the client makes.
pub(crate) async fn order(
    url: &str,
    key: Option<IdempotencyKey>,
    timeline: &Timeline,
) -> Result<Answered, Box<dyn Error>> {
    // The service may be gone for some attempts.
    let retry = IdempotentRetry::builder().max_attempts(20).total_timeout(Duration::from_secs(14)).build()?;
    let narrator = timeline.clone();
    let client = ClientBuilder::new(client()?)
        .with(retry)
        .with(Narrator(move |what: &str| narrator.say("caller", what)))
        .build();
    let mut order = client.post(url).header("x-account", "alice").header(CONTENT_TYPE, "application/json");
    if let Some(key) = key {
        order = order.with_extension(key);
    }
    let response = order.body(r#"{"item": "a chair", "amount": 4900}"#).send().await?;
    let report = response.extensions().get::<RetryReport>().ok_or("a response without a report")?;
    timeline.say("caller", &format!("has {report}"));
    let key = report.key().ok_or("an order without a key")?.clone();
    Ok(Answered { key, status: response.status(), body: response.text().await? })
}

/// How many orders the service has.
pub(crate) async fn orders(service: &str) -> Result<String, Box<dyn Error>> {
    Ok(client()?.get(format!("{service}/orders")).send().await?.text().await?)
}

fn client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder().redirect(redirect_policy()).retry(reqwest::retry::never()).no_proxy().build()
}
