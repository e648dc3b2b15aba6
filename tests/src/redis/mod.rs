//! Redis servers of a test's own: one, a primary with its sentinels, or a cluster, each gone with its handle.
//!
//! - [`RedisServer`]: one server, which is killed, paused and restarted.
//! - [`RedisSentinels`]: a primary and its replica, which the sentinels promote.
//! - [`RedisCluster`]: three nodes whose slots move, and [`SlotMove`], one that is half moved.
//!
//! Each listens on a free port of 127.0.0.1 and keeps its data in a temporary folder. They belong to no runtime, so a
//! static may hold them for all tests of a program; they end with its process (see [`keeper`](crate::keeper)).

mod cluster;
mod sentinels;
mod server;

pub use cluster::{RedisCluster, SlotMove};
pub use sentinels::{DOWN_AFTER, RedisSentinels};
pub use server::RedisServer;

use tokio::sync::OnceCell;

use crate::patience::{PATIENCE, Patience};

/// One server for all tests of a program that do it no harm; each has keys of its own.
pub async fn shared() -> &'static RedisServer {
    static SERVER: OnceCell<RedisServer> = OnceCell::const_new();
    SERVER.get_or_init(RedisServer::start).await
}

/// The file in a server's folder that it reads its configuration from and rewrites.
const CONFIGURATION: &str = "redis.conf";
