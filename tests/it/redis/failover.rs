//! What Redis keeps and what it loses at a failover, with and without `wait_replicas`; the store's docs say the same.

use std::time::Duration;

use http::StatusCode;
use idempotency_layer::store::{Claim, Completion, StoredResponse, Write};
use idempotency_layer::{RedisStore, Store, StoreErrorKind};
use idempotency_tests::redis::RedisSentinels;

use super::keys::{claim, lease};

async fn store(group: &RedisSentinels) -> RedisStore {
    RedisStore::sentinel(group.urls(), group.master_name()).await.unwrap()
}

async fn complete(store: &RedisStore, key: u8) -> Result<Write, StoreErrorKind> {
    let response = Completion::Response(StoredResponse::new(StatusCode::CREATED, "kept".into()).into());
    store.complete(&lease(key), &response).await.map_err(|error| error.kind())
}

/// Without waiting, an answer that the replica had not got is lost with the primary, and its key runs again; with it, no
/// such answer was ever given. Fails when `RedisStore::write` does not look at how many replicas have the write.
#[tokio::test(flavor = "multi_thread")]
async fn a_failover_loses_what_no_replica_had_and_nothing_that_waited_for_one() {
    let group = RedisSentinels::start().await;
    let (plain, waiting) = (store(&group).await, waiting(&group).await);

    // With the replica there, both are recorded, and the replica has them.
    assert!(matches!(waiting.claim(&claim(1)).await.unwrap(), Claim::Acquired(_)));
    assert_eq!(complete(&waiting, 1).await, Ok(Write::Done));

    // The replica stands still and its connection is gone: what is written now is on the primary alone.
    let (primary, replica) = (group.primary().await, group.replica().await);
    replica.pause();
    let _killed: i64 = primary.command(&["CLIENT", "KILL", "TYPE", "replica"]).await;
    assert!(matches!(plain.claim(&claim(2)).await.unwrap(), Claim::Acquired(_)));
    assert_eq!(complete(&plain, 2).await, Ok(Write::Done), "nobody is waited for");
    let refused = waiting.claim(&claim(3)).await.map_err(|error| error.kind());
    assert_eq!(refused.unwrap_err(), StoreErrorKind::Unavailable, "a claim that no replica has");

    // The primary dies before the replica is back.
    let lost = group.kill_primary().await;
    replica.resume();
    group.promoted_after(lost).await;

    let kept = until_answered(&plain, 1).await;
    assert!(matches!(kept, Claim::Recorded(_)), "what waited for a replica is kept: {kept:?}");
    let forgotten = until_answered(&plain, 2).await;
    assert!(matches!(forgotten, Claim::Acquired(_)), "what waited for none is lost: {forgotten:?}");
}

/// The verb writes nothing then, and goes over another connection. Fails when `RedisStore::write` does not look at how many
/// replicas have the write. That a server needs the message before `WAIT` is not shown by it: Redis 7.0 needs none.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_is_sent_again_waits_for_its_replicas_too() {
    let group = RedisSentinels::start().await;
    let (first, again) = (waiting(&group).await, waiting(&group).await);
    assert!(matches!(first.claim(&claim(1)).await.unwrap(), Claim::Acquired(_)));
    let replica = group.replica().await;
    replica.pause();
    for store in [&first, &again] {
        assert_eq!(complete(store, 1).await, Err(StoreErrorKind::Unavailable), "the replica has it not");
    }
    replica.resume();
    assert_eq!(complete(&again, 1).await, Ok(Write::Done));
}

async fn waiting(group: &RedisSentinels) -> RedisStore {
    store(group).await.wait_replicas(1, WAIT).unwrap()
}

/// Claims until there is a primary again that answers.
async fn until_answered(store: &RedisStore, key: u8) -> Claim {
    let asking = async {
        loop {
            if let Ok(claim) = store.claim(&claim(key)).await {
                return claim;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), asking).await.expect("no primary answers")
}

/// A cluster redirects, and a given connection has other users. Fails when `wait_replicas` takes what is not linked, or a
/// count or a timeout of zero.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_replicas_is_refused_where_it_would_mean_nothing() {
    let server = idempotency_tests::redis::shared().await;
    let given = RedisStore::from_connection(server.connect().await.unwrap());
    let cluster = idempotency_tests::redis::RedisCluster::start().await;
    let cluster = RedisStore::cluster(cluster.urls()).await.unwrap();
    let single = RedisStore::connect(&server.url()).await.unwrap();
    for (store, count, timeout) in
        [(given, 1, WAIT), (cluster, 1, WAIT), (single.clone(), 0, WAIT), (single, 1, Duration::ZERO)]
    {
        let refused = store.wait_replicas(count, timeout).map_err(|error| error.kind());
        assert_eq!(refused.unwrap_err(), StoreErrorKind::Misconfigured);
    }
}

const WAIT: Duration = Duration::from_millis(300);
