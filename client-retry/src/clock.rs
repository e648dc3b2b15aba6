//! The time that a call may take is fixed when it begins, on the monotonic clock: nobody's wall clock moves its end.
//!
//! A call ends when its total time is up, or with the deadline of the [`Propagation`] that it is made for, whichever
//! comes first. An attempt ends with the call at the latest.

use std::time::Duration;

use idempotency_shared::Propagation;
use tokio::time::Instant;

/// The time of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    began: Instant,
    end: Instant,
}

impl Clock {
    /// Begins now.
    pub(crate) fn new(total: Duration, propagation: Option<&Propagation>, now: Instant) -> Self {
        let end = now.checked_add(total).unwrap_or(now + FAR);
        let deadline = propagation.and_then(Propagation::deadline);
        Self { began: now, end: deadline.map_or(end, |deadline| end.min(Instant::from_std(deadline))) }
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        self.end.saturating_duration_since(now)
    }

    /// The time of an attempt that begins now and may take as long as `limit`.
    pub(crate) fn attempt(&self, limit: Duration, now: Instant) -> Time {
        Time { began: now, end: now.checked_add(limit).map_or(self.end, |end| end.min(self.end)) }
    }
}

/// The time of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    began: Instant,
    pub(crate) end: Instant,
}

impl Time {
    pub(crate) fn limit(&self) -> Duration {
        self.end.saturating_duration_since(self.began)
    }
}

/// For how long at most anything is waited for, in the place of what no clock can express: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
