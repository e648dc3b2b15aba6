//! The time that a call may take is fixed when it begins, on the monotonic clock: nobody's wall clock moves its end.
//!
//! A call ends when its total time is up, or with the deadline of the [`Propagation`] that it is made for, whichever
//! comes first. An attempt ends with the call at the latest.

use std::time::Duration;

use http::Extensions;
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
    pub(crate) fn new(total: Duration, extensions: &Extensions) -> Self {
        let began = Instant::now();
        let end = began.checked_add(total).unwrap_or(began + FAR);
        let propagation = extensions.get::<Propagation>().cloned().or_else(Propagation::current);
        let deadline = propagation.and_then(|propagation| propagation.deadline());
        Self { began, end: deadline.map_or(end, |deadline| end.min(Instant::from_std(deadline))) }
    }

    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    /// The time of an attempt that begins now and may take as long as `limit`.
    pub(crate) fn attempt(&self, limit: Duration) -> Time {
        let limit = limit.min(self.remaining());
        Time { limit, end: Instant::now() + limit }
    }
}

/// The time of one attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Time {
    pub(crate) limit: Duration,
    pub(crate) end: Instant,
}

/// For how long at most anything is waited for, in the place of what no clock can express: 30 years.
const FAR: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
