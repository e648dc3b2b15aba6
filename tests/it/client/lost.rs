//! An answer can be lost in many ways after the charge was made, and none of them makes another one.

use std::time::Duration;

use client_retry::{Class, StopReason};
use h2::Reason;
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::Version;

use super::*;

/// Every way in which an answer of known length is lost.
pub(crate) fn losses(version: Version) -> Vec<Ending> {
    let both = [
        Ending::Reset,
        Ending::Close,
        Ending::Silence,
        Ending::Stall,
        Ending::Late(Duration::from_secs(5)),
        Answer::new(502).body("bad gateway").into(),
        Answer::new(504).into(),
        Answer::new(500).body("x".repeat(200_000)).into(),
        Answer::new(408).into(),
    ];
    let one = match version {
        Version::Http1 => vec![Ending::HalfHead, Ending::ShortBody],
        Version::Http2 => [Reason::CANCEL, Reason::INTERNAL_ERROR, Reason::NO_ERROR]
            .into_iter()
            .flat_map(|reason| [Ending::BreakStream(reason), Ending::BreakConnection(reason)])
            .chain([Ending::ResetStream(Reason::CANCEL), Ending::ResetStream(Reason::INTERNAL_ERROR)])
            .collect(),
    };
    both.into_iter().chain(one).collect()
}

/// C1. Fails when `Copies::next` takes the body away, `keying.key` is asked before each attempt, `read` does not
/// compare lengths, or `unread` finds nothing to read.
#[tokio::test]
async fn lost_answer_is_fetched_under_the_same_key() {
    for version in Version::BOTH {
        for loss in losses(version) {
            let provider = Provider::start(version).await;
            provider.script([Fault::committed(loss.clone())]);
            let retry = quick().attempt_timeout(Duration::from_millis(400)).build().unwrap();
            let response = charge(&client(version, retry), &provider).send().await.unwrap();

            let report = report(&response);
            assert_eq!((response.status().as_u16(), provider.ledger().len()), (201, 1), "{version:?} {loss:?}");
            assert!(response.text().await.unwrap().contains("ch_1"), "{version:?} {loss:?}");
            let received = provider.received();
            let key = one_key(&received);
            assert_eq!(report.key().unwrap().as_str().as_bytes(), key);
            assert_eq!(received.len(), 2, "{version:?} {loss:?}");
            assert!(received.iter().all(|request| request.body == CHARGE), "{version:?} {loss:?}");
            let classes: Vec<_> = report.attempts().iter().map(client_retry::Attempt::class).collect();
            assert_eq!(classes, [Class::Ambiguous, Class::Success], "{version:?} {loss:?}");
            assert!(report.is_replayed() && !report.is_ambiguous(), "{version:?} {loss:?}");
            assert_eq!(report.stop(), StopReason::Succeeded);
        }
    }
}

/// C1. Fails when `is_ambiguous` looks at the last attempt only.
#[tokio::test]
async fn call_whose_every_answer_is_lost_says_that_it_may_have_taken_effect() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.script([Some(Fault::committed(Ending::Reset)), Some(Fault::unread(Answer::new(404)))]);
        let response = charge(&quick_client(version), &provider).send().await.unwrap();
        assert_eq!(response.status(), 404);
        assert!(report(&response).is_ambiguous(), "{version:?}");
        assert_eq!(provider.ledger().len(), 1);

        provider.always(Fault::committed(Ending::Close));
        let error = charge(&quick_client(version), &provider).send().await.unwrap_err();
        let report = client_retry::Error::of(&error).unwrap().report().unwrap();
        assert!(report.is_ambiguous(), "{version:?}");
        assert_eq!((report.attempts().len(), report.stop()), (3, StopReason::AttemptsExhausted));
        assert_eq!(provider.ledger().len(), 2, "one for each call");
    }
}

/// C1. Fails when `read` forgets the status.
#[tokio::test]
async fn status_of_an_answer_that_breaks_off_each_time_is_in_the_report() {
    for (version, cut) in [(Version::Http1, Ending::ShortBody), (Version::Http2, Ending::BreakStream(Reason::NO_ERROR))]
    {
        let provider = Provider::start(version).await;
        provider.always(Fault::committed(cut));
        let error = charge(&quick_client(version), &provider).send().await.unwrap_err();
        let report = client_retry::Error::of(&error).unwrap().report().unwrap();
        assert!(report.attempts().iter().all(|attempt| attempt.status().is_some_and(|status| status == 201)));
        assert!(error.to_string().contains("201 Created, but the response broke off after 3 attempts"), "{error}");
        assert!(report.is_ambiguous());
        assert_eq!(provider.ledger().len(), 1, "{version:?}");
    }
}

/// C1, where the client cannot help: a body whose length nobody said is its caller's to read. Fails when `replace`
/// loses the error of the body it wraps.
#[tokio::test]
async fn body_without_a_length_breaks_off_at_its_reader() {
    let provider = Provider::start(Version::Http1).await;
    provider.script([Fault::committed(Ending::OpenChunks)]);
    let response = charge(&quick_client(Version::Http1), &provider).send().await.unwrap();
    let key = report(&response).key().unwrap().clone();
    assert!(response.text().await.is_err());

    let again = charge(&quick_client(Version::Http1), &provider).with_extension(key).send().await.unwrap();
    assert!(report(&again).is_replayed());
    assert_eq!(provider.ledger().len(), 1);
}
