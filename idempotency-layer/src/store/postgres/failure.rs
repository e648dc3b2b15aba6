//! What Postgres said, as a [`StoreError`]: who can do something about it is in its kind, the words are its source.

use sqlx::Error;

use crate::store::{StoreError, StoreErrorKind};

/// The error of a statement on the store's own tables, or of connecting to run one.
pub(super) fn of_statement(error: Error) -> StoreError {
    match code(&error).as_deref() {
        Some(UNDEFINED_TABLE | UNDEFINED_COLUMN | INVALID_SCHEMA_NAME) => misconfigured(
            "the tables of the idempotency store are missing or of another version; call `PostgresStore::migrate` once \
             at start-up",
        ),
        Some(INVALID_PASSWORD | INVALID_AUTHORIZATION | INVALID_CATALOG_NAME | INSUFFICIENT_PRIVILEGE) => {
            StoreError::with_source(StoreErrorKind::Misconfigured, error)
        }
        _ if is_refusal_of_pooler(&error) => StoreError::with_source(StoreErrorKind::Misconfigured, error),
        Some(READ_ONLY) => misconfigured("the server takes no writes: it is a standby, or set to read only"),
        _ if is_unknown_parameter(&error) => misconfigured(
            "the server refuses a start-up parameter, as old versions of PgBouncer do; use \
             `PostgresStore::legacy_pooler`",
        ),
        Some(INVALID_STATEMENT_NAME | DUPLICATE_STATEMENT) => {
            misconfigured("a pooler gives each statement to another session; use `PostgresStore::legacy_pooler`")
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

/// The connection is of no use any more. What was sent on it may have happened.
pub(super) fn is_of_connection(error: &Error) -> bool {
    match error {
        Error::Io(_) | Error::Tls(_) | Error::Protocol(_) | Error::WorkerCrashed => true,
        Error::Database(_) => code(error).is_some_and(|code| {
            // Class 08 is about the connection, 57P0x about a server that stops, starts or has crashed.
            // A session that only reads may be one of a primary that has become a standby; the next may not be.
            code.starts_with("08") || code.starts_with("57P0") || code == IDLE_IN_TRANSACTION || code == READ_ONLY
        }),
        _ => false,
    }
}

/// The statement did nothing, because of another under way, and may be sent again.
pub(super) fn is_conflict(error: &Error) -> bool {
    matches!(code(error).as_deref(), Some(SERIALIZATION_FAILURE | DEADLOCK))
}

/// A constraint of the handler's that is checked at COMMIT only does not hold.
pub(super) fn is_constraint(error: &Error) -> bool {
    code(error).is_some_and(|code| code.starts_with("23"))
}

/// The transaction is not the one that was begun: it has failed, was ended, or never was.
pub(super) fn is_of_ended_transaction(error: &Error) -> bool {
    let by_us = error.as_database_error().and_then(sqlx::error::DatabaseError::constraint) == Some(ONLY_THE_STORE);
    by_us || matches!(code(error).as_deref(), Some(FAILED_TRANSACTION | READ_ONLY))
}

/// Another process made the same thing at the same time.
pub(super) fn is_duplicate(error: &Error) -> bool {
    matches!(code(error).as_deref(), Some(UNIQUE_VIOLATION | DUPLICATE_TABLE | DUPLICATE_SCHEMA))
}

/// A pooler that does not pass on what a session is to start with.
pub(super) fn is_unknown_parameter(error: &Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message().contains("unsupported startup parameter"))
}

/// PgBouncer says whom it refuses, and repeats whom the server refuses, under the code of a violated protocol.
fn is_refusal_of_pooler(error: &Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    let refusals = ["authentication failed", "no such user", "no such database", "does not exist"];
    error.code().as_deref() == Some(PROTOCOL_VIOLATION) && refusals.iter().any(|text| error.message().contains(text))
}

fn code(error: &Error) -> Option<String> {
    error.as_database_error()?.code().map(std::borrow::Cow::into_owned)
}

/// The constraint of the migration.
const ONLY_THE_STORE: &str = "only_the_idempotency_store_commits";

// https://www.postgresql.org/docs/current/errcodes-appendix.html
const PROTOCOL_VIOLATION: &str = "08P01";
const UNIQUE_VIOLATION: &str = "23505";
const READ_ONLY: &str = "25006";
const FAILED_TRANSACTION: &str = "25P02";
const IDLE_IN_TRANSACTION: &str = "25P03";
const INVALID_STATEMENT_NAME: &str = "26000";
const INVALID_AUTHORIZATION: &str = "28000";
const INVALID_PASSWORD: &str = "28P01";
const INVALID_CATALOG_NAME: &str = "3D000";
const INVALID_SCHEMA_NAME: &str = "3F000";
const SERIALIZATION_FAILURE: &str = "40001";
const DEADLOCK: &str = "40P01";
const INSUFFICIENT_PRIVILEGE: &str = "42501";
const UNDEFINED_COLUMN: &str = "42703";
const DUPLICATE_STATEMENT: &str = "42P05";
const UNDEFINED_TABLE: &str = "42P01";
const DUPLICATE_TABLE: &str = "42P07";
const DUPLICATE_SCHEMA: &str = "42P06";
