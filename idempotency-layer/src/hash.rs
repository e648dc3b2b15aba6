//! Fields become one hash in which none can pass for another: each is written with its length before it.
//!
//! Record ids and fingerprints are SHA-256 over such fields, or HMAC-SHA256 under a [secret](HashSecret), so that a dump
//! of the store confirms no guess of a key or a body.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use crate::store::RecordId;

/// Hashes a sequence of fields into 32 bytes.
///
/// Two sequences hash alike only if they have the same fields in the same order: `["ab", "c"]` and `["a", "bc"]`
/// differ.
#[derive(Clone)]
pub struct FieldHasher(State);

#[derive(Clone)]
enum State {
    Plain(Sha256),
    Keyed(Hmac<Sha256>),
}

impl FieldHasher {
    /// A hasher whose first field is `domain`, so that hashes for different purposes never meet.
    pub(crate) fn new(secret: &HashSecret, domain: &str) -> Self {
        let state = match &secret.0 {
            None => State::Plain(Sha256::new()),
            Some(keyed) => State::Keyed(keyed.clone()),
        };
        let mut hasher = Self(state);
        hasher.field(domain.as_bytes());
        hasher
    }

    /// Adds one field.
    pub fn field(&mut self, bytes: &[u8]) -> &mut Self {
        let length = (bytes.len() as u64).to_be_bytes();
        match &mut self.0 {
            State::Plain(hash) => {
                hash.update(length);
                hash.update(bytes);
            }
            State::Keyed(hash) => {
                Mac::update(hash, &length);
                Mac::update(hash, bytes);
            }
        }
        self
    }

    /// Adds a header's values as one group: how many there are, then each in its order.
    pub fn header(&mut self, headers: &http::HeaderMap, name: &http::HeaderName) -> &mut Self {
        let values = headers.get_all(name);
        self.field(&(values.iter().count() as u64).to_be_bytes());
        for value in values {
            self.field(value.as_bytes());
        }
        self
    }

    /// The hash of all fields so far.
    #[must_use]
    pub fn finish(self) -> [u8; 32] {
        match self.0 {
            State::Plain(hash) => hash.finalize().into(),
            State::Keyed(hash) => hash.finalize().into_bytes().into(),
        }
    }
}

impl fmt::Debug for FieldHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldHasher").finish_non_exhaustive()
    }
}

/// The secret under which record ids and fingerprints are hashed; none means plain SHA-256.
///
/// Every process that shares a store needs the same one: under another secret, every key is new.
#[derive(Clone, Default)]
pub(crate) struct HashSecret(Option<Hmac<Sha256>>);

impl HashSecret {
    pub(crate) fn new(secret: &[u8]) -> Self {
        // HMAC takes a key of any length (RFC 2104, section 3); the constructor's error never occurs.
        Self(Hmac::new_from_slice(secret).ok())
    }
}

impl fmt::Debug for HashSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "HashSecret(set)" } else { "HashSecret(none)" })
    }
}

/// The id of the record for a key: a hash of version, scope, principal and key.
pub(crate) fn record_id(secret: &HashSecret, scope: &str, principal: Option<&str>, key: &str) -> RecordId {
    let mut hasher = FieldHasher::new(secret, "idempotency record v1");
    hasher.field(scope.as_bytes());
    // "Nobody" and "somebody without a name" are two principals.
    hasher.field(if principal.is_some() { b"1" } else { b"0" });
    hasher.field(principal.unwrap_or_default().as_bytes());
    hasher.field(key.as_bytes());
    RecordId::from_bytes(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(secret: &HashSecret, domain: &str, fields: &[&str]) -> [u8; 32] {
        let mut hasher = FieldHasher::new(secret, domain);
        for field in fields {
            hasher.field(field.as_bytes());
        }
        hasher.finish()
    }

    /// Fails when `field` writes no length, with a secret or without one.
    #[test]
    fn fields_do_not_run_into_each_other() {
        for secret in [HashSecret::default(), HashSecret::new(b"secret")] {
            assert_ne!(hash(&secret, "d", &["ab", "c"]), hash(&secret, "d", &["a", "bc"]));
            assert_ne!(hash(&secret, "d", &["", "a"]), hash(&secret, "d", &["a", ""]));
            assert_ne!(hash(&secret, "d", &[]), hash(&secret, "d", &[""]));
        }
    }

    /// Fails when `header` does not say how many values there are.
    #[test]
    fn a_value_counts_under_its_own_header_only() {
        use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
        let with = |name: HeaderName| {
            let headers = HeaderMap::from_iter([(name, HeaderValue::from_static("gzip"))]);
            let mut hasher = FieldHasher::new(&HashSecret::default(), "d");
            hasher.header(&headers, &CONTENT_TYPE).header(&headers, &CONTENT_ENCODING);
            hasher.finish()
        };
        assert_ne!(with(CONTENT_TYPE), with(CONTENT_ENCODING));
    }

    /// Fails when `FieldHasher::new` hashes no domain or ignores the secret, or `HashSecret::new` makes one key of all.
    #[test]
    fn domains_and_secrets_separate() {
        let (none, one, two) = (HashSecret::default(), HashSecret::new(b"one"), HashSecret::new(b"two"));
        assert_ne!(hash(&none, "d", &["a"]), hash(&none, "e", &["a"]));
        assert_ne!(hash(&none, "d", &["a"]), hash(&one, "d", &["a"]));
        assert_ne!(hash(&one, "d", &["a"]), hash(&two, "d", &["a"]));
        assert_eq!(hash(&one, "d", &["a"]), hash(&HashSecret::new(b"one"), "d", &["a"]));
    }

    /// Fails when `record_id` leaves out the scope, the principal, whether there is one, or the key.
    #[test]
    fn scope_principal_and_key_each_make_another_record() {
        let id = |scope, principal, key| record_id(&HashSecret::default(), scope, principal, key);
        let base = id("s", Some("p"), "k");
        for other in [id("t", Some("p"), "k"), id("s", Some("q"), "k"), id("s", Some("p"), "l"), id("s", None, "k")] {
            assert_ne!(base, other);
        }
        assert_ne!(id("s", None, "k"), id("s", Some(""), "k"));
    }

    /// The stored form: a change makes every key of every running service new. Fails when
    /// `record_id` hashes any two of its fields the other way round.
    #[test]
    fn record_ids_stay_as_they_were() {
        let id = record_id(&HashSecret::default(), "payments", Some("alice"), "order-1");
        assert_eq!(id.to_string(), "3eaa6bfc8db92fe8213c8a6dcda5042aeca2ad40e1b64529520a3cacea374d53");
    }
}
