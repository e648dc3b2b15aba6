//! What a balance is at any moment follows from what it was and how long ago that is: the arithmetic of a budget.
//!
//! Amounts are kept in thousandths, so that a trickle of one token in a second adds to them every
//! millisecond. Nothing overflows, and no balance exceeds the cap.

use std::time::Duration;

/// What retries to one origin cost, and what pays for them.
///
/// A balance is kept for at most 1024 origins at once that are not full. While there are so many, calls to others are
/// not retried.
///
/// The default holds 1000 tokens, takes 10 for a retry, and adds one for each success and one for each
/// second: 100 retries at once, then one for every ten successes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryBudget {
    cap: u64,
    per_success: u64,
    per_retry: u64,
    per_second: u64,
}

impl RetryBudget {
    /// A budget that pays for every retry, for clients whose load somebody else bounds.
    ///
    /// In an outage each of their calls then sends as many requests as it may have attempts.
    pub const fn unlimited() -> Self {
        Self { cap: 0, per_success: 0, per_retry: 0, per_second: 0 }
    }

    /// The balance that an origin begins with and never exceeds, in tokens.
    ///
    /// It is what all callers of one client can spend at once. Many clients of one origin have as many balances: give
    /// each its part of the default (see [In an outage](crate#in-an-outage)).
    pub const fn cap(mut self, tokens: u32) -> Self {
        self.cap = tokens as u64 * TOKEN;
        self
    }

    /// What a success adds, in tokens: a response below 400, whichever attempt brought it.
    pub const fn per_success(mut self, tokens: u32) -> Self {
        self.per_success = tokens as u64 * TOKEN;
        self
    }

    /// What a retry takes, in tokens. With zero, every retry is paid for.
    pub const fn per_retry(mut self, tokens: u32) -> Self {
        self.per_retry = tokens as u64 * TOKEN;
        self
    }

    /// What a second adds, in tokens.
    pub const fn per_second(mut self, tokens: u32) -> Self {
        self.per_second = tokens as u64 * TOKEN;
        self
    }

    pub(super) const fn is_unlimited(self) -> bool {
        self.per_retry == 0
    }

    /// Whether not even a full balance covers a retry.
    pub(crate) const fn pays_for_nothing(self) -> bool {
        self.per_retry > self.cap
    }
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::unlimited().cap(1000).per_success(1).per_retry(10).per_second(1)
    }
}

/// What one origin has left, as of a moment on the clock of its ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Balance {
    left: u64,
    as_of: Duration,
}

impl Balance {
    pub(super) fn full(budget: RetryBudget, now: Duration) -> Self {
        Self { left: budget.cap, as_of: now }
    }

    pub(super) fn is_full(&self, budget: RetryBudget) -> bool {
        self.left >= budget.cap
    }

    /// Adds what has trickled in since. A clock that stands still or runs back adds nothing.
    pub(super) fn advance(&mut self, budget: RetryBudget, now: Duration) {
        let millis = u64::try_from(now.saturating_sub(self.as_of).as_millis()).unwrap_or(u64::MAX);
        if millis > 0 {
            self.add(budget, millis.saturating_mul(budget.per_second / TOKEN));
            // What is left of a millisecond counts the next time.
            self.as_of += Duration::from_millis(millis);
        }
    }

    pub(super) fn deposit(&mut self, budget: RetryBudget) {
        self.add(budget, budget.per_success);
    }

    pub(super) fn refund(&mut self, budget: RetryBudget) {
        self.add(budget, budget.per_retry);
    }

    /// Takes the price of a retry, or nothing where it is not covered.
    pub(super) fn withdraw(&mut self, budget: RetryBudget) -> bool {
        let rest = self.left.checked_sub(budget.per_retry);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    fn add(&mut self, budget: RetryBudget, amount: u64) {
        self.left = self.left.saturating_add(amount).min(budget.cap);
    }
}

/// A token in the unit of a balance: a rate of one in a second is then one unit in a millisecond.
const TOKEN: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(balance: &mut Balance, budget: RetryBudget) -> usize {
        std::iter::repeat_with(|| balance.withdraw(budget)).take(10_000).take_while(|paid| *paid).count()
    }

    /// Fails when `withdraw` takes nothing, or refuses the last one.
    #[test]
    fn full_balance_pays_for_a_hundred_retries() {
        let budget = RetryBudget::default();
        let mut balance = Balance::full(budget, Duration::ZERO);
        assert_eq!(spent(&mut balance, budget), 100);
        // What is not covered takes nothing.
        for _ in 0..10 {
            balance.deposit(budget);
        }
        assert_eq!(spent(&mut balance, budget), 1);
    }

    /// Fails when `advance` forgets what is left of a millisecond, or adds once for each call.
    #[test]
    fn a_retry_trickles_in_every_ten_seconds_however_often_one_looks() {
        let budget = RetryBudget::default();
        let mut balance = Balance::full(budget, Duration::ZERO);
        spent(&mut balance, budget);
        let mut paid = Vec::new();
        for micros in (0..30_000_000_u64).step_by(700) {
            let now = Duration::from_micros(micros);
            balance.advance(budget, now);
            if balance.withdraw(budget) {
                paid.push(now.as_secs());
            }
        }
        assert_eq!(paid, [10, 20]);
    }

    /// Fails when `add` is not capped, or not saturating.
    #[test]
    fn no_balance_exceeds_the_cap() {
        let budget = RetryBudget::default();
        let mut balance = Balance::full(budget, Duration::ZERO);
        balance.advance(budget, Duration::MAX);
        balance.deposit(budget);
        assert_eq!(spent(&mut balance, budget), 100);
    }

    /// Fails when `advance` subtracts without saturating, or moves back.
    #[test]
    fn clock_that_runs_back_adds_nothing() {
        let budget = RetryBudget::default();
        let mut balance = Balance::full(budget, Duration::from_secs(100));
        spent(&mut balance, budget);
        balance.advance(budget, Duration::from_secs(50));
        balance.advance(budget, Duration::from_secs(109));
        assert_eq!(spent(&mut balance, budget), 0);
    }
}
