//! One PgBouncer as a child process, in transaction mode: a connection has a server's backend for one transaction.
//!
//! Its other settings are Debian's, which clients meet: it refuses one that sends `extra_float_digits`, as `sqlx` does
//! unless it is told not to, and waits for 15 seconds before it connects again to a server that was not there.
//! [`options`](PgBouncer::options) are what `sqlx` needs.

use std::net::SocketAddr;
use std::path::Path;

use nix::unistd::Pid;
use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};

use super::program::{self, ATTEMPTS};
use super::{PASSWORD, PostgresServer, USER, url_at};
use crate::keeper::Keeper;
use crate::port;

/// A running `pgbouncer`.
#[derive(Debug)]
pub struct PgBouncer {
    keeper: Keeper,
    port: u16,
}

impl PgBouncer {
    /// Starts one in front of a server, for all of its databases.
    pub async fn start(server: &PostgresServer) -> Self {
        Self::start_with(server.address(), &[]).await
    }

    /// Starts one in front of a server's address or a proxy's, with further settings, as in its file:
    /// `&[("default_pool_size", "1")]`. The server need not be there yet.
    pub async fn start_with(upstream: SocketAddr, settings: &[(&str, &str)]) -> Self {
        Self::start_on(port::free, upstream, settings).await
    }

    async fn start_on(port: impl Fn() -> u16, upstream: SocketAddr, settings: &[(&str, &str)]) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = program::folder();
            let port = port();
            program::write(&folder, USERS, &format!("\"{USER}\" \"{PASSWORD}\"\n"));
            program::write(&folder, CONFIGURATION, &configuration(port, upstream, settings));
            let keeper = program::start(folder, "/usr/sbin/pgbouncer", &[CONFIGURATION.to_owned()]);
            let bouncer = Self { keeper, port };
            if bouncer.began().await {
                return bouncer;
            }
        }
        panic!("PgBouncer was refused {ATTEMPTS} ports that were free");
    }

    /// As a client is given it, with the password. What `sqlx` makes of it is refused: see [`options`](Self::options).
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        url_at(self.address(), database)
    }

    /// What `sqlx` connects with: nothing that is refused, and no prepared statement that another transaction would look for
    /// in another backend. Outside of a transaction, only what has no parameters is one transaction for `sqlx`.
    #[must_use]
    pub fn options(&self, database: &str) -> PgConnectOptions {
        let options: PgConnectOptions = self.url(database).parse().expect("a URL that is one");
        options.extra_float_digits(None).statement_cache_capacity(0)
    }

    /// A pool of the runtime that this is called in, with these options. It connects when it is first used.
    #[must_use]
    pub fn pool(&self, database: &str) -> PgPool {
        PgPoolOptions::new().connect_lazy_with(self.options(database))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        port::local(self.port)
    }

    /// The id of its process.
    ///
    /// # Panics
    ///
    /// When it was killed.
    #[must_use]
    pub fn id(&self) -> Pid {
        self.keeper.id()
    }

    /// Where its files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.keeper.folder()
    }

    /// What it has logged since its last start.
    #[must_use]
    pub fn log(&self) -> String {
        self.keeper.log()
    }

    /// SIGKILL, and waits until the process is gone. Its port and its folder stay its own.
    pub fn kill(&self) {
        self.keeper.kill();
    }

    /// SIGSTOP: the process stands still and its sockets stay open.
    pub fn pause(&self) {
        self.keeper.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.keeper.resume();
    }

    /// Kills it, unless that has happened, and starts it on its port. It listens when this returns.
    pub async fn restart(&self) {
        self.keeper.start_again();
        assert!(self.began().await, "PgBouncer does not get its port again:\n{}", self.log());
    }

    /// Waits until it listens, or until another has its port, which is `false`.
    async fn began(&self) -> bool {
        program::began(&self.keeper, "PgBouncer (Debian's package pgbouncer)", READY).await
    }
}

/// Of two lines that set the same, the last counts.
fn configuration(port: u16, upstream: SocketAddr, settings: &[(&str, &str)]) -> String {
    let (host, upstream) = (upstream.ip(), upstream.port());
    let mut configuration = format!(
        "[databases]\n\
         * = host={host} port={upstream}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = md5\n\
         auth_file = {USERS}\n\
         pool_mode = transaction\n"
    );
    for (name, value) in settings {
        configuration.push_str(&format!("{name} = {value}\n"));
    }
    configuration
}

const CONFIGURATION: &str = "pgbouncer.ini";
const USERS: &str = "userlist.txt";
const READY: &str = "process up";

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;

    use super::*;

    /// Fails when `began` in `program` does not look for `REFUSED`, or `start_on` has one attempt.
    #[tokio::test]
    async fn a_bouncer_whose_port_is_taken_gets_another() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let first = Cell::new(Some(taken.local_addr().expect("an address").port()));
        let upstream = port::local(port::free());
        let bouncer = PgBouncer::start_on(|| first.take().unwrap_or_else(port::free), upstream, &[]).await;
        assert_ne!(bouncer.address(), taken.local_addr().expect("an address"));
    }
}
