//! Whoever made a call can see what it took: a [`RetryReport`] comes with every outcome, in the
//! extensions of a response and in an [`Error`](crate::Error).
//!
//! ```no_run
//! # async fn example(client: reqwest_middleware::ClientWithMiddleware) -> reqwest_middleware::Result<()> {
//! use client_retry::RetryReport;
//!
//! let response = client.post("https://pay.example/charges").body("..").send().await?;
//! if let Some(report) = response.extensions().get::<RetryReport>() {
//!     if report.is_ambiguous() {
//!         eprintln!("the charge may have been made: {report}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use http::StatusCode;
use idempotency_shared::{Class, Ending, IdempotencyKey, ProblemCode, TransportFailure};
use smallvec::SmallVec;

/// What a call has come to, attempt by attempt.
#[derive(Clone, Debug)]
pub struct RetryReport {
    key: Option<IdempotencyKey>,
    /// Most calls need no second one.
    attempts: SmallVec<[Attempt; 1]>,
    stop: StopReason,
    elapsed: Duration,
    left_origin: bool,
}

impl RetryReport {
    /// The report of a call that has not begun.
    pub(crate) fn new() -> Self {
        let (stop, elapsed) = (StopReason::Final, Duration::ZERO);
        Self { key: None, attempts: SmallVec::new(), stop, elapsed, left_origin: false }
    }

    pub(crate) fn push(&mut self, attempt: Attempt) {
        self.attempts.push(attempt);
    }

    pub(crate) fn stop_with(&mut self, reason: StopReason, elapsed: Duration, key: Option<IdempotencyKey>) {
        self.key = key;
        self.stop = reason;
        self.elapsed = elapsed;
    }

    pub(crate) fn leave_origin(&mut self) {
        self.left_origin = true;
    }

    /// The key that each attempt carried; `None` where the call had none.
    #[must_use]
    pub fn key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// Each request that was sent, or that could not be, in order. There is at least one.
    ///
    /// What reqwest sends by itself, such as requests that follow redirects, is part of one attempt.
    #[must_use]
    pub fn attempts(&self) -> &[Attempt] {
        &self.attempts
    }

    /// The attempt whose outcome is that of the call.
    #[must_use]
    pub fn last(&self) -> &Attempt {
        self.attempts.last().expect("a report is made after an attempt")
    }

    /// Why there was no other attempt.
    #[must_use]
    pub fn stop(&self) -> StopReason {
        self.stop
    }

    /// From the call until its outcome.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.elapsed
    }

    /// Whether the operation may have taken effect although the outcome does not say that it did.
    ///
    /// Such a call must not be made again under a new key. Make it again under the [`key`](Self::key), or look its
    /// result up.
    #[must_use]
    pub fn is_ambiguous(&self) -> bool {
        !self.last().is_answer() && self.attempts.iter().any(|attempt| attempt.ambiguous)
    }

    /// Whether the outcome is one that the server had recorded for an earlier request with the key.
    #[must_use]
    pub fn is_replayed(&self) -> bool {
        self.last().replayed
    }

    /// The problem that a server of this suite gave as the reason of the outcome.
    #[must_use]
    pub fn problem(&self) -> Option<ProblemCode> {
        self.last().problem
    }

    /// Whether a response, that of an earlier attempt too, came from another origin than the one that was asked, to
    /// which redirects led, and which got the key. [`redirect_policy`](crate::redirect_policy) prevents it.
    #[must_use]
    pub fn left_origin(&self) -> bool {
        self.left_origin
    }
}

impl Display for RetryReport {
    /// One line without anything that must not be logged.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let attempts = self.attempts.len();
        let plural = if attempts == 1 { "" } else { "s" };
        write!(f, "{} after {attempts} attempt{plural} in {:.1?}: {}", self.last(), self.elapsed, self.stop)
    }
}

