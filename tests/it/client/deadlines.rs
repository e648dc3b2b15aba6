//! A call ends when its time is up, wherever it is then.

use client_retry::{ErrorKind, IdempotencyKey, Propagation, StopReason, TransportFailure};
use idempotency_tests::provider::{Answer, Ending, Fault, Provider};
use idempotency_tests::wire::Version;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;

/// How long a call may take in these tests.
const TOTAL: Duration = Duration::from_millis(400);

/// How much longer it may take on a busy machine.
const OVERSHOOT: Duration = Duration::from_millis(250);

fn hurried() -> Builder {
    quick().max_attempts(100).total_timeout(TOTAL)
}

/// Runs a call to its end, which is in time.
async fn in_time<T>(call: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let outcome = call.await;
    assert!(began.elapsed() < TOTAL + OVERSHOOT, "{:?}", began.elapsed());
    outcome
}

fn stop(error: &reqwest_middleware::Error) -> StopReason {
    client_retry::Error::of(error).unwrap().report().unwrap().stop()
}

/// C7. Fails when `delay` does not ask whether its wait fits.
#[tokio::test]
async fn deadline_comes_before_a_wait_that_does_not_fit() {
    let backoff = Backoff::new(Duration::from_secs(3600), Duration::from_secs(3600)).unwrap();
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::unread(Ending::Reset));
        let retry = client(version, hurried().backoff(backoff).build().unwrap());
        let error = in_time(charge(&retry, &provider).send()).await.unwrap_err();
        assert_eq!((stop(&error), provider.received().len()), (StopReason::Deadline, 1), "{version:?}");
    }
}

/// C7. Fails when `attempt` takes its limit for the time that is left.
#[tokio::test]
async fn deadline_ends_an_attempt_to_connect() {
    // Nobody accepts, and the queue is full after two.
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let mut queue = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(address)).await
    {
        queue.push(stream);
    }
    let retry = client(Version::Http1, hurried().build().unwrap());
    let error = in_time(retry.post(format!("http://{address}/")).body(CHARGE).send()).await.unwrap_err();
    assert_eq!(stop(&error), StopReason::Deadline);
}

/// C7. Fails when an attempt is not bounded.
#[tokio::test]
async fn deadline_ends_a_wait_for_the_response() {
    for version in Version::BOTH {
        for silent in [Fault::unread(Ending::Silence), Fault::committed(Ending::Silence)] {
            let provider = Provider::start(version).await;
            provider.always(silent);
            let retry = client(version, hurried().build().unwrap());
            let error = in_time(charge(&retry, &provider).send()).await.unwrap_err();
            let error_of = client_retry::Error::of(&error).unwrap();
            assert_eq!(error_of.report().unwrap().last().failure(), Some(TransportFailure::Timeout));
            assert_eq!((stop(&error), provider.received().len()), (StopReason::Deadline, 1), "{version:?}");
            assert!(error.to_string().contains("under the same key, never under a new one"), "{error}");
        }
    }
}

/// C7. Fails when `read` waits for the body without an end.
#[tokio::test]
async fn deadline_ends_a_wait_for_the_body() {
    for version in Version::BOTH {
        let provider = Provider::start(version).await;
        provider.always(Fault::committed(Ending::Stall));
        let retry = client(version, hurried().build().unwrap());
        let error = in_time(charge(&retry, &provider).send()).await.unwrap_err();
        assert_eq!(stop(&error), StopReason::Deadline, "{version:?}");
    }
}

/// C7. Fails when `answer` does not bound a body that streams, or `poll_frame` asks for the body first.
#[tokio::test]
async fn deadline_ends_a_body_that_streams() {
    for endless in [false, true] {
        let (url, serving) = streaming(endless).await;
        let retry = client(Version::Http1, hurried().build().unwrap());
        let read = async { retry.post(url).body(CHARGE).send().await.unwrap().bytes().await.unwrap_err() };
        assert!(in_time(read).await.is_timeout(), "endless: {endless}");
        serving.abort();
    }
}

/// Fails when `answer` does not ask whether the request has a timeout of its own.
#[tokio::test]
async fn request_with_a_time_of_its_own_has_it_for_a_body_that_streams() {
    let (url, serving) = streaming(false).await;
    let retry = client(Version::Http1, hurried().build().unwrap());
    let own = TOTAL + OVERSHOOT * 2;
    let began = Instant::now();
    let response = retry.post(url).timeout(own).body(CHARGE).send().await.unwrap();
    assert!(response.text().await.unwrap_err().is_timeout());
    assert!(began.elapsed() >= own, "{:?}", began.elapsed());
    serving.abort();
}

/// A server that sends a chunk and never another, or one after the other without an end.
async fn streaming(endless: bool) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 1024];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await.unwrap();
        while stream.write_all(b"2\r\nab\r\n").await.is_ok() {
            if !endless {
                std::future::pending::<()>().await;
            }
        }
    });
    (url, serving)
}

/// C7. Fails when `Clock::new` does not ask the propagation.
#[tokio::test]
async fn deadline_of_the_request_that_a_call_is_made_for_is_its_own() {
    let run = |deadline| {
        let key = IdempotencyKey::random();
        Propagation::builder("order:create", key).deadline(std::time::Instant::now() + deadline).build()
    };
    let provider = Provider::start(Version::Http1).await;
    provider.always(Fault::unread(Ending::Silence));
    let patient = quick_client(Version::Http1);
    let call = charge(&patient, &provider).with_extension(run(TOTAL));
    assert_eq!(stop(&in_time(call.send()).await.unwrap_err()), StopReason::Deadline);
    assert_eq!(
        stop(&in_time(run(TOTAL).around(charge(&patient, &provider).send())).await.unwrap_err()),
        StopReason::Deadline
    );

    let error = charge(&patient, &provider).with_extension(run(Duration::ZERO)).send().await.unwrap_err();
    assert_eq!(client_retry::Error::of(&error).unwrap().kind(), ErrorKind::DeadlinePassed);
    assert_eq!(provider.received().len(), 2, "the last one was not sent");
}

/// Fails when `total_timeout` is measured from each attempt.
#[tokio::test]
async fn waits_and_attempts_share_the_time_of_the_call() {
    let provider = Provider::start(Version::Http1).await;
    provider.always(Fault::unread(Answer::new(503).header("retry-after-ms", "90")));
    let retry = client(Version::Http1, hurried().build().unwrap());
    let response = in_time(charge(&retry, &provider).send()).await.unwrap();
    assert_eq!((response.status().as_u16(), report(&response).stop()), (503, StopReason::AskedTooLong));
    assert!((3..=5).contains(&provider.received().len()), "{}", provider.received().len());
}
