//! Two requests under one key are the same request, or they are not: this decides it.
//!
//! By default everything that says what is asked for counts, each with its length before it: method, full path and
//! query, `content-type`, `content-encoding`, the [configured headers](RequestFingerprint::header), the body. Nested
//! axum routers strip their prefix from the URI; with the feature `axum` the original one is used.
//!
//! Scheme and authority do not count: HTTP/1.1 sends them in another place than HTTP/2 does.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, Method};

use crate::hash::{FieldHasher, HashSecret};
use crate::store::Fingerprint;

/// What the fingerprint of a request is taken of.
///
/// ```
/// use http::HeaderName;
/// use idempotency_layer::{Fingerprint, IdempotencyLayer, MemoryStore, RequestFingerprint};
///
/// // A header that changes what is asked for:
/// let by_version = RequestFingerprint::exact().header(HeaderName::from_static("api-version"));
/// let layer = IdempotencyLayer::new(MemoryStore::new()).fingerprint(by_version);
///
/// // The body alone, whatever its white space:
/// let by_content = RequestFingerprint::custom(|request| {
///     let mut hasher = request.hasher();
///     hasher.field(request.path().as_bytes());
///     for word in request.body().split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
///         hasher.field(word);
///     }
///     Fingerprint::from_bytes(hasher.finish())
/// });
/// let layer = IdempotencyLayer::new(MemoryStore::new()).fingerprint(by_content);
/// ```
#[derive(Clone)]
#[must_use]
pub struct RequestFingerprint(How);

#[derive(Clone)]
enum How {
    Exact { headers: Vec<HeaderName> },
    Custom(Arc<dyn Fn(&Fingerprinted<'_>) -> Fingerprint + Send + Sync>),
}

impl RequestFingerprint {
    /// Byte for byte, as the [module docs](self) say. The default.
    pub fn exact() -> Self {
        Self(How::Exact { headers: Vec::new() })
    }

    /// As `f` says. Start from [`Fingerprinted::hasher`], so that a configured secret is used.
    ///
    /// What `f` leaves out may differ between a request and its retry; the retry gets the first one's answer all the
    /// same.
    pub fn custom(f: impl Fn(&Fingerprinted<'_>) -> Fingerprint + Send + Sync + 'static) -> Self {
        Self(How::Custom(Arc::new(f)))
    }

    /// Counts this header's values too. No effect on a [custom](Self::custom) fingerprint.
    pub fn header(mut self, name: HeaderName) -> Self {
        if let How::Exact { headers } = &mut self.0 {
            headers.push(name);
        }
        self
    }

    pub(crate) fn of(&self, request: &Fingerprinted<'_>) -> Fingerprint {
        match &self.0 {
            How::Exact { headers } => exact(request, headers),
            How::Custom(f) => f(request),
        }
    }
}

impl Default for RequestFingerprint {
    fn default() -> Self {
        Self::exact()
    }
}

impl fmt::Debug for RequestFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            How::Exact { headers } => f.debug_struct("Exact").field("headers", headers).finish(),
            How::Custom(_) => f.debug_struct("Custom").finish_non_exhaustive(),
        }
    }
}

/// A request whose body has been read, as a fingerprint sees it.
pub struct Fingerprinted<'a> {
    parts: &'a Parts,
    body: &'a Bytes,
    secret: &'a HashSecret,
}

impl<'a> Fingerprinted<'a> {
    pub(crate) fn new(parts: &'a Parts, body: &'a Bytes, secret: &'a HashSecret) -> Self {
        Self { parts, body, secret }
    }

    /// The method.
    #[must_use]
    pub fn method(&self) -> &Method {
        &self.parts.method
    }

    /// The full path and query, as the client sent them.
    #[must_use]
    pub fn path(&self) -> &str {
        let uri = {
            #[cfg(feature = "axum")]
            {
                let original = self.parts.extensions.get::<axum::extract::OriginalUri>();
                original.map_or(&self.parts.uri, |original| &original.0)
            }
            #[cfg(not(feature = "axum"))]
            &self.parts.uri
        };
        uri.path_and_query().map_or("", |path| path.as_str())
    }

    /// The headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        &self.parts.headers
    }

    /// The whole body.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        self.body
    }

    /// A hasher for this fingerprint, keyed where the layer has a secret.
    #[must_use]
    pub fn hasher(&self) -> FieldHasher {
        FieldHasher::new(self.secret, "idempotency fingerprint v1")
    }
}