/// One attempt of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    class: Class,
    status: Option<StatusCode>,
    failure: Option<TransportFailure>,
    problem: Option<ProblemCode>,
    ambiguous: bool,
    replayed: bool,
    delay: Duration,
}

impl Attempt {
    /// `status` is that of the head that arrived, and `delay` the wait before it.
    pub(crate) fn new(ending: Ending<'_>, status: Option<StatusCode>, delay: Duration) -> Self {
        let failure = match ending {
            Ending::Response { .. } => None,
            Ending::Failure(failure) => Some(failure),
        };
        let class = ending.class();
        let is_success = class == Class::Success;
        Self {
            class,
            status,
            failure,
            problem: if is_success { None } else { ending.problem() },
            ambiguous: !is_success && ending.is_ambiguous(),
            replayed: ending.is_replayed(),
            delay,
        }
    }

    /// It was sent on from one place to another, and each server on the way may have acted.
    pub(crate) fn redirected(mut self) -> Self {
        self.ambiguous |= !self.is_answer();
        self
    }

    /// Whether its response says what became of the operation.
    fn is_answer(&self) -> bool {
        match (self.class, self.status) {
            // A redirect that was not followed says where to ask, and nothing of earlier attempts.
            (Class::Success, Some(status)) => !matches!(status.as_u16(), 301 | 302 | 307 | 308),
            (Class::Success, None) => true,
            (Class::ReplayedFailure, _) => !self.ambiguous,
            _ => false,
        }
    }

    /// What it has come to.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// The status of its response; `None` where none arrived. Where the response broke off later, there is a
    /// [`failure`](Self::failure) too, and a 2xx still says that the operation took effect.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        self.status
    }

    /// Why no response arrived whole; `None` where one did.
    #[must_use]
    pub fn failure(&self) -> Option<TransportFailure> {
        self.failure
    }

    /// The problem that a server of this suite gave as the reason.
    #[must_use]
    pub fn problem(&self) -> Option<ProblemCode> {
        self.problem
    }

    /// The wait before it, which is zero before the first.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }
}

impl Display for Attempt {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match (self.status, self.problem, self.failure) {
            (Some(status), _, Some(failure)) => write!(f, "{status}, but {failure}"),
            (Some(status), Some(problem), None) => write!(f, "{status} ({})", problem.as_str()),
            (Some(status), None, None) => write!(f, "{status}"),
            (None, _, Some(failure)) => write!(f, "{failure}"),
            (None, _, None) => f.write_str("no response"),
        }
    }
}

/// Why a call has ended with the outcome that it has.
///
/// `#[non_exhaustive]`: a later version may have other limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StopReason {
    /// The response is below 400, which a redirect that was not followed is too.
    Succeeded,
    /// Another attempt would end alike.
    Final,
    /// The call has neither a key nor an idempotent method, so that it cannot be repeated safely.
    NotSafe,
    /// The body of the request is a stream, which can be sent once.
    BodyNotReplayable,
    /// As many attempts as there may be were made.
    AttemptsExhausted,
    /// The run under this key still goes on, and was asked for as often as may be.
    PollsExhausted,
    /// The budget of the origin does not cover another attempt.
    BudgetExhausted,
    /// The server asked for a longer wait than the limit or the time that is left.
    AskedTooLong,
    /// The time of the call is up, or would be before the next attempt.
    Deadline,
}

impl Display for StopReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Final => "another attempt would end alike",
            Self::NotSafe => "without an idempotency key it cannot be repeated safely",
            Self::BodyNotReplayable => "its body is a stream, which can be sent only once",
            Self::AttemptsExhausted => "no more attempts are allowed",
            Self::PollsExhausted => "the run under this key still goes on",
            Self::BudgetExhausted => "the retry budget of this origin is empty, because too few requests succeed",
            Self::AskedTooLong => "the server asks for a longer wait than there is time for",
            Self::Deadline => "the time for the call is up",
        })
    }
}
