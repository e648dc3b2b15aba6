//! Clients that go away, over real sockets.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use bytes::Bytes;
use futures_util::poll;
use http::Request;
use http_body_util::Full;
use idempotency_layer::{MemoryStore, SharedStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb, stopped_if};
use idempotency_tests::stores::all;
use idempotency_tests::wire::{Served, Version, read_to_end};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::request::{PATIENCE, again_until, gated, keyed, layer, send};

fn request(key: &str) -> Request<Full<Bytes>> {
    Request::post("http://test/pay").header("idempotency-key", key).body(Full::from("{}")).unwrap()
}

/// Serves a router that tells when the server has done with a request, answered or not.
async fn serve(router: Router) -> (Served, Arc<Notify>) {
    async fn tell(State(done): State<Arc<Notify>>, request: axum::extract::Request, next: Next) -> Response {
        let _done = Done(done);
        next.run(request).await
    }
    let done = Arc::new(Notify::new());
    (Served::start(router.layer(from_fn_with_state(Arc::clone(&done), tell))).await, done)
}

struct Done(Arc<Notify>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// A client that sends a request and, once the server is at work on it, goes.
async fn send_and_go(version: Version, served: &Served, done: &Notify, at_work: &Gate) {
    let mut gone = served.dial(version).await;
    let sending = tokio::spawn(async move { gone.send(request("k")).await.map(drop) });
    at_work.entered().await;
    // HTTP/1.1: the connection is closed. HTTP/2: the stream is reset, then the connection is closed.
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    timeout(PATIENCE, done.notified()).await.expect("the server has not noticed");
}

/// S3. Fails when the handler is awaited in the request's own future instead of a task.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_does_not_stop_its_run_and_its_retry_replays() {
    for version in Version::BOTH {
        for subject in all().await {
            let case = format!("{version:?}, {}", subject.name);
            let gate = Gate::closed();
            let (served, done) = serve(gated(layer(&subject.store), gate.clone())).await;
            send_and_go(version, &served, &done, &gate).await;

            let mut retry = served.dial(version).await;
            let in_flight = retry.fetch(request("k")).await.unwrap();
            assert_eq!(in_flight.status(), 409, "{case}");
            gate.release(1);
            let again = async || retry.fetch(request("k")).await.unwrap();
            let replay = again_until(again, |answer| answer.status() != 409).await;
            assert_eq!(replay.headers()["idempotent-replayed"], "true", "{case}");
            assert_eq!(replay.body().data, "entry 1, attempt 1", "{case}");
            assert_eq!(gate.entries(), 1, "{case}");
        }
    }
}

/// Stops where a claim is made and not yet answered.
struct Claiming(Gate);

impl Hook for Claiming {
    fn after(&self, verb: Verb) -> Hooking {
        stopped_if(verb == Verb::Claim, &self.0)
    }
}

/// S3 between the claim and the run: whoever is dropped while its claim is under way is run all the same. Fails when
/// `Adopted` drops its future.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_while_its_claim_is_made_gets_its_run() {
    for version in Version::BOTH {
        let (claiming, gate) = (Gate::closed(), Gate::open());
        let store = Hooked::new(MemoryStore::new(), Arc::new(Claiming(claiming.clone())));
        let (served, done) = serve(gated(layer(&SharedStore::new(store)), gate.clone())).await;
        send_and_go(version, &served, &done, &claiming).await;
        claiming.release(1000);
        gate.entered().await;
        let mut retry = served.dial(version).await;
        let again = async || retry.fetch(request("k")).await.unwrap();
        let replay = again_until(again, |answer| answer.status() != 409).await;
        assert_eq!(replay.headers()["idempotent-replayed"], "true", "{version:?}");
        assert_eq!(gate.entries(), 1, "{version:?}");
    }
}

/// S3, where the client's side of the server panics. Fails when `Adopted` drops its future in a panic that is not its own.
#[tokio::test]
async fn a_panic_around_a_request_whose_claim_is_made_does_not_stop_its_run() {
    let (claiming, gate) = (Gate::closed(), Gate::open());
    let store = Hooked::new(MemoryStore::new(), Arc::new(Claiming(claiming.clone())));
    let router = gated(layer(&SharedStore::new(store)), gate.clone());
    let mut response = Box::pin(send(&router, keyed("/pay", "k"), ""));
    assert!(poll!(&mut response).is_pending());
    claiming.entered().await;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _response = response;
        panic!("beside the request");
    }));
    assert!(panicked.is_err());
    claiming.release(1);
    gate.entered().await;
}

/// S4. Fails when the key is claimed before the body has been read.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_in_mid_body_leaves_nothing() {
    for subject in all().await {
        let gate = Gate::open();
        let served = Served::start(gated(layer(&subject.store), gate.clone())).await;
        for half in ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
            let mut gone = served.connect().await;
            let head = "POST /pay HTTP/1.1\r\nHost: test\r\nIdempotency-Key: k\r\n";
            gone.write_all(format!("{head}{half}").as_bytes()).await.unwrap();
            gone.shutdown().await.unwrap();
            // What the server has to say to half a request, until it closes: then it is done with it.
            let said = read_to_end(&mut gone).await;
            assert!(said.is_empty() || said.contains("body-unreadable"), "{}: {said}", subject.name);
        }
        assert_eq!(gate.entries(), 0, "{}", subject.name);
        // Another request may use the key: it has never been claimed.
        let answer = served.dial(Version::Http1).await.fetch(request("k")).await.unwrap();
        assert_eq!(answer.status(), 201, "{}", subject.name);
    }
}

/// S30, scaled to one machine. Fails when a run whose client has gone gives its place back at once, or never.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_send_and_go_keep_the_runs_bounded() {
    const RUNS: usize = 50;
    let gate = Gate::closed();
    let layer = layer(&SharedStore::new(MemoryStore::new())).max_running(RUNS);
    let served = Served::start(gated(layer, gate.clone())).await;
    // Each waits for its answer or gives up: the first fifty give up, the others are refused.
    let mut refused = 0;
    for at in 0..10_000 {
        let mut client = served.dial(Version::Http1).await;
        let answer = client.send(request(&format!("key-{at}")));
        if at < RUNS {
            tokio::select! {
                biased;
                () = gate.entered() => {}
                answer = answer => panic!("{answer:?}"),
            }
        } else {
            let answer = tokio::select! {
                answer = answer => answer.unwrap(),
                () = gate.entered() => panic!("one more run began"),
            };
            assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
            refused += 1;
        }
    }
    assert_eq!((gate.entries(), refused), (RUNS as u32, 10_000 - RUNS));
    gate.release(RUNS + 1);
    let mut client = served.dial(Version::Http1).await;
    let late = async || client.fetch(request("late")).await.unwrap();
    assert_eq!(again_until(late, |answer| answer.status() != 503).await.status(), 201);
    // What was refused was never claimed.
    let answer = client.fetch(request("key-60"));
    gate.release(1);
    assert_eq!(answer.await.unwrap().status(), 201);
}
