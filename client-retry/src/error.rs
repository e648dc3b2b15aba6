//! A call that ends without a response says what happened, after how many attempts, and what to do:
//! that is an [`Error`], and what began it is its source.
//!
//! It travels inside `reqwest_middleware::Error::Middleware`; [`Error::of`] finds it there.
//!
//! No error shows a key, a body or the query of a URL, but what another middleware puts into an error of its own.
//!
//! ```no_run
//! # async fn example(client: reqwest_middleware::ClientWithMiddleware) {
//! use client_retry::{Error, ErrorKind};
//!
//! if let Err(error) = client.post("https://pay.example/charges").body("..").send().await {
//!     match Error::of(&error).map(|error| (error.kind(), error.report())) {
//!         Some((ErrorKind::NoResponse, Some(report))) if report.is_ambiguous() => {
//!             // Make it again later, under `report.key()`.
//!         }
//!         _ => {}
//!     }
//! }
//! # }
//! ```

use std::error::Error as StdError;
use std::fmt::{self, Debug, Display, Formatter};
use std::iter::successors;
use std::time::Duration;

use http::{HeaderName, Method};
use idempotency_shared::{DerivedKeyReused, KeyError};
use reqwest::{Request, Url};
use url::Position;

use crate::{Attempt, RetryReport, StopReason};

/// Why a call has no response.
#[derive(Debug)]
pub struct Error {
    method: Method,
    /// Without its query, which may hold what nobody may read.
    place: Box<str>,
    what: What,
}

#[derive(Debug)]
enum What {
    InvalidKey(HeaderName, KeyError),
    TwoKeys(HeaderName),
    DerivedKeyReused(DerivedKeyReused),
    ParentKey,
    DeadlinePassed,
    NoResponse(Box<RetryReport>, Cause),
}

/// What kind of [`Error`] it is.
///
/// `#[non_exhaustive]`: a later version may refuse other calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key in the request's header cannot be read, or there are several. Nothing was sent.
    InvalidKey,
    /// The request's header and its extension hold different keys. Nothing was sent.
    TwoKeys,
    /// The run that makes the call has made one before that is not told apart from it. Nothing was
    /// sent.
    DerivedKeyReused,
    /// The key is that of the request that the call is made for, by which whoever gets it could ask for its caller's
    /// answer. Nothing was sent.
    ParentKey,
    /// The request that the call would be made for has no use for its answer any more. Nothing was sent.
    DeadlinePassed,
    /// Attempts were made, and the last one got no response, or not all of it.
    NoResponse,
}

impl Error {
    /// The error of this crate that `error` carries, if it carries one.
    #[must_use]
    pub fn of(error: &reqwest_middleware::Error) -> Option<&Self> {
        match error {
            reqwest_middleware::Error::Middleware(error) => error.downcast_ref(),
            reqwest_middleware::Error::Reqwest(_) => None,
        }
    }

    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match &self.what {
            What::InvalidKey(..) => ErrorKind::InvalidKey,
            What::TwoKeys(..) => ErrorKind::TwoKeys,
            What::DerivedKeyReused(..) => ErrorKind::DerivedKeyReused,
            What::ParentKey => ErrorKind::ParentKey,
            What::DeadlinePassed => ErrorKind::DeadlinePassed,
            What::NoResponse(..) => ErrorKind::NoResponse,
        }
    }

    /// What it took; `None` where nothing was sent.
    #[must_use]
    pub fn report(&self) -> Option<&RetryReport> {
        match &self.what {
            What::NoResponse(report, _) => Some(report),
            _ => None,
        }
    }

    /// The error of the last attempt, as reqwest or another middleware gave it; `None` where the attempt
    /// was given up without one, because of its time or the length of its body.
    #[must_use]
    pub fn last_error(&self) -> Option<&reqwest_middleware::Error> {
        match &self.what {
            What::NoResponse(_, Cause { failed: Failed::Error(error), .. }) => Some(error),
            _ => None,
        }
    }

    pub(crate) fn invalid_key(request: &Request, header: &HeaderName, error: KeyError) -> Self {
        Self::new(request.method(), request.url(), What::InvalidKey(header.clone(), error))
    }

    pub(crate) fn two_keys(request: &Request, header: &HeaderName) -> Self {
        Self::new(request.method(), request.url(), What::TwoKeys(header.clone()))
    }

    pub(crate) fn derived_key_reused(request: &Request, error: DerivedKeyReused) -> Self {
        Self::new(request.method(), request.url(), What::DerivedKeyReused(error))
    }

    pub(crate) fn parent_key(request: &Request) -> Self {
        Self::new(request.method(), request.url(), What::ParentKey)
    }

    pub(crate) fn deadline_passed(request: &Request) -> Self {
        Self::new(request.method(), request.url(), What::DeadlinePassed)
    }

    pub(crate) fn no_response(method: &Method, url: &Url, report: RetryReport, cause: Cause) -> Self {
        Self::new(method, url, What::NoResponse(Box::new(report), cause))
    }

    fn new(method: &Method, url: &Url, what: What) -> Self {
        // The place begins behind the credentials that a URL may have.
        let place = format!("{}://{}", url.scheme(), &url[Position::BeforeHost..Position::AfterPath]);
        Self { method: method.clone(), place: place.into_boxed_str(), what }
    }
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { method, place, what } = self;
        match what {
            What::InvalidKey(header, _) => write!(
                f,
                "{method} {place} was not sent: its {header} header cannot be used; set it once, to 1 to 255 visible \
                 ASCII characters, or leave it out and have a key made"
            ),
            What::TwoKeys(header) => write!(
                f,
                "{method} {place} was not sent: its {header} header and its IdempotencyKey extension hold different \
                 keys; give it one of them"
            ),
            What::DerivedKeyReused(_) => write!(
                f,
                "{method} {place} was not sent: another call of this run has the idempotency key that is derived for \
                 it; name both, with Propagation::operation, and hand each its key as an extension"
            ),
            What::ParentKey => write!(
                f,
                "{method} {place} was not sent: its idempotency key is that of the request that it is made for, which must \
                 not leave the service; leave it out, or derive one with Propagation::operation"
            ),
            What::DeadlinePassed => write!(
                f,
                "{method} {place} was not sent: the deadline of the request that it is made for has passed; answer \
                 that request, and let its retry make the call"
            ),
            What::NoResponse(report, _) => {
                write!(f, "{method} {place} got no response: {report}; {}", advice(report))
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match &self.what {
            What::InvalidKey(_, error) => Some(error),
            What::TwoKeys(_) | What::ParentKey | What::DeadlinePassed => None,
            What::DerivedKeyReused(error) => Some(error),
            What::NoResponse(_, cause) => Some(cause),
        }
    }
}

