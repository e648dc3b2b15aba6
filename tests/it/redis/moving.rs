//! A slot that is half moved: what is asked of it goes to the node that has the key, or will have it.

use idempotency_layer::store::{Claim, ClaimRequest, Lease, LeaseId, Look};
use idempotency_layer::{RedisStore, Store, StoreErrorKind};
use idempotency_tests::redis::RedisCluster;

use super::keys::{claim, lease};

/// S12. The slot stays half moved, so that waiting helps nobody. Fails when `Cluster::send_until_settled` sends to the node
/// that `ASK` names without `ASKING`, or does not go there, and when `Link::send_asking` says it for the first command alone.
#[tokio::test(flavor = "multi_thread")]
async fn keys_of_a_slot_that_is_half_moved_are_found_and_made_where_they_belong() {
    let cluster = RedisCluster::start().await;
    // One slot for all: it is that of what stands in braces.
    let store = RedisStore::cluster(cluster.urls()).await.unwrap().prefix("{k}:");
    for key in 1..=4 {
        assert!(matches!(store.claim(&claim(key)).await.unwrap(), Claim::Acquired(_)));
    }
    let slot = cluster.slot("{k}:").await;
    let from = cluster.owner(slot).await.id();
    let to = cluster.nodes().iter().find(|node| node.id() != from).unwrap();
    let moving = cluster.begin_move(slot, to).await;
    assert_eq!(moving.migrate_some(2).await, 2);

    // Two are here, two are there, and one is new and made there.
    for key in 1..=4 {
        assert!(matches!(store.look(&lease(key).record).await.unwrap(), Look::Running { .. }), "key {key}");
        assert!(matches!(store.claim(&claim(key)).await.unwrap(), Claim::Acquired(_)), "key {key} sent again");
        let other = ClaimRequest { lease: Lease { id: LeaseId::random(), ..lease(key) }, ..claim(key) };
        assert!(matches!(store.claim(&other).await.unwrap(), Claim::InFlight { .. }), "key {key} of another");
    }
    assert!(matches!(store.claim(&claim(5)).await.unwrap(), Claim::Acquired(_)));

    moving.migrate_keys().await;
    moving.finish().await;
    assert_eq!(cluster.owner(slot).await.id(), to.id());
    for key in 1..=5 {
        assert!(matches!(store.look(&lease(key).record).await.unwrap(), Look::Running { .. }), "key {key}");
    }
}

/// A node that hangs says of nothing that it has moved. Fails when a silent node leaves `Map::is_doubtful` as it was.
#[tokio::test(flavor = "multi_thread")]
async fn a_slot_that_was_taken_from_a_silent_node_is_found() {
    let cluster = RedisCluster::start().await;
    let store = RedisStore::cluster(cluster.urls()).await.unwrap().prefix("{k}:");
    assert!(matches!(store.claim(&claim(1)).await.unwrap(), Claim::Acquired(_)));
    let slot = cluster.slot("{k}:").await;
    let silent = cluster.owner(slot).await;
    let others: Vec<_> = cluster.nodes().iter().filter(|node| node.id() != silent.id()).collect();
    let heir: String = others[0].command(&["CLUSTER", "MYID"]).await;
    silent.pause();
    // As its replica would take it, had it one.
    for node in &others {
        let _done: String = node.command(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &heir]).await;
    }
    let unanswered = store.claim(&claim(2)).await.map_err(|error| error.kind());
    assert_eq!(unanswered.unwrap_err(), StoreErrorKind::Unavailable, "it was silent");
    assert!(matches!(store.claim(&claim(2)).await.unwrap(), Claim::Acquired(_)), "the heir has the slot");
}
