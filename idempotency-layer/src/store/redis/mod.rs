//! Records in Redis or Valkey: for many processes, and as durable as the server's persistence and its failover.
//!
//! ```no_run
//! # async fn open() -> Result<(), idempotency_layer::store::StoreError> {
//! use idempotency_layer::RedisStore;
//!
//! let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
//! # Ok(())
//! # }
//! ```
//!
//! 1. Each verb is one step on one key and one round trip, and works alike on a single server, behind Sentinel and in a
//!    cluster. The servers are Redis from 6.2 on, or Valkey. The step is a script, but for most claims: from Redis 7.0 on a
//!    claim under [`Rerun`](crate::UnknownOutcome::Rerun) is first sent as `SET … NX GET` with a `PTTL` behind it, which cost
//!    a server a fraction of a script. They make a first run's record, or find a record that is answer enough. Where they
//!    do not, as when a lease has lapsed, and where the server refuses them, the script is the second round trip; nobody
//!    else takes a key over.
//! 2. The clock is the server's, for leases and retentions: scripts ask for its `TIME`, and a record that no script wrote, or
//!    that is a response, is as old as is gone of its expiry. The clock should be kept in step between a primary and its
//!    replicas.
//! 3. A record is one string under `idempotency:` and the record's id. Its expiry is its retention, renewed with each
//!    write; no crash leaves a key without one. Held records, and runs that are to be held if they lapse, have none.
//! 4. Handles share a connection. A broken one is replaced, and the verb sent again; a server that does not answer within
//!    two seconds is [`Unavailable`](StoreErrorKind::Unavailable). Behind Sentinel the primary is looked up anew.
//!
//! What it does *not* guarantee:
//!
//! - **A record survives what the server's own data survives, and no more.** Without persistence a restart forgets every
//!   key. With `appendfsync everysec`, which is the server's default, a crash of the machine forgets up to a second. A
//!   failover forgets what the replica had not got yet: replication is asynchronous, and a primary that is cut off takes
//!   writes until it learns that it was replaced. Then a key runs again.
//! - [`wait_replicas`](RedisStore::wait_replicas) answers no write as done before so many replicas have it. That narrows
//!   the loss at a failover to writes that nobody was told of, as long as a replica is promoted that has them; Sentinel
//!   takes the most advanced one that it sees, which need not be one of those.
//! - A server that evicts (`maxmemory-policy` other than `noeviction`) may forget any key at any time.
//!   [`connect`](RedisStore::connect) warns of it, and of a server without persistence.
//!
//! Where that is too little, as it is for money, use a store whose record is a commit.
//!
//! [`watch`](crate::Store::watch) is woken by changes of this store and its clones only; a change by another process is
//! found by polling. Listing held records ([`held`](crate::Store::held)) walks over all keys of the database.

