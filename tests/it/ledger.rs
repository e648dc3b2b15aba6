//! A SQLite file of effects and records, without a socket in front of it.

use idempotency_layer::store::SqliteTransaction;
use idempotency_layer::{IdempotencyLayer, SqliteStore, Store};
use idempotency_tests::bank;
use sqlx::SqlitePool;
use tempfile::TempDir;

/// A table of effects beside the records.
pub(crate) struct Ledger {
    _folder: TempDir,
    pub(crate) pool: SqlitePool,
    pub(crate) store: SqliteStore,
}

impl Ledger {
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = bank::open(folder.path().join("ledger.db").to_str().unwrap()).await;
        sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
        let store = SqliteStore::new(pool.clone()).await.unwrap();
        store.migrate().await.unwrap();
        Self { _folder: folder, pool, store }
    }

    pub(crate) async fn effects(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM effect").fetch_one(&self.pool).await.unwrap()
    }
}

const TABLES: &str = "
CREATE TABLE effect (id INTEGER PRIMARY KEY, what TEXT NOT NULL);
CREATE TABLE single (id INTEGER PRIMARY KEY);
INSERT INTO single VALUES (1);
CREATE TABLE refusing (id INTEGER PRIMARY KEY);
CREATE TRIGGER refuse BEFORE INSERT ON refusing BEGIN SELECT RAISE(ROLLBACK, 'refused'); END;";

pub(crate) fn layer<S: Store>(store: S) -> IdempotencyLayer<S> {
    IdempotencyLayer::new(store).anonymous(true)
}

pub(crate) async fn write(transaction: &mut SqliteTransaction, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut *transaction.connection().await?).await.map(drop)
}

pub(crate) const EFFECT: &str = "INSERT INTO effect (what) VALUES ('paid')";
