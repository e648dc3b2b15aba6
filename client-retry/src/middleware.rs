//! A call is made as often as its plan says and no oftener: the loop here sends, asks, and sleeps.
//!
//! - The key is in the request before the first attempt, and the same on each.
//! - Each attempt has extensions of its own, a clone of the caller's, so that it does not find what an earlier one left
//!   there. Those of the last attempt are the caller's afterwards.
//! - Nothing is spawned: whoever drops the call has ended it.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Extensions, StatusCode};
use idempotency_shared::Call;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use tokio::time::{Instant, sleep_until};

use crate::attempt::Outcome;
use crate::budget::{Ledger, Withdrawal};
use crate::clock::{Clock, Time};
use crate::copies::Copies;
use crate::history::History;
use crate::keying::{Earlier, Keying};
use crate::limits::Limits;
use crate::plan::{Circumstances, Plan, Retry, Step};
use crate::{Builder, Error, NoRetry, StopReason, body, current, redirect};

/// A middleware that gives each call one idempotency key and retries it under that key.
///
/// The [crate docs](crate) state the rules. Clones share the budget.
#[derive(Clone, Debug)]
#[must_use]
pub struct IdempotentRetry {
    settings: Arc<Settings>,
}

/// What calls are made by.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) keying: Keying,
    pub(crate) ledger: Ledger,
}

impl IdempotentRetry {
    /// Begins with the defaults, and changes some.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings: Arc::new(settings) }
    }
}

impl Default for IdempotentRetry {
    fn default() -> Self {
        Builder::default().unchecked()
    }
}

#[async_trait]
impl Middleware for IdempotentRetry {
    async fn handle(&self, mut request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
        if current::is_within_attempt(extensions) {
            return next.run(request, extensions).await;
        }
        let Settings { limits, keying, .. } = &*self.settings;
        if extensions.get::<NoRetry>().is_some() {
            keying.key(&mut request, extensions).map_err(reqwest_middleware::Error::middleware)?;
            return next.run(request, extensions).await;
        }
        let clock = Clock::new(limits.total, extensions);
        if clock.remaining().is_zero() {
            return Err(reqwest_middleware::Error::middleware(Error::deadline_passed(&request)));
        }
        let key = keying.key(&mut request, extensions).map_err(reqwest_middleware::Error::middleware)?;
        let call = Call::new(request.method());
        let call = if key.is_some() { call.keyed() } else { call };
        let history = History::new(key);
        current::around(self.settings.run(Copies::new(request), call, clock, history, extensions, next)).await
    }
}

impl Settings {
    async fn run(
        &self,
        mut copies: Copies,
        call: Call,
        clock: Clock,
        mut history: History,
        extensions: &mut Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        let mut plan = Plan::new(&self.limits, call, copies.are_many());
        loop {
            let request = copies.next();
            let limit = request.timeout().copied().unwrap_or(self.limits.attempt);
            let time = clock.attempt(limit);
            let mut own = extensions.clone();
            let outcome = Outcome::of(request, &mut own, next.clone(), time).await;
            let (outcome, decision) = self.decided(outcome, &plan, &copies, clock, time).await;
            history.record(outcome.ending());
            match decision {
                Decision::Stop(reason) => {
                    *extensions = own;
                    return self.finish(outcome, reason, &copies, clock, history, extensions);
                }
                Decision::Retry(retry, withdrawal) => {
                    let at = Instant::now() + retry.delay;
                    plan.retrying(outcome.ending(), retry);
                    history.trace(&copies, retry.delay);
                    if let Some(response) = history.retrying(outcome, retry.delay) {
                        body::discard(response, at).await;
                    }
                    sleep_until(at).await;
                    if let Some(withdrawal) = withdrawal {
                        withdrawal.spend();
                    }
                }
            }
        }
    }

    /// An outcome that is to be returned is whole; that its body broke off is an outcome of its own.
    async fn decided(
        &self,
        outcome: Outcome,
        plan: &Plan<'_>,
        copies: &Copies,
        clock: Clock,
        time: Time,
    ) -> (Outcome, Decision) {
        match self.decide(&outcome, plan, copies, clock) {
            Decision::Stop(_) => {
                let outcome = outcome.whole(copies.method(), self.limits.max_buffered, time).await;
                let decision = self.decide(&outcome, plan, copies, clock);
                (outcome, decision)
            }
            decision => (outcome, decision),
        }
    }

    fn decide(&self, outcome: &Outcome, plan: &Plan<'_>, copies: &Copies, clock: Clock) -> Decision {
        let circumstances =
            Circumstances { asked: outcome.asked(), remaining: clock.remaining(), random: fastrand::u64(..) };
        match plan.step(outcome.ending(), circumstances) {
            Step::Stop(reason) => Decision::Stop(reason),
            Step::Retry(retry) if !retry.paid => Decision::Retry(retry, None),
            Step::Retry(retry) => match self.ledger.withdraw(copies.url()) {
                Some(withdrawal) => Decision::Retry(retry, Some(withdrawal)),
                None => Decision::Stop(StopReason::BudgetExhausted),
            },
        }
    }

    fn finish(
        &self,
        outcome: Outcome,
        reason: StopReason,
        copies: &Copies,
        clock: Clock,
        history: History,
        extensions: &mut Extensions,
    ) -> Result<Response> {
        if reason == StopReason::Succeeded {
            self.ledger.deposit(copies.url());
        } else if let Some(key) = history.key() {
            Earlier::leave(key, copies, extensions);
        }
        match outcome {
            Outcome::Response(mut response) => {
                let left_origin = !redirect::is_same_origin(response.url(), copies.url());
                let report = history.report(reason, clock.elapsed()).left_origin_if(left_origin);
                response.extensions_mut().insert(report);
                let streams = body::length(&response, copies.method())
                    .is_none_or(|length| length > self.limits.max_buffered as u64);
                // A request with a time of its own has it for the body, too. What a connection is upgraded to is none.
                let is_bounded = copies.have_timeout() || response.status() == StatusCode::SWITCHING_PROTOCOLS;
                Ok(if streams && !is_bounded { body::bound(response, clock.end()) } else { response })
            }
            Outcome::Failure(_, failed) => {
                Err(reqwest_middleware::Error::middleware(history.error(copies, failed, reason, clock.elapsed())))
            }
        }
    }
}

/// A plan's step with the budget's consent.
#[must_use]
enum Decision {
    Stop(StopReason),
    Retry(Retry, Option<Withdrawal>),
}