mod check;
mod cluster;
mod failure;
mod held;
mod link;
mod plain;
mod record;
mod replicas;
mod script;
mod server;
mod verbs;

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelNodeConnectionInfo, SentinelServerType};
use redis::{Client, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use self::cluster::Cluster;
use self::failure::misconfigured;
use self::link::{Link, Source};
use self::replicas::Replicas;
use self::server::Server;
use super::watchers::Watchers;
use super::{RecordId, StoreError, StoreErrorKind, StoreId};

/// A store in Redis or Valkey; see the [module docs](self). Clones share a connection.
#[must_use]
#[derive(Clone)]
pub struct RedisStore {
    identity: StoreId,
    prefix: Arc<str>,
    replicas: Option<Arc<Replicas>>,
    shared: Arc<Shared>,
}

/// What clones have in common.
struct Shared {
    server: Server,
    /// The server is too old for plain claims.
    knows_no_plain_claim: AtomicBool,
    watchers: Mutex<Watchers>,
}

impl RedisStore {
    /// Connects to a single server, as `redis://user:password@host:6379/0`, and checks how it is set up: an evicting
    /// `maxmemory-policy` and a server without persistence are logged as warnings.
    ///
    /// `rediss://` needs TLS in the `redis` crate: depend on it with its feature `tokio-rustls-comp` or
    /// `tokio-native-tls-comp`.
    ///
    /// # Errors
    ///
    /// - [`Misconfigured`](StoreErrorKind::Misconfigured), with the reason as the source, when the URL is none of Redis's,
    ///   the server refuses the credentials, is older than 6.2, or is a node of a cluster.
    /// - [`Unavailable`](StoreErrorKind::Unavailable) when the server does not answer.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        let client = Client::open(prompt(url)?).map_err(misread)?;
        Self::linked(Source::Server(client)).await
    }

    /// Connects to the primary that sentinels name, and to the next one whenever it is replaced.
    ///
    /// The URLs are those of the sentinels; credentials in them are for the sentinels. The servers themselves are asked
    /// without credentials; where they want some, use [`sentinel_with`](Self::sentinel_with).
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect); [`Misconfigured`](StoreErrorKind::Misconfigured) also when no sentinel knows the
    /// master's name.
    pub async fn sentinel<U: AsRef<str>>(urls: impl IntoIterator<Item = U>, master: &str) -> Result<Self, StoreError> {
        Self::sentinel_with(urls, master, RedisConnectionInfo::default()).await
    }

    /// As [`sentinel`](Self::sentinel), with the credentials and the database number of the servers.
    ///
    /// # Errors
    ///
    /// As for [`sentinel`](Self::sentinel).
    pub async fn sentinel_with<U: AsRef<str>>(
        urls: impl IntoIterator<Item = U>,
        master: &str,
        servers: RedisConnectionInfo,
    ) -> Result<Self, StoreError> {
        let urls = all_prompt(urls)?;
        let servers = SentinelNodeConnectionInfo::default()
            .set_redis_connection_info(servers)
            .set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = SentinelClient::build(urls, master.to_owned(), Some(servers), SentinelServerType::Master);
        let client = client.map_err(misread)?;
        Self::linked(Source::Sentinels(Arc::new(tokio::sync::Mutex::new(client)))).await
    }

    /// Connects to a cluster, of which some nodes are enough to find the others.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    pub async fn cluster<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Self, StoreError> {
        Self::checked(Server::Cluster(Cluster::new(all_prompt(urls)?))).await
    }

    /// Uses a connection that is there already, unchecked. When it breaks the store is unavailable for good, since a
    /// multiplexed connection does not come back; the other constructors replace theirs.
    pub fn from_connection(connection: MultiplexedConnection) -> Self {
        Self::new(Server::Given(connection))
    }

    async fn linked(source: Source) -> Result<Self, StoreError> {
        Self::checked(Server::Linked(Link::new(source))).await
    }

    async fn checked(server: Server) -> Result<Self, StoreError> {
        check::check(&server).await?;
        Ok(Self::new(server))
    }

    fn new(server: Server) -> Self {
        let shared =
            Arc::new(Shared { server, knows_no_plain_claim: AtomicBool::new(false), watchers: Mutex::default() });
        Self { identity: StoreId::random(), prefix: PREFIX.into(), replicas: None, shared }
    }

    /// What the keys begin with, so that several services share a server. Default: `idempotency:`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self.identity = StoreId::random();
        self
    }

    /// Answers no claim and no end of a run as done before `count` replicas have it, and fails as
    /// [`Unavailable`](StoreErrorKind::Unavailable) when they have not after `timeout`. Renewals do not wait: losing one
    /// shortens a lease by a third.
    ///
    /// It narrows what a failover loses and does not exclude it; see the [module docs](self). Each such write has a
    /// connection to itself while it waits, of at most 64.
    ///
    /// # Errors
    ///
    /// [`Misconfigured`](StoreErrorKind::Misconfigured) for a cluster, whose commands may be redirected so that `WAIT`
    /// would ask another node than the one that was written to; for a [given](Self::from_connection) connection, which
    /// others send on; and for a count or a timeout of zero.
    pub fn wait_replicas(mut self, count: u32, timeout: Duration) -> Result<Self, StoreError> {
        let Server::Linked(link) = &self.shared.server else {
            return Err(misconfigured(
                "`wait_replicas` needs connections of its own to one primary: `RedisStore::connect` or `::sentinel`",
            ));
        };
        if count == 0 || timeout.is_zero() {
            return Err(misconfigured("`wait_replicas` needs a count and a timeout above zero"));
        }
        self.replicas = Some(Arc::new(Replicas::new(link.source().clone(), count, timeout)));
        Ok(self)
    }

    fn key(&self, record: &RecordId) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.prefix.len() + 2 * record.as_bytes().len());
        key.extend_from_slice(self.prefix.as_bytes());
        for byte in record.as_bytes() {
            // As the id is displayed, without a formatter for each digit.
            key.extend([byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]));
        }
        key
    }

    /// Whether a claim may be a plain command: not where it has to wait for replicas, which scripts do.
    fn takes_plain_claims(&self) -> bool {
        self.replicas.is_none() && !self.shared.knows_no_plain_claim.load(Relaxed)
    }

    /// Remembers what a server before Redis 7.0 says to `NX` beside `GET`.
    fn refused_plain_claim(&self, error: &redis::RedisError) {
        if error.detail().is_some_and(|detail| detail.contains("syntax error")) {
            self.shared.knows_no_plain_claim.store(true, Relaxed);
        }
    }

    fn watchers(&self) -> MutexGuard<'_, Watchers> {
        // Every change is made whole under the lock.
        self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// An address whose commands are sent at once, and not held back until there are more.
fn prompt(url: &str) -> Result<ConnectionInfo, StoreError> {
    let info = url.into_connection_info().map_err(misread)?;
    let settings = info.tcp_settings().clone().set_nodelay(true);
    Ok(info.set_tcp_settings(settings))
}

fn all_prompt<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Vec<ConnectionInfo>, StoreError> {
    urls.into_iter().map(|url| prompt(url.as_ref())).collect()
}

fn misread(error: redis::RedisError) -> StoreError {
    StoreError::with_source(StoreErrorKind::Misconfigured, error)
}

const PREFIX: &str = "idempotency:";
