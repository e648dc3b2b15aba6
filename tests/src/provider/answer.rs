//! A response in parts, so that each version of HTTP can send all of it, or less.

use std::convert::Infallible;
use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};

/// A response: status, headers in their order, body. Its length is declared, unless it is [streamed](Self::streamed).
#[derive(Clone)]
pub struct Answer {
    pub(super) status: StatusCode,
    headers: HeaderMap,
    pub(super) body: Bytes,
    declares_length: bool,
}

impl Answer {
    /// A status without headers and without a body.
    ///
    /// # Panics
    ///
    /// When it is no status.
    #[must_use]
    pub fn new(status: u16) -> Self {
        let status = StatusCode::from_u16(status).expect("a status");
        Self { status, headers: HeaderMap::new(), body: Bytes::new(), declares_length: true }
    }

    /// A redirect to anywhere.
    #[must_use]
    pub fn redirect(status: u16, location: &str) -> Self {
        Self::new(status).header(LOCATION.as_str(), location)
    }

    /// One more line of a header, beside those of the same name that are there.
    ///
    /// # Panics
    ///
    /// When it cannot be a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a header's name");
        self.headers.append(name, HeaderValue::from_bytes(value.as_ref()).expect("a header's value"));
        self
    }

    /// The body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the body without saying how long it is: chunked over HTTP/1.1, without a `Content-Length` over HTTP/2.
    #[must_use]
    pub fn streamed(mut self) -> Self {
        self.declares_length = false;
        self
    }

    /// JSON.
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::new(status).header(CONTENT_TYPE.as_str(), "application/json").body(body.to_string())
    }

    /// An error as providers describe it.
    pub(super) fn error(status: u16, code: &str) -> Self {
        Self::json(status, &serde_json::json!({ "error": { "code": code } }))
    }

    /// Marked as given before.
    pub(super) fn replayed(self) -> Self {
        self.header("idempotent-replayed", "true")
    }

    /// With a time to wait.
    pub(super) fn retry_after(self, seconds: &str) -> Self {
        self.header(RETRY_AFTER.as_str(), seconds)
    }

    /// What precedes the body over HTTP/2.
    pub(super) fn head(&self) -> Response<()> {
        let mut head = self.response().map(drop);
        if self.declares_length {
            head.headers_mut().insert(CONTENT_LENGTH, self.body.len().into());
        }
        head
    }

    /// The whole, to which hyper adds what HTTP/1.1 asks for.
    pub(super) fn response(&self) -> Response<BoxBody<Bytes, Infallible>> {
        let body = Full::new(self.body.clone());
        let mut response = Response::new(match self.declares_length {
            true => body.boxed(),
            // A body whose frames are mapped does not know its length any more.
            false => body.map_frame(std::convert::identity).boxed(),
        });
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }

    /// What precedes the body on an HTTP/1.1 connection, framed by one more header, up to and with the empty line.
    pub(super) fn head_bytes(&self, framing: &str) -> Vec<u8> {
        let mut head = format!("HTTP/1.1 {}\r\n{framing}\r\n", self.status).into_bytes();
        for (name, value) in &self.headers {
            head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        head.extend(b"\r\n");
        head
    }

    /// The first half of the body.
    pub(super) fn half(&self) -> Bytes {
        self.body.slice(..self.body.len() / 2)
    }
}

/// Neither headers nor bodies are for logs.
impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("status", &self.status).finish_non_exhaustive()
    }
}
