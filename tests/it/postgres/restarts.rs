//! A server that is restarted between requests and in the middle of one.

use idempotency_layer::SharedStore;
use idempotency_tests::gate::Gate;

use super::behind::{Behind, patient, paying};
use crate::request::{gated, keyed, layer, send, send_unrun, sending};

/// S12. What was committed is there again, and connections that have gone in the meantime are nobody's concern. Fails when
/// `begin` does not begin again what it has begun on a connection of before; a statement of a verb the layer sends again.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_between_two_requests_is_not_noticed() {
    let (behind, gate) = (Behind::start().await, Gate::open());
    let store = behind.store().await;
    let plain = gated(layer(&SharedStore::new(store.clone())), gate.clone());
    let transactions = paying(&store, layer(&SharedStore::new(store.clone())), &gate);
    let closed = Gate::closed();
    let slow = gated(patient(&store), closed.clone());
    assert_eq!(send(&plain, keyed("/pay", "recorded"), "").await.status, 201);
    assert_eq!(send(&transactions, keyed("/pay", "committed"), "").await.status, 201);
    let run = sending(&slow, keyed("/pay", "running"), "");
    closed.entered().await;

    for kill in [false, true] {
        if kill {
            behind.postgres.kill();
        } else {
            behind.postgres.stop().await;
        }
        behind.postgres.restart().await;
        let key = format!("new-{kill}");
        assert!(send(&plain, keyed("/pay", "recorded"), "").await.is_replay(), "killed: {kill}");
        assert_eq!(send(&transactions, keyed("/pay", &key), "").await.status, 201, "killed: {kill}");
        assert!(send(&transactions, keyed("/pay", "committed"), "").await.is_replay(), "killed: {kill}");
        let refused = send_unrun(&slow, keyed("/pay", "running"), "", &closed).await;
        assert_eq!(refused.problem(), Some("in-flight"), "killed: {kill}");
    }
    closed.release(1);
    assert_eq!(run.await.unwrap().status, 201);
    assert!(send(&plain, keyed("/pay", "running"), "").await.is_replay());
    assert_eq!((behind.effects().await, closed.entries()), (3, 1));
    behind.assert_all_expire("restarted").await;
}
