//! What SQLite said, as a [`StoreError`]: who can do something about it is in its kind, the words are its source.

use sqlx::Error;

use crate::store::{StoreError, StoreErrorKind};

/// The error of a statement on the store's own tables.
pub(super) fn of_statement(error: Error) -> StoreError {
    if primary_code(&error) == Some(SQLITE_NOTADB) {
        return misconfigured("the file is not a SQLite database, or is encrypted");
    }
    if primary_code(&error) == Some(SQLITE_READONLY) {
        return misconfigured("the database is read-only, and the idempotency store writes a record for every key");
    }
    match message(&error) {
        Some(text) if text.contains("no such table: idempotency_") => misconfigured(
            "the tables of the idempotency store are missing; call `SqliteStore::migrate` once at start-up",
        ),
        Some(text) if OTHER_TABLES.iter().any(|told| text.contains(told)) => {
            StoreError::with_source(StoreErrorKind::Misconfigured, error)
        }
        _ => StoreError::with_source(StoreErrorKind::Unavailable, error),
    }
}

pub(super) fn misconfigured(what_to_do: &'static str) -> StoreError {
    StoreError::with_source(StoreErrorKind::Misconfigured, what_to_do)
}

pub(super) fn unavailable(what: &'static str) -> StoreError {
    StoreError::with_source(StoreErrorKind::Unavailable, what)
}

/// Somebody else has the lock; the statement did nothing and may be sent again.
pub(super) fn is_busy(error: &Error) -> bool {
    primary_code(error) == Some(SQLITE_BUSY)
}

/// A constraint that is checked at COMMIT does not hold. The transaction is still open.
pub(super) fn is_constraint(error: &Error) -> bool {
    primary_code(error) == Some(SQLITE_CONSTRAINT)
}

fn message(error: &Error) -> Option<&str> {
    error.as_database_error().map(|error| error.message())
}

/// The lowest byte of an extended result code is the primary one (<https://www.sqlite.org/rescode.html>).
fn primary_code(error: &Error) -> Option<i32> {
    let code = error.as_database_error()?.code()?;
    code.parse::<i32>().ok().map(|code| code & 0xff)
}

/// What SQLite says of tables that are not those of this version.
const OTHER_TABLES: [&str; 3] = ["no column named", "no such column", "already exists"];

const SQLITE_BUSY: i32 = 5;
const SQLITE_READONLY: i32 = 8;
const SQLITE_CONSTRAINT: i32 = 19;
const SQLITE_NOTADB: i32 = 26;
