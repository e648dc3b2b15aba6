//! The store's tables, created in a database that may hold the user's own.
//!
//! Scripts run in order, each once, all in one transaction that has locked `idempotency_schema`, so that processes which
//! start together do not meet; no advisory lock is taken, which a pooler could leave behind. Which scripts have run is kept
//! in that table; the driver's `_sqlx_migrations` is the user's and stays untouched.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::{Instant, sleep, timeout_at};

use super::failure::{is_conflict, is_duplicate, of_statement, unavailable};
use super::statements::Statements;
use super::{PostgresStore, TIMEOUT};
use crate::store::{StoreError, StoreErrorKind};

/// Brings the tables to this version.
pub(super) async fn migrate(store: &PostgresStore) -> Result<(), StoreError> {
    // Tables may have to be waited for.
    let deadline = Instant::now() + store.timeout.max(TIMEOUT) * 4;
    loop {
        let mut lent = store.lend(&store.shared.verbs, deadline).await?;
        let migrated = timeout_at(deadline, apply(&mut lent, &store.statements)).await;
        let migrated = match migrated {
            Ok(migrated) => migrated,
            Err(_) => {
                lent.discard();
                return Err(unavailable("somebody else keeps the tables of the idempotency store locked"));
            }
        };
        match migrated {
            Ok(applied) => {
                lent.give_back();
                return refuse_newer(applied);
            }
            Err(error) => {
                // In whatever state its transaction is.
                lent.discard();
                if !(is_duplicate(&error) || is_conflict(&error)) || Instant::now() + PAUSE > deadline {
                    return Err(of_statement(error));
                }
            }
        }
        sleep(PAUSE).await;
    }
}

/// The version that the tables had. Those of a newer version are left alone.
async fn apply(connection: &mut PgConnection, statements: &Statements) -> sqlx::Result<i64> {
    let mut transaction = connection.begin().await?;
    let there = sqlx::query("SELECT FROM pg_catalog.pg_namespace WHERE nspname = $1")
        .bind(&statements.name)
        .persistent(false)
        .fetch_optional(&mut *transaction)
        .await?;
    let schema = &statements.schema;
    // A role that may not create schemas may still use one.
    let create = if there.is_none() { format!("CREATE SCHEMA {schema}; ") } else { String::new() };
    let begin = format!(
        "SET LOCAL client_min_messages = warning; {create}SET LOCAL search_path = {schema}; \
         CREATE TABLE IF NOT EXISTS idempotency_schema (version bigint PRIMARY KEY); \
         LOCK TABLE idempotency_schema IN ACCESS EXCLUSIVE MODE"
    );
    sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *transaction).await?;
    let applied = sqlx::query("SELECT coalesce(max(version), 0) FROM idempotency_schema")
        .persistent(false)
        .fetch_one(&mut *transaction)
        .await?
        .try_get(0)?;
    for (version, script) in SCRIPTS {
        if *version > applied {
            sqlx::raw_sql(*script).execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await?;
    Ok(applied)
}

fn refuse_newer(applied: i64) -> Result<(), StoreError> {
    let known = SCRIPTS.last().map_or(0, |(version, _)| *version);
    if applied <= known {
        return Ok(());
    }
    Err(StoreError::with_source(
        StoreErrorKind::Misconfigured,
        format!("the tables are of version {applied}, and this version knows {known}; update this process first"),
    ))
}

/// Each script with its version; it writes the version itself, so that it can be run by hand.
const SCRIPTS: &[(i64, &str)] = &[(1, include_str!("../../../migrations/postgres/0001_records.sql"))];

const PAUSE: std::time::Duration = std::time::Duration::from_millis(20);
