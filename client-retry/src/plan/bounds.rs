//! A plan has an answer to every ending and keeps every limit, whatever it went through before: played against a count
//! of the test's own.

use std::num::NonZeroU32;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use idempotency_shared::{IDEMPOTENCY_PROBLEM, IDEMPOTENT_REPLAYED, ProblemCode, TransportFailure};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// An ending that owns its headers.
#[derive(Clone, Debug)]
enum Ended {
    Response(StatusCode, HeaderMap),
    Failure(TransportFailure),
}

impl Ended {
    fn ending(&self) -> Ending<'_> {
        match self {
            Self::Response(status, headers) => Ending::Response { status: *status, headers },
            Self::Failure(failure) => Ending::Failure(*failure),
        }
    }
}

fn ended() -> impl Strategy<Value = Ended> {
    let codes: Vec<_> = ProblemCode::ALL.iter().map(|code| code.as_str()).chain(["unheard-of"]).collect();
    let headers = (
        option::weighted(0.2, select(vec!["true", "false"])),
        option::weighted(0.4, select(codes)),
        option::weighted(0.4, select(vec!["3", "soon"])),
    );
    // Those that are retried would otherwise be rare.
    let status = prop_oneof![100..=999_u16, select(vec![408, 409, 413, 425, 429, 500, 502, 503, 504])];
    let response = (status, headers).prop_map(|(status, (replayed, code, retry_after))| {
        let headers = [(IDEMPOTENT_REPLAYED, replayed), (IDEMPOTENCY_PROBLEM, code), (RETRY_AFTER, retry_after)];
        let headers =
            headers.into_iter().filter_map(|(name, value)| Some((name, HeaderValue::from_static(value?)))).collect();
        Ended::Response(StatusCode::from_u16(status).unwrap(), headers)
    });
    prop_oneof![response, select(TransportFailure::ALL).prop_map(Ended::Failure)]
}

/// Of every magnitude up to some minutes.
fn duration() -> impl Strategy<Value = Duration> {
    (0..1_u64 << 38, 0..38_u32).prop_map(|(nanos, shift)| Duration::from_nanos(nanos >> shift))
}

fn circumstances() -> impl Strategy<Value = Circumstances> {
    // Mostly there is time, so that a history gets on.
    let remaining = prop_oneof![4 => Just(Duration::from_secs(3600)), 1 => duration()];
    (option::weighted(0.3, duration()), remaining, any::<u64>()).prop_map(|(asked, remaining, random)| Circumstances {
        asked,
        remaining,
        random,
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (1..5_u32, 0..4_u32, duration()).prop_map(|(attempts, polls, max_retry_after)| Limits {
        max_attempts: NonZeroU32::new(attempts).unwrap(),
        max_polls: polls,
        max_retry_after,
        ..Limits::default()
    })
}

fn call() -> impl Strategy<Value = Call> {
    (select(vec![Method::POST, Method::PUT]), any::<bool>()).prop_map(|(method, keyed)| {
        let call = Call::new(&method);
        if keyed { call.keyed() } else { call }
    })
}

/// What the test has counted of one plan.
struct Count {
    call: Call,
    attempts: u32,
    polls: u32,
    refused: bool,
}

impl Count {
    /// Whether a limit other than time forbids what would otherwise follow.
    fn exhausted(&self, class: Class, limits: &Limits) -> Option<StopReason> {
        match class {
            Class::InProgress => (self.polls == limits.max_polls).then_some(StopReason::PollsExhausted),
            Class::Refused if !self.refused => None,
            _ => (self.attempts == limits.max_attempts.get()).then_some(StopReason::AttemptsExhausted),
        }
    }

    fn retrying(&mut self, ending: Ending<'_>, retry: Retry) {
        let is_free = match ending.class() {
            Class::InProgress => true,
            Class::Refused => !self.refused,
            _ => false,
        };
        assert_eq!(retry.paid, !is_free);
        self.attempts += u32::from(!is_free);
        self.polls += u32::from(ending.class() == Class::InProgress);
        self.refused |= ending.class() == Class::Refused;
        if ending.is_ambiguous() {
            self.call = self.call.after_ambiguous();
        }
    }
}

proptest! {
    /// Fails when `step` retries `Misuse`, asks for `polls` with `>`, or `delay` leaves out any of its comparisons.
    #[test]
    fn every_ending_gets_an_answer_within_the_limits(
        limits in limits(),
        call in call(),
        replayable in prop::bool::weighted(0.9),
        history in vec((ended(), circumstances()), 1..30),
    ) {
        let mut plan = Plan::new(&limits, call, replayable);
        let mut count = Count { call, attempts: 1, polls: 0, refused: false };
        for (ended, circumstances) in &history {
            let ending = ended.ending();
            let class = ending.class();
            let Circumstances { asked, remaining, .. } = *circumstances;
            let step = plan.step(ending, || *circumstances);
            if !ending.is_retried(count.call) {
                let is_success = step == Step::Stop(StopReason::Succeeded);
                prop_assert_eq!(is_success, class == Class::Success);
                let Step::Stop(reason) = step else { panic!("{step:?} of {ended:?}") };
                prop_assert!(matches!(reason, StopReason::Succeeded | StopReason::Final | StopReason::NotSafe));
                continue;
            }
            if !replayable {
                prop_assert_eq!(step, Step::Stop(StopReason::BodyNotReplayable));
                continue;
            }
            if let Some(reason) = count.exhausted(class, &limits) {
                prop_assert_eq!(step, Step::Stop(reason));
                continue;
            }
            let most = asked.unwrap_or_default() + JITTER;
            let is_too_long = asked.is_some_and(|asked| asked > limits.max_retry_after || asked >= remaining);
            match step {
                Step::Retry(retry) => {
                    prop_assert!(retry.delay >= asked.unwrap_or_default() && retry.delay <= most);
                    prop_assert!(retry.delay < remaining && !is_too_long);
                    plan.retrying(ending, retry);
                    count.retrying(ending, retry);
                }
                Step::Stop(StopReason::AskedTooLong) => prop_assert!(is_too_long),
                Step::Stop(reason) => {
                    prop_assert_eq!(reason, StopReason::Deadline);
                    prop_assert!(most >= remaining && !is_too_long);
                }
            }
        }
    }
}

/// What no default back-off exceeds.
const JITTER: Duration = Duration::from_secs(5);
