//! A redirect takes neither a key nor a body to somebody who was not asked.

use client_retry::{IdempotencyKey, Propagation};
use idempotency_tests::provider::{Answer, Fault, Provider};
use idempotency_tests::wire::Version;

use super::*;

/// C20. Fails when `redirect_policy` compares hosts only, or follows first.
#[tokio::test]
async fn key_does_not_leave_its_origin() {
    for version in Version::BOTH {
        for status in [301, 302, 303, 307, 308] {
            let (provider, other) = (Provider::start(version).await, Provider::start(version).await);
            provider.always(Fault::unread(Answer::redirect(status, &other.charges())));
            let parent = IdempotencyKey::new("parent-of-all").unwrap();
            let run = Propagation::builder("order:create", parent).build();
            let response = run.around(charge(&quick_client(version), &provider).send()).await.unwrap();
            assert_eq!(response.status().as_u16(), status);
            assert!(!report(&response).left_origin());
            assert_eq!((provider.received().len(), other.connections()), (1, 0), "{version:?} {status}");
            assert_ne!(one_key(&provider.received()), "parent-of-all");
        }
    }
}

/// Fails when `redirect_policy` stops at every redirect.
#[tokio::test]
async fn redirect_within_an_origin_is_followed_under_the_key() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.script([Fault::unread(Answer::redirect(308, "/charges"))]);
        let response = quick_client(version).post(format!("{}/pay", provider.url())).body(CHARGE).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.url().path()), (201, "/charges"), "{version:?}");
        assert_eq!((report(&response).attempts().len(), report(&response).left_origin()), (1, false));
        one_key(&provider.received());
    }
}

/// Fails when `is_answer` takes any response below 400 for one.
#[tokio::test]
async fn redirect_that_is_not_followed_does_not_say_what_a_lost_answer_was() {
    for version in Version::BOTH {
        let (provider, other) = (Provider::start(version).await, Provider::start(version).await);
        let elsewhere = Answer::redirect(307, &other.charges());
        provider.script([Fault::committed(Answer::new(502)), Fault::unread(elsewhere)]);
        let response = charge(&quick_client(version), &provider).send().await.unwrap();
        assert_eq!((response.status().as_u16(), report(&response).is_ambiguous()), (307, true), "{version:?}");
        assert_eq!((provider.ledger().len(), other.connections()), (1, 0));
    }
}

/// Fails when `run` takes a redirect that is not followed for the end of the call.
#[tokio::test]
async fn call_that_ends_at_a_redirect_keeps_its_key_for_its_repetition() {
    let (provider, other) = (Provider::start(Version::Http1).await, Provider::start(Version::Http1).await);
    let elsewhere = Answer::redirect(307, &other.charges());
    provider.script([Fault::committed(Answer::new(502)), Fault::unread(elsewhere)]);
    let retry = quick_client(Version::Http1);
    let request = charge(&retry, &provider).build().unwrap();
    let mut extensions = http::Extensions::new();
    let first = retry.execute_with_extensions(request.try_clone().unwrap(), &mut extensions).await.unwrap();
    let again = retry.execute_with_extensions(request, &mut extensions).await.unwrap();
    assert_eq!((first.status().as_u16(), again.status().as_u16()), (307, 201));
    assert_eq!((provider.received().len(), provider.ledger().len()), (3, 1));
    one_key(&provider.received());
}

/// C20, of an attempt that was followed by another. Fails when `record` does not ask `note_origin`.
#[tokio::test]
async fn answer_of_another_origin_to_an_earlier_attempt_is_reported() {
    let (provider, other) = (Provider::start(Version::Http1).await, Provider::start(Version::Http1).await);
    provider.script([Fault::unread(Answer::redirect(307, &other.charges()))]);
    other.always(Fault::unread(Answer::new(502)));
    let plain = bare(Version::Http1).redirect(reqwest::redirect::Policy::default()).build().unwrap();
    let client = reqwest_middleware::ClientBuilder::new(plain).with(quick().build().unwrap()).build();
    let response = charge(&client, &provider).send().await.unwrap();
    assert_eq!((response.status().as_u16(), report(&response).attempts().len()), (201, 2));
    assert!(report(&response).left_origin());
}

/// C20, where another policy lets it. Fails when `note_origin` takes no note.
#[tokio::test]
async fn answer_of_another_origin_is_reported() {
    let (provider, other) = (Provider::start(Version::Http1).await, Provider::start(Version::Http1).await);
    provider.always(Fault::unread(Answer::redirect(307, &other.charges())));
    let plain = bare(Version::Http1).redirect(reqwest::redirect::Policy::default()).build().unwrap();
    let client = reqwest_middleware::ClientBuilder::new(plain).with(IdempotentRetry::default()).build();
    let response = charge(&client, &provider).send().await.unwrap();
    assert_eq!(response.status(), 201);
    assert!(report(&response).left_origin());
}
