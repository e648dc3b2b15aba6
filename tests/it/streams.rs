//! Bodies that are large, slow, endless, broken, empty or strange: the client gets all of it, and the handler runs once.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use idempotency_layer::{MemoryStore, SharedStore, UnknownOutcome};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb, stopped_if};
use idempotency_tests::stores::all;
use idempotency_tests::wire::{Served, Version, read_to_end};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tower::ServiceExt;

use crate::request::{PATIENCE, keyed, layer, send};

fn request(path: &str) -> Request<Full<Bytes>> {
    Request::post(format!("http://test{path}")).header("idempotency-key", "k").body(Full::default()).unwrap()
}

fn problem<B>(response: &Response<B>) -> Option<&str> {
    response.headers().get("idempotency-problem").map(|code| code.to_str().unwrap())
}

fn serve(handler: impl Fn(u32) -> Response + Clone + Send + Sync + 'static, store: &SharedStore, gate: Gate) -> Router {
    let handler = move |State(gate): State<Gate>| {
        let handler = handler.clone();
        async move { handler(gate.pass().await) }
    };
    Router::new().route("/{*path}", any(handler)).layer(layer(store).max_response_body(100)).with_state(gate)
}

fn frames(frames: Vec<Result<Frame<Bytes>, std::io::Error>>) -> Body {
    Body::new(StreamBody::new(stream::iter(frames)))
}

fn data(text: &'static str) -> Result<Frame<Bytes>, std::io::Error> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

/// S17. Fails when `collect` cuts what it has read, or the tombstone is not recorded, or is recorded as a response.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_over_the_cap_is_given_whole_once_and_never_run_again() {
    let known = |_| Response::new(Body::from("x".repeat(101)));
    let unknown = |_| Response::new(frames((0..5).map(|_| data("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx")).collect()));
    let known: fn(u32) -> Response = known;
    for (handler, length) in [(known, 101), (unknown, 150)] {
        for version in Version::BOTH {
            for subject in all().await {
                let gate = Gate::open();
                let served = Served::start(serve(handler, &subject.store, gate.clone())).await;
                let mut client = served.dial(version).await;
                let first = client.fetch(request("/pay")).await.unwrap();
                assert_eq!((first.status().as_u16(), first.body().data.len()), (200, length), "{version:?}");
                let again = client.fetch(request("/pay")).await.unwrap();
                assert_eq!(problem(&again), Some("response-unavailable"), "{version:?}");
                assert_eq!(gate.entries(), 1);
            }
        }
    }
}

/// S17. Fails when an event stream is collected, which takes a second, or no tombstone is recorded for it.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_stream_is_given_as_it_comes_and_never_run_again() {
    for version in Version::BOTH {
        let (events, received) = mpsc::unbounded_channel::<Result<Frame<Bytes>, Infallible>>();
        let received = Arc::new(std::sync::Mutex::new(Some(received)));
        let handler = move |_| {
            let mut received = received.lock().unwrap().take().expect("one run");
            let stream = stream::poll_fn(move |cx| received.poll_recv(cx));
            let mut response = Response::new(Body::new(StreamBody::new(stream)));
            response.headers_mut().insert("content-type", HeaderValue::from_static("text/event-stream; charset=utf-8"));
            response
        };
        let gate = Gate::open();
        let store = SharedStore::new(MemoryStore::new());
        let served = Served::start(serve(handler, &store, gate.clone())).await;
        let mut client = served.dial(version).await;
        let sent = tokio::time::Instant::now();
        let mut response = client.send(request("/events")).await.unwrap();
        assert!(sent.elapsed() < Duration::from_secs(1), "{version:?}: it was read first");
        events.send(Ok(Frame::data(Bytes::from_static(b"data: 1\n\n")))).unwrap();
        let event = timeout(PATIENCE, response.body_mut().frame()).await.expect("an event").unwrap().unwrap();
        assert_eq!(event.into_data().unwrap(), "data: 1\n\n", "{version:?}");

        // While it streams, and after.
        let mut other = served.dial(version).await;
        let again = other.fetch(request("/events")).await.unwrap();
        assert_eq!(problem(&again), Some("response-unavailable"), "{version:?}");
        events.send(Ok(Frame::data(Bytes::from_static(b"data: 2\n\n")))).unwrap();
        drop(events);
        let rest = timeout(PATIENCE, response.collect()).await.expect("the end").unwrap();
        assert_eq!(rest.to_bytes(), "data: 2\n\n", "{version:?}");
        assert_eq!(gate.entries(), 1);
    }
}

