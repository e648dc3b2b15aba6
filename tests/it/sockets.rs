//! Clients that go away, over real sockets.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use idempotency_layer::{MemoryStore, SharedStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use idempotency_tests::stores::embedded;
use idempotency_tests::wire::{Served, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::request::{gated, layer};

fn request(key: &str) -> Request<Full<Bytes>> {
    Request::post("http://test/pay").header("idempotency-key", key).body(Full::from("{}")).unwrap()
}

/// S3. Fails when the handler is awaited in the request's own future instead of a task.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_does_not_stop_its_run_and_its_retry_replays() {
    for version in Version::BOTH {
        for subject in embedded().await {
            let case = format!("{version:?}, {}", subject.name);
            let gate = Gate::closed();
            let served = Served::start(gated(layer(&subject.store), gate.clone())).await;
            let mut gone = served.dial(version).await;
            let sending = tokio::spawn(async move { gone.send(request("k")).await.map(drop) });
            gate.entered().await;
            // HTTP/1.1: the connection is closed. HTTP/2: the stream is reset, then the connection is closed.
            sending.abort();
            assert!(sending.await.unwrap_err().is_cancelled());

            let mut retry = served.dial(version).await;
            let in_flight = retry.fetch(request("k")).await.unwrap();
            assert_eq!(in_flight.status(), 409, "{case}");
            gate.release(1);
            let replay = loop {
                let answer = retry.fetch(request("k")).await.unwrap();
                if answer.status() != 409 {
                    break answer;
                }
                tokio::task::yield_now().await;
            };
            assert_eq!(replay.headers()["idempotent-replayed"], "true", "{case}");
            assert_eq!(replay.body().data, "entry 1, attempt 1", "{case}");
            assert_eq!(gate.entries(), 1, "{case}");
        }
    }
}

/// S3 between the claim and the run: whoever is dropped while its claim is under way is run all the same. Fails when
/// `Adopted` drops its future.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_while_its_claim_is_made_gets_its_run() {
    struct Claiming(Gate);
    impl Hook for Claiming {
        fn after(&self, verb: Verb) -> Hooking {
            let gate = (verb == Verb::Claim).then(|| self.0.clone());
            Box::pin(async move {
                if let Some(gate) = gate {
                    gate.pass().await;
                }
                Ok(())
            })
        }
    }
    for version in Version::BOTH {
        let (claiming, gate) = (Gate::closed(), Gate::open());
        let store = Hooked::new(MemoryStore::new(), Arc::new(Claiming(claiming.clone())));
        let served = Served::start(gated(layer(&SharedStore::new(store)), gate.clone())).await;
        let mut gone = served.dial(version).await;
        let sending = tokio::spawn(async move { gone.send(request("k")).await.map(drop) });
        claiming.entered().await;
        sending.abort();
        assert!(sending.await.unwrap_err().is_cancelled());
        claiming.release(1000);
        gate.entered().await;
        let mut retry = served.dial(version).await;
        let replay = loop {
            let answer = retry.fetch(request("k")).await.unwrap();
            if answer.status() != 409 {
                break answer;
            }
        };
        assert_eq!(replay.headers()["idempotent-replayed"], "true", "{version:?}");
        assert_eq!(gate.entries(), 1, "{version:?}");
    }
}

/// S4. Fails when the key is claimed before the body has been read.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_in_mid_body_leaves_nothing() {
    for subject in embedded().await {
        let gate = Gate::open();
        let served = Served::start(gated(layer(&subject.store), gate.clone())).await;
        for half in ["Content-Length: 10\r\n\r\nhalf", "Transfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"] {
            let mut gone = served.connect().await;
            let head = "POST /pay HTTP/1.1\r\nHost: test\r\nIdempotency-Key: k\r\n";
            gone.write_all(format!("{head}{half}").as_bytes()).await.unwrap();
            gone.shutdown().await.unwrap();
            // What the server has to say to half a request, until it closes: then it is done with it.
            let mut said = String::new();
            gone.read_to_string(&mut said).await.unwrap();
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
            let answer = answer.await.unwrap();
            assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().unwrap()));
            refused += 1;
        }
    }
    assert_eq!((gate.entries(), refused), (RUNS as u32, 10_000 - RUNS));
    gate.release(RUNS + 1);
    let mut client = served.dial(Version::Http1).await;
    while client.fetch(request("late")).await.unwrap().status() == 503 {
        tokio::task::yield_now().await;
    }
    // What was refused was never claimed.
    let answer = client.fetch(request("key-60"));
    gate.release(1);
    assert_eq!(answer.await.unwrap().status(), 201);
}
