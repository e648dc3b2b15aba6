//! Whether a request was sent decides about the retry of one that has no key.

use client_retry::{Class, NoIdempotencyKey, StopReason, TransportFailure};
use h2::Reason;
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::untrusted::Untrusted;
use idempotency_tests::wire::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

/// C11. Fails when `of_connect` takes invalid data for a connection that did not come about.
#[tokio::test]
async fn bad_certificate_is_tried_once() {
    let server = Untrusted::start().await;
    for keyed in [true, false] {
        let before = server.handshakes();
        let call = quick_client(Version::Http1).post(server.url()).body(CHARGE);
        let call = if keyed { call } else { call.with_extension(NoIdempotencyKey) };
        let error = call.send().await.unwrap_err();
        let report = client_retry::Error::of(&error).unwrap().report().unwrap();
        assert_eq!(report.last().failure(), Some(TransportFailure::Certificate), "{error}");
        assert_eq!((report.attempts().len(), report.stop()), (1, StopReason::Final));
        assert_eq!((server.handshakes() - before, server.requests()), (1, 0));
    }
}

/// C11. Fails when `TransportFailure::of` does not ask whether the request could be built.
#[tokio::test]
async fn url_that_is_none_of_http_is_tried_once() {
    let error = quick_client(Version::Http1).post("ftp://pay.example/charges").send().await.unwrap_err();
    let report = client_retry::Error::of(&error).unwrap().report().unwrap();
    assert_eq!(report.last().failure(), Some(TransportFailure::Builder), "{error}");
    assert_eq!(report.attempts().len(), 1);
}

/// C11. Fails when `redirect_policy` has no limit, or a redirect without an end is retried.
#[tokio::test]
async fn redirect_loop_is_one_attempt() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::unread(Answer::redirect(307, "/charges")));
        let error = charge(&quick_client(version), &provider).send().await.unwrap_err();
        let report = client_retry::Error::of(&error).unwrap().report().unwrap();
        assert_eq!(report.last().failure(), Some(TransportFailure::Redirect), "{error}");
        assert_eq!((report.attempts().len(), provider.received().len()), (1, 11), "{version:?}");
        assert!(report.is_ambiguous());
        one_key(&provider.received());
    }
}

/// C12. Fails when `NotSent` is retried only where it is safe.
#[tokio::test]
async fn refused_connection_of_a_call_without_a_key_is_tried_again() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.down().await;
        let unkeyed = charge(&quick_client(version), &provider).with_extension(NoIdempotencyKey);
        let error = unkeyed.send().await.unwrap_err();
        let report = client_retry::Error::of(&error).unwrap().report().unwrap();
        assert_eq!((report.attempts().len(), report.stop()), (3, StopReason::AttemptsExhausted), "{version:?}");
        assert!(report.attempts().iter().all(|attempt| attempt.class() == Class::NotSent));
        assert!(!report.is_ambiguous());
        assert!(error.to_string().ends_with("nothing was done: make it again later"), "{error}");
    }
}

/// C12. Fails when `TransportFailure::of` does not ask for DNS.
#[tokio::test]
async fn unknown_host_of_a_call_without_a_key_is_tried_again() {
    let unkeyed = quick_client(Version::Http1).post("http://no-such-host.invalid/charges").body(CHARGE);
    let error = unkeyed.with_extension(NoIdempotencyKey).send().await.unwrap_err();
    let report = client_retry::Error::of(&error).unwrap().report().unwrap();
    assert_eq!(report.last().failure(), Some(TransportFailure::Dns), "{error}");
    assert_eq!(report.attempts().len(), 3);
}