/// Stops where a record is to be written.
struct Recording(Gate);

impl Hook for Recording {
    fn before(&self, verb: Verb) -> Hooking {
        stopped_if(verb == Verb::Complete, &self.0)
    }
}

/// S17. Fails when `Run::settle` answers before it writes.
#[tokio::test]
async fn a_stream_is_not_given_before_its_tombstone_is_recorded() {
    let handler = |_| {
        let body = Body::from_stream(stream::pending::<Result<Bytes, Infallible>>());
        Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
    };
    let recording = Gate::closed();
    let store = Hooked::new(MemoryStore::new(), Arc::new(Recording(recording.clone())));
    let router = serve(handler, &SharedStore::new(store), Gate::open());
    let mut given = pin!(router.oneshot(keyed("/events", "k").body(Body::empty()).unwrap()));
    tokio::select! {
        biased;
        given = given.as_mut() => panic!("before its tombstone was recorded: {given:?}"),
        () = recording.entered() => {}
    }
    recording.release(1);
    let given = timeout(PATIENCE, given).await.expect("an answer").unwrap();
    assert_eq!(given.headers()["content-type"], "text/event-stream");
}

/// S17. Fails when `collect` gives a body of unknown length no deadline; its hundred bytes would take ten seconds.
#[tokio::test(flavor = "multi_thread")]
async fn an_endless_stream_is_given_on_after_a_second() {
    let handler = |_| {
        let ticks = stream::unfold(0_u32, |tick| async move {
            // A pace, not a synchronisation.
            tokio::time::sleep(Duration::from_millis(100)).await;
            Some((data("."), tick + 1))
        });
        Response::new(Body::new(StreamBody::new(ticks)))
    };
    let gate = Gate::open();
    let served = Served::start(serve(handler, &SharedStore::new(MemoryStore::new()), gate.clone())).await;
    let started = tokio::time::Instant::now();
    let mut client = served.dial(Version::Http1).await;
    let response = client.send(request("/ticks")).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5));
    let ticks = response.into_data_stream().take(20).collect::<Vec<_>>();
    let ticks = timeout(PATIENCE, ticks).await.expect("more ticks");
    assert!(ticks.iter().all(Result::is_ok));
    let again = served.dial(Version::Http1).await.send(request("/ticks")).await.unwrap();
    assert_eq!(problem(&again), Some("response-unavailable"));
    assert_eq!(gate.entries(), 1);
}

/// S17. Fails when a 101 is collected, or when `run::start` loses the upgrade with the extensions of the request.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_is_passed_on_and_never_run_again() {
    async fn upgrade(State(gate): State<Gate>, mut request: axum::extract::Request) -> Response {
        gate.pass().await;
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut io = hyper_util::rt::TokioIo::new(upgraded.await.unwrap());
            let mut ping = [0; 4];
            io.read_exact(&mut ping).await.unwrap();
            io.write_all(b"pong").await.unwrap();
        });
        Response::builder()
            .status(101)
            .header("connection", "upgrade")
            .header("upgrade", "x")
            .body(Body::empty())
            .unwrap()
    }
    let gate = Gate::open();
    let store = SharedStore::new(MemoryStore::new());
    let router = Router::new().route("/up", any(upgrade)).layer(layer(&store)).with_state(gate.clone());
    let served = Served::start(router).await;
    let mut socket = served.connect().await;
    let head = "POST /up HTTP/1.1\r\nHost: test\r\nIdempotency-Key: k\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let exchanged = async {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(socket.read_u8().await.unwrap());
        }
        assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
        socket.write_all(b"ping").await.unwrap();
        let mut pong = [0; 4];
        socket.read_exact(&mut pong).await.unwrap();
        assert_eq!(&pong, b"pong");
    };
    timeout(PATIENCE, exchanged).await.expect("an upgraded connection");

    let again = Request::post("http://test/up").header("idempotency-key", "k").body(Full::default()).unwrap();
    let again = served.dial(Version::Http1).await.fetch(again).await.unwrap();
    assert_eq!(problem(&again), Some("response-unavailable"));
    assert_eq!(gate.entries(), 1);
}

