//! What an attempt has come to is read from its end: an [`Ending`] is a response or a failure, and the
//! table of the [module docs](crate::class) is applied to it here.

use std::time::SystemTime;

use http::{HeaderMap, StatusCode};

use super::{Call, Class, TransportFailure};
use crate::{IDEMPOTENCY_PROBLEM, IDEMPOTENT_REPLAYED, ProblemCode, requested_delay};

/// How one attempt ended.
///
/// Exhaustive: there is a response, or there is none.
#[derive(Clone, Copy, Debug)]
pub enum Ending<'a> {
    /// A response arrived.
    Response {
        /// Its status.
        status: StatusCode,
        /// Its header section.
        headers: &'a HeaderMap,
    },
    /// No response arrived, or not all of it.
    Failure(TransportFailure),
}

impl Ending<'_> {
    /// What the attempt has come to.
    #[must_use]
    pub fn class(self) -> Class {
        match self {
            Self::Failure(failure) => failure.class(),
            Self::Response { status, .. } if status.as_u16() < 400 => Class::Success,
            Self::Response { headers, .. } if is_replayed(headers) => Class::ReplayedFailure,
            Self::Response { status, headers } => match problem(headers) {
                Some(code) => of_code(code),
                None => of_status(status, headers),
            },
        }
    }

    /// Whether another attempt of the same call may help, and cannot make it happen twice.
    ///
    /// It may be sent at once only where nothing asks for a wait.
    #[must_use]
    pub fn is_retried(self, call: Call) -> bool {
        match self.class() {
            Class::NotSent | Class::Refused => true,
            Class::InProgress => call.is_keyed(),
            Class::Throttled | Class::Ambiguous => call.is_safe(),
            Class::Conflict => self.status() == Some(StatusCode::CONFLICT) && call.is_after_ambiguous(),
            Class::Success | Class::ReplayedFailure | Class::Settled | Class::Misuse | Class::Fatal => false,
        }
    }

    /// Whether the attempt leaves it open if the operation took effect.
    ///
    /// A call that ends so must not be made again under a new key. What is said here is said of one
    /// attempt: a later one does not make an earlier one less ambiguous.
    #[must_use]
    pub fn is_ambiguous(self) -> bool {
        match (self.class(), self) {
            (Class::Settled | Class::InProgress | Class::Ambiguous, _) => true,
            // What was recorded is that it failed in mid-run, which leaves open how far it came.
            (Class::ReplayedFailure, Self::Response { status, .. }) => {
                status == StatusCode::REQUEST_TIMEOUT || status.is_server_error()
            }
            // Proxies send 503 also for a server that they lost after it got the request.
            (Class::Throttled, Self::Response { status, headers }) => match problem(headers) {
                Some(code) => !matches!(code, ProblemCode::Overloaded | ProblemCode::Draining),
                None => status == StatusCode::SERVICE_UNAVAILABLE,
            },
            (_, Self::Failure(failure)) => failure.follows_an_answer(),
            _ => false,
        }
    }

    /// The code that a server of ours gave the response; `None` where there is none that this version
    /// knows.
    #[must_use]
    pub fn problem(self) -> Option<ProblemCode> {
        match self {
            Self::Response { headers, .. } => problem(headers),
            Self::Failure(_) => None,
        }
    }

    /// Whether the response is one that the server had recorded earlier.
    #[must_use]
    pub fn is_replayed(self) -> bool {
        match self {
            Self::Response { headers, .. } => is_replayed(headers),
            Self::Failure(_) => false,
        }
    }

    fn status(self) -> Option<StatusCode> {
        match self {
            Self::Response { status, .. } => Some(status),
            Self::Failure(_) => None,
        }
    }
}

/// Agrees with [`ProblemCode::retryable`] for a call under a key.
fn of_code(code: ProblemCode) -> Class {
    match code {
        ProblemCode::ResponseUnavailable
        | ProblemCode::OutcomeUnknown
        | ProblemCode::CallerChanged
        | ProblemCode::RecordUnreadable => Class::Settled,
        ProblemCode::KeyMissing
        | ProblemCode::KeyInvalid
        | ProblemCode::KeyTooLong
        | ProblemCode::KeyRepeated
        | ProblemCode::KeyReused => Class::Misuse,
        ProblemCode::InFlight => Class::InProgress,
        ProblemCode::BodyUnreadable => Class::Refused,
        ProblemCode::Overloaded
        | ProblemCode::Draining
        | ProblemCode::StoreUnavailable
        | ProblemCode::LeaseLost
        | ProblemCode::TransactionFailed => Class::Throttled,
        ProblemCode::TransactionLost | ProblemCode::HandlerPanicked => Class::Ambiguous,
        ProblemCode::PrincipalRequired | ProblemCode::RequestTooLarge => Class::Fatal,
    }
}

fn of_status(status: StatusCode, headers: &HeaderMap) -> Class {
    match status.as_u16() {
        409 if asks_to_wait(headers) => Class::InProgress,
        425 => Class::Refused,
        429 | 503 => Class::Throttled,
        413 if asks_to_wait(headers) => Class::Throttled,
        501 | 505 => Class::Fatal,
        408 | 500.. => Class::Ambiguous,
        409 | 422 => Class::Conflict,
        _ => Class::Fatal,
    }
}

fn is_replayed(headers: &HeaderMap) -> bool {
    headers.get(IDEMPOTENT_REPLAYED).is_some_and(|value| value == "true")
}

fn problem(headers: &HeaderMap) -> Option<ProblemCode> {
    ProblemCode::from_code(headers.get(IDEMPOTENCY_PROBLEM)?.to_str().ok()?)
}

fn asks_to_wait(headers: &HeaderMap) -> bool {
    // For how long is another question, so any time does.
    requested_delay(headers, SystemTime::UNIX_EPOCH).is_some()
}

#[cfg(test)]
mod tests;
