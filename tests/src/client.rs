//! Keyed requests over a socket, once or until there is an answer.

use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode};

/// An answer, whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, as text.
    pub body: String,
}

impl Answer {
    /// The problem's code, where it is one.
    #[must_use]
    pub fn problem(&self) -> Option<&str> {
        self.headers.get("idempotency-problem").map(|code| code.to_str().expect("an ASCII code"))
    }

    /// Whether it was replayed.
    #[must_use]
    pub fn is_replay(&self) -> bool {
        self.headers.get("idempotent-replayed").is_some_and(|value| value == "true")
    }

    /// Whether the same request has to be sent again to learn more.
    #[must_use]
    pub fn is_preliminary(&self) -> bool {
        matches!(self.status.as_u16(), 500..) || self.problem() == Some("in-flight")
    }
}

/// Sends JSON under a key.
///
/// # Errors
///
/// When there is no whole answer.
pub async fn post(client: &Client, url: &str, key: &str, body: &serde_json::Value) -> Result<Answer, reqwest::Error> {
    let response = client.post(url).header("idempotency-key", key).json(body).send().await?;
    let (status, headers) = (response.status(), response.headers().clone());
    Ok(Answer { status, headers, body: response.text().await? })
}

/// Sends the same request until it has an answer that is final, at an address that may change between attempts.
pub async fn persist(client: &Client, url: impl Fn() -> String, key: &str, body: &serde_json::Value) -> Answer {
    loop {
        match post(client, &url(), key, body).await {
            Ok(answer) if !answer.is_preliminary() => return answer,
            // What a client does between attempts; nothing waits for this to be over.
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(25)).await,
        }
    }
}

/// A client that gives up on a connection that stands still.
#[must_use]
pub fn client() -> Client {
    let mut headers = HeaderMap::new();
    headers.insert("accept", HeaderValue::from_static("application/json"));
    Client::builder().default_headers(headers).timeout(Duration::from_secs(20)).build().expect("a client")
}