/// S18. Fails when what was read before the failure is recorded, or given without the failure.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_breaks_off_is_seen_to_fail_and_is_not_recorded() {
    let handler = |entry| match entry {
        1 => Response::new(frames(vec![data("half"), Err(std::io::Error::other("broken"))])),
        _ => Response::new(frames(vec![data("half"), data(" and half")])),
    };
    for version in Version::BOTH {
        for subject in all().await {
            let gate = Gate::open();
            let served = Served::start(serve(handler, &subject.store, gate.clone())).await;
            let cut = served.dial(version).await.fetch(request("/pay")).await;
            assert!(cut.is_err(), "{version:?}, {}: {cut:?}", subject.name);
            let mut client = served.dial(version).await;
            let again = client.fetch(request("/pay")).await.unwrap();
            assert_eq!(again.body().data, "half and half", "{version:?}, {}", subject.name);
            assert!(!again.headers().contains_key("idempotent-replayed"));
            let replay = client.fetch(request("/pay")).await.unwrap();
            assert_eq!((&replay.headers()["idempotent-replayed"], gate.entries()), (&"true".parse().unwrap(), 2));
        }
    }
}

/// S18 under Hold: what nobody has seen whole is no known outcome. Fails when `Verdict::of` frees the key of a result that
/// broke off, whatever the policy.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_breaks_off_is_held_under_hold() {
    let handler = || async { Response::new(frames(vec![data("half"), Err(std::io::Error::other("broken"))])) };
    for subject in all().await {
        let layer = layer(&subject.store).unknown_outcome(UnknownOutcome::Hold);
        let served = Served::start(Router::new().route("/pay", any(handler)).layer(layer)).await;
        let cut = served.dial(Version::Http1).await.fetch(request("/pay")).await;
        assert!(cut.is_err(), "{}: {cut:?}", subject.name);
        let again = served.dial(Version::Http1).await.fetch(request("/pay")).await.expect("a refusal");
        assert_eq!(problem(&again), Some("outcome-unknown"), "{}", subject.name);
    }
}

/// S19. Fails when headers are inserted instead of appended, bytes are read as text, or trailers are dropped; as they are in
/// Redis when `Outcome::of_response` does not say that there are some.
#[tokio::test(flavor = "multi_thread")]
async fn headers_trailers_and_bytes_are_identical_on_replay() {
    let trailers = || HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("42"))]);
    let rich = move |_| {
        let mut response = Response::new(frames(vec![data("\0\u{7f}"), Ok(Frame::trailers(trailers()))]));
        let headers = response.headers_mut();
        headers.append("x-twice", HeaderValue::from_static("b"));
        headers.append("x-twice", HeaderValue::from_static("a"));
        headers.append("x-raw", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        headers.append("x-empty", HeaderValue::from_static(""));
        headers.append("trailer", HeaderValue::from_static("x-sum"));
        response
    };
    let binary = |_| Response::new(Body::from((156..=255).collect::<Vec<u8>>()));
    let empty = |_| Response::builder().status(204).body(Body::empty()).unwrap();
    let handlers: [Arc<dyn Fn(u32) -> Response + Send + Sync>; 3] = [Arc::new(rich), Arc::new(binary), Arc::new(empty)];
    for (at, handler) in handlers.into_iter().enumerate() {
        for version in Version::BOTH {
            for subject in all().await {
                let case = format!("{at}, {version:?}, {}", subject.name);
                let handler = Arc::clone(&handler);
                let served = Served::start(serve(move |entry| handler(entry), &subject.store, Gate::open())).await;
                let mut client = served.dial(version).await;
                let mut ask = request("/pay");
                ask.headers_mut().insert("te", HeaderValue::from_static("trailers"));
                let first = client.fetch(ask.clone()).await.unwrap();
                let mut replay = client.fetch(ask).await.unwrap();
                assert_eq!(replay.headers_mut().remove("idempotent-replayed").unwrap(), "true", "{case}");
                assert_eq!((first.status(), first.body()), (replay.status(), replay.body()), "{case}");
                for name in ["x-twice", "x-raw", "x-empty", "content-type", "content-length"] {
                    let values = |headers: &HeaderMap| headers.get_all(name).iter().cloned().collect::<Vec<_>>();
                    assert_eq!(values(first.headers()), values(replay.headers()), "{case}: {name}");
                }
                if at == 0 {
                    assert_eq!(first.body().trailers.as_ref(), Some(&trailers()), "{case}");
                }
            }
        }
    }
}

