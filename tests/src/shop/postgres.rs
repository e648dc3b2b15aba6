//! The books in one PostgreSQL database, for several shops.

use idempotency_layer::{Operation, PostgresStore};
use sqlx::PgPool;

use super::{Books, Failure, Order};
use crate::hooked::Hooked;

/// A database with the table in it.
#[derive(Clone, Debug)]
pub struct PostgresBooks {
    pool: PgPool,
    store: PostgresStore,
}

impl PostgresBooks {
    /// Connects, and makes what is missing.
    pub async fn open(url: &str) -> Self {
        let store = PostgresStore::connect(url).await.expect("a store");
        store.migrate().await.expect("a migrated store");
        let pool = PgPool::connect(url).await.expect("a database");
        sqlx::raw_sql(CREATE).execute(&pool).await.expect("a table");
        Self { pool, store }
    }
}

impl Books for PostgresBooks {
    type Store = PostgresStore;

    fn store(&self) -> &PostgresStore {
        &self.store
    }

    async fn write(
        &self,
        store: &Hooked<PostgresStore>,
        operation: &Operation,
        account: &str,
        order: &Order,
    ) -> Result<(), Failure> {
        let mut transaction = operation.transaction(store).await?;
        sqlx::query("INSERT INTO shop_order (account, item, amount) VALUES ($1, $2, $3)")
            .bind(account)
            .bind(&order.item)
            .bind(order.amount)
            .execute(&mut *transaction.connection().await?)
            .await?;
        Ok(())
    }

    async fn count(&self, account: &str) -> Result<i64, Failure> {
        let count = sqlx::query_scalar("SELECT count(*) FROM shop_order WHERE account = $1");
        Ok(count.bind(account).fetch_one(&self.pool).await?)
    }
}

/// Two processes that make the table at once would be in each other's way.
const CREATE: &str = "
SELECT pg_advisory_xact_lock(4711);
SET LOCAL client_min_messages = warning;
CREATE TABLE IF NOT EXISTS shop_order (account text NOT NULL, item text NOT NULL, amount bigint NOT NULL);";
