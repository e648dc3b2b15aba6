//! The table of the docs as the tests state it, row by row, and every response there is held against it.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use http::header::RETRY_AFTER;
use http::{HeaderValue, Method};

use super::*;

/// A row of the table in the docs: a response belongs to the first one that has its status, and
/// its headers where the row asks for any.
struct Row {
    class: Class,
    statuses: &'static [RangeInclusive<u16>],
    headers: Headers,
}

enum Headers {
    Any,
    Replayed,
    Codes(&'static [&'static str]),
    RetryAfter,
}

const ERRORS: &[RangeInclusive<u16>] = &[400..=999];

const TABLE: &[Row] = &[
    Row { class: Class::Success, statuses: &[100..=399], headers: Headers::Any },
    Row { class: Class::ReplayedFailure, statuses: ERRORS, headers: Headers::Replayed },
    Row {
        class: Class::Settled,
        statuses: ERRORS,
        headers: Headers::Codes(&["response-unavailable", "outcome-unknown", "caller-changed", "record-unreadable"]),
    },
    Row {
        class: Class::Misuse,
        statuses: ERRORS,
        headers: Headers::Codes(&["key-missing", "key-invalid", "key-too-long", "key-repeated", "key-reused"]),
    },
    Row { class: Class::InProgress, statuses: ERRORS, headers: Headers::Codes(&["in-flight"]) },
    Row { class: Class::Refused, statuses: ERRORS, headers: Headers::Codes(&["body-unreadable"]) },
    Row {
        class: Class::Throttled,
        statuses: ERRORS,
        headers: Headers::Codes(&["overloaded", "draining", "store-unavailable", "lease-lost", "transaction-failed"]),
    },
    Row {
        class: Class::Ambiguous,
        statuses: ERRORS,
        headers: Headers::Codes(&["transaction-lost", "handler-panicked"]),
    },
    Row {
        class: Class::Fatal,
        statuses: ERRORS,
        headers: Headers::Codes(&["principal-required", "request-too-large"]),
    },
    Row { class: Class::InProgress, statuses: &[409..=409], headers: Headers::RetryAfter },
    Row { class: Class::Refused, statuses: &[425..=425], headers: Headers::Any },
    Row { class: Class::Throttled, statuses: &[429..=429, 503..=503], headers: Headers::Any },
    Row { class: Class::Throttled, statuses: &[413..=413], headers: Headers::RetryAfter },
    Row {
        class: Class::Ambiguous,
        statuses: &[408..=408, 500..=500, 502..=502, 504..=504, 506..=999],
        headers: Headers::Any,
    },
    Row { class: Class::Conflict, statuses: &[409..=409, 422..=422], headers: Headers::Any },
    Row {
        class: Class::Fatal,
        statuses: &[400..=407, 410..=421, 423..=424, 426..=428, 430..=499, 501..=501, 505..=505],
        headers: Headers::Any,
    },
];

/// The headers of one response.
#[derive(Clone, Copy, Debug)]
struct Sent {
    replayed: Option<&'static str>,
    code: Option<&'static str>,
    retry_after: Option<&'static str>,
}

impl Sent {
    fn all() -> Vec<Self> {
        let codes = ProblemCode::ALL.iter().map(|code| Some(code.as_str()));
        let codes = codes.chain([None, Some("unheard-of"), Some("")]);
        let mut all = Vec::new();
        for code in codes {
            for replayed in [None, Some("true"), Some("false")] {
                for retry_after in [None, Some("3"), Some("soon")] {
                    all.push(Self { replayed, code, retry_after });
                }
            }
        }
        all
    }

    fn headers(self) -> HeaderMap {
        [(IDEMPOTENT_REPLAYED, self.replayed), (IDEMPOTENCY_PROBLEM, self.code), (RETRY_AFTER, self.retry_after)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, HeaderValue::from_static(value?))))
            .collect()
    }

    fn rows(self, status: u16) -> impl Iterator<Item = &'static Row> {
        TABLE.iter().filter(move |row| {
            let headers = match row.headers {
                Headers::Any => true,
                Headers::Replayed => self.replayed == Some("true"),
                Headers::Codes(codes) => self.code.is_some_and(|code| codes.contains(&code)),
                Headers::RetryAfter => self.retry_after == Some("3"),
            };
            headers && row.statuses.iter().any(|statuses| statuses.contains(&status))
        })
    }
}

fn calls() -> impl Iterator<Item = Call> {
    [Method::POST, Method::PUT].into_iter().flat_map(|method| {
        let call = Call::new(&method);
        [call, call.keyed(), call.after_ambiguous(), call.keyed().after_ambiguous()]
    })
}

fn response(status: u16, headers: &HeaderMap) -> Ending<'_> {
    Ending::Response { status: StatusCode::from_u16(status).unwrap(), headers }
}

