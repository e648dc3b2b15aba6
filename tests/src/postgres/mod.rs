//! PostgreSQL servers of a test's own, and PgBouncer in front of one, each gone with its handle.
//!
//! - [`PostgresServer`]: one server, which is killed, paused, stopped and restarted.
//! - [`PgBouncer`]: a pooler in transaction mode, as Debian configures it otherwise.
//!
//! They are those of Debian 12, PostgreSQL 15 and PgBouncer 1.18. Each listens on a free port of 127.0.0.1, on no socket in
//! a folder, and keeps its data in a temporary one. They belong to no runtime, so a static may hold them for all tests of a
//! program; they end with its process (see [`keeper`](crate::keeper)). No server forces anything to its disk: it keeps what
//! was committed when it is killed, not when the machine loses its power.

mod bouncer;
mod program;
mod server;

pub use bouncer::PgBouncer;
pub use server::PostgresServer;

use std::net::SocketAddr;

use tokio::sync::OnceCell;

/// One server for all tests of a program that do it no harm; each has a
/// [database of its own](PostgresServer::create_database).
pub async fn shared() -> &'static PostgresServer {
    static SERVER: OnceCell<PostgresServer> = OnceCell::const_new();
    SERVER.get_or_init(PostgresServer::start).await
}

/// What a client connects to, with the password, at the address of a server, of a bouncer, or of a proxy in front of one.
#[must_use]
pub fn url_at(address: SocketAddr, database: &str) -> String {
    format!("postgres://{USER}:{PASSWORD}@{address}/{database}")
}

/// Who may do everything.
const USER: &str = "postgres";
/// It is asked for over every connection. A test finds it in what must not tell it.
const PASSWORD: &str = "not-to-be-told";
