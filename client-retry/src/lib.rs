//! A call that got no answer can be made again without taking effect twice: this middleware for reqwest gives each
//! call one idempotency key, the same on every attempt, and retries it within limits.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//!
//! use client_retry::{IdempotentRetry, RetryReport, redirect_policy};
//! use reqwest_middleware::ClientBuilder;
//!
//! let client = reqwest::Client::builder()
//!     .connect_timeout(Duration::from_secs(3))
//!     .redirect(redirect_policy())
//!     .retry(reqwest::retry::never())
//!     .build()?;
//! let client = ClientBuilder::new(client).with(IdempotentRetry::default()).build();
//!
//! let response = client.post("https://pay.example/charges").body("amount=1050").send().await?;
//! if let Some(report) = response.extensions().get::<RetryReport>() {
//!     println!("{report}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The key
//!
//! A POST or PATCH is *keyed*: it carries an `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header). Which one
//! is decided once, before the first attempt:
//!
//! 1. the header that the caller has set;
//! 2. the [`IdempotencyKey`] among the request's extensions;
//! 3. for a call that is made while a service handles a request of its own: the key that the [`Propagation`] of that
//!    request derives from where the call goes, so that the next run of the request makes the call under the same
//!    key. It is found among the extensions, or as the current one of the task, which a task of `tokio::spawn` does not
//!    have: spawn it with [`Propagation::spawn`];
//! 4. a random one.
//!
//! A key from 1 or 2 keys a call of any method. Two different ones, one that cannot be read, and a derived one that
//! another call of the same run has are an [`Error`] before anything is sent, and so is the key of the inbound request
//! itself. A run that makes equal calls names them:
//!
//! ```no_run
//! # use client_retry::Propagation;
//! # async fn example(client: reqwest_middleware::ClientWithMiddleware, propagation: Propagation)
//! # -> Result<(), Box<dyn std::error::Error>> {
//! let key = propagation.operation("charge").with("order-4711").key()?;
//! client.post("https://pay.example/charges").with_extension(key).body("amount=1050").send().await?;
//! # Ok(())
//! # }
//! ```
//!
//! [`NoIdempotencyKey`] takes a call for one without.
//!
//! # What is retried
//!
//! How an attempt ended puts it into one [`Class`]. "Safe" is a keyed call, or one whose method is idempotent (RFC
//! 9110, section 9.2.2).
//!
//! | class | what | retried |
//! |---|---|---|
//! | Success | below 400 | no |
//! | ReplayedFailure | 400 and above, marked `Idempotent-Replayed: true` | no |
//! | Settled | `response-unavailable`, `outcome-unknown`, `caller-changed`, `record-unreadable` | no |
//! | Misuse | `key-missing`, `key-invalid`, `key-too-long`, `key-repeated`, `key-reused` | no |
//! | InProgress | 409 whose server says that the run goes on, or when to come back | keyed; up to 10 polls, which are no attempts |
//! | NotSent | no address, refused, connection or TLS not there in time | yes |
//! | Refused | `body-unreadable`; 425, HTTP/2 `REFUSED_STREAM` and `GOAWAY` before the request was processed | yes, the first at once and for free |
//! | Throttled | `overloaded`, `draining`, `store-unavailable`, `lease-lost`, `transaction-failed`; 429, 503, 413 with `Retry-After` | if safe |
//! | Ambiguous | `transaction-lost`, `handler-panicked`; 408, every 5xx but 501, 503 and 505, a timeout, a connection or body that broke off | if safe |
//! | Conflict | other 409 and 422 | a 409 after an ambiguous attempt |
//! | Fatal | `principal-required`, `request-too-large`; certificate, URL, redirect loop, every other 4xx, 501, 505 | no |
//!
//! A code is what a server of this suite sends in `Idempotency-Problem` ([`ProblemCode`]). It decides before the
//! status. What another middleware inside of this one returns as its own error is ambiguous.
//!
//! # Limits
//!
//! [`IdempotentRetry::builder`] sets them.
//!
//! - 3 attempts; 30 s for the call and 10 s for an attempt, by the monotonic clock. The deadline of a [`Propagation`]
//!   ends the call earlier.
//! - Waits are drawn from zero to 100 ms, doubled with each retry up to 5 s; ten times that, up to the same 5 s, after
//!   a 429 or 503, and after what took too long: no answer within the time of an attempt, a 408 or a 504.
//! - `Retry-After` and `retry-after-ms` are obeyed: no attempt is made earlier than asked. Where that is above 60 s or
//!   the time that is left, the response is returned at once.
//! - A [`RetryBudget`] for each origin: in an outage all callers together send as many retries as its successes pay
//!   for. Polls, and the first retry of what was refused, cost nothing.
//! - A request whose body is a stream is sent once.
//!
//! # In an outage
//!
//! A server that stalls has a queue afterwards, and a request whose client has given up still costs it the whole work.
//! Retries can then keep it from ever catching up. `cargo test -p client-retry --lib storm -- --nocapture` simulates
//! that: calls come at random moments, 70 or 85 % of the 1000 in a second that the server can do; it stalls for 5 s; a
//! client waits for one answer for 1 s.
//!
//! | load | retries | requests for each call | peak | failed | recovery |
//! |---|---|---|---|---|---|
//! | 70 % | no retries | 1.00 | 1.33 | 27 % | 11.4 s |
//! | 70 % | two retries, at once | 2.80 | 3.46 | 90 % | none |
//! | 70 % | a fifth of the calls | 1.13 | 3.26 | 57 % | 26.2 s |
//! | 70 % | this crate | 1.00 | 1.36 | 27 % | 11.7 s |
//! | 70 % | this crate, in ten clients | 1.03 | 2.33 | 34 % | 14.8 s |
//! | 70 % | this crate, in ten clients, `cap(100)` | 1.00 | 1.36 | 28 % | 11.7 s |
//! | 70 % | this crate, `unlimited()` | 2.80 | 3.59 | 90 % | none |
//! | 85 % | no retries | 1.00 | 1.33 | 54 % | 27.9 s |
//! | 85 % | two retries, at once | 2.80 | 3.44 | 90 % | none |
//! | 85 % | a fifth of the calls | 1.21 | 3.02 | 90 % | none |
//! | 85 % | this crate | 1.00 | 1.33 | 56 % | 28.4 s |
//! | 85 % | this crate, in ten clients | 1.02 | 2.14 | 67 % | 34.3 s |
//! | 85 % | this crate, in ten clients, `cap(100)` | 1.00 | 1.33 | 56 % | 28.5 s |
//! | 85 % | this crate, `unlimited()` | 2.80 | 3.58 | 90 % | none |
//!
//! *Peak* is the most that came within 100 ms, in proportion to the calls that come in 100 ms on average. *Recovery* is
//! the time from the end of the stall until 99 of 100 calls succeed within twice the usual time on average, and none
//! where that takes more than 40 s.
//!
//! The budget is each client's own. Where many processes call one origin, give each of them its part of the
//! [`cap`](RetryBudget::cap), as the table shows for ten. Nothing here shortens the outage itself: while it
//! lasts, calls fail.
//!
//! # What comes back
//!
//! The last response is `Ok`, whatever its status, with a [`RetryReport`] among its extensions. `Err` is where there is
//! no response; [`Error::of`] finds the report there. [`is_ambiguous`](RetryReport::is_ambiguous) says that a call
//! which failed may have taken effect: it can be made again under the [same key](RetryReport::key), and must not be
//! under a new one.
//!
//! A response of up to 256 KiB whose length is known is read within the attempt, so that one that breaks off is
//! retried. Any other streams, such as one that is chunked or decompressed: its caller sees it break off, and makes the
//! call again under the report's key. It ends with the time of the call or, where the request has one of its own, with
//! that.
//!
//! # Around it
//!
//! - Middlewares that are added after this one run on every attempt, those before it once. Of two instances in one
//!   chain the inner one does nothing.
//! - A retry outside of it, which sends the same request with the same extensions again, uses the same key again, also
//!   where it has dropped the first call, unless that has succeeded. A request whose body is a stream is not known
//!   again: give it a key.
//! - Over HTTP/2 attempts share a connection. Set reqwest's `http2_keep_alive_interval`, or one that has fallen silent
//!   is waited for on each of them.
//! - reqwest's own retry is turned off above: it repeats what was refused, and counts nothing of it.
//! - With [`redirect_policy`] neither key nor body gets to another origin. [`left_origin`](RetryReport::left_origin)
//!   says that it has, where another policy let it and a response came from there.
//! - A middleware within that makes calls of its own, to fetch a token for one, has a random key for each. One that
//!   rewrites the URL makes its answers look redirected: failures are then ambiguous.
//! - A call that is dropped ends. Nothing runs on without it.
//!
//! # Beside others
//!
//! [`peers`] has what `reqwest-retry`, reqwest's own retry, tower's and this crate make of the same faults, as
//! measured, and says where another is the better choice.
//!
//! # What it does not guarantee
//!
//! A key keeps a call from taking effect twice only where the server honours it, and for as long as the server
//! remembers it. A client that is restarted makes another key, unless the caller keeps one or it is derived. Of two
//! requests that are sent at once for one operation each has a key of its own, unless the caller gives both the same.
//!
//! # Observability
//!
//! Each retry is a `tracing` event at the level `DEBUG` with the fields `method`, `host`, `attempt` (the number of the
//! one that ended), `outcome`, `delay` and `key` (its first characters).

mod attempt;
mod body;
mod budget;
mod builder;
mod clock;
mod copies;
mod current;
mod error;
mod history;
mod keying;
mod limits;
mod middleware;
mod option;
#[doc = include_str!("../PEERS.md")]
pub mod peers {}
mod plan;
#[cfg(test)]
mod punctuality;
mod redirect;
mod report;
#[cfg(test)]
mod storm;

pub use idempotency_shared::{
    Backoff, BackoffError, Class, DerivationSecret, IdempotencyKey, KeyError, KeyErrorKind, ProblemCode, Propagation,
    TransportFailure,
};

pub use self::budget::RetryBudget;
pub use self::builder::{Builder, ConfigError, ConfigErrorKind};
pub use self::error::{Error, ErrorKind};
pub use self::middleware::IdempotentRetry;
pub use self::option::{KeyFormat, NoIdempotencyKey, NoRetry};
pub use self::redirect::redirect_policy;
pub use self::report::{Attempt, RetryReport, StopReason};
