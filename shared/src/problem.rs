//! A server says why it refused or failed a keyed request in words that a client can act on: one of
//! a fixed set of codes, each with its own status, title and explanation.
//!
//! - Every answer is a problem document (RFC 9457) with the members `type`, `title`, `status`,
//!   `detail`, `code` and `retryable`. `response-unavailable` adds `original_status`, a number, and
//!   `outcome-unknown` adds `record`, a string; no other members occur.
//! - A [`Problem`] is made by the constructor that bears the name of its code and takes what its
//!   text speaks of, so that no text goes out with a gap in it.
//! - `code` is the identity. `type` is a URI that a service may point at its own documentation;
//!   `title` and `detail` are for people. A client that decides by anything but the code breaks
//!   when those change.
//! - No text holds a key, a body or a credential.
//!
//! A problem does not know how it is sent: the media type, `Cache-Control` and the other header
//! fields are the server's.
//!
//! ```
//! use std::time::Duration;
//! use idempotency_shared::{Problem, ProblemCode};
//!
//! let problem = Problem::in_flight(Duration::from_millis(1200));
//! assert_eq!(problem.status(), 409);
//! assert_eq!(problem.retry_after(), Some(2));
//! assert_eq!(ProblemCode::from_code("in-flight"), Some(problem.code()));
//!
//! let problem = Problem::request_too_large(1024).with_type("https://docs.example/errors#size");
//! assert_eq!(problem.type_uri(), "https://docs.example/errors#size");
//! assert!(problem.detail().contains("larger than 1024 bytes"));
//! ```

mod code;
mod document;

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::time::Duration;

use http::StatusCode;

pub use self::code::ProblemCode;

/// One occurrence of a problem: a [`ProblemCode`] and what is particular to this answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Problem {
    code: ProblemCode,
    type_uri: Cow<'static, str>,
    detail: Cow<'static, str>,
    retry_after: Option<u32>,
    extra: Extra,
}

/// The member that a code has beside those that all of them have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Extra {
    None,
    OriginalStatus(StatusCode),
    Record(String),
}

/// One constructor for each code.
impl Problem {
    /// `key-missing`: the method is one that needs a key, and the request has none.
    pub fn key_missing() -> Self {
        Self::plain(ProblemCode::KeyMissing)
    }

    /// `key-invalid`: the field is there and does not hold a key.
    pub fn key_invalid() -> Self {
        Self::plain(ProblemCode::KeyInvalid)
    }

    /// `key-too-long`: the key has `length` characters, where `limit` are accepted.
    pub fn key_too_long(length: usize, limit: usize) -> Self {
        Self::filled(ProblemCode::KeyTooLong, &[("{length}", &length.to_string()), ("{limit}", &limit.to_string())])
    }

    /// `key-repeated`: the field occurs more than once.
    pub fn key_repeated() -> Self {
        Self::plain(ProblemCode::KeyRepeated)
    }

    /// `body-unreadable`: the request body broke off, or its length was not the announced one.
    pub fn body_unreadable() -> Self {
        Self::plain(ProblemCode::BodyUnreadable)
    }

    /// `request-too-large`: the request body has more than `limit` bytes.
    pub fn request_too_large(limit: u64) -> Self {
        Self::filled(ProblemCode::RequestTooLarge, &[("{limit}", &limit.to_string())])
    }

    /// `key-reused`: the key already means another request.
    pub fn key_reused() -> Self {
        Self::plain(ProblemCode::KeyReused)
    }

    /// `caller-changed`: the key means this request, sent first with other credentials.
    pub fn caller_changed() -> Self {
        Self::plain(ProblemCode::CallerChanged)
    }

    /// `in-flight`: the first request with the key has been running for `age` and has not ended.
    ///
    /// [`retry_after`](Self::retry_after) is that age in seconds, rounded up, and at least 1 and at
    /// most 5: what has run for long is likely to run on.
    pub fn in_flight(age: Duration) -> Self {
        let seconds = age.as_secs().saturating_add(u64::from(age.subsec_nanos() > 0));
        let seconds = seconds.clamp(*IN_FLIGHT_SECONDS.start(), *IN_FLIGHT_SECONDS.end());
        Self { retry_after: u32::try_from(seconds).ok(), ..Self::plain(ProblemCode::InFlight) }
    }

