//! A call has one key, which its caller can give, its server can read, and the next run of the same request makes
//! again.

use client_retry::{ErrorKind, IdempotencyKey, KeyFormat, Propagation};
use http::HeaderName;
use idempotency_tests::provider::{Ending, Fault, Provider};
use idempotency_tests::wire::Version;
use reqwest::header::HeaderValue;

use super::*;

const KEY: HeaderName = HeaderName::from_static("idempotency-key");

fn run(parent: &str) -> Propagation {
    Propagation::builder("order:create", IdempotencyKey::new(parent).unwrap()).principal("alice").build()
}

/// C16. Fails when `Keying::key` leaves the header as it was written.
#[tokio::test]
async fn key_of_the_caller_arrives_in_one_spelling() {
    for version in Version::BOTH {
        for (format, written, sent) in [
            (KeyFormat::Bare, "order-4711", "order-4711"),
            (KeyFormat::Bare, r#""order-4711""#, "order-4711"),
            (KeyFormat::Bare, r#"  "order-4711";v=1 "#, "order-4711"),
            (KeyFormat::Bare, r#""order 4711""#, r#""order 4711""#),
            (KeyFormat::Structured, "order-4711", r#""order-4711""#),
        ] {
            let provider = Provider::start(version).await;
            provider.script([Fault::committed(Ending::Reset)]);
            let retry = client(version, quick().key_format(format).build().unwrap());
            charge(&retry, &provider).header(KEY, written).send().await.unwrap();
            assert_eq!(provider.received().len(), 2);
            assert_eq!(one_key(&provider.received()), sent, "{version:?} {written}");
        }
    }
}

/// C16. Fails when `choose` does not read the header, or reads its first line only.
#[tokio::test]
async fn key_that_cannot_be_sent_is_an_error_before_anything_is() {
    let provider = Provider::start(Version::Http1).await;
    let retry = quick_client(Version::Http1);
    let long = "a".repeat(256);
    for values in [&["a", "b"][..], &["a", "a"], &[""], &[&long], &["schlüssel"], &["a b"], &["a,b"]] {
        let call = values.iter().fold(charge(&retry, &provider), |call, value| {
            call.header(KEY, HeaderValue::from_bytes(value.as_bytes()).unwrap())
        });
        let error = call.send().await.unwrap_err();
        assert_eq!(client_retry::Error::of(&error).unwrap().kind(), ErrorKind::InvalidKey, "{values:?}");
    }
    let two = charge(&retry, &provider).header(KEY, "a").with_extension(IdempotencyKey::new("b").unwrap());
    let error = two.send().await.unwrap_err();
    assert_eq!(client_retry::Error::of(&error).unwrap().kind(), ErrorKind::TwoKeys);
    assert_eq!((provider.received().len(), provider.connections()), (0, 0));
}

/// C20, of a handler that hands its headers on. Fails when `given` takes every key.
#[tokio::test]
async fn key_of_the_inbound_request_does_not_leave_the_service() {
    let provider = Provider::start(Version::Http1).await;
    let retry = quick_client(Version::Http1);
    let copied = charge(&retry, &provider).header(KEY, r#""parent""#);
    let extended = charge(&retry, &provider).with_extension(IdempotencyKey::new("parent").unwrap());
    for call in [copied, extended] {
        let error = run("parent").around(call.send()).await.unwrap_err();
        assert_eq!(client_retry::Error::of(&error).unwrap().kind(), ErrorKind::ParentKey);
        assert!(error.to_string().contains("derive one with Propagation::operation"), "{error}");
    }
    assert_eq!(provider.connections(), 0);
}

/// C19. Fails when `derived` takes anything of the attempt or the body, or `choose` makes a random key for it.
#[tokio::test]
async fn next_run_makes_its_calls_under_the_same_keys() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let retry = quick_client(version);
        let calls = |run: Propagation, reversed: bool| {
            let (retry, provider) = (&retry, &provider);
            async move {
                let named = |name, nth| run.operation(name).with("order-4711").nth(nth).key().unwrap();
                let ambient = charge(retry, provider).with_extension(run.clone()).send();
                let first = charge(retry, provider).with_extension(named("fee", 0)).send();
                let second = charge(retry, provider).with_extension(named("fee", 1)).send();
                // At once, so that nothing depends on which comes first.
                let (ambient, first, second) = match reversed {
                    false => tokio::join!(ambient, first, second),
                    true => {
                        let (second, first, ambient) = tokio::join!(second, first, ambient);
                        (ambient, first, second)
                    }
                };
                [ambient, first, second].map(|response| report(&response.unwrap()).key().unwrap().clone())
            }
        };
        let first = calls(run("parent"), false).await;
        assert_eq!(calls(run("parent"), true).await, first);
        assert_eq!(provider.ledger().len(), 3, "{version:?}");
        let other = calls(run("another"), false).await;
        assert!(first.iter().all(|key| !other.contains(key)));
        assert_eq!(provider.ledger().len(), 6);
        assert!(provider.received().iter().all(|request| !request.headers.values().any(|value| value == "parent")));
    }
}

/// C19. Fails when `derived` counts equal calls, or the second one gets a random key.
#[tokio::test]
async fn equal_calls_of_one_run_that_nobody_tells_apart_are_an_error() {
    let provider = Provider::start(Version::Http1).await;
    let retry = quick_client(Version::Http1);
    let errors = run("parent")
        .around(async {
            assert_eq!(charge(&retry, &provider).send().await.unwrap().status(), 201);
            charge(&retry, &provider).send().await.unwrap_err()
        })
        .await;
    assert_eq!(client_retry::Error::of(&errors).unwrap().kind(), ErrorKind::DerivedKeyReused);
    assert!(errors.to_string().contains("name both, with Propagation::operation"), "{errors}");
    assert_eq!(provider.received().len(), 1);
}