/// What to do when no response came.
fn advice(report: &RetryReport) -> &'static str {
    match (report.is_ambiguous(), report.key(), report.stop()) {
        (true, Some(_), _) => "it may have taken effect: make it again under the same key, never under a new one",
        (true, None, _) => "it may have taken effect: look its result up before making it again",
        (false, _, StopReason::Final) => "mend the request or the client's set-up",
        (false, _, _) => "nothing was done: make it again later",
    }
}

/// One failure of a call, and through its source the one that came before all others.
#[derive(Debug)]
pub(crate) struct Cause {
    attempt: usize,
    failed: Failed,
    first: Option<Box<Cause>>,
}

/// How an attempt failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// With an error.
    Error(reqwest_middleware::Error),
    /// With a response, which was followed by another attempt.
    Response(Attempt),
    /// It took longer than it may.
    Timeout(Duration),
    /// There was no time for it.
    NoTime,
    /// Its body ended early, which nothing reported.
    Short {
        /// How long the response said it is.
        expected: u64,
        /// How much arrived.
        received: u64,
    },
}

impl Cause {
    /// The first attempt failed.
    pub(crate) fn first(failed: Failed) -> Self {
        Self { attempt: 1, failed: failed.without_url(), first: None }
    }

    /// The attempt of this number failed, and `first` was the first that did.
    pub(crate) fn later(attempt: usize, failed: Failed, first: Self) -> Self {
        Self { attempt, failed: failed.without_url(), first: Some(Box::new(first)) }
    }
}

impl Failed {
    /// reqwest shows the whole URL.
    fn without_url(self) -> Self {
        match self {
            Self::Error(error) => Self::Error(error.without_url()),
            other => other,
        }
    }
}

impl Display for Cause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}: ", self.attempt)?;
        match &self.failed {
            Failed::Error(_) if self.first.is_none() => f.write_str("failed"),
            // The chain goes on with the first failure, so what is behind this one stands here.
            Failed::Error(error) => {
                write!(f, "{error}")?;
                successors(error.source(), |error| (*error).source()).try_for_each(|error| write!(f, ": {error}"))
            }
            Failed::Response(attempt) => write!(f, "answered with {attempt}"),
            Failed::Timeout(limit) => write!(f, "no whole response within {limit:?}"),
            Failed::NoTime => f.write_str("no time was left to send it"),
            Failed::Short { expected, received } => {
                write!(f, "the response ended after {received} of {expected} bytes")
            }
        }
    }
}

impl StdError for Cause {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match (&self.first, &self.failed) {
            (Some(first), _) => Some(first),
            (None, Failed::Error(reqwest_middleware::Error::Reqwest(error))) => Some(error),
            (None, Failed::Error(reqwest_middleware::Error::Middleware(error))) => Some(error.as_ref()),
            (None, _) => None,
        }
    }
}
