//! What a request and a response carry is neither lost nor in the way of another attempt.

use std::io;

use client_retry::{RetryReport, StopReason};
use futures_util::stream;
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::Version;
use reqwest::Body;

use super::*;

pub(super) fn streamed(body: &'static str) -> Body {
    Body::wrap_stream(stream::iter(body.as_bytes().chunks(7).map(Ok::<_, io::Error>)))
}

/// C14. Fails when `Copies::new` takes a stream for a body that can be copied, or an error is made of it.
#[tokio::test]
async fn stream_is_sent_once_under_a_key() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let retry = quick_client(version);
        let response = charge(&retry, &provider).body(streamed(CHARGE)).send().await.unwrap();
        assert_eq!((response.status().as_u16(), report(&response).stop()), (201, StopReason::Succeeded));

        provider.always(Fault::committed(Answer::new(502)));
        let response = charge(&retry, &provider).body(streamed(CHARGE)).send().await.unwrap();
        let report = report(&response);
        assert_eq!((response.status().as_u16(), report.stop()), (502, StopReason::BodyNotReplayable));
        assert!(report.is_ambiguous());

        provider.always(Fault::committed(Ending::Reset));
        let error = charge(&retry, &provider).body(streamed(CHARGE)).send().await.unwrap_err();
        let report = client_retry::Error::of(&error).unwrap().report().unwrap();
        assert_eq!((report.attempts().len(), report.stop()), (1, StopReason::BodyNotReplayable));

        let received = provider.received();
        assert_eq!((received.len(), provider.ledger().len()), (3, 3), "{version:?}");
        assert!(received.iter().all(|request| request.keys.len() == 1 && request.body == CHARGE));
    }
}

/// C15. Fails when `discard` reads whatever comes, or after the wait.
#[tokio::test]
async fn large_error_does_not_hold_its_connection_through_the_wait() {
    for version in Version::BOTH {
        for answer in [Answer::new(503), Answer::new(503).streamed()] {
            let provider = Provider::start(version).await;
            let large = answer.body("x".repeat(200 * 1024)).header("retry-after-ms", "300");
            provider.script([Fault::unread(large)]);
            let began = tokio::time::Instant::now();
            let response = charge(&quick_client(version), &provider).send().await.unwrap();
            assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
            assert_eq!((response.status().as_u16(), provider.ledger().len()), (201, 1), "{version:?}");
            let connections = if version == Version::Http1 { 2 } else { 1 };
            assert_eq!(provider.connections(), connections, "over HTTP/1.1 the rest of the body is not worth reading");
        }
    }
}

/// C15. Fails when `discard` drops every response.
#[tokio::test]
async fn small_error_leaves_its_connection_to_the_next_attempt() {
    for version in Version::BOTH {
        for answer in [Answer::new(503), Answer::new(503).streamed()] {
            let provider = Provider::start(version).await;
            let small = answer.body("x".repeat(32 * 1024)).header("retry-after-ms", "100");
            provider.script([Fault::unread(small.clone()), Fault::unread(small)]);
            let response = charge(&quick_client(version), &provider).send().await.unwrap();
            assert_eq!((response.status().as_u16(), provider.received().len()), (201, 3));
            assert_eq!(provider.connections(), 1, "{version:?}");
        }
    }
}

/// Fails when `replace` forgets the URL, the version or the extensions.
#[tokio::test]
async fn response_that_was_read_is_like_one_that_was_not() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let answers = [
            Answer::new(200).body("small"),
            Answer::new(200).body("small").streamed(),
            Answer::new(200).body("x".repeat(300_000)),
            Answer::new(200),
        ];
        for answer in answers {
            provider.always(Fault::unread(answer.header("x-one", "1").header("x-one", "2")));
            let url = format!("{}/charges/ch_1?expand=all", provider.url());
            let plain = bare(version).build().unwrap().get(&url).send().await.unwrap();
            let mut response = quick_client(version).get(&url).send().await.unwrap();
            assert_eq!(response.url().as_str(), url);
            assert_eq!(response.remote_addr(), Some(provider.address()));
            assert_eq!((response.version(), response.status()), (plain.version(), plain.status()));
            assert_eq!(response.content_length(), plain.content_length(), "{version:?}");
            let mut headers = (plain.headers().clone(), response.headers().clone());
            headers.0.remove("date");
            headers.1.remove("date");
            assert_eq!(headers.0, headers.1);
            assert!(response.extensions_mut().remove::<RetryReport>().is_some());
            assert_eq!(response.bytes().await.unwrap(), plain.bytes().await.unwrap());
        }
    }
}

/// Fails when `length` believes every header.
#[tokio::test]
async fn answer_without_content_has_no_body_to_read() {
    let provider = Provider::start(Version::Http2).await;
    provider.always(Fault::unread(Answer::new(204).header("content-length", "5").streamed()));
    let response = charge(&quick_client(Version::Http2), &provider).send().await.unwrap();
    assert_eq!((response.status().as_u16(), report(&response).attempts().len()), (204, 1));
}

/// Fails when `length` does not ask for the method.
#[tokio::test]
async fn answer_to_head_has_no_body_to_read() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        let response = quick_client(version).head(provider.charges()).send().await.unwrap();
        assert_eq!((response.status().as_u16(), report(&response).attempts().len()), (200, 1), "{version:?}");
    }
}
