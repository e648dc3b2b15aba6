//! Redis servers of a test's own: one, a primary with its sentinels, or a cluster, each gone with its handle.
//!
//! - [`RedisServer`]: one server, which is killed, paused and restarted.
//!
//! Each listens on a free port of 127.0.0.1 and keeps its data in a temporary folder. They belong to no runtime, so a
//! static may hold them for all tests of a program; they end with its process (see [`keeper`](crate::keeper)).

mod server;

pub use server::RedisServer;

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Asks a server again and again, and says whether it was so before the patience was over.
async fn until(mut is_so: impl AsyncFnMut() -> bool) -> bool {
    let asking = async {
        while !is_so().await {
            // Redis tells of these changes only who asks.
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, asking).await.is_ok()
}

/// How long a server may take to do what it is waited for.
const PATIENCE: Duration = Duration::from_secs(30);
