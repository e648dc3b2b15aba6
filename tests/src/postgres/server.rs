//! One PostgreSQL server as a child process: killed, paused, stopped and restarted on its own port.
//!
//! 1. What makes a server takes longer than to start it, so that it is done once in a process, and copied.
//! 2. A server is a process and those that it forks, one for each connection and some more. What happens to it happens to
//!    all of them: paused, it answers on no connection, and once it is killed no old connection commits any more.
//! 3. What it shares with those that it forks is gone with the last of them. The kernel would keep it for the next start of
//!    a server that never comes, and has room for some thousands. Where a connection's process is killed by itself, the
//!    server makes it anew, and that is left behind.

use std::net::SocketAddr;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Decode, PgConnection, PgPool, Postgres, Type};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::OnceCell;

use super::program::{self, ATTEMPTS};
use super::{PASSWORD, USER, url_at};
use crate::keeper::Keeper;
use crate::patience::Patience;
use crate::port;

/// A running `postgres`.
#[derive(Debug)]
pub struct PostgresServer {
    keeper: Keeper,
    port: u16,
}

impl PostgresServer {
    /// Starts one with the settings that it has by default, but for what makes it small and fast.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts one with further settings, as in its file: `&[("lock_timeout", "1s")]`.
    pub async fn start_with(settings: &[(&str, &str)]) -> Self {
        Self::start_on(port::free, settings).await
    }

    async fn start_on(port: impl Fn() -> u16, settings: &[(&str, &str)]) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = program::folder();
            copy(template().await.folder(), &folder).await;
            let port = port();
            let mut arguments = vec!["-D".to_owned(), DATA.to_owned(), "-c".to_owned(), format!("port={port}")];
            for (name, value) in SETTINGS.iter().chain(settings) {
                arguments.extend(["-c".to_owned(), format!("{name}={value}")]);
            }
            let server = Self { keeper: program::start(folder, &installed("postgres"), &arguments), port };
            if server.began().await {
                return server;
            }
        }
        panic!("PostgreSQL was refused {ATTEMPTS} ports that were free");
    }

    /// What `sqlx` connects to as the superuser, with the password, to the database `postgres`.
    #[must_use]
    pub fn url(&self) -> String {
        url_at(self.address(), "postgres")
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        port::local(self.port)
    }

    /// The id of its first process.
    ///
    /// # Panics
    ///
    /// When it was killed.
    #[must_use]
    pub fn id(&self) -> Pid {
        self.keeper.id()
    }

    /// The ids of its processes, which come and go with its connections; the first is [`id`](Self::id).
    ///
    /// # Panics
    ///
    /// When it was killed.
    #[must_use]
    pub fn processes(&self) -> Vec<Pid> {
        self.keeper.processes()
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

    /// SIGKILL, and waits until its processes are gone. Its port and its folder stay its own.
    pub fn kill(&self) {
        self.keeper.kill();
    }

    /// SIGSTOP: its processes stand still and their sockets stay open.
    pub fn pause(&self) {
        self.keeper.pause();
    }

    /// SIGCONT.
    pub fn resume(&self) {
        self.keeper.resume();
    }

    /// Has it shut down as an operator does: transactions are rolled back, connections are told, all is written. Waits until
    /// it is gone.
    ///
    /// # Panics
    ///
    /// When it was killed, and when it does not end.
    pub async fn stop(&self) {
        kill(self.id(), Signal::SIGINT).expect("a signal that can be sent");
        let patience = Patience::new();
        while !self.keeper.has_ended() {
            assert!(patience.lasts().await, "PostgreSQL does not shut down:\n{}", self.log());
        }
        self.keeper.kill();
    }

    /// Kills it, unless that has happened, and starts it on its port and in its folder. It answers when this returns, and
    /// has what was committed.
    pub async fn restart(&self) {
        self.keeper.start_again();
        assert!(self.began().await, "PostgreSQL does not get its port again:\n{}", self.log());
    }

    /// Makes an empty database, and gives what [`url`](Self::url) gives for it. The name is one that needs no quotes.
    pub async fn create_database(&self, name: &str) -> String {
        self.execute(&format!("CREATE DATABASE {name}")).await;
        url_at(self.address(), name)
    }

    /// Ends all connections as an operator does, but for the one that does it, and says how many there were. They are gone
    /// when this returns.
    ///
    /// # Panics
    ///
    /// When one does not end.
    pub async fn terminate_backends(&self) -> i64 {
        let [there, ended] = self.fetch::<[i64; 2]>(TERMINATE).await;
        assert_eq!(there, ended, "a connection does not end");
        ended
    }

    /// A pool of the runtime that this is called in. It connects when it is first used.
    #[must_use]
    pub fn pool(&self) -> PgPool {
        PgPoolOptions::new().connect_lazy(&self.url()).expect("a URL that is one")
    }

    /// A connection of its own.
    ///
    /// # Errors
    ///
    /// When the server is not there.
    pub async fn connect(&self) -> sqlx::Result<PgConnection> {
        PgConnection::connect(&self.url()).await
    }

    /// Sends statements over a connection of its own.
    ///
    /// # Panics
    ///
    /// When one fails, and when there is no answer.
    pub async fn execute(&self, sql: &str) {
        let done = async {
            let mut connection = self.connect().await?;
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await?;
            connection.close().await
        };
        done.await.unwrap_or_else(|error| panic!("{}: {sql}: {error}", self.address()));
    }

    /// The first column of the first row that a statement gives over a connection of its own.
    ///
    /// # Panics
    ///
    /// When there is none, when it is of another type, and when there is no answer.
    pub async fn fetch<T>(&self, sql: &str) -> T
    where
        T: for<'r> Decode<'r, Postgres> + Type<Postgres> + Send + Unpin,
    {
        let value = async {
            let mut connection = self.connect().await?;
            let value = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut connection).await?;
            connection.close().await?;
            Ok::<_, sqlx::Error>(value)
        };
        value.await.unwrap_or_else(|error| panic!("{}: {sql}: {error}", self.address()))
    }

    /// Waits until it answers, or until another has its port, which is `false`.
    async fn began(&self) -> bool {
        let began = program::began(&self.keeper, "PostgreSQL (Debian's package postgresql-15)", READY).await;
        if began {
            disown_memory(self.folder()).await;
            assert_eq!(self.fetch::<i32>("SELECT 1").await, 1);
        }
        began
    }
}

