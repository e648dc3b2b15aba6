//! The books in one SQLite file.

use idempotency_layer::{Operation, SqliteStore};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::{Books, Failure, Order};
use crate::hooked::Hooked;

/// A file with the table in it.
#[derive(Clone, Debug)]
pub struct SqliteBooks {
    pool: SqlitePool,
    store: SqliteStore,
}

impl SqliteBooks {
    /// Opens the file and makes what is missing.
    pub async fn open(url: &str) -> Self {
        let options = url.parse::<SqliteConnectOptions>().expect("a URL of SQLite").create_if_missing(true);
        let pool = SqlitePool::connect_with(options).await.expect("a database");
        let store = SqliteStore::new(pool.clone()).await.expect("a store");
        store.migrate().await.expect("a migrated store");
        sqlx::query(CREATE).execute(&pool).await.expect("a table");
        Self { pool, store }
    }
}

impl Books for SqliteBooks {
    type Store = SqliteStore;

    fn store(&self) -> &SqliteStore {
        &self.store
    }

    async fn write(
        &self,
        store: &Hooked<SqliteStore>,
        operation: &Operation,
        account: &str,
        order: &Order,
    ) -> Result<(), Failure> {
        let mut transaction = operation.transaction(store).await?;
        sqlx::query("INSERT INTO shop_order (account, item, amount) VALUES (?, ?, ?)")
            .bind(account)
            .bind(&order.item)
            .bind(order.amount)
            .execute(&mut *transaction.connection().await?)
            .await?;
        Ok(())
    }

    async fn count(&self, account: &str) -> Result<i64, Failure> {
        let count = sqlx::query_scalar("SELECT count(*) FROM shop_order WHERE account = ?");
        Ok(count.bind(account).fetch_one(&self.pool).await?)
    }
}

const CREATE: &str =
    "CREATE TABLE IF NOT EXISTS shop_order (account TEXT NOT NULL, item TEXT NOT NULL, amount INTEGER NOT NULL) STRICT";
