//! A request that is sent more than once is copied each time, its key and its body with it: same bytes on every
//! attempt.
//!
//! A body that is held in memory is shared by all copies. One that streams can be sent once.

use std::mem;
use std::time::Duration;

use http::Method;
use reqwest::{Body, Request, Url};

/// What one call sends.
pub(crate) struct Copies<'a> {
    /// Without its body, once that was sent and cannot be sent again.
    request: &'a mut Request,
    many: bool,
}

impl<'a> Copies<'a> {
    pub(crate) fn new(request: &'a mut Request) -> Self {
        let many = request.body().is_none_or(|body| Body::as_bytes(body).is_some());
        Self { request, many }
    }

    /// Whether there is one for each attempt.
    pub(crate) fn are_many(&self) -> bool {
        self.many
    }

    /// The request of the next attempt. Of a stream there is only a first one.
    pub(crate) fn next(&mut self) -> Request {
        if self.many {
            return self.request.try_clone().expect("a body in memory can be copied");
        }
        let mut rest = Request::new(self.method().clone(), self.url().clone());
        *rest.timeout_mut() = self.timeout();
        mem::replace(self.request, rest)
    }

    pub(crate) fn method(&self) -> &Method {
        self.request.method()
    }

    pub(crate) fn url(&self) -> &Url {
        self.request.url()
    }

    /// How long the request itself says that it may take.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.request.timeout().copied()
    }

    /// A copy to compare others with; `None` of what can be sent once.
    pub(crate) fn to_request(&self) -> Option<Request> {
        self.many.then(|| self.request.try_clone()).flatten()
    }
}
