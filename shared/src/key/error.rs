//! What is wrong with a key is told in three kinds, because a client mends each of them
//! differently.
//!
//! No kind and no text holds a part of the refused value, so that an error may be logged and sent.

use std::error::Error;
use std::fmt::{self, Display, Formatter};

use super::KeyLimit;
use crate::Problem;

/// A value that is no idempotency key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyError {
    kind: KeyErrorKind,
}

impl KeyError {
    /// What is wrong, for code that tells the cases apart.
    #[must_use]
    pub fn kind(&self) -> KeyErrorKind {
        self.kind
    }

    /// What a server answers to the request that carried the value.
    pub fn problem(&self) -> Problem {
        match self.kind {
            KeyErrorKind::Invalid => Problem::key_invalid(),
            KeyErrorKind::TooLong { length, limit } => Problem::key_too_long(length, limit),
            KeyErrorKind::Repeated => Problem::key_repeated(),
        }
    }

    pub(super) fn new(kind: KeyErrorKind) -> Self {
        Self { kind }
    }

    pub(super) fn too_long(length: usize, limit: KeyLimit) -> Self {
        let limit = limit.get();
        Self::new(KeyErrorKind::TooLong { length, limit })
    }
}

impl Display for KeyError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.kind {
            KeyErrorKind::Invalid => f.write_str(
                "the idempotency key is empty or malformed: use at least one character, all of \
                 them printable ASCII, and put the key in quotes if it holds spaces, quotes, \
                 commas or semicolons",
            ),
            KeyErrorKind::TooLong { length, limit } => {
                write!(f, "the idempotency key is {length} characters long: use at most {limit}")
            }
            KeyErrorKind::Repeated => f.write_str("the request carries several idempotency keys: send exactly one"),
        }
    }
}

impl Error for KeyError {}

/// The kinds of [`KeyError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyErrorKind {
    /// The value is empty or does not follow the grammar.
    Invalid,

    /// The value follows the grammar, and the key in it is longer than accepted.
    TooLong {
        /// Characters of the key; those of the whole value when it was too large to be parsed at
        /// all.
        length: usize,
        /// Greatest number of characters that is accepted.
        limit: usize,
    },

    /// The request holds the field more than once.
    Repeated,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ProblemCode;

    /// Fails when `problem` makes `key_invalid` of a repeated key, or passes `limit` for `length`.
    #[test]
    fn each_kind_has_its_own_problem() {
        let too_long = KeyErrorKind::TooLong { length: 300, limit: 40 };
        for (kind, code) in [
            (KeyErrorKind::Invalid, ProblemCode::KeyInvalid),
            (too_long, ProblemCode::KeyTooLong),
            (KeyErrorKind::Repeated, ProblemCode::KeyRepeated),
        ] {
            assert_eq!(KeyError::new(kind).problem().code(), code);
        }
        assert_eq!(KeyError::new(too_long).problem(), Problem::key_too_long(300, 40));
    }

    /// Fails when `Display` writes the numbers the other way round.
    #[test]
    fn too_long_says_how_long_and_how_long_it_may_be() {
        let error = KeyError::new(KeyErrorKind::TooLong { length: 300, limit: 40 });
        assert_eq!(error.to_string(), "the idempotency key is 300 characters long: use at most 40");
    }
}
