//! A slot that is half moved: what is asked of it goes to the node that has the key, or will have it.

use idempotency_layer::store::{Claim, Look};
use idempotency_layer::{RedisStore, Store};
use idempotency_tests::redis::RedisCluster;

use super::keys::{claim, lease};

/// S12. The slot stays half moved, so that waiting helps nobody. Fails when `Cluster::send_until_settled` sends to the node
/// that `ASK` names without `ASKING`, or does not go there.
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
    }
    assert!(matches!(store.claim(&claim(5)).await.unwrap(), Claim::Acquired(_)));

    moving.migrate_keys().await;
    moving.finish().await;
    assert_eq!(cluster.owner(slot).await.id(), to.id());
    for key in 1..=5 {
        assert!(matches!(store.look(&lease(key).record).await.unwrap(), Look::Running { .. }), "key {key}");
    }
}
