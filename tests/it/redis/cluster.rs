//! A cluster keeps every property while the slot of all the keys goes from node to node.

use std::time::Duration;

use idempotency_layer::conformance::RedisHarness;
use idempotency_tests::redis::RedisCluster;
use tokio::time::sleep;

use super::list;

/// S12. Fails when `Cluster::send_until_settled` does not follow `MOVED`, nor asks for the slots again.
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_list_holds_while_its_slot_is_moved() {
    let cluster = RedisCluster::start().await;
    let harness = RedisHarness::cluster(cluster.urls()).lease_of(crate::model::LEASE);
    let slot = cluster.slot(harness.prefix()).await;
    let mut moves = 0;
    // Each move is seen by many verbs, and between two of them time passes as the model expects.
    let moving = async {
        for node in cluster.nodes().iter().cycle() {
            if cluster.owner(slot).await.id() != node.id() {
                cluster.move_slot(slot, node).await;
                moves += 1;
            }
            sleep(Duration::from_secs(3)).await;
        }
    };
    tokio::select! {
        () = list::hold(&harness) => {}
        () = moving => unreachable!("it goes on and on"),
    }
    assert!(moves > 5, "{moves} moves");
}
