//! What follows an attempt is decided from how it ended, from what the call has spent so far and from
//! the time that is left: a [`Plan`] says whether to stop or to wait, and does neither.
//!
//! - What may be retried at all is [`Ending::is_retried`]'s to say. A plan adds the limits.
//! - An attempt counts against [`Limits::max_attempts`], and its retry against the budget of the
//!   origin. Two do not: a poll for the answer of a run that goes on (409), which has a limit of its own, and the
//!   retry of the first attempt that was refused before it was processed, which is sent at once.
//! - A server that asks for a wait is obeyed or left: the wait is never shorter than asked, and where
//!   it is longer than the caller has time for, the outcome at hand is returned without any.
//! - A wait that was asked for is followed by a jitter of the ordinary back-off, since everybody who got the
//!   same answer would come back at the same moment.
//! - A wait that ends at the deadline or later does not begin.
//!
//! Neither the clock nor randomness is read here; both come in with each question.

use std::time::Duration;

use idempotency_shared::{Call, Class, Ending};

use crate::StopReason;
use crate::limits::Limits;

/// What has been spent on one call.
#[derive(Clone, Debug)]
pub(crate) struct Plan<'a> {
    limits: &'a Limits,
    call: Call,
    replayable: bool,
    /// How many attempts have been sent that count.
    attempts: u32,
    /// How many answers said that a run goes on, each of which was followed by a poll.
    polls: u32,
    /// How many retries have waited by the back-off; it grows with them.
    waits: u32,
    /// Whether a refused attempt has had its free retry.
    refused: bool,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Step {
    /// Return the outcome.
    Stop(StopReason),
    /// Wait, and send another attempt.
    Retry(Retry),
}

/// How another attempt is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retry {
    /// How long to wait before it.
    pub(crate) delay: Duration,
    /// Whether the budget of its origin pays for it. What it does not pay for does not count either.
    pub(crate) paid: bool,
    class: Class,
}

/// What is known when an attempt has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances {
    /// For how long the response asks its client to stay away.
    pub(crate) asked: Option<Duration>,
    /// How much of the call's time is left.
    pub(crate) remaining: Duration,
    /// Drawn anew for each question, even over the whole range.
    pub(crate) random: u64,
}

impl<'a> Plan<'a> {
    /// The plan of a call whose first attempt is about to be sent.
    ///
    /// `replayable` says that its body can be sent again.
    pub(crate) fn new(limits: &'a Limits, call: Call, replayable: bool) -> Self {
        Self { limits, call, replayable, attempts: 1, polls: 0, waits: 0, refused: false }
    }

    /// What follows an attempt that ended so. The circumstances are asked for where they matter. It decides and changes
    /// nothing, so it may be asked twice about one attempt: about the head of a response, and about its body.
    pub(crate) fn step(&self, ending: Ending<'_>, circumstances: impl FnOnce() -> Circumstances) -> Step {
        let class = ending.class();
        if class == Class::Success {
            return Step::Stop(StopReason::Succeeded);
        }
        if !ending.is_retried(self.call) {
            return Step::Stop(reason_for_none(class));
        }
        if !self.replayable {
            return Step::Stop(StopReason::BodyNotReplayable);
        }
        let paid = match class {
            Class::InProgress if self.polls >= self.limits.max_polls => return Step::Stop(StopReason::PollsExhausted),
            Class::InProgress => false,
            Class::Refused if !self.refused => false,
            _ if self.attempts >= self.limits.max_attempts.get() => return Step::Stop(StopReason::AttemptsExhausted),
            _ => true,
        };
        match self.delay(class, paid, circumstances()) {
            Ok(delay) => Step::Retry(Retry { delay, paid, class }),
            Err(reason) => Step::Stop(reason),
        }
    }

    /// Takes note that the attempt which ended so is followed by another one.
    pub(crate) fn retrying(&mut self, ending: Ending<'_>, retry: Retry) {
        if ending.is_ambiguous() {
            self.call = self.call.after_ambiguous();
        }
        self.attempts = self.attempts.saturating_add(u32::from(retry.paid));
        match retry.class {
            Class::InProgress => self.polls = self.polls.saturating_add(1),
            Class::Refused if !retry.paid => self.refused = true,
            _ => self.waits = self.waits.saturating_add(1),
        }
    }

    fn delay(&self, class: Class, paid: bool, circumstances: Circumstances) -> Result<Duration, StopReason> {
        let Circumstances { asked, remaining, random } = circumstances;
        if asked.is_some_and(|asked| asked > self.limits.max_retry_after || asked >= remaining) {
            return Err(StopReason::AskedTooLong);
        }
        let jitter = match class {
            Class::Refused if !paid && asked.is_none() => Duration::ZERO,
            // One caller waits for one run, so its waits need not grow where the server says how long they are.
            Class::InProgress if asked.is_some() => self.limits.backoff.delay(0, random),
            Class::InProgress => self.limits.backoff.delay(self.polls, random),
            Class::Throttled if asked.is_none() => self.limits.throttled_backoff.delay(self.waits, random),
            _ => self.limits.backoff.delay(self.waits, random),
        };
        let delay = asked.unwrap_or_default().saturating_add(jitter);
        if delay < remaining { Ok(delay) } else { Err(StopReason::Deadline) }
    }
}

