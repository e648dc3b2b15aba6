//! The Redis store on real servers: the whole conformance list, the model, what each request costs in round trips, and what
//! only a server can do to it.

mod behind;
mod claims;
mod cluster;
mod commands;
mod conformance;
mod crash;
mod damage;
mod failover;
mod keys;
mod list;
mod model;
mod outages;
mod overtaken;
mod replies;
mod restarts;
mod round_trips;
mod sentinel;

use idempotency_tests::redis::RedisServer;
use tokio::sync::OnceCell;

/// One server for all tests that do it no harm; each has keys of its own.
async fn server() -> &'static RedisServer {
    static SERVER: OnceCell<RedisServer> = OnceCell::const_new();
    SERVER.get_or_init(RedisServer::start).await
}
