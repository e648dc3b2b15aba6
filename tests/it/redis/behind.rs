//! A Redis server behind a proxy, seen by two processes: one whose network the test breaks, and one that has its own.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use axum::Router;
use idempotency_layer::{IdempotencyLayer, RedisStore, SharedStore};
use idempotency_tests::gate::Gate;
use idempotency_tests::proxy::Proxy;
use idempotency_tests::redis::RedisServer;

use crate::request::{gated, layer};

/// The server, and the only way to it for whoever is under test.
pub(super) struct Behind {
    pub(super) redis: RedisServer,
    pub(super) proxy: Proxy,
}

impl Behind {
    /// A server that keeps its data over a restart.
    pub(super) async fn durable() -> Self {
        Self::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).await
    }

    pub(super) async fn start_with(options: &[&str]) -> Self {
        let redis = RedisServer::start_with(options).await;
        let proxy = Proxy::start(redis.address()).await;
        Self { redis, proxy }
    }

    /// Where the proxy is.
    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.proxy.address())
    }

    /// A store behind the proxy. It is connected, and the server knows all its scripts.
    pub(super) async fn store(&self) -> SharedStore {
        let store = connect(&self.url()).await;
        self.learn().await;
        store
    }

    /// A store of another process, which the proxy's faults do not concern.
    pub(super) async fn elsewhere(&self) -> SharedStore {
        connect(&self.redis.url()).await
    }

    /// A gated service of another process.
    pub(super) async fn heir(&self, gate: &Gate) -> Router {
        gated(layer(&self.elsewhere().await), gate.clone())
    }

    /// Teaches the server the scripts, so that what is sent next are their hashes.
    pub(super) async fn learn(&self) {
        for text in [&*CLAIM, &*RENEW, &*SETTLE, &*FORGET, &*RESOLVE, &*LOOK].map(|script| &script.text) {
            let _: () = self.redis.command(&["SCRIPT", "LOAD", text]).await;
        }
    }

    /// What is stored, and the milliseconds until it expires, if it does.
    pub(super) async fn records(&self) -> BTreeMap<Vec<u8>, Option<Duration>> {
        let keys: Vec<Vec<u8>> = self.redis.command(&["KEYS", "idempotency:*"]).await;
        let mut records = BTreeMap::new();
        for key in keys {
            let left: i64 = self.redis.query(redis::cmd("PTTL").arg(&key)).await.unwrap();
            // -2: it has expired since.
            if left != -2 {
                records.insert(key, u64::try_from(left).ok().map(Duration::from_millis));
            }
        }
        records
    }

    /// However a process ends, what it has left goes by itself.
    pub(super) async fn assert_all_expire(&self, case: &str) {
        let records = self.records().await;
        assert!(records.values().all(Option::is_some), "{case}: {records:?}");
    }
}

/// A store as a process has it.
pub(super) async fn connect(url: &str) -> SharedStore {
    SharedStore::new(RedisStore::connect(url).await.unwrap())
}

/// A layer that does not let its clients wait for long.
pub(super) fn impatient(store: &SharedStore) -> IdempotencyLayer<SharedStore> {
    layer(store).record_deadline(DEADLINE)
}

/// How long an impatient layer's clients wait for its store.
pub(super) const DEADLINE: Duration = Duration::from_millis(500);

/// One verb's script, as the server gets it.
pub(super) struct Script {
    text: String,
    /// What its calls carry.
    pub(super) hash: String,
}

macro_rules! script {
    ($name:ident: $($part:literal)+) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            let parts = [$(include_str!(concat!("../../../idempotency-layer/src/store/redis/scripts/", $part, ".lua"))),+];
            let text = parts.concat();
            let hash = redis::Script::new(&text).get_hash().to_owned();
            Script { text, hash }
        });
    };
}

/// What the claims that are plain commands carry, as it is on the wire: the `NX` of their `SET`.
pub(super) const PLAIN_CLAIM: &str = "$2\r\nNX\r\n";

script!(CLAIM: "read" "claim" "write");
script!(RENEW: "read" "renew" "write");
script!(SETTLE: "end" "read" "settle" "write");
script!(FORGET: "read" "forget");
script!(RESOLVE: "read" "resolve" "write");
script!(LOOK: "read" "look");
