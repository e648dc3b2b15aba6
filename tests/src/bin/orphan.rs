//! A process that starts a Redis server and waits to be killed.

use idempotency_tests::redis::RedisServer;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let redis = RedisServer::start().await;
    println!("listening on {}", redis.url());
    println!("server {}", redis.id());
    std::future::pending().await
}
