//! Whether a second attempt can do harm depends on the request: a [`Call`] is what is known of it.

use http::Method;

/// What decides about another attempt beside how the last one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Call {
    idempotent: bool,
    keyed: bool,
    after_ambiguous: bool,
}

impl Call {
    /// A call with this method, without a key, of which no attempt was ambiguous yet.
    ///
    /// PUT, DELETE and the safe methods are idempotent (RFC 9110, section 9.2.2).
    pub fn new(method: &Method) -> Self {
        Self { idempotent: method.is_idempotent(), keyed: false, after_ambiguous: false }
    }

    /// Says that each attempt carries the same idempotency key.
    pub fn keyed(mut self) -> Self {
        self.keyed = true;
        self
    }

    /// Says that an earlier attempt may have taken effect.
    pub fn after_ambiguous(mut self) -> Self {
        self.after_ambiguous = true;
        self
    }

    /// Whether it may happen twice and count once.
    pub(super) fn is_safe(self) -> bool {
        self.idempotent || self.keyed
    }

    pub(super) fn is_keyed(self) -> bool {
        self.keyed
    }

    pub(super) fn is_after_ambiguous(self) -> bool {
        self.after_ambiguous
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when `new` asks `is_safe` of the method, or `is_safe` of the call only for a key.
    #[test]
    fn method_or_key_makes_a_call_safe() {
        for method in [Method::GET, Method::HEAD, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert!(Call::new(&method).is_safe(), "{method}");
        }
        for method in [Method::POST, Method::PATCH, Method::CONNECT, "get".parse().unwrap()] {
            assert!(!Call::new(&method).is_safe(), "{method}");
            assert!(Call::new(&method).keyed().is_safe(), "{method}");
        }
    }
}
