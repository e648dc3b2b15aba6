//! One Redis server as a child process: killed, paused and restarted on its own port.

use std::net::SocketAddr;
use std::path::Path;

use nix::unistd::Pid;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult};

use super::{CONFIGURATION, PATIENCE, Patience};
use crate::keeper::Keeper;
use crate::port;

/// A running `redis-server`.
#[derive(Debug)]
pub struct RedisServer {
    keeper: Keeper,
    port: u16,
}

impl RedisServer {
    /// Starts one that keeps nothing on disk.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts one with further options, as on its command line: `&["--appendonly", "yes"]`.
    pub async fn start_with(options: &[&str]) -> Self {
        Self::start_as(|port| (String::new(), Self::arguments(port, options))).await
    }

    /// What it is started with: its file, so that it can keep what it is told at run time, and the options.
    pub(super) fn arguments(port: u16, options: &[&str]) -> Vec<String> {
        let port = port.to_string();
        let mut arguments = vec![CONFIGURATION, "--bind", "127.0.0.1", "--port", &port, "--save", ""];
        // A replica need not wait for others to come.
        arguments.extend(["--repl-diskless-sync-delay", "0"]);
        arguments.extend(options);
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// Starts one from what a port makes of it: its configuration file and its arguments.
    pub(super) async fn start_as(program: impl Fn(u16) -> (String, Vec<String>)) -> Self {
        for _ in 0..ATTEMPTS {
            let folder = tempfile::tempdir().expect("a folder");
            let port = port::free();
            let (configuration, arguments) = program(port);
            std::fs::write(folder.path().join(CONFIGURATION), configuration).expect("a writable folder");
            let server = Self { keeper: Keeper::start(folder, PROGRAM, &arguments), port };
            if server.began().await {
                return server;
            }
        }
        panic!("{PROGRAM} was refused {ATTEMPTS} ports that were free");
    }

    /// `redis://` and the address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        port::local(self.port)
    }

    pub(super) fn port(&self) -> String {
        self.port.to_string()
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

    /// Kills it, unless that has happened, and starts it on its port and in its folder. It answers when this returns, and
    /// has what it had on disk.
    pub async fn restart(&self) {
        self.keeper.start_again();
        assert!(self.began().await, "{PROGRAM} does not get its port again:\n{}", self.keeper.log());
    }

    /// Sends one command over a connection of its own.
    ///
    /// # Panics
    ///
    /// When the answer is an error or another type, and when there is none.
    pub async fn command<T: FromRedisValue>(&self, command: &[&str]) -> T {
        let mut cmd = Cmd::new();
        for argument in command {
            cmd.arg(argument);
        }
        self.query(&cmd).await.unwrap_or_else(|error| panic!("{}: {}: {error}", self.url(), command.join(" ")))
    }

    /// Sends one command, of which errors are an answer that the test expects.
    ///
    /// # Errors
    ///
    /// The server's, or that it is not there.
    pub async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut connection = self.connect().await?;
        command.query_async(&mut connection).await
    }

    /// A connection of its own.
    ///
    /// # Errors
    ///
    /// When the server is not there.
    pub async fn connect(&self) -> RedisResult<MultiplexedConnection> {
        // A server under test may take its time: a command that blocks, a machine with much to do.
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
        Client::open(self.url())?.get_multiplexed_async_connection_with_config(&config).await
    }

    /// Waits until it answers, or until another has its port, which is `false`.
    async fn began(&self) -> bool {
        let patience = Patience::new();
        loop {
            // In this order: what it said before its end is in the log.
            let has_ended = self.keeper.has_ended();
            let log = self.keeper.log();
            if log.contains(REFUSED) {
                return false;
            }
            if READY.iter().any(|ready| log.contains(ready)) {
                let pong: String = self.command(&["PING"]).await;
                assert_eq!(pong, "PONG");
                return true;
            }
            assert!(!has_ended, "{PROGRAM} (Debian's package redis-server) does not start:\n{log}");
            assert!(patience.lasts().await, "{PROGRAM} does not begin to answer:\n{log}");
        }
    }
}

const PROGRAM: &str = "redis-server";
/// What it says once it listens and has read its data; the second, as a sentinel. That another server answers on the port
/// does not count.
const READY: [&str; 2] = ["Ready to accept connections", "Sentinel ID is "];
/// What it says when another has its port.
const REFUSED: &str = "Address already in use";
const ATTEMPTS: u32 = 20;

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::net::TcpListener;

    use super::*;

    /// Fails when `began` does not look for `REFUSED`, or `start_as` has one attempt.
    #[tokio::test]
    async fn a_server_whose_port_is_taken_gets_another() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let first = Cell::new(Some(taken.local_addr().expect("an address").port()));
        let server = RedisServer::start_as(|port| {
            let port = first.take().unwrap_or(port).to_string();
            let arguments = [CONFIGURATION, "--bind", "127.0.0.1", "--port", &port];
            (String::new(), arguments.map(str::to_owned).into())
        });
        assert_eq!(server.await.command::<String>(&["PING"]).await, "PONG");
    }
}