impl fmt::Debug for Fingerprinted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fingerprinted").field("method", self.method()).finish_non_exhaustive()
    }
}

fn exact(request: &Fingerprinted<'_>, headers: &[HeaderName]) -> Fingerprint {
    let mut hasher = request.hasher();
    hasher.field(request.method().as_str().as_bytes());
    hasher.field(request.path().as_bytes());
    for name in [&CONTENT_TYPE, &CONTENT_ENCODING] {
        hasher.header(request.headers(), name);
    }
    for name in headers {
        hasher.field(name.as_str().as_bytes()).header(request.headers(), name);
    }
    hasher.field(request.body());
    Fingerprint::from_bytes(hasher.finish())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn fingerprint(request: http::request::Builder, body: &'static str) -> Fingerprint {
        let (parts, ()) = request.body(()).expect("a request").into_parts();
        let configured = RequestFingerprint::exact().header(HeaderName::from_static("api-version"));
        configured.of(&Fingerprinted::new(&parts, &Bytes::from_static(body.as_bytes()), &HashSecret::default()))
    }

    fn base() -> http::request::Builder {
        Request::post("/pay?x=1").header("content-type", "application/json")
    }

    /// Fails when `exact` leaves out the method, the path, either of the content headers, the configured header or the
    /// body; and when `path` leaves out the query.
    #[test]
    fn everything_that_says_what_is_asked_for_counts() {
        let same = fingerprint(base(), "{}");
        assert_eq!(same, fingerprint(base(), "{}"));
        let others = [
            fingerprint(base(), "{} "),
            fingerprint(base().method("PUT"), "{}"),
            fingerprint(base().uri("/pay?x=2"), "{}"),
            fingerprint(base().uri("/pay"), "{}"),
            fingerprint(base().uri("/refund?x=1"), "{}"),
            fingerprint(Request::post("/pay?x=1"), "{}"),
            fingerprint(Request::post("/pay?x=1").header("content-type", "text/json"), "{}"),
            fingerprint(base().header("content-type", "application/json"), "{}"),
            fingerprint(base().header("content-encoding", "gzip"), "{}"),
            fingerprint(base().header("api-version", "2"), "{}"),
        ];
        for (at, other) in others.into_iter().enumerate() {
            assert_ne!(same, other, "case {at}");
        }
    }

    /// Fails when `exact` hashes all headers, or `path` hashes the whole URI.
    #[test]
    fn what_a_retry_may_change_does_not_count() {
        let same = fingerprint(base(), "{}");
        assert_eq!(same, fingerprint(base().header("user-agent", "retry/2").header("traceparent", "00-1"), "{}"));
        assert_eq!(same, fingerprint(base().uri("https://api.example/pay?x=1"), "{}"));
    }

    /// Fails when `FieldHasher::header` does not say how many values there are.
    #[test]
    fn a_value_counts_under_its_own_header_only() {
        let by_type = Request::post("/pay").header("content-type", "gzip");
        let by_encoding = Request::post("/pay").header("content-encoding", "gzip");
        assert_ne!(fingerprint(by_type, "{}"), fingerprint(by_encoding, "{}"));
    }

    /// Two routes of which a nested router sees the same rest. Fails when `path` does not look for the original URI.
    #[cfg(feature = "axum")]
    #[test]
    fn the_prefix_that_a_nested_router_has_stripped_counts() {
        let nested = |original: &'static str| {
            fingerprint(base().extension(axum::extract::OriginalUri(http::Uri::from_static(original))), "{}")
        };
        assert_ne!(nested("/cards/pay?x=1"), nested("/banks/pay?x=1"));
    }

    /// Fails when `of` takes the exact fingerprint whatever it was told.
    #[test]
    fn a_custom_fingerprint_decides_alone() {
        let by_body = RequestFingerprint::custom(|request| {
            let mut hasher = request.hasher();
            hasher.field(request.body());
            Fingerprint::from_bytes(hasher.finish())
        });
        let of = |uri: &str, body: &'static str| {
            let (parts, ()) = Request::post(uri).body(()).expect("a request").into_parts();
            by_body.of(&Fingerprinted::new(&parts, &Bytes::from_static(body.as_bytes()), &HashSecret::default()))
        };
        assert_eq!(of("/pay", "{}"), of("/refund", "{}"));
        assert_ne!(of("/pay", "{}"), of("/pay", "{} "));
    }
}