/// What the server says that it did not process is sent again without a key. Fails when `of_h2` does not tell who reset
/// the stream, or the free attempt counts.
#[tokio::test]
async fn refused_stream_of_a_call_without_a_key_is_sent_again() {
    let version = Version::Http2;
    for refusal in [Ending::ResetStream(Reason::REFUSED_STREAM), Ending::GoAway(Reason::NO_ERROR)] {
        let provider = Provider::start(version).await;
        provider.script([
            Fault::unread(refusal.clone()),
            Fault::unread(refusal.clone()),
            Fault::unread(refusal.clone()),
        ]);
        let unkeyed = charge(&quick_client(version), &provider).with_extension(NoIdempotencyKey);
        let response = unkeyed.send().await.unwrap();
        let report = report(&response);
        assert_eq!((response.status().as_u16(), provider.ledger().len()), (201, 1), "{refusal:?}");
        let classes: Vec<_> = report.attempts().iter().map(client_retry::Attempt::class).collect();
        assert_eq!(classes, [Class::Refused, Class::Refused, Class::Refused, Class::Success], "{refusal:?}");
        assert_eq!(report.attempts()[1].delay(), Duration::ZERO);
    }
}

/// C13. Fails when `is_retried` does not ask whether the call is safe.
#[tokio::test]
async fn call_without_a_key_that_may_have_taken_effect_is_not_repeated() {
    for version in Version::BOTH {
        for loss in [Ending::Reset, Ending::Close, Ending::Silence, Ending::Stall, Answer::new(502).into()] {
            let provider = Provider::start(version).await;
            provider.always(Fault::committed(loss.clone()));
            let retry = quick().attempt_timeout(Duration::from_millis(200)).build().unwrap();
            let unkeyed = charge(&client(version, retry), &provider).with_extension(NoIdempotencyKey);
            let report = match unkeyed.send().await {
                Ok(response) => report(&response),
                Err(error) => client_retry::Error::of(&error).unwrap().report().unwrap().clone(),
            };
            assert_eq!((provider.received().len(), provider.ledger().len()), (1, 1), "{version:?} {loss:?}");
            assert_eq!(report.stop(), StopReason::NotSafe);
            assert!(report.is_ambiguous() && report.key().is_none());
            assert!(provider.received()[0].keys.is_empty());
        }
    }
}

/// C13, of methods that may happen twice. Fails when `Call::new` takes every method for one that may not.
#[tokio::test]
async fn idempotent_method_needs_no_key() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.script([Fault::committed(Ending::Reset), Fault::committed(Ending::Close)]);
        let put = quick_client(version).put(format!("{}/charges/ch_1", provider.url())).body("{}");
        assert_eq!(put.send().await.unwrap().status(), 200);
        let received = provider.received();
        assert_eq!(received.len(), 3, "{version:?}");
        assert!(received.iter().all(|request| request.keys.is_empty()));
    }
}

/// C13, where what was redirected is refused: the first server did it. Fails when `ending` returns what it has read.
#[tokio::test]
async fn call_without_a_key_that_was_redirected_and_then_refused_is_not_repeated() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let (seen, early) = (Answer::redirect(303, "/charges/ch_1"), Answer::new(425));
        provider.script([Fault::committed(seen), Fault::unread(early)]);
        let unkeyed = charge(&quick_client(version), &provider).with_extension(NoIdempotencyKey);
        let response = unkeyed.send().await.unwrap();
        let report = report(&response);
        assert_eq!((response.status().as_u16(), report.stop()), (425, StopReason::NotSafe), "{version:?}");
        assert_eq!((provider.received().len(), provider.ledger().len()), (2, 1));
        assert!(report.is_ambiguous());
    }
}

/// C13, where a redirect hides that the request was sent. Fails when `failed` does not ask whether there was a
/// redirect, or `redirect_policy` does not say so.
#[tokio::test]
async fn call_without_a_key_that_was_redirected_and_then_lost_is_not_repeated() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/charges", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        // The charge is made, and its result is where nobody answers any more.
        drop(listener);
        stream.write_all(b"HTTP/1.1 303 See Other\r\nlocation: /charges/ch_1\r\nconnection: close\r\n\r\n").await
    });
    let unkeyed = quick_client(Version::Http1).post(url).body(CHARGE).with_extension(NoIdempotencyKey);
    let error = unkeyed.send().await.unwrap_err();
    served.await.unwrap().unwrap();
    let report = client_retry::Error::of(&error).unwrap().report().unwrap();
    assert_eq!(report.last().failure(), Some(TransportFailure::AfterRedirect), "{error}");
    assert_eq!((report.attempts().len(), report.is_ambiguous()), (1, true));
}
