//! A call is made as often as its plan says and no oftener: the loop here sends, asks, and sleeps.
//!
//! - The key is in the request before the first attempt, and the same on each.
//! - Each attempt has extensions of its own, a clone of the caller's, so that it does not find what an earlier one left
//!   there. Those of the last attempt are the caller's afterwards.
//! - Nothing is spawned: whoever drops the call has ended it.

use std::pin::pin;
use std::sync::Arc;

use async_trait::async_trait;
use http::{Extensions, StatusCode};
use idempotency_shared::Call;
use reqwest::{Request, Response};
use reqwest_middleware::{Middleware, Next, Result};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::attempt::Outcome;
use crate::budget::{Ledger, Withdrawal};
use crate::clock::Clock;
use crate::copies::Copies;
use crate::current::Place;
use crate::history::History;
use crate::keying::{self, Keying, Legacy};
use crate::limits::Limits;
use crate::plan::{Circumstances, Plan, Retry, Step};
use crate::{Builder, Error, NoRetry, StopReason, body, current};

/// A middleware that gives each call one idempotency key and retries it under that key.
///
/// The [crate docs](crate) state the rules. Clones share the budget.
///
/// # Panics
///
/// When a call is polled outside of a Tokio runtime that has its time enabled, as reqwest's own are.
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
        let propagation = keying::propagation(extensions);
        let opted_out = extensions.get::<NoRetry>().is_some();
        let now = Instant::now();
        let clock = Clock::new(self.settings.limits.total, propagation.as_ref(), now);
        if clock.end() <= now && !opted_out {
            return Err(reqwest_middleware::Error::middleware(Error::deadline_passed(&request)));
        }
        let key = self.settings.keying.key(&mut request, extensions, propagation.as_ref());
        let key = key.map_err(reqwest_middleware::Error::middleware)?;
        if opted_out && key.is_none() {
            return current::around(Place::of(extensions), next.run(request, extensions)).await;
        }
        let mut legacy = Legacy::new(key, Copies::new(&mut request), extensions);
        if opted_out {
            let place = Place::of(legacy.extensions);
            let answered = current::around(place, next.run(legacy.copies.next(), legacy.extensions)).await;
            if answered.as_ref().is_ok_and(|response| response.status().is_success()) {
                legacy.take_key();
            }
            return answered;
        }
        self.settings.run(legacy, clock, next).await
    }
}

impl Settings {
    async fn run(&self, mut legacy: Legacy<'_>, clock: Clock, next: Next<'_>) -> Result<Response> {
        let call = Call::new(legacy.copies.method());
        let call = if legacy.key().is_some() { call.keyed() } else { call };
        let mut plan = Plan::new(&self.limits, call, legacy.copies.are_many());
        let mut history = History::new();
        let mut now = clock.began();
        loop {
            let limit = legacy.copies.timeout().unwrap_or(self.limits.attempt);
            let time = clock.attempt(limit, now);
            let mut own = legacy.extensions.clone();
            let place = Place::of(&own);
            let mut outcome = if clock.end() <= now {
                // A wait can end later than it should, and what is begun can be on the wire at once.
                Outcome::unsent()
            } else {
                let mut attempt = pin!(current::around(place, next.clone().run(legacy.copies.next(), &mut own)));
                let ended = timeout_at(time.end, attempt.as_mut()).await;
                Outcome::of(ended, || current::was_redirected(attempt), time)
            };
            now = Instant::now();
            let mut decision = self.decide(&outcome, &plan, &legacy.copies, clock, now);
            // What is returned is whole, or that it broke off is an outcome of its own.
            if let Decision::Stop(_) = decision
                && let Some(length) = outcome.unread(legacy.copies.method(), self.limits.max_buffered)
            {
                history.note_origin(&outcome, legacy.copies.url());
                // In a box, since what few calls need makes the future of every call larger.
                outcome = Box::pin(outcome.read(length, time)).await;
                now = Instant::now();
                decision = self.decide(&outcome, &plan, &legacy.copies, clock, now);
            }
            history.record(&outcome, legacy.copies.url());
            match decision {
                Decision::Stop(reason) => {
                    *legacy.extensions = own;
                    if reason == StopReason::Succeeded {
                        self.ledger.deposit(legacy.copies.url());
                    }
                    // A redirect that is not followed is a success after which the call may be repeated.
                    let key = if reason == StopReason::Succeeded && !history.is_ambiguous() {
                        legacy.take_key()
                    } else {
                        legacy.key().cloned()
                    };
                    history.stop(reason, now.saturating_duration_since(clock.began()), key);
                    return match outcome {
                        Outcome::Response(response) => Ok(self.answer(response, &legacy.copies, clock, history)),
                        Outcome::Failure { failed, .. } => {
                            Err(reqwest_middleware::Error::middleware(history.into_error(&legacy.copies, failed)))
                        }
                    };
                }
                Decision::Retry(retry, withdrawal) => {
                    let at = now + retry.delay;
                    plan.retrying(outcome.ending(legacy.copies.url()), retry);
                    history.trace(&legacy, retry.delay);
                    if let Some(response) = history.retrying(outcome, retry.delay) {
                        Box::pin(body::discard(response, at)).await;
                    }
                    sleep_until(at).await;
                    now = Instant::now();
                    if let Some(withdrawal) = withdrawal
                        && now < clock.end()
                    {
                        withdrawal.spend();
                    }
                }
            }
        }
    }

    fn decide(&self, outcome: &Outcome, plan: &Plan<'_>, copies: &Copies<'_>, clock: Clock, now: Instant) -> Decision {
        let circumstances =
            || Circumstances { asked: outcome.asked(), remaining: clock.remaining(now), random: fastrand::u64(..) };
        match plan.step(outcome.ending(copies.url()), circumstances) {
            Step::Stop(reason) => Decision::Stop(reason),
            Step::Retry(retry) if !retry.paid => Decision::Retry(retry, None),
            Step::Retry(retry) => match self.ledger.withdraw(copies.url()) {
                Some(withdrawal) => Decision::Retry(retry, Some(withdrawal)),
                None => Decision::Stop(StopReason::BudgetExhausted),
            },
        }
    }

    /// The response that the caller gets.
    fn answer(&self, mut response: Response, copies: &Copies<'_>, clock: Clock, history: History) -> Response {
        response.extensions_mut().insert(history.into_report());
        let length = body::length(&response, copies.method());
        if length.is_some_and(|length| length <= self.limits.max_buffered as u64) {
            return response;
        }
        // A request with a time of its own has it for the body, too. What a connection is upgraded to is none.
        let needs_no_bound = copies.timeout().is_some() || response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if needs_no_bound { response } else { body::bound(response, clock.end()) }
    }
}

/// A plan's step with the budget's consent.
#[must_use]
enum Decision {
    Stop(StopReason),
    Retry(Retry, Option<Withdrawal>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is above 2 KiB is copied at a price of its own. Fails when `Copies` holds its request by value, or a rare
    /// future is not in a box.
    #[test]
    fn future_of_a_call_is_small() {
        struct Probe;

        #[async_trait]
        impl Middleware for Probe {
            async fn handle(&self, request: Request, extensions: &mut Extensions, next: Next<'_>) -> Result<Response> {
                let retry = IdempotentRetry::default();
                let size = size_of_val(&*retry.handle(request, extensions, next));
                assert!(size <= 2048, "{size} bytes");
                Ok(Response::from(http::Response::new("")))
            }
        }

        let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(Probe).build();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(runtime.block_on(client.get("http://pay.example").send()).unwrap().status(), 200);
    }
}
