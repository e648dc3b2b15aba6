//! How far a client goes for an answer is bounded in every direction before its first request: these are the bounds,
//! which the builder has checked.

use std::num::NonZeroU32;
use std::time::Duration;

use idempotency_shared::Backoff;

/// The limits of each call of one client.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// How many attempts count at most, the first one included.
    pub(crate) max_attempts: NonZeroU32,
    /// How many times a call asks for the answer of a run that goes on.
    pub(crate) max_polls: u32,
    /// The waits between attempts, and the jitter on top of waits that were asked for.
    pub(crate) backoff: Backoff,
    /// The waits after an answer that says that it is too much, and not until when, and after one that took too long.
    pub(crate) throttled_backoff: Backoff,
    /// From the call until its outcome.
    pub(crate) total: Duration,
    /// From sending an attempt until its response is there, with its body where that is read.
    pub(crate) attempt: Duration,
    /// The longest wait that a server can ask for.
    pub(crate) max_retry_after: Duration,
    /// How long a body may be to be read within the attempt, in bytes.
    pub(crate) max_buffered: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_attempts: const { NonZeroU32::MIN.saturating_add(2) },
            max_polls: 10,
            backoff: Backoff::default(),
            throttled_backoff: Backoff::THROTTLED,
            total: Duration::from_secs(30),
            attempt: Duration::from_secs(10),
            max_retry_after: Duration::from_secs(60),
            max_buffered: 256 * 1024,
        }
    }
}
