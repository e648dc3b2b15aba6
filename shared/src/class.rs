//! Whoever sends a request learns from one attempt whether another one could help and could do harm:
//! how an attempt ended puts it into one [`Class`], and the class says what may follow.
//!
//! The classes in the order in which they are tried. "Safe" is a call under a key or with an
//! idempotent method (RFC 9110, section 9.2.2).
//!
//! | class | what | retried |
//! |---|---|---|
//! | [`Success`] | any status below 400 | never |
//! | [`ReplayedFailure`] | any other that is marked as replayed | never |
//! | [`Settled`] | `response-unavailable`, `outcome-unknown`, `caller-changed`, `record-unreadable` | never |
//! | [`Misuse`] | `key-missing`, `key-invalid`, `key-too-long`, `key-repeated`, `key-reused` | never |
//! | [`InProgress`] | `in-flight`; 409 with `Retry-After` | under a key |
//! | [`NotSent`] | no address, refused, not connected | always |
//! | [`Refused`] | `body-unreadable`; 425; a stream or connection that was refused before it was processed | always |
//! | [`Throttled`] | `overloaded`, `draining`, `store-unavailable`, `lease-lost`, `transaction-failed`; 429, 503; 413 with `Retry-After` | if safe |
//! | [`Ambiguous`] | `transaction-lost`, `handler-panicked`; 408, every 5xx but 501, 503 and 505; a timeout, a connection or a body that broke off | if safe |
//! | [`Conflict`] | 409, 422 | 409, after an ambiguous attempt |
//! | [`Fatal`] | `principal-required`, `request-too-large`; every other 4xx, 501, 505; certificate, URL, redirects | never |
//!
//! - A code of ours ([`ProblemCode`](crate::ProblemCode), read from `Idempotency-Problem`) decides before the status, and
//!   always as its [`retryable`](crate::ProblemCode::retryable) says. A code that this version does not know
//!   is none, so the status decides.
//! - A `Retry-After` that cannot be read is none, as everywhere.
//! - A status that is not registered is taken for the first of its hundred, and one above 599 for a
//!   500 (RFC 9110, section 15).
//! - The class does not depend on the call; what follows from it does. That is
//!   [`Ending::is_retried`], which knows no limits: how often, how long and at whose expense is for
//!   its caller.
//!
//! ```
//! use http::{HeaderMap, Method, StatusCode};
//! use idempotency_shared::{Call, Class, Ending, TransportFailure};
//!
//! let lost = Ending::Failure(TransportFailure::Reset);
//! assert_eq!(lost.class(), Class::Ambiguous);
//! assert!(!lost.is_retried(Call::new(&Method::POST)));
//! assert!(lost.is_retried(Call::new(&Method::POST).keyed()));
//!
//! // The first attempt did it: what a service without replays answers to the second.
//! let conflict = Ending::Response { status: StatusCode::CONFLICT, headers: &HeaderMap::new() };
//! let call = Call::new(&Method::POST).keyed();
//! assert!(!conflict.is_retried(call));
//! assert!(conflict.is_retried(call.after_ambiguous()));
//! ```
//!
//! [`Success`]: Class::Success
//! [`ReplayedFailure`]: Class::ReplayedFailure
//! [`Settled`]: Class::Settled
//! [`Misuse`]: Class::Misuse
//! [`InProgress`]: Class::InProgress
//! [`NotSent`]: Class::NotSent
//! [`Refused`]: Class::Refused
//! [`Throttled`]: Class::Throttled
//! [`Ambiguous`]: Class::Ambiguous
//! [`Conflict`]: Class::Conflict
//! [`Fatal`]: Class::Fatal

mod call;
mod ending;
mod failure;
#[cfg(feature = "reqwest")]
mod reqwest;

pub use self::call::Call;
pub use self::ending::Ending;
pub use self::failure::TransportFailure;

/// What an attempt has come to. The [module docs](crate::class) say what belongs to each.
///
/// Exhaustive: whoever acts on a class decides for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// The server answered what was asked for, or where to find it.
    Success,
    /// The operation failed earlier, and this is its recorded answer. Another attempt gets the same.
    ReplayedFailure,
    /// The key means an operation that may have taken effect, and no attempt will get its answer.
    Settled,
    /// The key is missing, malformed, or that of another request. Nothing ran.
    Misuse,
    /// An earlier attempt is still running, and its answer can be had by asking again.
    InProgress,
    /// The request did not leave this side.
    NotSent,
    /// The other side says that it did nothing, and that the request can be sent again.
    Refused,
    /// The other side is asked too much, or cannot serve for the moment.
    Throttled,
    /// The request was sent, and whether it took effect is not known.
    Ambiguous,
    /// The server objects to what was asked, which an earlier attempt of the same call may have
    /// brought about.
    Conflict,
    /// Another attempt would end alike.
    Fatal,
}