/// What a server has before its first start; it is kept as servers are.
async fn template() -> &'static Keeper {
    static TEMPLATE: OnceCell<Keeper> = OnceCell::const_new();
    TEMPLATE.get_or_init(initialize).await
}

async fn initialize() -> Keeper {
    let folder = program::folder();
    program::write(&folder, PASSWORD_FILE, PASSWORD);
    let keeper = program::start(folder, &installed("initdb"), &INITIALIZE.map(str::to_owned));
    assert!(program::began(&keeper, "initdb (Debian's package postgresql-15)", "Success.").await);
    keeper
}

async fn copy(template: &Path, folder: &TempDir) {
    // With its owner, where that is another.
    let copied = Command::new("cp").arg("-a").arg(template.join(DATA)).arg(folder.path()).status().await;
    assert!(copied.expect("cp").success(), "the template is not copied");
}

/// Has the kernel free what the processes share once the last of them is gone. Until then it finds any that is left of an
/// earlier start, as before.
async fn disown_memory(folder: &Path) {
    let removed = Command::new("ipcrm").args(["--shmem-id", &memory(folder)]).status().await;
    assert!(removed.expect("ipcrm").success(), "shared memory stays");
}

/// The id of what the processes share.
fn memory(folder: &Path) -> String {
    let status = std::fs::read_to_string(folder.join(DATA).join("postmaster.pid")).expect("a server's status");
    // After its key.
    let id = status.lines().nth(MEMORY_LINE).and_then(|line| line.split_whitespace().nth(1));
    id.expect("shared memory").to_owned()
}

fn installed(program: &str) -> String {
    format!("/usr/lib/postgresql/15/bin/{program}")
}

const DATA: &str = "data";
const PASSWORD_FILE: &str = "password";
#[rustfmt::skip]
const INITIALIZE: [&str; 12] = [
    "-D", DATA, "--username", USER, "--pwfile", PASSWORD_FILE, "--auth", "scram-sha-256",
    "--encoding", "UTF8", "--locale=C", "--no-sync",
];
const SETTINGS: [(&str, &str); 6] = [
    ("listen_addresses", "127.0.0.1"),
    ("unix_socket_directories", ""),
    ("fsync", "off"),
    ("shared_buffers", "16MB"),
    ("max_connections", "500"),
    // In its folder, which goes with it, where others outlive it.
    ("dynamic_shared_memory_type", "mmap"),
];
/// And then which connections: a standby's are "read-only connections".
const READY: &str = "database system is ready to accept";
/// In `postmaster.pid`, counted from zero.
const MEMORY_LINE: usize = 6;
const TERMINATE: &str = "\
    SELECT ARRAY[count(*), count(*) FILTER (WHERE pg_terminate_backend(pid, 20000))] FROM pg_stat_activity \
    WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;

    use super::*;

    /// Fails when `began` in `program` does not look for `REFUSED`, or `start_on` has one attempt.
    #[tokio::test]
    async fn a_server_whose_port_is_taken_gets_another() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let first = Cell::new(Some(taken.local_addr().expect("an address").port()));
        let server = PostgresServer::start_on(|| first.take().unwrap_or_else(port::free), &[]).await;
        assert_eq!(server.fetch::<i32>("SELECT 2").await, 2);
    }

    /// Fails when `began` does not call `disown_memory`.
    #[tokio::test]
    async fn a_killed_server_leaves_no_shared_memory() {
        let exists = |id: &str| {
            let all = std::fs::read_to_string("/proc/sysvipc/shm").expect("the kernel's list");
            all.lines().any(|line| line.split_whitespace().nth(1) == Some(id))
        };
        let server = PostgresServer::start().await;
        let first = memory(server.folder());
        assert!(exists(&first));
        server.restart().await;
        let second = memory(server.folder());
        assert!(!exists(&first) && exists(&second));
        drop(server);
        assert!(!exists(&second));
    }
}
