//! What a server must be, and what is said of one that is not.

use http::StatusCode;
use idempotency_layer::store::{Claim, Completion, StoredResponse, Write};
use idempotency_layer::{RedisStore, Store, StoreErrorKind};
use idempotency_tests::redis::{RedisCluster, RedisSentinels, RedisServer, shared};

use tracing::Level;

use super::keys::{claim, lease};
use crate::log::Log;

/// Fails when `failure::of_verb` takes what a server refuses for an outage, or `check` does not ask whether the server is
/// one of a cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_hold_records_is_refused_and_says_why_without_its_address() {
    let (cluster, locked) = tokio::join!(RedisCluster::start(), RedisServer::start());
    let _done: String = locked.command(&["CONFIG", "SET", "requirepass", "right"]).await;
    let sentinels = RedisSentinels::start().await;
    let wrong = locked.url().replace("redis://", "redis://:wrong@");
    let gone = {
        let server = RedisServer::start().await;
        server.url()
    };
    let refused = [
        (RedisStore::connect("http://secret").await, StoreErrorKind::Misconfigured),
        (RedisStore::connect("rediss://127.0.0.1:1").await, StoreErrorKind::Misconfigured),
        (RedisStore::connect(&locked.url()).await, StoreErrorKind::Misconfigured),
        (RedisStore::connect(&wrong).await, StoreErrorKind::Misconfigured),
        (RedisStore::connect(&cluster.urls()[0]).await, StoreErrorKind::Misconfigured),
        (RedisStore::cluster([shared().await.url()]).await, StoreErrorKind::Misconfigured),
        (RedisStore::sentinel(sentinels.urls(), "other").await, StoreErrorKind::Misconfigured),
        (RedisStore::connect(&gone).await, StoreErrorKind::Unavailable),
    ];
    for (at, (store, kind)) in refused.into_iter().enumerate() {
        let error = store.expect_err("refused");
        assert_eq!(error.kind(), kind, "{at}: {error:?}");
        let said = format!("{error:?} {error}");
        assert!(!said.contains("wrong") && !said.contains("right"), "{at}: {said}");
    }
}

/// Fails when `Server::Given` does not send, or answers what it does not get.
#[tokio::test]
async fn a_connection_that_is_there_already_is_enough() {
    let connection = shared().await.connect().await.unwrap();
    let store = RedisStore::from_connection(connection).prefix("given:");
    assert!(matches!(store.claim(&claim(1)).await.unwrap(), Claim::Acquired(_)));
    let response = Completion::Response(StoredResponse::new(StatusCode::CREATED, "kept".into()).into());
    assert_eq!(store.complete(&lease(1), &response).await.unwrap(), Write::Done);
    assert!(matches!(store.claim(&claim(1)).await.unwrap(), Claim::Recorded(_)));
}

/// Fails when `check` gives no warning, or anything logs the password of the URL.
#[tokio::test]
async fn a_server_that_forgets_is_warned_of_and_its_password_is_not_logged() {
    let (log, _guard) = Log::collect(Level::TRACE);
    let server = RedisServer::start_with(&["--maxmemory-policy", "allkeys-lru"]).await;
    let _done: String = server.command(&["CONFIG", "SET", "requirepass", "very-secret"]).await;
    let store = RedisStore::connect(&server.url().replace("redis://", "redis://:very-secret@")).await.unwrap();
    assert!(matches!(store.claim(&claim(1)).await.unwrap(), Claim::Acquired(_)));
    server.kill();
    assert_eq!(store.claim(&claim(1)).await.unwrap_err().kind(), StoreErrorKind::Unavailable);
    let log = log.text();
    for warning in ["maxmemory-policy noeviction", "appendonly yes"] {
        assert_eq!(log.matches(warning).count(), 1, "{log}");
    }
    assert!(!log.contains("very-secret"), "{log}");
    assert!(!format!("{store:?}").contains("very-secret"));
}