/// Fails when any status or code moves to another class, or two arms of `class` change places.
#[test]
fn every_response_has_the_class_of_its_first_row() {
    let mut seen = HashSet::new();
    for sent in Sent::all() {
        let headers = sent.headers();
        for status in 100..=999 {
            let row = sent.rows(status).next().unwrap_or_else(|| panic!("no row for {status} {sent:?}"));
            assert_eq!(response(status, &headers).class(), row.class, "{status} {sent:?}");
            seen.insert(row.class);
        }
    }
    assert_eq!(seen.len(), 10, "all but `NotSent`, which is no response: {seen:?}");
}

/// Fails when any arm of `is_retried` changes.
#[test]
fn what_is_retried_follows_from_class_and_call() {
    for sent in Sent::all() {
        let headers = sent.headers();
        for status in 100..=999 {
            let ending = response(status, &headers);
            for call in calls() {
                let retried = match ending.class() {
                    Class::InProgress => call.is_keyed(),
                    Class::Refused => true,
                    Class::Throttled | Class::Ambiguous => call.is_safe(),
                    Class::Conflict => status == 409 && call.is_after_ambiguous(),
                    Class::NotSent => panic!("a response to what was not sent: {status} {sent:?}"),
                    _ => false,
                };
                assert_eq!(ending.is_retried(call), retried, "{status} {sent:?} {call:?}");
            }
        }
    }
}

/// Fails when `of_code` puts any code on the other side, such as `RecordUnreadable` with `Draining`.
#[test]
fn call_under_a_key_is_retried_exactly_when_the_code_says_so() {
    for &code in ProblemCode::ALL {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_PROBLEM, HeaderValue::from_static(code.as_str()));
        let ending = response(code.status().as_u16(), &headers);
        assert_eq!(ending.problem(), Some(code));
        assert_eq!(ending.is_retried(Call::new(&Method::POST).keyed()), code.retryable(), "{code:?}");
    }
}

/// Fails when `is_ambiguous` takes every `Throttled` for the same, or none.
#[test]
fn response_is_ambiguous_unless_it_says_what_became_of_the_operation() {
    for (status, code, ambiguous) in [
        (200, "", false),
        (402, "", false),
        (409, "", false),
        (425, "", false),
        (429, "", false),
        (408, "", true),
        (500, "", true),
        (502, "", true),
        (503, "", true),
        (503, "overloaded", false),
        (503, "draining", false),
        (503, "lease-lost", true),
        (503, "store-unavailable", true),
        (503, "transaction-failed", true),
        (503, "record-unreadable", true),
        (409, "in-flight", true),
        (409, "outcome-unknown", true),
        (409, "response-unavailable", true),
        (422, "caller-changed", true),
        (422, "key-reused", false),
        (400, "body-unreadable", false),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(IDEMPOTENCY_PROBLEM, HeaderValue::from_static(code));
        assert_eq!(response(status, &headers).is_ambiguous(), ambiguous, "{status} {code}");
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
        // Of a run that failed nobody recorded how far it came.
        let failed = status == 408 || status >= 500;
        assert_eq!(response(status, &headers).is_ambiguous(), failed, "{status} {code} replayed");
    }
}

/// Fails when `class` of a failure changes, or `is_retried` asks of `NotSent` that the call is safe.
#[test]
fn every_failure_has_its_class_and_what_follows() {
    for (failures, class, ambiguous) in FAILURES {
        for &failure in *failures {
            let ending = Ending::Failure(failure);
            assert_eq!(ending.class(), *class, "{failure:?}");
            assert_eq!(ending.is_ambiguous(), *ambiguous, "{failure:?}");
            for call in calls() {
                let retried = match class {
                    Class::NotSent | Class::Refused => true,
                    Class::Ambiguous => call.is_safe(),
                    _ => false,
                };
                assert_eq!(ending.is_retried(call), retried, "{failure:?} {call:?}");
            }
        }
    }
    let listed: HashSet<_> = FAILURES.iter().flat_map(|(failures, ..)| *failures).collect();
    assert_eq!(listed, TransportFailure::ALL.iter().collect());
}

const FAILURES: &[(&[TransportFailure], Class, bool)] = {
    use TransportFailure::*;
    &[
        (&[Dns, ConnectionRefused, ConnectTimeout, Connect, Unsent], Class::NotSent, false),
        (&[RefusedStream, GoAway], Class::Refused, false),
        (&[Timeout, Reset, Closed, TruncatedBody, Protocol, AfterRedirect, Other], Class::Ambiguous, true),
        (&[Builder, Certificate], Class::Fatal, false),
        (&[Redirect, RequestBody, Decode], Class::Fatal, true),
    ]
};
