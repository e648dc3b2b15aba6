//! A process that starts a server, `redis`, `postgres` or `paused-postgres`, and waits to be killed.

use idempotency_tests::postgres::PostgresServer;
use idempotency_tests::redis::RedisServer;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("redis") => {
            let redis = RedisServer::start().await;
            println!("listening on {}", redis.url());
            println!("server {}", redis.id());
            std::future::pending().await
        }
        Some(kind @ ("postgres" | "paused-postgres")) => {
            let postgres = PostgresServer::start().await;
            if kind == "paused-postgres" {
                postgres.pause();
            }
            println!("listening on {}", postgres.address());
            let processes: Vec<_> = postgres.processes().iter().map(ToString::to_string).collect();
            println!("server {}", processes.join(" "));
            std::future::pending().await
        }
        other => panic!("{other:?} is no server"),
    }
}
