//! The one way in which a store fails: it could not answer.

use std::error::Error;
use std::fmt;

/// A store could not answer. What the driver said is the [`source`](Error::source), never part of the text, which
/// holds no connection string and no key.
#[derive(Debug)]
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// Why a store could not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// No answer came. The verb may or may not have happened; sent again, it gives the answer it would have given.
    Unavailable,
    /// The record is there but cannot be read.
    Corrupt,
    /// The record was written by a newer version than this one.
    Newer,
    /// The store itself is set up wrongly: a missing migration, a refused option. Asking again helps only once somebody has
    /// set that right.
    Misconfigured,
}

impl StoreError {
    /// An error of this kind without a cause.
    #[must_use]
    pub const fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// An error of this kind and its cause.
    #[must_use]
    pub fn with_source(kind: StoreErrorKind, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// Itself, for a log that shows the causes with the error.
    pub(crate) fn cause(&self) -> &(dyn Error + 'static) {
        self
    }

    /// What went wrong.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the idempotency store did not answer",
            StoreErrorKind::Corrupt => "the idempotency record cannot be read",
            StoreErrorKind::Newer => "the idempotency record was written by a newer version",
            StoreErrorKind::Misconfigured => "the idempotency store is not set up correctly",
        })
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
