//! A call that got no answer can be made again without taking effect twice: this middleware for reqwest gives each
//! call one idempotency key, the same on every attempt, and retries it within limits.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use client_retry::{IdempotentRetry, redirect_policy};
//! use reqwest_middleware::ClientBuilder;
//!
//! let client = reqwest::Client::builder()
//!     .connect_timeout(std::time::Duration::from_secs(3))
//!     .redirect(redirect_policy())
//!     .retry(reqwest::retry::never())
//!     .build()?;
//! let client = ClientBuilder::new(client).with(IdempotentRetry::default()).build();
//! let response = client.post("https://pay.example/charges").body("..").send().await?;
//! # Ok(())
//! # }
//! ```

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
mod plan;
mod redirect;
mod report;

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
