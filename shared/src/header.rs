//! The names of the header fields that a client and a server exchange, written once.
//!
//! Only `Idempotency-Key` is a standard in the making; the `Idempotency-*` and `Idempotent-*`
//! response fields are this suite's own. A deployment may rename the request field, so code that
//! reads a key takes the name as an argument.

use http::HeaderName;

/// `Idempotency-Key`, the request field that says which operation this is
/// (draft-ietf-httpapi-idempotency-key-header, section 2).
pub const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// `Idempotency-Problem`, the response field that holds a [`ProblemCode`](crate::ProblemCode), as
/// [`as_str`](crate::ProblemCode::as_str) writes it.
///
/// It stands beside the body, so that a client understands the answer even where the service
/// renders problems its own way.
pub const IDEMPOTENCY_PROBLEM: HeaderName = HeaderName::from_static("idempotency-problem");

/// `Idempotent-Replayed`, whose value is `true` on a response that was recorded earlier and sent
/// again.
///
/// A response without it comes from the run that this very request caused.
pub const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `Idempotency-Expires-In`, the response field that says for how many whole seconds the key keeps
/// its meaning.
pub const IDEMPOTENCY_EXPIRES_IN: HeaderName = HeaderName::from_static("idempotency-expires-in");

/// `retry-after-ms`, the response field with which OpenAI's and Azure's services say in milliseconds
/// what `Retry-After` can only say in seconds.
pub const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
