//! One attempt sends one request and waits for what becomes of it, and no longer than it may: an
//! [`Outcome`] is what there is then.

use std::time::{Duration, SystemTime};

use http::{Extensions, Method};
use idempotency_shared::{Ending, TransportFailure, requested_delay};
use reqwest::{Request, Response};
use reqwest_middleware::{Error, Next};
use tokio::time::timeout_at;

use crate::body::{self, Unread};
use crate::clock::Time;
use crate::current;
use crate::error::Failed;

/// What an attempt has come to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The head of a response, whose body may still be on its way.
    Response(Response),
    /// No response, or not all of it.
    Failure(TransportFailure, Failed),
}

impl Outcome {
    /// Sends a request, and waits for the head of its response.
    pub(crate) async fn of(request: Request, extensions: &mut Extensions, next: Next<'_>, time: Time) -> Self {
        current::begin_attempt(extensions);
        match timeout_at(time.end, next.run(request, extensions)).await {
            Ok(Ok(response)) => Self::Response(response),
            Ok(Err(error)) => Self::failed(error),
            Err(_) => Self::late(time),
        }
    }

    /// Reads the body where its length is known and small, so that the outcome is known to be whole.
    pub(crate) async fn whole(self, method: &Method, max_buffered: usize, time: Time) -> Self {
        let response = match self {
            Self::Response(response) => response,
            failure => return failure,
        };
        match body::length(&response, method) {
            Some(length) if length > 0 && length <= max_buffered as u64 => {
                match body::read(response, length, time.end).await {
                    Ok(response) => Self::Response(response),
                    Err(Unread::Late) => Self::late(time),
                    Err(Unread::Failed(error)) => Self::failed(error.into()),
                    Err(Unread::Short { expected, received }) => {
                        Self::Failure(TransportFailure::TruncatedBody, Failed::Short { expected, received })
                    }
                }
            }
            _ => Self::Response(response),
        }
    }

    pub(crate) fn ending(&self) -> Ending<'_> {
        match self {
            Self::Response(response) => Ending::Response { status: response.status(), headers: response.headers() },
            Self::Failure(failure, _) => Ending::Failure(*failure),
        }
    }

    /// For how long the server asks its client to stay away.
    pub(crate) fn asked(&self) -> Option<Duration> {
        match self {
            Self::Response(response) if response.status().as_u16() >= 400 => {
                requested_delay(response.headers(), wall_clock())
            }
            _ => None,
        }
    }

    fn failed(error: Error) -> Self {
        let failure = match &error {
            Error::Reqwest(error) => TransportFailure::of(error),
            // Another middleware can fail before the request is sent, or after the response is there.
            Error::Middleware(_) => TransportFailure::Other,
        };
        let failure = if current::was_redirected() { failure.after_redirect() } else { failure };
        Self::Failure(failure, Failed::Error(error))
    }

    fn late(time: Time) -> Self {
        Self::Failure(TransportFailure::Timeout, Failed::Timeout(time.limit))
    }
}

/// It matters only to a date in a response that does not say when it was sent.
#[expect(clippy::disallowed_methods, reason = "a date of another machine is compared with a date")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
