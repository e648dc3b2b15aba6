//! What came to the provider, as it came, so that attempts can be counted and held beside each other.

use std::fmt;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode, Version};
use tokio::time::Instant;

/// A request whose head was read. One that was reset before that is only a [connection](super::Provider::connections).
#[derive(Clone)]
pub struct Received {
    /// The method.
    pub method: Method,
    /// The path and the query.
    pub path: String,
    /// The version of HTTP.
    pub version: Version,
    /// Each value of the header `Idempotency-Key`, in its order and as raw bytes.
    pub keys: Vec<Bytes>,
    /// All headers.
    pub headers: HeaderMap,
    /// The body, once it was read to its end, and empty before.
    pub body: Bytes,
    /// When the head was there, on tokio's clock.
    pub arrived: Instant,
    /// Which connection it came on, counted from 1.
    pub connection: usize,
    /// The status that was sent, once a whole head was handed over to be sent.
    pub status: Option<StatusCode>,
}

impl Received {
    pub(super) fn new(head: &Parts, connection: usize) -> Self {
        let values = head.headers.get_all("idempotency-key");
        Self {
            method: head.method.clone(),
            path: head.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
            version: head.version,
            keys: values.iter().map(|value| Bytes::copy_from_slice(value.as_bytes())).collect(),
            headers: head.headers.clone(),
            body: Bytes::new(),
            arrived: Instant::now(),
            connection,
            status: None,
        }
    }
}

/// Keys, headers and bodies are not for logs.
impl fmt::Debug for Received {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Received")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("version", &self.version)
            .field("keys", &self.keys.len())
            .field("body_bytes", &self.body.len())
            .field("connection", &self.connection)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
