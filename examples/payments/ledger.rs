//! Where payments are written down: in memory, or in the same SQLite file and transaction as their records.

use std::sync::{Arc, Mutex, PoisonError};

use idempotency_layer::{Operation, SqliteStore, TransactionError};
use sqlx::Row;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqliteRow};

use crate::payment::{Order, Payment};

#[derive(Clone)]
pub(crate) enum Ledger {
    Memory(Arc<Mutex<Vec<Payment>>>),
    Sqlite { pool: SqlitePool, store: SqliteStore },
}

pub(crate) enum LedgerError {
    Transaction(TransactionError),
    Sql(sqlx::Error),
}

impl From<TransactionError> for LedgerError {
    fn from(error: TransactionError) -> Self {
        Self::Transaction(error)
    }
}

impl From<sqlx::Error> for LedgerError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

/// Opens the file, makes the tables, and gives the ledger and the store of its records.
pub(crate) async fn sqlite(url: &str) -> Result<(Ledger, SqliteStore), Box<dyn std::error::Error>> {
    let options = url.parse::<SqliteConnectOptions>()?.create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.map_err(|error| format!("cannot open {url}: {error}"))?;
    let store = SqliteStore::new(pool.clone()).await?;
    store.migrate().await?;
    sqlx::query(CREATE).execute(&pool).await?;
    Ok((Ledger::Sqlite { pool, store: store.clone() }, store))
}

impl Ledger {
    pub(crate) fn memory() -> Self {
        Self::Memory(Arc::default())
    }

    /// Writes one line, in the transaction of the operation where there is one.
    pub(crate) async fn append(
        &self,
        operation: &Operation,
        account: &str,
        order: Order,
    ) -> Result<Payment, LedgerError> {
        let Order { amount, currency } = order;
        let id = match self {
            Self::Memory(payments) => {
                let mut payments = payments.lock().unwrap_or_else(PoisonError::into_inner);
                let id = payments.len() as i64 + 1;
                payments.push(Payment { id, account: account.to_owned(), amount, currency: currency.clone() });
                id
            }
            Self::Sqlite { store, .. } => {
                let mut transaction = operation.transaction(store).await?;
                let inserted = sqlx::query("INSERT INTO payment (account, amount, currency) VALUES (?, ?, ?)")
                    .bind(account)
                    .bind(amount)
                    .bind(&currency)
                    .execute(&mut *transaction.connection().await?)
                    .await?;
                inserted.last_insert_rowid()
            }
        };
        Ok(Payment { id, account: account.to_owned(), amount, currency })
    }

    /// Every line, in order.
    pub(crate) async fn payments(&self) -> Result<Vec<Payment>, LedgerError> {
        match self {
            Self::Memory(payments) => Ok(payments.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            Self::Sqlite { pool, .. } => {
                let rows = sqlx::query("SELECT id, account, amount, currency FROM payment ORDER BY id")
                    .fetch_all(pool)
                    .await?;
                rows.iter().map(payment).collect()
            }
        }
    }
}

fn payment(row: &SqliteRow) -> Result<Payment, LedgerError> {
    Ok(Payment {
        id: row.try_get("id")?,
        account: row.try_get("account")?,
        amount: row.try_get("amount")?,
        currency: row.try_get("currency")?,
    })
}

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS payment (
    id       INTEGER PRIMARY KEY,
    account  TEXT    NOT NULL,
    amount   INTEGER NOT NULL CHECK (amount > 0),
    currency TEXT    NOT NULL
) STRICT";
