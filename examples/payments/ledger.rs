//! Where payments are written down: in memory, in Redis, or in the database and the transaction of their records, which is
//! SQLite or PostgreSQL.
//!
//! Redis has no transaction that line and record could share. There a line is written under the id of its operation, and
//! only once: a run that is repeated after a crash finds the line of the run before it.

use std::sync::{Arc, Mutex, PoisonError};

use idempotency_layer::{Operation, PostgresStore, RedisStore, SqliteStore, TransactionError};
use redis::{AsyncCommands, RedisError};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use sqlx::{ColumnIndex, Decode, Row, Type};

use crate::payment::{Order, Payment};
use crate::servers::{Link, Servers};

#[derive(Clone)]
pub(crate) enum Ledger {
    Memory(Arc<Mutex<Vec<Payment>>>),
    Sqlite { pool: SqlitePool, store: SqliteStore },
    Postgres { pool: PgPool, store: PostgresStore },
    Redis(Link),
}

pub(crate) enum LedgerError {
    Transaction(TransactionError),
    Sql(sqlx::Error),
    Redis(RedisError),
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

impl From<RedisError> for LedgerError {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// Connects, and gives the ledger and the store of its records.
pub(crate) async fn redis(servers: &Servers) -> Result<(Ledger, RedisStore), Box<dyn std::error::Error>> {
    Ok((Ledger::Redis(servers.link()?), servers.store().await?))
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

/// Connects, makes the tables, and gives the ledger and the store of its records.
pub(crate) async fn postgres(url: &str) -> Result<(Ledger, PostgresStore), Box<dyn std::error::Error>> {
    // Checks the URL and never repeats it.
    let store = PostgresStore::connect(url).await?;
    store.migrate().await?;
    // Opens no connection before the first use, so that an error here is about the URL, too.
    let pool = PgPoolOptions::new().connect_lazy(url).map_err(|_| "not a URL of PostgreSQL")?;
    sqlx::raw_sql(CREATE_IN_POSTGRES).execute(&pool).await?;
    Ok((Ledger::Postgres { pool, store: store.clone() }, store))
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
            Self::Postgres { store, .. } => {
                let mut transaction = operation.transaction(store).await?;
                sqlx::query_scalar("INSERT INTO payment (account, amount, currency) VALUES ($1, $2, $3) RETURNING id")
                    .bind(account)
                    .bind(amount)
                    .bind(&currency)
                    .fetch_one(&mut *transaction.connection().await?)
                    .await?
            }
            Self::Redis(link) => {
                let written = write_once(link, operation, account, &currency, amount).await;
                if written.is_err() {
                    link.give_up().await;
                }
                return written;
            }
        };
        Ok(Payment { id, account: account.to_owned(), amount, currency })
    }

    /// Every line, in order.
    pub(crate) async fn payments(&self) -> Result<Vec<Payment>, LedgerError> {
        match self {
            Self::Memory(payments) => Ok(payments.lock().unwrap_or_else(PoisonError::into_inner).clone()),
            Self::Sqlite { pool, .. } => {
                let rows = sqlx::query(SELECT).fetch_all(pool).await?;
                rows.iter().map(payment).collect()
            }
            Self::Postgres { pool, .. } => {
                let rows = sqlx::query(SELECT).fetch_all(pool).await?;
                rows.iter().map(payment).collect()
            }
            Self::Redis(link) => {
                let lines: Result<Vec<String>, RedisError> = async { link.get().await?.hvals(LINES).await }.await;
                if lines.is_err() {
                    link.give_up().await;
                }
                let mut payments: Vec<Payment> =
                    lines?.iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
                payments.sort_unstable_by_key(|payment| payment.id);
                Ok(payments)
            }
        }
    }
}

/// Writes the line of an operation, or finds the one that an earlier run of it has written.
async fn write_once(
    link: &Link,
    operation: &Operation,
    account: &str,
    currency: &str,
    amount: i64,
) -> Result<Payment, LedgerError> {
    let mut connection = link.get().await?;
    let record = operation.record().to_string();
    let id: i64 = connection.incr(LAST_ID, 1).await?;
    let payment = Payment { id, account: account.to_owned(), amount, currency: currency.to_owned() };
    let line = serde_json::to_string(&payment).map_err(|error| RedisError::from(std::io::Error::from(error)))?;
    if connection.hset_nx(LINES, &record, line).await? {
        return Ok(payment);
    }
    let line: String = connection.hget(LINES, &record).await?;
    serde_json::from_str(&line).map_err(|error| LedgerError::Redis(std::io::Error::from(error).into()))
}

fn payment<'r, R: Row>(row: &'r R) -> Result<Payment, LedgerError>
where
    &'static str: ColumnIndex<R>,
    i64: Decode<'r, R::Database> + Type<R::Database>,
    String: Decode<'r, R::Database> + Type<R::Database>,
{
    Ok(Payment {
        id: row.try_get("id")?,
        account: row.try_get("account")?,
        amount: row.try_get("amount")?,
        currency: row.try_get("currency")?,
    })
}

const LINES: &str = "payments:lines";
const LAST_ID: &str = "payments:last-id";

const SELECT: &str = "SELECT id, account, amount, currency FROM payment ORDER BY id";

/// Two processes that make the table at once would be in each other's way.
const CREATE_IN_POSTGRES: &str = "
SELECT pg_advisory_xact_lock(31632083628223860);
CREATE TABLE IF NOT EXISTS payment (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account  text   NOT NULL,
    amount   bigint NOT NULL CHECK (amount > 0),
    currency text   NOT NULL
)";

const CREATE: &str = "
CREATE TABLE IF NOT EXISTS payment (
    id       INTEGER PRIMARY KEY,
    account  TEXT    NOT NULL,
    amount   INTEGER NOT NULL CHECK (amount > 0),
    currency TEXT    NOT NULL
) STRICT";
