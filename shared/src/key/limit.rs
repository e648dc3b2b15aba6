//! The greatest length of a key is a value that cannot be nonsense: at least one character, at most
//! 255.

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU8;

/// The greatest number of characters that a key may have: 1 to 255, 255 by default.
///
/// It counts the characters of the key itself, not the quotes and backslashes that a header value
/// wraps around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyLimit(NonZeroU8);

impl KeyLimit {
    /// The limit that applies where none is set: 255 characters. No limit is greater.
    pub const MAX: Self = Self(NonZeroU8::MAX);

    /// A limit of this many characters.
    ///
    /// # Errors
    ///
    /// When `characters` is 0 or above 255.
    pub fn new(characters: usize) -> Result<Self, KeyLimitError> {
        u8::try_from(characters).ok().and_then(NonZeroU8::new).map(Self).ok_or(KeyLimitError { characters })
    }

    /// The limit in characters.
    #[must_use]
    pub fn get(self) -> usize {
        usize::from(self.0.get())
    }
}

impl Default for KeyLimit {
    fn default() -> Self {
        Self::MAX
    }
}

/// A [`KeyLimit`] was asked for that is outside of 1 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimitError {
    characters: usize,
}

impl Display for KeyLimitError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "an idempotency key cannot be limited to {} characters: choose 1 to {}",
            self.characters,
            KeyLimit::MAX.get()
        )
    }
}

impl Error for KeyLimitError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when `new` casts with `as u8`, which wraps, or saturates at 255.
    #[test]
    fn limits_are_1_to_255() {
        for characters in [1, 2, 254, 255] {
            assert_eq!(KeyLimit::new(characters).unwrap().get(), characters);
        }
        for characters in [0, 256, 257, usize::MAX] {
            assert_eq!(KeyLimit::new(characters), Err(KeyLimitError { characters }));
        }
    }

    /// Fails when `MAX` is `NonZeroU8::MIN`.
    #[test]
    fn default_is_the_greatest_limit() {
        assert_eq!(KeyLimit::default(), KeyLimit::new(255).unwrap());
    }
}
