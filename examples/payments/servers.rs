//! Which Redis servers are meant by `--store`, and the ledger's own connection to them.

use std::sync::Arc;

use idempotency_layer::{RedisStore, StoreError};
use redis::aio::MultiplexedConnection;
use redis::sentinel::{SentinelClient, SentinelServerType};
use redis::{Client, RedisError};
use tokio::sync::Mutex;

/// One server, or the primary that sentinels name.
#[derive(Clone)]
pub(crate) enum Servers {
    Single(String),
    Sentinels { urls: Vec<String>, master: String },
}

impl Servers {
    /// Reads `redis://HOST:PORT` or `redis+sentinel://HOST:PORT,HOST:PORT/MASTER`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        if text.starts_with("redis://") || text.starts_with("rediss://") {
            return Some(Self::Single(text.to_owned()));
        }
        let (hosts, master) = text.strip_prefix("redis+sentinel://")?.split_once('/')?;
        if hosts.is_empty() || master.is_empty() {
            return None;
        }
        let urls = hosts.split(',').map(|host| format!("redis://{host}")).collect();
        Some(Self::Sentinels { urls, master: master.to_owned() })
    }

    pub(crate) async fn store(&self) -> Result<RedisStore, StoreError> {
        match self {
            Self::Single(url) => RedisStore::connect(url).await,
            Self::Sentinels { urls, master } => RedisStore::sentinel(urls, master).await,
        }
    }

    pub(crate) fn link(&self) -> Result<Link, RedisError> {
        let source = match self {
            Self::Single(url) => Source::Server(Client::open(url.as_str())?),
            Self::Sentinels { urls, master } => {
                let urls = urls.iter().map(String::as_str).collect();
                Source::Sentinels(SentinelClient::build(urls, master.clone(), None, SentinelServerType::Master)?)
            }
        };
        Ok(Link { inner: Arc::new(Mutex::new((source, None))) })
    }
}

/// A connection that is made anew after an error.
#[derive(Clone)]
pub(crate) struct Link {
    inner: Arc<Mutex<(Source, Option<MultiplexedConnection>)>>,
}

enum Source {
    Server(Client),
    Sentinels(SentinelClient),
}

impl Link {
    pub(crate) async fn get(&self) -> Result<MultiplexedConnection, RedisError> {
        let (source, connection) = &mut *self.inner.lock().await;
        if let Some(connection) = connection {
            return Ok(connection.clone());
        }
        let made = match source {
            Source::Server(client) => client.get_multiplexed_async_connection().await?,
            Source::Sentinels(client) => client.get_async_connection().await?,
        };
        Ok(connection.insert(made).clone())
    }

    pub(crate) async fn give_up(&self) {
        self.inner.lock().await.1 = None;
    }
}
