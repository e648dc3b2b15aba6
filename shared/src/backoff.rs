//! Clients that failed together do not come back together: a [`Backoff`] gives each of them a wait of
//! its own, from a range that grows with each retry.
//!
//! - Before the retry `n`, counted from 0, a client waits for a time drawn evenly from zero to the
//!   [`ceiling`](Backoff::ceiling): the base times 2ⁿ, or the cap where that is less. This is "full
//!   jitter": the wait may be close to zero, and the load of many clients is even over the range.
//! - The draw is in nanoseconds, so that a base of whole seconds does not make for waits of whole
//!   seconds.
//! - Nothing overflows: the ten thousandth retry waits like the one that reached the cap.
//! - The randomness comes in from outside, and each wait needs fresh one. Two clients that draw from
//!   the same seed wait alike, and so do two retries that share a draw.
//!
//! A server that says how long to stay away is not heard here; see
//! [`retry_after`](crate::retry_after).
//!
//! ```
//! use std::time::Duration;
//! use idempotency_shared::Backoff;
//!
//! let backoff = Backoff::default();
//! assert_eq!(backoff.ceiling(0), Duration::from_millis(100));
//! assert_eq!(backoff.ceiling(5), Duration::from_millis(3200));
//! assert_eq!(backoff.ceiling(10_000), Duration::from_secs(5));
//!
//! assert_eq!(backoff.delay(5, u64::MAX / 2), Duration::from_millis(1600));
//!
//! assert!(Backoff::new(Duration::ZERO, Duration::from_secs(5)).is_err());
//! ```

use std::error::Error;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// How long to wait before a retry: a base of more than zero, and a cap of no less than the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Backoff {
    base_nanos: u64,
    cap_nanos: u64,
}

impl Backoff {
    /// A base of one second and a cap of 5 seconds: for a server that says that it is asked too much.
    pub const THROTTLED: Self = Self { base_nanos: 10 * Self::DEFAULT.base_nanos, ..Self::DEFAULT };

    const DEFAULT: Self = Self { base_nanos: 100_000_000, cap_nanos: 5_000_000_000 };

    /// Waits of up to `base` before the first retry and of up to `cap` before any.
    ///
    /// # Errors
    ///
    /// When `base` is zero, `cap` is less than `base`, or `cap` is above 2⁶⁴ nanoseconds (584 years).
    pub fn new(base: Duration, cap: Duration) -> Result<Self, BackoffError> {
        let nonsense = BackoffError { base, cap };
        if base.is_zero() || cap < base {
            return Err(nonsense);
        }
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).map_err(|_| nonsense);
        Ok(Self { base_nanos: nanos(base)?, cap_nanos: nanos(cap)? })
    }

    /// The longest wait before the given retry; the first is 0.
    #[must_use]
    pub fn ceiling(self, retry: u32) -> Duration {
        Duration::from_nanos(self.ceiling_nanos(retry))
    }

    /// The wait before the given retry, the first being 0: `random` scaled from the whole range of
    /// `u64` to the range from zero to the [`ceiling`](Self::ceiling), both included.
    ///
    /// It is even where `random` is. Draw it anew for each wait.
    #[must_use]
    pub fn delay(self, retry: u32, random: u64) -> Duration {
        let outcomes = u128::from(self.ceiling_nanos(retry)) + 1;
        let scaled = (outcomes * u128::from(random)) >> u64::BITS;
        // The shift leaves less than `outcomes`, that is, at most the ceiling.
        Duration::from_nanos(scaled as u64)
    }

    fn ceiling_nanos(self, retry: u32) -> u64 {
        2_u64.saturating_pow(retry).saturating_mul(self.base_nanos).min(self.cap_nanos)
    }
}

impl Default for Backoff {
    /// A base of 100 milliseconds and a cap of 5 seconds.
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// A [`Backoff`] was asked for that would not wait, not grow, or not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackoffError {
    base: Duration,
    cap: Duration,
}

impl Display for BackoffError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { base, cap } = self;
        if base.is_zero() {
            f.write_str("a back-off with a base of zero does not wait: choose a base such as 100 ms")
        } else if cap < base {
            write!(
                f,
                "a back-off cannot be capped at {cap:?}, below its base of {base:?}: choose a cap of at least that"
            )
        } else {
            write!(f, "a back-off cannot be capped at {cap:?}: choose a cap that somebody is willing to wait for")
        }
    }
}

