//! The Redis store on trial, over one connection and over several, on whatever servers the test has started.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::sleep;

use super::Harness;
use super::key::random;
use crate::RedisStore;
use crate::store::{RecordId, StoreError, StoreErrorKind};

/// [`RedisStore`]s on servers of the test's, each harness under a prefix of its own. Time passes as the servers' does.
#[derive(Clone, Debug)]
pub struct RedisHarness {
    servers: Servers,
    prefix: Arc<str>,
    lease: Duration,
    /// None: each handle has a connection of its own, as in another process.
    clones: Option<Arc<OnceCell<RedisStore>>>,
}

#[derive(Clone, Debug)]
enum Servers {
    Single(String),
    Sentinels(Vec<String>, String),
    Cluster(Vec<String>),
}

impl RedisHarness {
    /// A harness for the server at this URL.
    #[must_use]
    pub fn single(url: impl Into<String>) -> Self {
        Self::on(Servers::Single(url.into()))
    }

    /// A harness for the primary that these sentinels name.
    #[must_use]
    pub fn sentinel(urls: impl IntoIterator<Item = String>, master: impl Into<String>) -> Self {
        Self::on(Servers::Sentinels(urls.into_iter().collect(), master.into()))
    }

    /// A harness for a cluster.
    #[must_use]
    pub fn cluster(urls: impl IntoIterator<Item = String>) -> Self {
        Self::on(Servers::Cluster(urls.into_iter().collect()))
    }

    /// Makes all handles clones of one, as they are within a process.
    #[must_use]
    pub fn clones(self) -> Self {
        Self { clones: Some(Arc::default()), ..self }
    }

    /// Gives leases this length, and retentions twice and a half of it. Default: one second.
    #[must_use]
    pub fn lease_of(self, lease: Duration) -> Self {
        Self { lease, ..self }
    }

    /// A harness with keys of its own, which are in the same slot of a cluster.
    #[must_use]
    pub fn beside(&self) -> Self {
        Self { prefix: format!("{}{}", self.prefix, own_prefix()).into(), ..self.clone() }
    }

    /// What the keys of this harness begin with.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    fn on(servers: Servers) -> Self {
        Self { servers, prefix: own_prefix().into(), lease: Duration::from_secs(1), clones: None }
    }

    async fn connect(&self, prefix: &str) -> RedisStore {
        let connected: Result<RedisStore, StoreError> = match &self.servers {
            Servers::Single(url) => RedisStore::connect(url).await,
            Servers::Sentinels(urls, master) => RedisStore::sentinel(urls, master).await,
            Servers::Cluster(urls) => RedisStore::cluster(urls).await,
        };
        connected.unwrap_or_else(|error| panic!("no connection: {error:?}")).prefix(prefix)
    }
}

impl Harness for RedisHarness {
    type Store = RedisStore;

    async fn open(&self) -> RedisStore {
        match &self.clones {
            Some(store) => store.get_or_init(|| self.connect(&self.prefix)).await.clone(),
            None => self.connect(&self.prefix).await,
        }
    }

    async fn open_elsewhere(&self) -> RedisStore {
        self.connect(&own_prefix()).await
    }

    async fn pass(&self, by: Duration) {
        sleep(by).await;
    }

    async fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
        let damaged = self.open().await.damage(record, kind).await;
        damaged.unwrap_or_else(|error| panic!("a record cannot be damaged: {error:?}"));
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    fn retention(&self) -> Duration {
        self.lease * 5 / 2
    }

    fn pushes(&self) -> bool {
        self.clones.is_some()
    }
}

/// In braces: in a cluster, all keys of one harness are in one slot, which a test can move.
fn own_prefix() -> String {
    format!("{{{}}}:", RecordId::from_bytes(random()))
}
