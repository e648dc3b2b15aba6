//! What Redis said, as a [`StoreError`]: who can do something about it is in its kind, the words are its source.

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::store::{StoreError, StoreErrorKind};

/// The error of a verb.
pub(super) fn of_verb(error: RedisError) -> StoreError {
    let said = |code: &str| error.code() == Some(code) || error.detail().is_some_and(|detail| detail.contains(code));
    if said("WRONGTYPE") {
        // Something else than a string is where a record would be.
        return StoreError::with_source(StoreErrorKind::Corrupt, error);
    }
    if said("NOAUTH") || said("WRONGPASS") || said("NOPERM") {
        return StoreError::with_source(StoreErrorKind::Misconfigured, error);
    }
    if said("cluster support disabled") {
        return misconfigured("the server is not part of a cluster; connect to it with `RedisStore::connect`");
    }
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::CrossSlot) => {
            misconfigured("the server is a node of a cluster; connect to it with `RedisStore::cluster`")
        }
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig | ErrorKind::MasterNameNotFoundBySentinel => {
            StoreError::with_source(StoreErrorKind::Misconfigured, error)
        }
        _ => StoreError::with_source(StoreErrorKind::Unavailable, error),
    }
}

/// Whether the connection that gave this error is to be replaced: it is broken, silent, or leads to a server that takes no
/// writes any more.
pub(super) fn is_of_connection(error: &RedisError) -> bool {
    let demoted = [ServerErrorKind::ReadOnly, ServerErrorKind::MasterDown].map(ErrorKind::Server);
    error.is_io_error()
        || error.is_unrecoverable_error()
        || demoted.contains(&error.kind())
        // What a script of Redis 6.2 answers on a replica.
        || error.detail().is_some_and(|detail| detail.contains("READONLY"))
}

pub(super) fn misconfigured(what_to_do: &'static str) -> StoreError {
    StoreError::with_source(StoreErrorKind::Misconfigured, what_to_do)
}

pub(super) fn unavailable(what: &'static str) -> StoreError {
    StoreError::with_source(StoreErrorKind::Unavailable, what)
}
