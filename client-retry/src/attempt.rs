//! One attempt ends in one of many ways: an [`Outcome`] is what there is of it then, and what the decisions need to
//! know of that.

use std::time::{Duration, SystemTime};

use http::Method;
use idempotency_shared::{Ending, TransportFailure, requested_delay};
use reqwest::Response;
use reqwest_middleware::Error;
use tokio::time::error::Elapsed;

use crate::body::{self, Unread};
use crate::clock::Time;
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
    /// What there is of an attempt that may have taken too long.
    pub(crate) fn of(
        attempt: Result<Result<Response, Error>, Elapsed>,
        redirected: impl FnOnce() -> bool,
        time: Time,
    ) -> Self {
        match attempt {
            Ok(Ok(response)) => Self::Response(response),
            Ok(Err(error)) => Self::failed(error, redirected()),
            Err(_) => Self::late(time),
        }
    }

    /// How much there is to read before the outcome is known to be whole; `None` where there is nothing, or what there
    /// is streams.
    pub(crate) fn unread(&self, method: &Method, max_buffered: usize) -> Option<u64> {
        match self {
            Self::Response(response) => {
                body::length(response, method).filter(|length| (1..=max_buffered as u64).contains(length))
            }
            Self::Failure(..) => None,
        }
    }

    /// Reads the body, which is so long.
    pub(crate) async fn read(self, length: u64, time: Time) -> Self {
        let response = match self {
            Self::Response(response) => response,
            failure => return failure,
        };
        match body::read(response, length, time.end).await {
            Ok(response) => Self::Response(response),
            Err(Unread::Late) => Self::late(time),
            // Whoever has answered was sent the request, redirected or not.
            Err(Unread::Failed(error)) => Self::failed(error.into(), false),
            Err(Unread::Short { expected, received }) => {
                Self::Failure(TransportFailure::TruncatedBody, Failed::Short { expected, received })
            }
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

    fn failed(error: Error, redirected: bool) -> Self {
        let failure = match &error {
            Error::Reqwest(error) => TransportFailure::of(error),
            // Another middleware can fail before the request is sent, or after the response is there.
            Error::Middleware(_) => TransportFailure::Other,
        };
        let failure = if redirected { failure.after_redirect() } else { failure };
        Self::Failure(failure, Failed::Error(error))
    }

    fn late(time: Time) -> Self {
        Self::Failure(TransportFailure::Timeout, Failed::Timeout(time.limit()))
    }
}

/// It matters only to a date in a response that does not say when it was sent.
#[expect(clippy::disallowed_methods, reason = "a date of another machine is compared with a date")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