/// Why an attempt that failed is not followed by another one.
fn reason_for_none(class: Class) -> StopReason {
    match class {
        // These are retried where it is safe.
        Class::InProgress | Class::Throttled | Class::Ambiguous => StopReason::NotSafe,
        _ => StopReason::Final,
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use http::header::RETRY_AFTER;
    use http::{HeaderMap, HeaderValue, Method, StatusCode};
    use idempotency_shared::{IDEMPOTENCY_PROBLEM, TransportFailure};

    use super::*;

    const RESET: Ending<'_> = Ending::Failure(TransportFailure::Reset);

    const REFUSED: Ending<'_> = Ending::Failure(TransportFailure::RefusedStream);

    /// Half of everything.
    const QUIET: Circumstances =
        Circumstances { asked: None, remaining: Duration::from_secs(30), random: u64::MAX / 2 };

    fn keyed(limits: &Limits) -> Plan<'_> {
        Plan::new(limits, Call::new(&Method::POST).keyed(), true)
    }

    /// The delays before the attempts that follow when each ends like this, and why there is no other.
    fn played(plan: &mut Plan<'_>, ending: Ending<'_>, circumstances: Circumstances) -> (Vec<Duration>, StopReason) {
        let mut delays = Vec::new();
        loop {
            match plan.step(ending, || circumstances) {
                Step::Stop(reason) => return (delays, reason),
                Step::Retry(retry) => {
                    plan.retrying(ending, retry);
                    delays.push(retry.delay);
                }
            }
            assert!(delays.len() < 100, "without an end");
        }
    }

    fn answer(status: u16, headers: &HeaderMap) -> Ending<'_> {
        Ending::Response { status: StatusCode::from_u16(status).unwrap(), headers }
    }

    fn in_flight() -> HeaderMap {
        HeaderMap::from_iter([(IDEMPOTENCY_PROBLEM, HeaderValue::from_static("in-flight"))])
    }

    /// Fails when `step` compares with `>`, or `retrying` does not count.
    #[test]
    fn attempts_are_as_many_as_the_limit() {
        for max in 1..6 {
            let limits = Limits { max_attempts: NonZeroU32::new(max).unwrap(), ..Limits::default() };
            let (delays, reason) = played(&mut keyed(&limits), RESET, QUIET);
            assert_eq!((delays.len() + 1, reason), (max as usize, StopReason::AttemptsExhausted));
        }
    }

    /// Fails when `retrying` does not count the waits, or `delay` draws them from the throttled back-off.
    #[test]
    fn waits_double() {
        let limits = Limits { max_attempts: NonZeroU32::new(5).unwrap(), ..Limits::default() };
        let (delays, _) = played(&mut keyed(&limits), RESET, QUIET);
        assert_eq!(delays, [50, 100, 200, 400].map(Duration::from_millis));
    }

    /// Fails when `delay` draws from the ordinary back-off.
    #[test]
    fn throttled_call_waits_ten_times_as_long() {
        let none = HeaderMap::new();
        for status in [429, 503] {
            let limits = Limits::default();
            let (delays, reason) = played(&mut keyed(&limits), answer(status, &none), QUIET);
            assert_eq!(delays, [500, 1000].map(Duration::from_millis), "{status}");
            assert_eq!(reason, StopReason::AttemptsExhausted);
        }
    }

    /// Fails when `delay` leaves out the wait that was asked for, or the jitter.
    #[test]
    fn asked_wait_is_kept_and_followed_by_jitter() {
        let limits = Limits::default();
        let none = HeaderMap::new();
        let asked = Circumstances { asked: Some(Duration::from_secs(2)), ..QUIET };
        let (delays, _) = played(&mut keyed(&limits), answer(503, &none), asked);
        assert_eq!(delays, [2050, 2100].map(Duration::from_millis));
    }

    /// Fails when either comparison of `asked` in `delay` is the other way round or missing.
    #[test]
    fn wait_that_is_too_long_is_not_begun() {
        let limits = Limits::default();
        let none = HeaderMap::new();
        let step = |asked: Duration, remaining: Duration| {
            keyed(&limits).step(answer(503, &none), || Circumstances { asked: Some(asked), remaining, random: 0 })
        };
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        assert_eq!(step(minute + Duration::from_nanos(1), hour), Step::Stop(StopReason::AskedTooLong));
        assert!(matches!(step(minute, hour), Step::Retry(Retry { delay, .. }) if delay == minute));
        assert_eq!(step(minute, minute), Step::Stop(StopReason::AskedTooLong));
        assert_eq!(step(Duration::MAX, Duration::MAX), Step::Stop(StopReason::AskedTooLong));
    }

    /// Fails when `delay` compares with `<=`.
    #[test]
    fn wait_that_ends_at_the_deadline_is_not_begun() {
        let limits = Limits::default();
        let at = |remaining| keyed(&limits).step(RESET, || Circumstances { remaining, ..QUIET });
        assert_eq!(at(Duration::from_millis(50)), Step::Stop(StopReason::Deadline));
        assert!(matches!(at(Duration::from_millis(51)), Step::Retry(_)));
        let spent = Circumstances { remaining: Duration::ZERO, random: 0, ..QUIET };
        assert_eq!(keyed(&limits).step(REFUSED, || spent), Step::Stop(StopReason::Deadline));
    }

    /// Fails when `step` pays for every retry, or for none of a refused attempt.
    #[test]
    fn first_refusal_is_free_and_the_next_is_not() {
        let limits = Limits::default();
        let mut plan = keyed(&limits);
        let Step::Retry(free) = plan.step(REFUSED, || QUIET) else { panic!("not retried") };
        assert_eq!((free.delay, free.paid), (Duration::ZERO, false));
        plan.retrying(REFUSED, free);
        let (delays, reason) = played(&mut plan, REFUSED, QUIET);
        assert_eq!(delays, [50, 100].map(Duration::from_millis));
        assert_eq!(reason, StopReason::AttemptsExhausted);
    }

    /// Fails when the free retry of a refused attempt does not wait for what was asked.
    #[test]
    fn free_retry_waits_as_asked() {
        let limits = Limits::default();
        let headers = HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_static("1"))]);
        let asked = Circumstances { asked: Some(Duration::from_secs(1)), ..QUIET };
        let Step::Retry(retry) = keyed(&limits).step(answer(425, &headers), || asked) else { panic!("not retried") };
        assert!(retry.delay >= Duration::from_secs(1), "{:?}", retry.delay);
    }

    /// Fails when a poll counts as an attempt, or `step` does not count the polls.
    #[test]
    fn polls_have_a_limit_of_their_own() {
        let limits = Limits::default();
        let mut plan = keyed(&limits);
        let headers = in_flight();
        let ending = answer(409, &headers);
        let asked = Circumstances { asked: Some(Duration::from_secs(1)), ..QUIET };
        let (delays, reason) = played(&mut plan, ending, asked);
        assert_eq!(delays, [Duration::from_millis(1050); 10]);
        assert_eq!(reason, StopReason::PollsExhausted);
        // What had been sent before still counts as one attempt of three.
        assert_eq!(played(&mut plan, RESET, QUIET).0.len(), 2);
    }

    /// Fails when `retrying` forgets that an attempt was ambiguous.
    #[test]
    fn conflict_is_retried_only_after_an_ambiguous_attempt() {
        let limits = Limits::default();
        let none = HeaderMap::new();
        let conflict = answer(409, &none);
        assert_eq!(keyed(&limits).step(conflict, || QUIET), Step::Stop(StopReason::Final));
        for (before, retries) in [(RESET, 1), (answer(429, &none), 0)] {
            let mut plan = keyed(&limits);
            let Step::Retry(retry) = plan.step(before, || QUIET) else { panic!("not retried") };
            plan.retrying(before, retry);
            assert_eq!(played(&mut plan, conflict, QUIET).0.len(), retries, "{before:?}");
        }
    }

    /// Fails when `step` does not ask for `replayable`, or asks for it first.
    #[test]
    fn stream_is_sent_once() {
        let limits = Limits::default();
        let plan = Plan::new(&limits, Call::new(&Method::POST).keyed(), false);
        assert_eq!(plan.step(RESET, || QUIET), Step::Stop(StopReason::BodyNotReplayable));
        assert_eq!(plan.step(answer(200, &HeaderMap::new()), || QUIET), Step::Stop(StopReason::Succeeded));
    }

    /// Fails when `reason_for_none` has one reason for all.
    #[test]
    fn unsafe_call_says_so() {
        let limits = Limits::default();
        let plan = Plan::new(&limits, Call::new(&Method::POST), true);
        assert_eq!(plan.step(RESET, || QUIET), Step::Stop(StopReason::NotSafe));
        assert_eq!(plan.step(answer(404, &HeaderMap::new()), || QUIET), Step::Stop(StopReason::Final));
        let never_sent = Ending::Failure(TransportFailure::ConnectionRefused);
        assert!(matches!(plan.step(never_sent, || QUIET), Step::Retry(_)));
    }
}
