//! How far a client goes, and how its keys are written, is said once: a [`Builder`] takes what differs from the
//! defaults, and refuses what could not be kept.
//!
//! ```
//! use std::time::Duration;
//! use client_retry::IdempotentRetry;
//!
//! let retry = IdempotentRetry::builder().max_attempts(5).total_timeout(Duration::from_secs(60)).build()?;
//! assert!(IdempotentRetry::builder().max_attempts(0).build().is_err());
//! # Ok::<(), client_retry::ConfigError>(())
//! ```

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, Method};
use idempotency_shared::Backoff;

use crate::budget::Ledger;
use crate::keying::Keying;
use crate::limits::Limits;
use crate::middleware::Settings;
use crate::{IdempotentRetry, KeyFormat, RetryBudget};

/// An [`IdempotentRetry`] that is being described.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Builder {
    limits: Limits,
    keying: Keying,
    budget: RetryBudget,
    max_attempts: Option<u32>,
}

impl Builder {
    /// How many attempts a call may take, the first one included. The default is 3.
    ///
    /// Asking for the answer of a run that goes on does not count, nor does the first attempt that the server refused
    /// before it processed it.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// How many times a call asks for the answer of a run that goes on (409). The default is 10.
    pub fn max_polls(mut self, polls: u32) -> Self {
        self.limits.max_polls = polls;
        self
    }

    /// The waits between attempts. The default is up to 100 ms before the first retry, twice that before
    /// each further one, and never more than 5 s.
    ///
    /// It is also the jitter on top of a wait that the server asked for.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.limits.backoff = backoff;
        self
    }

    /// The waits after an answer that says that it is too much (429, 503), and not until when, and after an attempt
    /// that took too long (no answer in time, 408, 504). The default is [`Backoff::THROTTLED`]: up to 1 s before the
    /// first retry.
    pub fn throttled_backoff(mut self, backoff: Backoff) -> Self {
        self.limits.throttled_backoff = backoff;
        self
    }

    /// The time from the call until its outcome, by the monotonic clock. The default is 30 s.
    ///
    /// A response whose body streams has to end within it too, unless the request has a timeout of its own.
    pub fn total_timeout(mut self, timeout: Duration) -> Self {
        self.limits.total = timeout;
        self
    }

    /// The time from sending an attempt until its response is there, with its body where that is read. The default is
    /// 10 s.
    ///
    /// A request that has a timeout of its own has that in its place, as far as the time of the call allows.
    pub fn attempt_timeout(mut self, timeout: Duration) -> Self {
        self.limits.attempt = timeout;
        self
    }

    /// The longest wait that a server can ask for, in `Retry-After` or `retry-after-ms`. The default is 60 s.
    ///
    /// What asks for a longer one is returned.
    pub fn max_retry_after(mut self, delay: Duration) -> Self {
        self.limits.max_retry_after = delay;
        self
    }

    /// Up to how many bytes the body of a response is read within the attempt, where its length is known. The default
    /// is 262144.
    pub fn max_buffered(mut self, bytes: usize) -> Self {
        self.limits.max_buffered = bytes;
        self
    }

    /// What retries to one origin cost, and what pays for them. The default is [`RetryBudget::default`].
    pub fn budget(mut self, budget: RetryBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Which methods have a key of their own. The default is POST and PATCH.
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.keying.methods = methods.into_iter().collect();
        self
    }

    /// The name of the header that carries the key. The default is `Idempotency-Key`.
    pub fn header(mut self, name: HeaderName) -> Self {
        self.keying.header = name;
        self
    }

    /// How the key is written into the header. The default is bare.
    pub fn key_format(mut self, format: KeyFormat) -> Self {
        self.keying.format = format;
        self
    }

    /// The middleware with these settings.
    ///
    /// # Errors
    ///
    /// When a limit allows no attempt, or the budget no retry.
    pub fn build(mut self) -> Result<IdempotentRetry, ConfigError> {
        let refuse = |kind| Err(ConfigError { kind });
        if let Some(attempts) = self.max_attempts {
            match NonZeroU32::new(attempts) {
                Some(attempts) => self.limits.max_attempts = attempts,
                None => return refuse(ConfigErrorKind::MaxAttempts),
            }
        }
        if self.limits.total.is_zero() {
            return refuse(ConfigErrorKind::TotalTimeout);
        }
        if self.limits.attempt.is_zero() {
            return refuse(ConfigErrorKind::AttemptTimeout);
        }
        if self.budget.pays_for_nothing() {
            return refuse(ConfigErrorKind::Budget);
        }
        Ok(self.unchecked())
    }

    pub(crate) fn unchecked(self) -> IdempotentRetry {
        let Self { limits, keying, budget, .. } = self;
        IdempotentRetry::new(Settings { limits, keying, ledger: Ledger::new(budget) })
    }
}

/// Settings that could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigError {
    kind: ConfigErrorKind,
}

impl ConfigError {
    /// Which setting it is.
    #[must_use]
    pub fn kind(&self) -> ConfigErrorKind {
        self.kind
    }
}

/// Which setting a [`ConfigError`] is about.
///
/// `#[non_exhaustive]`: a later version may have other settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigErrorKind {
    /// No attempt is allowed.
    MaxAttempts,
    /// A call has no time.
    TotalTimeout,
    /// An attempt has no time.
    AttemptTimeout,
    /// A retry costs more than a full budget holds.
    Budget,
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ConfigErrorKind::MaxAttempts => "max_attempts is 0, so nothing would be sent: 1 is one attempt",
            ConfigErrorKind::TotalTimeout => "total_timeout is zero, so every call would fail: set a time such as 30 s",
            ConfigErrorKind::AttemptTimeout => {
                "attempt_timeout is zero, so every attempt would fail: set a time such as 10 s"
            }
            ConfigErrorKind::Budget => {
                "a retry costs more than the cap of its budget, so none would be sent: raise the cap, or lower the price; \
                 calls without retries are those with the extension NoRetry"
            }
        })
    }
}

impl Error for ConfigError {}
