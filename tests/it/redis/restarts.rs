//! A server that is restarted or loses its scripts, between requests and in the middle of one.

use idempotency_layer::UnknownOutcome;
use idempotency_tests::gate::Gate;

use super::behind::{Behind, CLAIM, FORGET, RENEW, SETTLE, impatient};
use crate::request::{gated, keyed, send, send_unrun, send_until, sending};

/// S12. A server that writes each change to its disk has every state again; its scripts it has not. Fails when
/// `script::is_unknown` is false.
#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_server_has_its_records_and_gets_its_scripts_again() {
    let (behind, gate) = (Behind::durable().await, Gate::open());
    let router = gated(impatient(&behind.store().await), gate.clone());
    assert_eq!(send(&router, keyed("/pay", "recorded"), "").await.status, 201);
    let closed = Gate::closed();
    let slow = gated(impatient(&behind.store().await), closed.clone());
    let run = sending(&slow, keyed("/pay", "running"), "");
    closed.entered().await;

    behind.redis.restart().await;
    let known: Vec<bool> =
        behind.redis.command(&["SCRIPT", "EXISTS", &CLAIM.hash, &RENEW.hash, &SETTLE.hash, &FORGET.hash]).await;
    assert!(!known.contains(&true), "the scripts have not gone");
    let replay = send(&router, keyed("/pay", "recorded"), "").await;
    assert!(replay.is_replay() && replay.body == "entry 1, attempt 1", "{replay:?}");
    assert_eq!(send_unrun(&slow, keyed("/pay", "running"), "", &closed).await.problem(), Some("in-flight"));
    closed.release(1);
    assert_eq!(run.await.unwrap().status, 201);
    assert!(send(&router, keyed("/pay", "running"), "").await.is_replay());
    assert_eq!((gate.entries(), closed.entries()), (1, 1));
    behind.assert_all_expire("restarted").await;
}

/// S12. Scripts that go in mid-run cost a round trip each and nothing else. Fails when `script::is_unknown` is false, and
/// when `Call::whole` is sent for every call.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_are_flushed_in_mid_run_are_sent_again_and_nobody_notices() {
    let (behind, gate) = (Behind::durable().await, Gate::closed());
    // Under Hold, where every claim is a script.
    let router = gated(impatient(&behind.store().await).unknown_outcome(UnknownOutcome::Hold), gate.clone());
    let forgotten = async || {
        let _: () = behind.redis.command(&["SCRIPT", "FLUSH"]).await;
        behind.proxy.reset_round_trips();
    };
    forgotten().await;
    let run = sending(&router, keyed("/pay", "k"), "");
    gate.entered().await;
    assert_eq!(behind.proxy.round_trips(), 2);
    forgotten().await;
    assert_eq!(send_unrun(&router, keyed("/pay", "k"), "", &gate).await.problem(), Some("in-flight"));
    assert_eq!(behind.proxy.round_trips(), 2);
    forgotten().await;
    gate.release(1);
    assert_eq!(run.await.unwrap().body, "entry 1, attempt 1");
    assert_eq!(behind.proxy.round_trips(), 2);
    forgotten().await;
    assert!(send(&router, keyed("/pay", "k"), "").await.is_replay());
    assert_eq!(behind.proxy.round_trips(), 2);
    // The server knows this one again.
    assert!(send(&router, keyed("/pay", "k"), "").await.is_replay());
    assert_eq!(behind.proxy.round_trips(), 3);
}

/// S12, on a server that keeps nothing. The key runs again, as the store's docs say; but the run that lost it does not
/// answer as if it had been recorded. Fails when `settle.lua` answers 1 where there is no record.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_server_has_forgotten_it_is_503_and_not_a_success_that_nobody_can_replay() {
    let (behind, gate) = (Behind::start_with(&[]).await, Gate::closed());
    let router = gated(impatient(&behind.store().await), gate.clone());
    let run = sending(&router, keyed("/pay", "k"), "");
    gate.entered().await;
    behind.redis.restart().await;
    gate.release(2);
    let lost = run.await.unwrap();
    assert_eq!((lost.status.as_u16(), lost.problem()), (503, Some("lease-lost")));
    let again = send_until(&router, "k", |answer| answer.problem() != Some("store-unavailable")).await;
    assert_eq!(again.body, "entry 2, attempt 1");
}
