//! The words that a server and its clients must share, so that a key means one operation on both
//! sides and an answer means to the reader what it meant to the writer.
//!
//! The crates of the suite never import each other. What two of them need lives here:
//!
//! - [`key`]: [`IdempotencyKey`], the grammar of its header, and what is wrong with a value that
//!   does not follow it.
//! - [`problem`]: [`ProblemCode`] and [`Problem`], the fixed reasons for which a server refuses or
//!   fails a keyed request.
//! - [`header`]: the names of the header fields.
//! - [`propagation`]: [`Propagation`], which derives from the key of a request the keys of the calls
//!   that its run makes.
//! - [`retry_after`]: [`requested_delay`], for how long a response asks its client to stay away.
//! - [`backoff`]: [`Backoff`], how long to wait where nobody asked.
//! - [`class`](mod@class): [`Class`], what an attempt has come to, and whether another one may follow.
//!
//! The crate does no I/O, keeps no state beyond that of a [`Propagation`] and, without the feature
//! `tokio`, starts no task. It takes requests apart and puts answers together only as far as header
//! values and JSON documents; sending them is the work of its callers.
//!
//! ```
//! use http::{HeaderMap, HeaderValue, StatusCode};
//! use idempotency_shared::{IDEMPOTENCY_KEY, IdempotencyKey, KeyLimit, ProblemCode};
//!
//! let mut headers = HeaderMap::new();
//! headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_static("order-4711"));
//! let key = IdempotencyKey::from_headers(&headers, &IDEMPOTENCY_KEY, KeyLimit::default())?;
//! assert_eq!(key, Some(IdempotencyKey::new("order-4711")?));
//!
//! headers.append(IDEMPOTENCY_KEY, HeaderValue::from_static("order-4711"));
//! let key = IdempotencyKey::from_headers(&headers, &IDEMPOTENCY_KEY, KeyLimit::default());
//! let problem = key.unwrap_err().problem();
//! assert_eq!(problem.code(), ProblemCode::KeyRepeated);
//! assert_eq!(problem.status(), StatusCode::BAD_REQUEST);
//! # Ok::<(), idempotency_shared::KeyError>(())
//! ```

pub mod backoff;
pub mod class;
pub mod header;
pub mod key;
pub mod problem;
pub mod propagation;
pub mod retry_after;

pub use self::backoff::{Backoff, BackoffError};
pub use self::class::{Call, Class, Ending, TransportFailure};
pub use self::header::{
    IDEMPOTENCY_EXPIRES_IN, IDEMPOTENCY_KEY, IDEMPOTENCY_PROBLEM, IDEMPOTENT_REPLAYED, RETRY_AFTER_MS,
};
pub use self::key::{IdempotencyKey, KeyError, KeyErrorKind, KeyLimit, KeyLimitError};
pub use self::problem::{Problem, ProblemCode};
#[cfg(feature = "axum")]
pub use self::propagation::MissingPropagation;
pub use self::propagation::{
    DerivationSecret, DerivationSecretError, DerivedKeyReused, Operation, Propagation, PropagationBuilder,
};
pub use self::retry_after::requested_delay;
