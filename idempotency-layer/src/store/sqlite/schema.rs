//! The store's tables, created in a file that may hold the user's own.
//!
//! Scripts run in order, each once, all in one write transaction, so that processes which start together do not meet.
//! Which have run is kept in `idempotency_schema`; the driver's `_sqlx_migrations` is the user's and stays untouched.

use sqlx::Row;
use sqlx::sqlite::SqliteConnection;

use super::failure;
use crate::store::{StoreError, StoreErrorKind};

/// Brings the tables to this version, within the caller's write transaction.
pub(super) async fn migrate(connection: &mut SqliteConnection) -> Result<(), StoreError> {
    let applied = applied(connection).await?;
    let known = SCRIPTS.last().map_or(0, |(version, _)| *version);
    if applied > known {
        return Err(StoreError::with_source(
            StoreErrorKind::Misconfigured,
            format!("the tables are of version {applied}, and this version knows {known}; update this process first"),
        ));
    }
    for (version, script) in SCRIPTS {
        if *version > applied {
            sqlx::raw_sql(*script).execute(&mut *connection).await.map_err(failure::of_statement)?;
        }
    }
    Ok(())
}

async fn applied(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    let there = sqlx::query("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'idempotency_schema'")
        .fetch_optional(&mut *connection)
        .await
        .map_err(failure::of_statement)?;
    if there.is_none() {
        return Ok(0);
    }
    let row = sqlx::query("SELECT COALESCE(MAX(version), 0) AS version FROM idempotency_schema")
        .fetch_one(connection)
        .await
        .map_err(failure::of_statement)?;
    row.try_get("version").map_err(failure::of_statement)
}

/// Each script with its version; it writes the version itself, so that it can be run by hand.
const SCRIPTS: &[(i64, &str)] = &[(1, include_str!("../../../migrations/sqlite/0001_records.sql"))];