/// What a client does once it has sent all it will send.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Waits,
    HangsUp,
}

/// S16. Fails when `intake::read` reads a body that announces too much, or takes less than was announced for all of it.
#[tokio::test(flavor = "multi_thread")]
async fn request_bodies_that_lie_or_dawdle_are_taken_whole_or_not_at_all() {
    async fn echo(body: Bytes) -> Bytes {
        body
    }
    let store = SharedStore::new(MemoryStore::new());
    let router = Router::new().route("/pay", any(echo)).layer(layer(&store).max_request_body(8));
    let served = Served::start(router).await;
    let exchange = async |head: &str, chunks: &[&str], then: Then| {
        let mut socket = served.connect().await;
        let head = format!("POST /pay HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{head}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        for chunk in chunks {
            tokio::task::yield_now().await;
            // A server that has answered may have closed by now.
            drop(socket.write_all(chunk.as_bytes()).await);
        }
        if then == Then::HangsUp {
            // A server that has answered may have closed by now.
            drop(socket.shutdown().await);
        }
        read_to_end(&mut socket).await
    };
    let slow =
        exchange("Idempotency-Key: slow\r\nContent-Length: 6", &["a", "b", "c", "d", "e", "f"], Then::Waits).await;
    assert!(slow.starts_with("HTTP/1.1 200") && slow.ends_with("abcdef"), "{slow}");
    let chunked = ["2\r\nab\r\n", "4\r\ncdef\r\n", "0\r\n\r\n"];
    let chunked = exchange("Idempotency-Key: chunked\r\nTransfer-Encoding: chunked", &chunked, Then::Waits).await;
    assert!(chunked.starts_with("HTTP/1.1 200") && chunked.ends_with("abcdef"), "{chunked}");
    // What it announces is enough.
    let large = exchange("Idempotency-Key: a\r\nContent-Length: 9", &[], Then::Waits).await;
    assert!(large.contains("request-too-large"), "{large}");
    let endless = ["4\r\nabcd\r\n", "4\r\nabcd\r\n", "4\r\nabcd\r\n"];
    let endless = exchange("Idempotency-Key: b\r\nTransfer-Encoding: chunked", &endless, Then::HangsUp).await;
    assert!(endless.contains("request-too-large"), "{endless}");
    let short = exchange("Idempotency-Key: c\r\nContent-Length: 6", &["abc"], Then::HangsUp).await;
    assert!(short.is_empty() || short.contains("body-unreadable"), "{short}");
    let garbage = exchange("Idempotency-Key: d\r\nTransfer-Encoding: chunked", &["zz\r\nab\r\n"], Then::HangsUp).await;
    assert!(garbage.is_empty() || garbage.contains("body-unreadable"), "{garbage}");

    // No key of those was claimed: each takes another request now.
    let router = Router::new().route("/pay", any(echo)).layer(layer(&store));
    for key in ["a", "b", "c", "d"] {
        let answer = send(&router, keyed("/pay", key), "another").await;
        assert_eq!((answer.status.as_u16(), answer.is_replay()), (200, false), "{key}");
    }
}

/// HEAD may be keyed, and answers without a body. Fails when a replay loses the length of the body that is not there.
#[tokio::test(flavor = "multi_thread")]
async fn a_keyed_head_replays_its_headers() {
    async fn handler() -> Response {
        Response::builder().header("content-length", "5").header("etag", "\"1\"").body(Body::empty()).unwrap()
    }
    let store = SharedStore::new(MemoryStore::new());
    let router = Router::new().route("/pay", any(handler)).layer(layer(&store).methods([Method::HEAD]));
    let served = Served::start(router).await;
    let mut client = served.dial(Version::Http1).await;
    let head = || Request::head("http://test/pay").header("idempotency-key", "k").body(Full::default()).unwrap();
    for replayed in [false, true] {
        let answer = client.fetch(head()).await.unwrap();
        assert_eq!(
            (&answer.headers()["etag"], &answer.headers()["content-length"]),
            (&"\"1\"".parse().unwrap(), &"5".parse().unwrap())
        );
        assert_eq!(answer.headers().contains_key("idempotent-replayed"), replayed);
    }
}
