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

use std::time::{Duration, Instant};

use tokio::sync::OnceCell;
use tokio::time::sleep;

/// One server for all tests of a program that do it no harm; each has keys of its own.
pub async fn shared() -> &'static RedisServer {
    static SERVER: OnceCell<RedisServer> = OnceCell::const_new();
    SERVER.get_or_init(RedisServer::start).await
}

/// Between two questions to a server: whether it is worth asking again.
struct Patience {
    begun: Instant,
}

impl Patience {
    fn new() -> Self {
        Self { begun: Instant::now() }
    }

    /// Waits a little. Redis tells of what is waited for here only who asks.
    async fn lasts(&self) -> bool {
        sleep(Duration::from_millis(10)).await;
        self.begun.elapsed() < PATIENCE
    }
}

/// How long a server may take to do what it is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
/// The file in a server's folder that it reads its configuration from and rewrites.
const CONFIGURATION: &str = "redis.conf";
