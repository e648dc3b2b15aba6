//! Some answers are final however little they please: another attempt would get the same, or do harm.

use client_retry::{Class, ProblemCode, StopReason};
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::Version;

use super::*;

/// C3. Fails when `class` asks for the status before it asks whether the failure is replayed.
#[tokio::test]
async fn replayed_failure_ends_the_call() {
    for version in Version::BOTH {
        for status in [402, 409, 429, 500, 503] {
            let provider = Provider::start(version).await;
            let replayed = Answer::new(status).header("idempotent-replayed", "true").header("retry-after", "1");
            provider.always(Fault::unread(replayed));
            let response = charge(&quick_client(version), &provider).send().await.unwrap();
            let report = report(&response);
            assert_eq!((response.status().as_u16(), provider.received().len()), (status, 1), "{version:?}");
            assert_eq!((report.last().class(), report.stop()), (Class::ReplayedFailure, StopReason::Final));
            // What was recorded of a run that failed does not say how far it came.
            assert_eq!((report.is_replayed(), report.is_ambiguous()), (true, status >= 500), "{status}");
        }
    }
}

/// C4. Fails when `is_retried` does not ask whether an attempt was ambiguous.
#[tokio::test]
async fn conflict_of_the_domain_is_returned_untouched() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let conflict = Answer::new(409).header("x-reason", "sold out").body("the seat is taken");
        provider.always(Fault::unread(conflict));
        let response = charge(&quick_client(version), &provider).send().await.unwrap();
        let report = report(&response);
        assert_eq!((response.status().as_u16(), provider.received().len()), (409, 1), "{version:?}");
        assert_eq!((report.last().class(), report.stop()), (Class::Conflict, StopReason::Final));
        assert!(!report.is_ambiguous());
        assert_eq!(response.headers()["x-reason"], "sold out");
        assert_eq!(response.text().await.unwrap(), "the seat is taken");
    }
}

/// C4, of a provider that knows keys and replays nothing. Fails when `is_ambiguous` forgets the first attempt, or
/// `retrying` the class of it.
#[tokio::test]
async fn conflict_after_a_lost_answer_is_ambiguous() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.rejects_duplicates();
        provider.script([Fault::committed(Ending::Reset)]);
        let response = charge(&quick_client(version), &provider).send().await.unwrap();
        let report = report(&response);
        assert_eq!((response.status().as_u16(), provider.ledger().len()), (409, 1), "{version:?}");
        assert!(report.is_ambiguous());
        let classes: Vec<_> = report.attempts().iter().map(client_retry::Attempt::class).collect();
        assert_eq!(classes, [Class::Ambiguous, Class::Conflict, Class::Conflict]);
    }
}

/// Problems of a server of this suite that no attempt mends. Fails when `of_code` puts one of them elsewhere.
#[tokio::test]
async fn problem_that_no_retry_mends_ends_the_call() {
    for version in Version::BOTH {
        for (status, code, ambiguous) in [
            (409, ProblemCode::ResponseUnavailable, true),
            (409, ProblemCode::OutcomeUnknown, true),
            (422, ProblemCode::CallerChanged, true),
            (422, ProblemCode::KeyReused, false),
            (400, ProblemCode::KeyInvalid, false),
        ] {
            let provider = Provider::start(version).await;
            let problem = Answer::new(status).header("idempotency-problem", code.as_str());
            provider.always(Fault::unread(problem));
            let response = charge(&quick_client(version), &provider).send().await.unwrap();
            let report = report(&response);
            assert_eq!((response.status().as_u16(), provider.received().len()), (status, 1), "{code:?}");
            assert_eq!((report.problem(), report.is_ambiguous()), (Some(code), ambiguous));
        }
    }
}
