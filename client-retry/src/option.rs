//! A request says by its extensions that it is not to be treated like the other calls of its client: without a key, or
//! without retries. The [`KeyFormat`] is said once, for services that read keys only in quotes.
//!
//! ```no_run
//! # async fn example(client: reqwest_middleware::ClientWithMiddleware) -> reqwest_middleware::Result<()> {
//! use client_retry::{IdempotencyKey, NoRetry};
//!
//! let order = IdempotencyKey::new("order-4711").expect("visible ASCII");
//! client.post("https://pay.example/charges").with_extension(order).with_extension(NoRetry).send().await?;
//! # Ok(())
//! # }
//! ```

use http::HeaderValue;
use idempotency_shared::IdempotencyKey;

/// An extension of a request that takes it for one without a key.
///
/// No key is minted, derived or read, and a header that the caller has set is sent as it stands. The call is retried
/// as one that may not happen twice: a POST or PATCH only where nothing was sent or processed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoIdempotencyKey;

/// An extension of a request that sends it once, without limits of time and without a report.
///
/// It still gets its key, so that whoever retries it on the outside, with the same extensions, repeats it under that,
/// unless a 2xx has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRetry;

/// How a key is written into its header field.
///
/// Servers of this suite read both. `#[non_exhaustive]`: a later draft of the header may have another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyFormat {
    /// As it stands, which is what payment providers document. A key with a space, `"`, `,` or `;` is quoted.
    #[default]
    Bare,
    /// As a structured-field String, in quotes (RFC 9651, section 3.3.3).
    Structured,
}

impl KeyFormat {
    pub(crate) fn write(self, key: &IdempotencyKey) -> HeaderValue {
        match self {
            Self::Bare => key.bare().unwrap_or_else(|| key.quoted()),
            Self::Structured => key.quoted(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when `write` quotes for `Bare` whatever it can, or not what it must.
    #[test]
    fn bare_keys_are_quoted_only_where_they_must_be() {
        for (key, bare, structured) in
            [("order-4711", "order-4711", r#""order-4711""#), ("a, b", r#""a, b""#, r#""a, b""#)]
        {
            let key = IdempotencyKey::new(key).unwrap();
            assert_eq!(KeyFormat::Bare.write(&key), bare);
            assert_eq!(KeyFormat::Structured.write(&key), structured);
        }
    }
}
