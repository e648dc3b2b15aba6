//! A request that is sent more than once is copied each time, its key and its body with it: same bytes on every
//! attempt.
//!
//! A body that is held in memory is shared by all copies. One that streams can be sent once.

use http::Method;
use reqwest::{Body, Request, Url};

/// What one call sends.
#[derive(Debug)]
pub(crate) enum Copies {
    /// As often as need be.
    Many(Request),
    /// Once.
    One {
        /// Until it is sent.
        request: Option<Request>,
        method: Method,
        url: Url,
        has_timeout: bool,
    },
}

impl Copies {
    pub(crate) fn new(request: Request) -> Self {
        if request.body().is_none_or(|body| Body::as_bytes(body).is_some()) {
            return Self::Many(request);
        }
        Self::One {
            method: request.method().clone(),
            url: request.url().clone(),
            has_timeout: request.timeout().is_some(),
            request: Some(request),
        }
    }

    pub(crate) fn are_many(&self) -> bool {
        matches!(self, Self::Many(_))
    }

    /// The request of the next attempt.
    ///
    /// # Panics
    ///
    /// When there was only one, and it is gone. A plan that knows so makes no other attempt.
    pub(crate) fn next(&mut self) -> Request {
        let copy = match self {
            Self::Many(request) => request.try_clone(),
            Self::One { request, .. } => request.take(),
        };
        copy.expect("a body in memory can be copied, and a stream is asked for once")
    }

    pub(crate) fn method(&self) -> &Method {
        match self {
            Self::Many(request) => request.method(),
            Self::One { method, .. } => method,
        }
    }

    pub(crate) fn url(&self) -> &Url {
        match self {
            Self::Many(request) => request.url(),
            Self::One { url, .. } => url,
        }
    }

    /// Whether the request says by itself how long it may take.
    pub(crate) fn have_timeout(&self) -> bool {
        match self {
            Self::Many(request) => request.timeout().is_some(),
            Self::One { has_timeout, .. } => *has_timeout,
        }
    }

    /// A copy to compare others with; `None` of what can be sent once.
    pub(crate) fn to_request(&self) -> Option<Request> {
        match self {
            Self::Many(request) => request.try_clone(),
            Self::One { .. } => None,
        }
    }
}
