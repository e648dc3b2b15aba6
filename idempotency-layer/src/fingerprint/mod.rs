//! Two requests under one key are the same request, or they are not: this decides it.
//!
//! By default everything that says what is asked for counts, each with its length before it: method, full path and
//! query, `content-type`, `content-encoding`, the [configured headers](RequestFingerprint::header), the body. Nested
//! axum routers strip their prefix from the URI; with the feature `axum` the original one is used.
//!
//! Clients that write the same request anew for each attempt may not write the same bytes. For them the body can count
//! as [JSON](RequestFingerprint::canonical_json) or, with the feature `multipart`, by its parts.
//!
//! Scheme and authority do not count: HTTP/1.1 sends them in another place than HTTP/2 does. A service that tells tenants
//! apart by their host names it in the principal, or the scope.

mod json;
#[cfg(feature = "multipart")]
mod multipart;

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
    Fields(Fields),
    Custom(Arc<dyn Fn(&Fingerprinted<'_>) -> Fingerprint + Send + Sync>),
}

/// The fields that count, each in its form.
#[derive(Clone, Debug, Default)]
struct Fields {
    headers: Vec<HeaderName>,
    json: bool,
    #[cfg(feature = "multipart")]
    multipart: bool,
}

impl RequestFingerprint {
    /// Byte for byte, as the [module docs](self) say. The default.
    pub fn exact() -> Self {
        Self(How::Fields(Fields::default()))
    }

    /// As `f` says. Start from [`Fingerprinted::hasher`], so that a configured secret is used.
    ///
    /// What `f` leaves out may differ between a request and its retry; the retry gets the first one's answer all the
    /// same.
    pub fn custom(f: impl Fn(&Fingerprinted<'_>) -> Fingerprint + Send + Sync + 'static) -> Self {
        Self(How::Custom(Arc::new(f)))
    }

    /// Counts this header's values too. No effect on a [custom](Self::custom) fingerprint.
    pub fn header(self, name: HeaderName) -> Self {
        self.fields(|fields| fields.headers.push(name))
    }

    /// Takes a body of type `application/json` or `+json` for what it says: white space, the order of an object's
    /// members and the way in which a string is escaped do not count.
    ///
    /// Numbers count as they are written, so that no two amounts are ever taken for the same: `1.0` is not `1`. So do
    /// members that occur twice. What is not JSON, or nests deeper than 32, counts byte for byte. No effect on a
    /// [custom](Self::custom) fingerprint.
    pub fn canonical_json(self) -> Self {
        self.fields(|fields| fields.json = true)
    }

    /// Takes a body of type `multipart/form-data` by its parts, in their order: name, file name, type and content of
    /// each count, the boundary between them does not.
    ///
    /// What cannot be taken apart counts byte for byte. No effect on a [custom](Self::custom) fingerprint.
    #[cfg(feature = "multipart")]
    pub fn multipart_by_parts(self) -> Self {
        self.fields(|fields| fields.multipart = true)
    }

    fn fields(mut self, change: impl FnOnce(&mut Fields)) -> Self {
        if let How::Fields(fields) = &mut self.0 {
            change(fields);
        }
        self
    }

    pub(crate) fn of(&self, request: &Fingerprinted<'_>) -> Fingerprint {
        match &self.0 {
            How::Fields(fields) => of_fields(request, fields),
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
            How::Fields(fields) => fields.fmt(f),
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

fn of_fields(request: &Fingerprinted<'_>, fields: &Fields) -> Fingerprint {
    let mut hasher = request.hasher();
    hasher.field(request.method().as_str().as_bytes());
    hasher.field(request.path().as_bytes());
    hasher.header(request.headers(), &CONTENT_ENCODING);
    for name in &fields.headers {
        hasher.field(name.as_str().as_bytes()).header(request.headers(), name);
    }
    body(request, fields, &mut hasher);
    Fingerprint::from_bytes(hasher.finish())
}

/// The body in the form that its type asks for. Each form begins with its name, so that none passes for another.
fn body(request: &Fingerprinted<'_>, fields: &Fields, hasher: &mut FieldHasher) {
    if fields.json
        && json::is_json(request.headers())
        && let Some(canonical) = json::canonical(request.body())
    {
        hasher.field(b"json").header(request.headers(), &CONTENT_TYPE).field(&canonical);
        return;
    }
    #[cfg(feature = "multipart")]
    if fields.multipart
        && let Some(parts) = multipart::parts(request.headers(), request.body())
    {
        hasher.field(b"multipart").field(&(parts.len() as u64).to_be_bytes());
        for field in parts.iter().flatten() {
            hasher.field(field);
        }
        return;
    }
    hasher.field(b"bytes").header(request.headers(), &CONTENT_TYPE).field(request.body());
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

    /// Fails when `of_fields` leaves out the method, the path, the content encoding or the configured header, `body` the
    /// content type or the body itself, or `path` the query.
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

    /// Fails when `of_fields` hashes all headers, or `path` hashes the whole URI.
    #[test]
    fn what_a_retry_may_change_does_not_count() {
        let same = fingerprint(base(), "{}");
        assert_eq!(same, fingerprint(base().header("user-agent", "retry/2").header("traceparent", "00-1"), "{}"));
        assert_eq!(same, fingerprint(base().uri("https://api.example/pay?x=1"), "{}"));
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
