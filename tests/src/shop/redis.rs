//! The books in Redis: one hash for each account, one field for each operation.

use std::fmt;

use idempotency_layer::{Operation, RedisStore};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use super::{Books, Failure, Order};
use crate::hooked::Hooked;

/// A connection to the server.
#[derive(Clone)]
pub struct RedisBooks {
    connection: MultiplexedConnection,
    store: RedisStore,
}

impl RedisBooks {
    /// Connects.
    pub async fn open(url: &str) -> Self {
        let store = RedisStore::connect(url).await.expect("a store");
        let client = redis::Client::open(url).expect("a URL of Redis");
        let connection = client.get_multiplexed_async_connection().await.expect("a connection");
        Self { connection, store }
    }
}

impl Books for RedisBooks {
    type Store = RedisStore;

    fn store(&self) -> &RedisStore {
        &self.store
    }

    async fn write(
        &self,
        _: &Hooked<RedisStore>,
        operation: &Operation,
        account: &str,
        order: &Order,
    ) -> Result<(), Failure> {
        let (record, order) = (operation.record().to_string(), serde_json::to_string(order)?);
        Ok(self.connection.clone().hset(of(account), record, order).await?)
    }

    async fn count(&self, account: &str) -> Result<i64, Failure> {
        Ok(self.connection.clone().hlen(of(account)).await?)
    }
}

impl fmt::Debug for RedisBooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisBooks").finish_non_exhaustive()
    }
}

fn of(account: &str) -> String {
    format!("orders:{account}")
}
