//! Claims of one key that arrive at one PostgreSQL from many sides at once.

use std::sync::Arc;

use idempotency_tests::client;
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Request;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::behind::{Behind, patient};
use super::crash::LINE;
use crate::paying::{alice, lines, order, start_patient};
use crate::request::{PATIENCE, gated, keyed, send};

/// S7. Fails when `machine::claim` takes over a lease that has not lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn of_64_claims_over_two_sets_of_connections_one_runs_and_each_other_is_told_so() {
    let behind = Behind::share().await;
    let gate = Gate::closed();
    // Each in a process of its own, as far as the server can see.
    let services = [behind.store().await, behind.elsewhere().await]
        .map(|store| patient(&store.timeout(PATIENCE)))
        .map(|layer| gated(layer, gate.clone()));
    for round in 0..5 {
        let barrier = Arc::new(Barrier::new(64));
        let mut claims = JoinSet::new();
        for at in 0..64 {
            let (router, barrier) = (services[at % 2].clone(), barrier.clone());
            claims.spawn(async move {
                barrier.wait().await;
                send(&router, keyed("/pay", &format!("k{round}")), "").await
            });
        }
        // The one that runs cannot answer before the gate is open.
        for _ in 0..63 {
            let loser = claims.join_next().await.unwrap().unwrap();
            assert_eq!((loser.status.as_u16(), loser.problem()), (409, Some("in-flight")));
        }
        gate.release(1);
        let winner = claims.join_next().await.unwrap().unwrap();
        assert_eq!((winner.status.as_u16(), winner.is_replay()), (201, false));
        for service in &services {
            let replay = send(service, keyed("/pay", &format!("k{round}")), "").await;
            assert!(replay.is_replay() && replay.body == winner.body, "{replay:?}");
        }
        assert_eq!(gate.entries(), round + 1);
    }
}

/// S7, from real processes. Fails when `machine::claim` takes over a lease that has not lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn of_64_claims_from_two_processes_one_runs() {
    let behind = Behind::share().await;
    let processes = [start_patient(&behind.url()).await, start_patient(&behind.url()).await];
    // Whichever runs stands still where it writes its line.
    let writing = behind.proxy.hold_request(Request::Runs(LINE));
    let barrier = Arc::new(Barrier::new(64));
    let mut claims = JoinSet::new();
    for at in 0..64 {
        let (url, barrier) = (format!("{}/payments", processes[at % 2].url()), barrier.clone());
        claims.spawn(async move {
            let client = alice();
            barrier.wait().await;
            client::post(&client, &url, "k", &order()).await.unwrap()
        });
    }
    for _ in 0..63 {
        let loser = claims.join_next().await.unwrap().unwrap();
        assert_eq!((loser.status.as_u16(), loser.problem()), (409, Some("in-flight")));
    }
    writing.release().await;
    let winner = claims.join_next().await.unwrap().unwrap();
    assert_eq!((winner.status.as_u16(), winner.is_replay()), (201, false));
    for process in &processes {
        let url = format!("{}/payments", process.url());
        let replay = client::post(&alice(), &url, "k", &order()).await.unwrap();
        assert!(replay.is_replay() && replay.body == winner.body, "{replay:?}");
        assert_eq!(lines(process).await, 1);
    }
}
