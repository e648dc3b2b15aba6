//! Time that comes in from outside, so that leases lapse in a test when the test says so.
//!
//! A store with a database's clock needs none. The memory store reads the monotonic clock only; SQLite reads the wall
//! clock for what it writes, since other processes read it, and the monotonic clock for the leases of its own process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A wall clock and a monotonic clock. Cloning gives another handle on the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System { origin: Instant },
    Manual(Arc<Mutex<Manual>>),
}

#[derive(Debug)]
struct Manual {
    wall: Duration,
    monotonic: Duration,
}

impl Clock {
    /// The clocks of the machine.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System { origin: Instant::now() })
    }

    /// A clock that stands still until its [`ClockHand`] moves it. It starts at the wall clock's present time.
    #[must_use]
    pub fn manual() -> (Self, ClockHand) {
        let manual = Arc::new(Mutex::new(Manual { wall: since_epoch(), monotonic: Duration::ZERO }));
        (Self(Source::Manual(Arc::clone(&manual))), ClockHand(manual))
    }

    /// The time since the Unix epoch, which may jump either way.
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "only what other processes read is on it"))]
    pub(crate) fn wall(&self) -> Duration {
        match &self.0 {
            Source::System { .. } => since_epoch(),
            Source::Manual(manual) => manual.lock().unwrap_or_else(PoisonError::into_inner).wall,
        }
    }

    /// The time since some fixed moment of this process, which never goes back.
    pub(crate) fn monotonic(&self) -> Duration {
        match &self.0 {
            Source::System { origin } => origin.elapsed(),
            Source::Manual(manual) => manual.lock().unwrap_or_else(PoisonError::into_inner).monotonic,
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

/// Moves a [manual clock](Clock::manual).
#[derive(Clone, Debug)]
pub struct ClockHand(Arc<Mutex<Manual>>);

impl ClockHand {
    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut manual = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        manual.wall += by;
        manual.monotonic += by;
    }

    /// Sets the wall clock forward without time passing, as a correction of the machine's clock does.
    pub fn set_wall_forward(&self, by: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wall += by;
    }

    /// Sets the wall clock back; it stops at the epoch.
    pub fn set_wall_back(&self, by: Duration) {
        let mut manual = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        manual.wall = manual.wall.saturating_sub(by);
    }
}

#[expect(clippy::disallowed_methods, reason = "this is where the wall clock comes in")]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
}
