//! What a call went through is written down as it happens and told once, at its end: as a report, and where no
//! response came as an error, whose chain ends in what came first.

use std::time::Duration;

use idempotency_shared::IdempotencyKey;
use reqwest::{Response, Url};

use crate::attempt::Outcome;
use crate::copies::Copies;
use crate::error::{Cause, Failed};
use crate::keying::Legacy;
use crate::{Attempt, Error, RetryReport, StopReason};

/// The attempts of one call.
#[derive(Debug)]
pub(crate) struct History {
    report: RetryReport,
    /// Why there was a second attempt.
    cause: Option<Cause>,
    /// The wait before the attempt that is being made.
    delay: Duration,
}

impl History {
    pub(crate) fn new() -> Self {
        Self { report: RetryReport::new(), cause: None, delay: Duration::ZERO }
    }

    /// An attempt to ask for `url` has ended so.
    pub(crate) fn record(&mut self, outcome: &Outcome, url: &Url) {
        let attempt = Attempt::new(outcome.ending(url), outcome.status(), self.delay);
        if !outcome.is_redirected(url) {
            return self.report.push(attempt);
        }
        self.report.push(attempt.redirected());
        self.note_origin(outcome, url);
    }

    /// Takes note of where a response comes from, of which the body may break off.
    pub(crate) fn note_origin(&mut self, outcome: &Outcome, url: &Url) {
        if outcome.left_origin(url) {
            self.report.leave_origin();
        }
    }

    pub(crate) fn is_ambiguous(&self) -> bool {
        self.report.is_ambiguous()
    }

    /// The attempt that was recorded last is followed by another one. Its response comes back, to be thrown
    /// away.
    pub(crate) fn retrying(&mut self, outcome: Outcome, delay: Duration) -> Option<Response> {
        self.delay = delay;
        let (failed, response) = match outcome {
            Outcome::Failure { failed, .. } => (failed, None),
            Outcome::Response(response) => (Failed::Response(*self.report.last()), Some(response)),
        };
        if self.cause.is_none() {
            self.cause = Some(Cause::first(failed));
        }
        response
    }

    /// Tells that another attempt follows, in words that may stand in a log.
    pub(crate) fn trace(&self, legacy: &Legacy<'_>, delay: Duration) {
        tracing::debug!(
            method = %legacy.copies.method(),
            host = legacy.copies.url().host_str(),
            attempt = self.report.attempts().len(),
            outcome = %self.report.last(),
            ?delay,
            key = legacy.key().map(IdempotencyKey::prefix),
            "retrying",
        );
    }

    /// The call has ended, for this reason and after this time. Each attempt carried the key.
    pub(crate) fn stop(&mut self, reason: StopReason, elapsed: Duration, key: Option<IdempotencyKey>) {
        self.report.stop_with(reason, elapsed, key);
    }

    pub(crate) fn into_report(self) -> RetryReport {
        self.report
    }

    /// The call has ended without a response.
    pub(crate) fn into_error(self, copies: &Copies<'_>, failed: Failed) -> Error {
        let cause = match self.cause {
            Some(first) => Cause::later(self.report.attempts().len(), failed, first),
            None => Cause::first(failed),
        };
        Error::no_response(copies.method(), copies.url(), self.report, cause)
    }
}
