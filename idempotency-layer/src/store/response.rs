//! An answer as it is kept: status, headers, body and trailers apart, so that the replay is byte for byte the same.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// How a run ended, for the record. Exhaustive, so that a store writes each.
#[derive(Clone, Debug, PartialEq)]
pub enum Completion {
    /// With an answer that can be replayed.
    Response(Arc<StoredResponse>),
    /// With one that cannot.
    Tombstone(Tombstone),
}

/// A response that can be replayed.
///
/// Header values are bytes, not text, and a repeated header keeps each of its values in order. `Debug` shows neither
/// values nor body. Exhaustive, so that a store which takes it apart keeps each part.
#[derive(Clone, PartialEq)]
pub struct StoredResponse {
    /// The status.
    pub status: StatusCode,
    /// The headers that are replayed.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
    /// The trailers, where there were any.
    pub trailers: Option<HeaderMap>,
}

impl StoredResponse {
    /// A response without headers or trailers.
    #[must_use]
    pub fn new(status: StatusCode, body: Bytes) -> Self {
        Self { status, headers: HeaderMap::new(), body, trailers: None }
    }
}

impl fmt::Debug for StoredResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredResponse")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// What is left of a run whose answer was not kept. Exhaustive: a store builds it from what it has kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// The status it answered with.
    pub status: StatusCode,
    /// Why it was not kept.
    pub reason: TombstoneReason,
}

/// Why an answer was not kept. Exhaustive, so that a store writes each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TombstoneReason {
    /// The body was larger than the cap.
    TooLarge,
    /// The body was a stream: of an event-stream type, or still open when its time was up.
    Streamed,
    /// The connection left HTTP: 101, or an answer to CONNECT.
    Upgraded,
}