impl Error for BackoffError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bases and caps of every magnitude.
    fn backoff() -> impl Strategy<Value = Backoff> {
        let nanos =
            || (any::<u64>(), 0..64_u32).prop_map(|(nanos, shift)| Duration::from_nanos((nanos >> shift).max(1)));
        (nanos(), nanos()).prop_map(|(a, b)| Backoff::new(a.min(b), a.max(b)).unwrap())
    }

    /// SplitMix64 (Steele, Lea and Flood 2014).
    fn draws(seed: u64) -> impl Iterator<Item = u64> {
        (1..).map(move |i: u64| {
            let z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        })
    }

    /// Whether values from 0 to 1 are evenly distributed, by the test of Kolmogorov and Smirnov at a
    /// level of 10⁻⁶.
    fn are_even(mut values: Vec<f64>) -> bool {
        values.sort_by(f64::total_cmp);
        let count = values.len() as f64;
        let distance = values.iter().enumerate().fold(0.0_f64, |distance, (i, value)| {
            distance.max(value - i as f64 / count).max((i + 1) as f64 / count - value)
        });
        let critical = (-(1e-6_f64 / 2.0).ln() / 2.0).sqrt();
        distance < critical / count.sqrt()
    }

    proptest! {
        /// Fails when `ceiling_nanos` loses `min`, or `delay` shifts by one bit less.
        #[test]
        fn no_wait_exceeds_cap_or_ceiling(backoff in backoff(), retry in any::<u32>(), random in any::<u64>()) {
            let ceiling = backoff.ceiling(retry);
            prop_assert!(ceiling <= Duration::from_nanos(backoff.cap_nanos));
            for random in [random, 0, u64::MAX] {
                prop_assert!(backoff.delay(retry, random) <= ceiling);
            }
        }

        /// Fails when either operation of `ceiling_nanos` wraps, or it grows by a factor of 3.
        #[test]
        fn ceiling_doubles_until_the_cap(backoff in backoff(), retry in 0..200_u32) {
            let cap = Duration::from_nanos(backoff.cap_nanos);
            let base = Duration::from_nanos(backoff.base_nanos);
            let doubled = (0..retry).fold(base, |ceiling, _| (ceiling * 2).min(cap));
            prop_assert_eq!(backoff.ceiling(retry), doubled);
            prop_assert_eq!(backoff.ceiling(retry + 10_000), cap);
        }

        /// Fails when `outcomes` is not one more than the ceiling.
        #[test]
        fn both_ends_of_the_range_are_drawn(backoff in backoff(), retry in any::<u32>()) {
            prop_assert_eq!(backoff.delay(retry, 0), Duration::ZERO);
            prop_assert_eq!(backoff.delay(retry, u64::MAX), backoff.ceiling(retry));
        }
    }

    /// Fails when `delay` draws from half of the ceiling upwards ("equal jitter").
    #[test]
    fn waits_are_even_over_the_range() {
        for (seed, backoff, retry) in [
            (1, Backoff::default(), 0),
            (2, Backoff::default(), 3),
            (3, Backoff::THROTTLED, 0),
            (4, Backoff::THROTTLED, 10_000),
            (5, Backoff::new(Duration::from_secs(1), Duration::from_secs(60)).unwrap(), 4),
        ] {
            let ceiling = backoff.ceiling(retry).as_secs_f64();
            let waits = draws(seed).take(20_000).map(|random| backoff.delay(retry, random).as_secs_f64() / ceiling);
            assert!(are_even(waits.collect()), "{backoff:?} {retry}");
        }
    }

    /// Fails when `delay` draws in whole seconds, or in milliseconds.
    #[test]
    fn base_of_whole_seconds_makes_waits_of_any_fraction() {
        let backoff = Backoff::new(Duration::from_secs(8), Duration::from_secs(8)).unwrap();
        let fraction =
            |unit: u32| move |random| f64::from(backoff.delay(0, random).subsec_nanos() % unit) / f64::from(unit);
        assert!(are_even(draws(6).take(20_000).map(fraction(1_000_000_000)).collect()));
        assert!(are_even(draws(7).take(20_000).map(fraction(1_000_000)).collect()));
    }

    /// Fails when `are_even` lets everything pass.
    #[test]
    fn test_of_evenness_notices_a_bias_of_three_percent() {
        let biased = |random| Backoff::default().delay(0, random).as_secs_f64() / 0.1 * 0.97;
        assert!(!are_even(draws(8).take(20_000).map(biased).collect()));
    }

    /// Fails when `new` accepts a base of zero, a cap below the base, or wraps a long one.
    #[test]
    fn nonsense_is_refused() {
        let second = Duration::from_secs(1);
        for (base, cap, reason) in [
            (Duration::ZERO, second, "does not wait"),
            (Duration::ZERO, Duration::ZERO, "does not wait"),
            (second, Duration::from_millis(999), "below its base of 1s"),
            (second, Duration::MAX, "willing to wait"),
            (second, Duration::from_nanos(u64::MAX) + Duration::from_nanos(1), "willing to wait"),
        ] {
            let error = Backoff::new(base, cap).unwrap_err();
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert!(Backoff::new(second, second).is_ok());
        assert!(Backoff::new(second, Duration::from_nanos(u64::MAX)).is_ok());
    }

    /// Fails when any of the four numbers changes.
    #[test]
    fn named_ones_have_their_documented_base_and_cap() {
        let of = |base, cap| Backoff::new(Duration::from_millis(base), Duration::from_millis(cap)).unwrap();
        assert_eq!(Backoff::default(), of(100, 5000));
        assert_eq!(Backoff::THROTTLED, of(1000, 5000));
    }
}
