//! A request that names its operation can be recognized when it comes again: this module reads that
//! name, and makes new ones.
//!
//! The name is the value of the `Idempotency-Key` field (draft-ietf-httpapi-idempotency-key-header,
//! section 2). Two forms of it are accepted:
//!
//! - *quoted*: a structured-field Item whose bare item is a String (RFC 9651, sections 3.3 and
//!   3.3.3): printable ASCII between double quotes, with `\"` and `\\` for a quote and a backslash.
//!   Parameters behind it must be well-formed and mean nothing;
//! - *bare*: visible ASCII without `"`, `,` and `;`, taken as it stands. A backslash is a character
//!   like any other.
//!
//! And these rules hold for both:
//!
//! - A value whose first character is `"` is in the quoted form, any other is in the bare form.
//! - Spaces before and after the value are dropped, as RFC 9651, section 4.2 asks for Items. A tab
//!   is not a space.
//! - The form is not part of the key: `"abc"` and `abc` are the same key. Case is: `abc` and `ABC`
//!   are two.
//! - A key has 1 to 255 characters, or fewer where a [`KeyLimit`] says so. Escapes count as what
//!   they stand for.
//! - A value above 8192 bytes is not parsed. It is too long, whatever it holds.
//! - A field that occurs twice is refused, even when both values are equal.
//!
//! A key is not a secret and proves nothing about who sends it. It is a handle to somebody's answer
//! all the same, so `Debug` prints its first 8 characters at most and there is no `Display`.
//!
//! ```
//! use http::HeaderValue;
//! use idempotency_shared::{IdempotencyKey, KeyErrorKind};
//!
//! let quoted = IdempotencyKey::parse(&HeaderValue::from_static(r#""order 4711";v=1"#))?;
//! assert_eq!(quoted.as_str(), "order 4711");
//! assert_eq!(format!("{quoted:?}"), r#"IdempotencyKey("order 47"…)"#);
//!
//! let unquoted = IdempotencyKey::parse(&HeaderValue::from_static("order 4711"));
//! assert_eq!(unquoted.unwrap_err().kind(), KeyErrorKind::Invalid);
//! # Ok::<(), idempotency_shared::KeyError>(())
//! ```

mod error;
mod limit;

use std::borrow::Cow;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{Parser, StringRef};
use uuid::Uuid;

pub use self::error::{KeyError, KeyErrorKind};
pub use self::limit::{KeyLimit, KeyLimitError};

/// The name that a client gives to one operation, the same on each of its attempts.
///
/// It holds 1 to 255 characters of printable ASCII, space included. A clone shares them. The
/// [module docs](crate::key) state the grammar.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct IdempotencyKey(Arc<str>);

impl IdempotencyKey {
    /// A key of exactly these characters: no quotes are taken off and no escapes are resolved.
    ///
    /// # Errors
    ///
    /// - [`KeyErrorKind::Invalid`] when `key` is empty, or holds what a structured-field String
    ///   cannot: anything but visible ASCII and space (RFC 9651, section 3.3.3).
    /// - [`KeyErrorKind::TooLong`] when it has more than 255 characters.
    pub fn new(key: &str) -> Result<Self, KeyError> {
        Self::within(key, KeyLimit::MAX)
    }

    /// A key that nobody has used before: a version 4 UUID (RFC 9562, section 5.4) in lower case,
    /// 36 characters.
    ///
    /// # Panics
    ///
    /// When the operating system gives no randomness.
    pub fn random() -> Self {
        let mut buffer = Uuid::encode_buffer();
        let uuid: &str = Uuid::new_v4().hyphenated().encode_lower(&mut buffer);
        Self(Arc::from(uuid))
    }

    /// Reads a key from one field value, in either form.
    ///
    /// # Errors
    ///
    /// - [`KeyErrorKind::Invalid`] when the value or the key in it is empty, or the value follows
    ///   neither form: a list, an Item of another type, text behind the closing quote.
    /// - [`KeyErrorKind::TooLong`] when the key has more than 255 characters, or the value more
    ///   than 8192 bytes.
    pub fn parse(value: &HeaderValue) -> Result<Self, KeyError> {
        Self::parse_within(value, KeyLimit::MAX)
    }

    /// Reads the key of a request from its header section: `None` when the field `name` is absent.
    ///
    /// # Errors
    ///
    /// - [`KeyErrorKind::Repeated`] when the field occurs more than once, whatever the values are.
    /// - Those of [`parse`](Self::parse), with `limit` in the place of 255.
    pub fn from_headers(
        headers: &HeaderMap,
        name: &HeaderName,
        limit: KeyLimit,
    ) -> Result<Option<Self>, KeyError> {
        let mut values = headers.get_all(name).iter();
        let Some(value) = values.next() else {
            return Ok(None);
        };
        if values.next().is_some() {
            return Err(KeyError::new(KeyErrorKind::Repeated));
        }
        Self::parse_within(value, limit).map(Some)
    }

    /// The whole key, without quotes and escapes.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 8 characters of the key, or all of them when there are fewer: what a log may show.
    pub fn prefix(&self) -> &str {
        // A key is ASCII, so there is no such slice only when the key is shorter.
        self.0.get(..PREFIX_LEN).unwrap_or(&self.0)
    }

    fn parse_within(value: &HeaderValue, limit: KeyLimit) -> Result<Self, KeyError> {
        // How long a field is, the sender decides. A key of 255 escaped characters takes 512 bytes;
        // the rest is for parameters.
        if value.len() > MAX_VALUE_LEN {
            return Err(too_long(value.len(), limit));
        }
        match trim_spaces(value.as_bytes()) {
            quoted @ [b'"', ..] => Self::within(unquote(quoted)?.as_str(), limit),
            bare => Self::within(visible(bare)?, limit),
        }
    }

    fn within(key: &str, limit: KeyLimit) -> Result<Self, KeyError> {
        if key.is_empty() || StringRef::from_str(key).is_err() {
            return Err(KeyError::new(KeyErrorKind::Invalid));
        }
        // Only ASCII is left, so bytes are characters.
        if key.len() > limit.get() {
            return Err(too_long(key.len(), limit));
        }
        Ok(Self(Arc::from(key)))
    }
}

impl Debug for IdempotencyKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let prefix = self.prefix();
        let ellipsis = if prefix.len() < self.0.len() {
            "…"
        } else {
            ""
        };
        write!(f, "IdempotencyKey({prefix:?}{ellipsis})")
    }
}

fn too_long(length: usize, limit: KeyLimit) -> KeyError {
    let limit = limit.get();
    KeyError::new(KeyErrorKind::TooLong { length, limit })
}

fn trim_spaces(mut value: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] | [rest @ .., b' '] = value {
        value = rest;
    }
    value
}

fn unquote(value: &[u8]) -> Result<Cow<'_, StringRef>, KeyError> {
    Parser::new(value)
        .parse_item()
        .map_err(|_| KeyError::new(KeyErrorKind::Invalid))
}

fn visible(value: &[u8]) -> Result<&str, KeyError> {
    let is_bare = |c: &u8| c.is_ascii_graphic() && !matches!(c, b'"' | b',' | b';');
    match str::from_utf8(value) {
        Ok(key) if value.iter().all(is_bare) => Ok(key),
        _ => Err(KeyError::new(KeyErrorKind::Invalid)),
    }
}

/// Characters of a key that may appear in logs.
const PREFIX_LEN: usize = 8;

/// Bytes of a field value above which it is not parsed.
const MAX_VALUE_LEN: usize = 8192;