    /// `response-unavailable`: the operation ended with `original_status`, and its response cannot
    /// be sent again.
    pub fn response_unavailable(original_status: StatusCode) -> Self {
        Self {
            extra: Extra::OriginalStatus(original_status),
            ..Self::filled(ProblemCode::ResponseUnavailable, &[("{original_status}", original_status.as_str())])
        }
    }

    /// `outcome-unknown`: the operation may have taken effect, and `record` is what an operator
    /// settles it by.
    pub fn outcome_unknown(record: impl Into<String>) -> Self {
        Self { extra: Extra::Record(record.into()), ..Self::plain(ProblemCode::OutcomeUnknown) }
    }

    /// `overloaded`: as many operations are running, or bytes held, as the service allows.
    pub fn overloaded() -> Self {
        Self::plain(ProblemCode::Overloaded)
    }

    /// `draining`: the service is shutting down and starts nothing new.
    pub fn draining() -> Self {
        Self::plain(ProblemCode::Draining)
    }

    /// `store-unavailable`: the store did not answer, so nobody knows whether the key was used.
    pub fn store_unavailable() -> Self {
        Self::plain(ProblemCode::StoreUnavailable)
    }

    /// `record-unreadable`: the store's record is damaged or of a newer version.
    pub fn record_unreadable() -> Self {
        Self::plain(ProblemCode::RecordUnreadable)
    }

    /// `lease-lost`: another request took the key over while this one ran.
    pub fn lease_lost() -> Self {
        Self::plain(ProblemCode::LeaseLost)
    }

    /// `transaction-lost`: the handler ended, kept or moved the transaction that its answer was to
    /// be written in.
    pub fn transaction_lost() -> Self {
        Self::plain(ProblemCode::TransactionLost)
    }

    /// `transaction-failed`: the transaction did not begin or did not commit.
    pub fn transaction_failed() -> Self {
        Self::plain(ProblemCode::TransactionFailed)
    }

    /// `handler-panicked`: the handler panicked, and what it had done by then is unknown.
    pub fn handler_panicked() -> Self {
        Self::plain(ProblemCode::HandlerPanicked)
    }

    /// `principal-required`: the credentials change with each request, and the service does not say
    /// whose they are.
    pub fn principal_required() -> Self {
        Self::plain(ProblemCode::PrincipalRequired)
    }

    /// For the codes whose text has no gap; the tests hold each constructor to that.
    fn plain(code: ProblemCode) -> Self {
        Self {
            code,
            type_uri: Cow::Owned(code.type_uri()),
            detail: Cow::Borrowed(code.detail()),
            retry_after: code.retry_after(),
            extra: Extra::None,
        }
    }

    fn filled(code: ProblemCode, values: &[(&str, &str)]) -> Self {
        let detail = values.iter().fold(code.detail().to_owned(), |text, (gap, value)| text.replace(gap, value));
        Self { detail: Cow::Owned(detail), ..Self::plain(code) }
    }
}

/// What an occurrence says, and the one part of it that a service may change.
impl Problem {
    /// Replaces the `type` by a URI reference of the service's own, such as the page that documents
    /// the code.
    ///
    /// The text is sent as it is; nothing checks that it is a URI.
    pub fn with_type(mut self, uri: impl Into<Cow<'static, str>>) -> Self {
        self.type_uri = uri.into();
        self
    }

    /// Which problem it is.
    #[must_use]
    pub fn code(&self) -> ProblemCode {
        self.code
    }

    /// The status of the response, and the member `status`.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.code.status()
    }

    /// The member `type`: [`ProblemCode::type_uri`] unless [`with_type`](Self::with_type) replaced
    /// it.
    #[must_use]
    pub fn type_uri(&self) -> &str {
        &self.type_uri
    }

    /// The member `detail`, complete.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// What belongs into `Retry-After` (RFC 9110, section 10.2.3), in seconds; `None` when the
    /// field is not sent.
    #[must_use]
    pub fn retry_after(&self) -> Option<u32> {
        self.retry_after
    }

    /// The member `original_status`: how the operation ended whose response is not available.
    #[must_use]
    pub fn original_status(&self) -> Option<StatusCode> {
        match self.extra {
            Extra::OriginalStatus(status) => Some(status),
            _ => None,
        }
    }

    /// The member `record`: the id of the record that awaits an operator.
    #[must_use]
    pub fn record(&self) -> Option<&str> {
        match &self.extra {
            Extra::Record(record) => Some(record),
            _ => None,
        }
    }
}

