//! One attempt ends in one of many ways: an [`Outcome`] is what there is of it then, and what the decisions need to
//! know of that.

use std::time::{Duration, SystemTime};

use http::{Method, StatusCode};
use idempotency_shared::{Class, Ending, TransportFailure, requested_delay};
use reqwest::{Response, Url};
use reqwest_middleware::Error;
use tokio::time::error::Elapsed;

use crate::body::{self, Unread};
use crate::clock::Time;
use crate::error::Failed;
use crate::redirect;

/// What an attempt has come to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The head of a response, whose body may still be on its way.
    Response(Response),
    /// No response, or not all of it.
    Failure {
        /// Why.
        failure: TransportFailure,
        /// What there is to show for it.
        failed: Failed,
        /// The status of the response, of which the head arrived.
        status: Option<StatusCode>,
    },
}

impl Outcome {
    /// What there is of an attempt for which no time was left.
    pub(crate) fn unsent() -> Self {
        Self::Failure { failure: TransportFailure::Unsent, failed: Failed::NoTime, status: None }
    }

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
            Self::Failure { .. } => None,
        }
    }

    /// Reads the body, which is so long.
    pub(crate) async fn read(self, length: u64, time: Time) -> Self {
        let response = match self {
            Self::Response(response) => response,
            failure => return failure,
        };
        let status = response.status();
        let unread = match body::read(response, length, time.end).await {
            Ok(response) => return Self::Response(response),
            Err(unread) => unread,
        };
        let (failure, failed) = match unread {
            Unread::Late => (TransportFailure::Timeout, Failed::Timeout(time.limit())),
            Unread::Failed(error) => (TransportFailure::of(&error), Failed::Error(error.into())),
            Unread::Short { expected, received } => {
                (TransportFailure::TruncatedBody, Failed::Short { expected, received })
            }
        };
        Self::Failure { failure, failed, status: Some(status) }
    }

    /// Whether the response comes from elsewhere than what was asked, so that a server before that one got the request
    /// too.
    pub(crate) fn is_redirected(&self, url: &Url) -> bool {
        match self {
            Self::Response(response) => {
                !redirect::is_same_place(response.url(), url) && redirect::is_known(response.url())
            }
            Self::Failure { .. } => false,
        }
    }

    /// Whether the response comes from another origin.
    pub(crate) fn left_origin(&self, url: &Url) -> bool {
        match self {
            Self::Response(response) => {
                !redirect::is_same_origin(response.url(), url) && redirect::is_known(response.url())
            }
            Self::Failure { .. } => false,
        }
    }

    /// The status of the response, of which the head arrived.
    pub(crate) fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Response(response) => Some(response.status()),
            Self::Failure { status, .. } => *status,
        }
    }

    /// How the attempt to ask for `url` ended.
    pub(crate) fn ending(&self, url: &Url) -> Ending<'_> {
        match self {
            Self::Response(response) => {
                let ending = Ending::Response { status: response.status(), headers: response.headers() };
                // Whoever refuses to process what was redirected does not know what the first server did.
                let is_refused = response.status().is_client_error() && ending.class() == Class::Refused;
                if is_refused && self.is_redirected(url) {
                    return Ending::Failure(TransportFailure::AfterRedirect);
                }
                ending
            }
            Self::Failure { failure, .. } => Ending::Failure(*failure),
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
        Self::Failure { failure, failed: Failed::Error(error), status: None }
    }

    fn late(time: Time) -> Self {
        Self::Failure { failure: TransportFailure::Timeout, failed: Failed::Timeout(time.limit()), status: None }
    }
}

/// It matters only to a date in a response that does not say when it was sent.
#[expect(clippy::disallowed_methods, reason = "a date of another machine is compared with a date")]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}