/// Seconds that a client is told to wait for a request that is still running.
const IN_FLIGHT_SECONDS: RangeInclusive<u64> = 1..=5;

#[cfg(test)]
mod tests {
    use super::*;

    /// One problem of each code.
    pub(super) fn occurrence(code: ProblemCode) -> Problem {
        match code {
            ProblemCode::KeyMissing => Problem::key_missing(),
            ProblemCode::KeyInvalid => Problem::key_invalid(),
            ProblemCode::KeyTooLong => Problem::key_too_long(300, 255),
            ProblemCode::KeyRepeated => Problem::key_repeated(),
            ProblemCode::BodyUnreadable => Problem::body_unreadable(),
            ProblemCode::RequestTooLarge => Problem::request_too_large(1_048_576),
            ProblemCode::KeyReused => Problem::key_reused(),
            ProblemCode::CallerChanged => Problem::caller_changed(),
            ProblemCode::InFlight => Problem::in_flight(Duration::from_secs(3)),
            ProblemCode::ResponseUnavailable => Problem::response_unavailable(StatusCode::CREATED),
            ProblemCode::OutcomeUnknown => Problem::outcome_unknown("9f86d081"),
            ProblemCode::Overloaded => Problem::overloaded(),
            ProblemCode::Draining => Problem::draining(),
            ProblemCode::StoreUnavailable => Problem::store_unavailable(),
            ProblemCode::RecordUnreadable => Problem::record_unreadable(),
            ProblemCode::LeaseLost => Problem::lease_lost(),
            ProblemCode::TransactionLost => Problem::transaction_lost(),
            ProblemCode::TransactionFailed => Problem::transaction_failed(),
            ProblemCode::HandlerPanicked => Problem::handler_panicked(),
            ProblemCode::PrincipalRequired => Problem::principal_required(),
        }
    }

    /// Fails when `request_too_large` is `plain`.
    #[test]
    fn no_detail_has_a_gap() {
        for &code in ProblemCode::ALL {
            let problem = occurrence(code);
            assert!(!problem.detail().contains(['{', '}']), "{problem:?}");
        }
    }

    /// Fails when `key_too_long` fills `{length}` with `limit`.
    #[test]
    fn gaps_hold_the_values_they_are_named_after() {
        assert_eq!(
            Problem::key_too_long(300, 255).detail(),
            "The Idempotency-Key header holds 300 characters; at most 255 are accepted."
        );
        assert_eq!(
            Problem::request_too_large(1_048_576).detail(),
            "The request body is larger than 1048576 bytes. Nothing was processed."
        );
        let detail = "The original request with this key was processed with status 201;";
        let problem = Problem::response_unavailable(StatusCode::CREATED);
        assert!(problem.detail().starts_with(detail), "{problem:?}");
    }

    /// Fails when `overloaded` makes `ProblemCode::Draining`.
    #[test]
    fn constructors_make_their_own_code() {
        for &code in ProblemCode::ALL {
            assert_eq!(occurrence(code).code(), code);
        }
    }

    /// Fails when `in_flight` rounds down, or when `IN_FLIGHT_SECONDS` begins at 0 or ends at 6.
    #[test]
    fn in_flight_waits_as_long_as_the_run_has_taken_within_1_to_5_seconds() {
        for (age, seconds) in [
            (Duration::ZERO, 1),
            (Duration::from_nanos(1), 1),
            (Duration::from_secs(1), 1),
            (Duration::new(1, 1), 2),
            (Duration::from_millis(2900), 3),
            (Duration::from_secs(4), 4),
            (Duration::new(4, 1), 5),
            (Duration::from_secs(5), 5),
            (Duration::new(5, 1), 5),
            (Duration::MAX, 5),
        ] {
            let problem = Problem::in_flight(age);
            assert_eq!(problem.retry_after(), Some(seconds), "{age:?}");
        }
    }
}
