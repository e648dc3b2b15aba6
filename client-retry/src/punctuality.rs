//! A call is neither early nor late: whatever a server answers and whenever, no attempt is made earlier than it asked
//! or after the call's time, and no call lasts longer.
//!
//! The loop is the real one, on the paused clock. In the place of reqwest stands a script of answers. What is read from
//! `Retry-After` is held to a reader of its own in [`idempotency_shared::requested_delay`]; here each form of it is one
//! that is known to mean so many milliseconds.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use http::header::{DATE, RETRY_AFTER};
use http::{Extensions, Method};
use idempotency_shared::{Backoff, RETRY_AFTER_MS};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use reqwest::{Request, Response};
use reqwest_middleware::{ClientBuilder, Middleware, Next, Result};
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep};

use crate::{Error, IdempotentRetry, RetryBudget, RetryReport, StopReason, TransportFailure};

/// What one attempt gets, and when.
#[derive(Clone, Debug)]
struct Answer {
    after: Duration,
    /// With how it asks for a wait; none for an error of another middleware.
    response: Option<(u16, Option<Asks>)>,
}

/// How a response asks for a wait.
#[derive(Clone, Copy, Debug)]
enum Asks {
    Seconds(u16),
    Millis(u16),
    /// So many seconds after its own `Date`.
    Date(u16),
}

impl Asks {
    fn wait(self) -> Duration {
        match self {
            Self::Seconds(seconds) | Self::Date(seconds) => Duration::from_secs(seconds.into()),
            Self::Millis(millis) => Duration::from_millis(millis.into()),
        }
    }
}

impl Answer {
    fn response(&self) -> Option<Response> {
        let (status, asks) = self.response?;
        let response = http::Response::builder().status(status);
        let response = match asks {
            None => response,
            Some(Asks::Seconds(seconds)) => response.header(RETRY_AFTER, seconds),
            Some(Asks::Millis(millis)) => response.header(RETRY_AFTER_MS, millis),
            Some(Asks::Date(seconds)) => {
                let (minutes, seconds) = (seconds / 60, seconds % 60);
                let at = format!("Sun, 06 Nov 1994 08:{minutes:02}:{seconds:02} GMT");
                response.header(DATE, "Sun, 06 Nov 1994 08:00:00 GMT").header(RETRY_AFTER, at)
            }
        };
        Some(response.body("").unwrap().into())
    }
}

/// The innermost middleware: the answers in their order, the last one again and again.
struct Script {
    answers: Vec<Answer>,
    sent: Mutex<Vec<Sent>>,
}

/// One request.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    /// When its answer was there, if it was waited for.
    answered: Option<(Instant, Option<Asks>)>,
}

#[async_trait]
impl Middleware for Script {
    async fn handle(&self, _: Request, _: &mut Extensions, _: Next<'_>) -> Result<Response> {
        let place = {
            let mut sent = self.sent.lock().unwrap();
            sent.push(Sent { at: Instant::now(), answered: None });
            sent.len() - 1
        };
        let answer = self.answers.get(place).or(self.answers.last()).unwrap();
        sleep(answer.after).await;
        self.sent.lock().unwrap()[place].answered = Some((Instant::now(), answer.response.and_then(|(_, asks)| asks)));
        answer.response().ok_or_else(|| reqwest_middleware::Error::middleware(std::fmt::Error))
    }
}

/// Mostly such as are followed by another attempt.
fn answers() -> impl Strategy<Value = Vec<Answer>> {
    let asks = prop_oneof![
        (0..20_u16).prop_map(Asks::Seconds),
        (0..9000_u16).prop_map(Asks::Millis),
        (0..20_u16).prop_map(Asks::Date),
    ];
    let status = select(vec![200, 404, 408, 409, 413, 425, 429, 500, 502, 503, 504]);
    let answer = (millis(3000), option::weighted(0.9, (status, option::of(asks))));
    vec(answer.prop_map(|(after, response)| Answer { after, response }), 1..8)
}

/// Of every magnitude from 1 ms to so many.
fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (1..=most, 0..12_u32).prop_map(|(millis, shift)| Duration::from_millis((millis >> shift).max(1)))
}

/// One call, as its caller and its server saw it.
#[derive(Debug)]
struct Played {
    began: Instant,
    ended: Instant,
    sent: Vec<Sent>,
    report: RetryReport,
}

async fn play(answers: Vec<Answer>, retry: IdempotentRetry, method: Method) -> Played {
    let script = Arc::new(Script { answers, sent: Mutex::default() });
    let client = ClientBuilder::new(reqwest::Client::new()).with(retry).with_arc(Arc::clone(&script) as _).build();
    let began = Instant::now();
    let outcome = client.request(method, "http://pay.example/charges").body("{}").send().await;
    let ended = Instant::now();
    let report = match &outcome {
        Ok(response) => response.extensions().get::<RetryReport>(),
        Err(error) => Error::of(error).and_then(Error::report),
    };
    let sent = script.sent.lock().unwrap().clone();
    Played { began, ended, sent, report: report.expect("every outcome has one").clone() }
}

proptest! {
    /// Fails when `run` waits for half of the delay, `decide` does not pass on what was asked, `Clock::attempt` does
    /// not ask for its end, or an attempt is begun when the time is up.
    #[test]
    fn no_attempt_is_earlier_than_asked_or_later_than_the_deadline(
        answers in answers(),
        total in millis(40_000),
        attempt in millis(5000),
        base in millis(1000),
        method in select(vec![Method::POST, Method::GET]),
    ) {
        let backoff = Backoff::new(base, base).unwrap();
        let retry = IdempotentRetry::builder().total_timeout(total).attempt_timeout(attempt).max_attempts(6);
        let retry = retry.backoff(backoff).throttled_backoff(backoff);
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let played = runtime.block_on(async { play(answers, retry.build().unwrap(), method).await });
        let Played { began, ended, ref sent, ref report } = played;

        let end = began + total;
        prop_assert!(sent.iter().all(|sent| sent.at < end), "{:?}", played);
        prop_assert!(ended < end + TICK, "{:?}", played);
        let unsent = report.last().failure() == Some(TransportFailure::Unsent);
        prop_assert_eq!(sent.len() + usize::from(unsent), report.attempts().len());
        for pair in sent.windows(2) {
            let earliest = match pair[0].answered {
                Some((at, asks)) => at + asks.map_or(Duration::ZERO, Asks::wait),
                None => pair[0].at + attempt.min(end - pair[0].at),
            };
            prop_assert!(pair[1].at >= earliest, "{:?}", played);
        }
    }
}

/// Fails when `run` spends what pays for an attempt that it does not send, or `unsent` is a timeout.
#[tokio::test(start_paused = true)]
async fn retry_for_which_the_wait_leaves_no_time_costs_nothing_and_is_not_ambiguous() {
    let backoff = Backoff::new(TICK, TICK).unwrap();
    // It pays for one retry, ever.
    let budget = RetryBudget::default().cap(10).per_success(0).per_second(0);
    let retry = IdempotentRetry::builder().total_timeout(2 * TICK).budget(budget);
    let retry = retry.backoff(backoff).throttled_backoff(backoff).build().unwrap();
    for _ in 0..3 {
        // A wait of less than a tick, which the timer makes a whole one.
        let answer = Answer { after: TICK, response: Some((429, None)) };
        let Played { sent, report, .. } = play(vec![answer], retry.clone(), Method::POST).await;
        assert_eq!((sent.len(), report.attempts().len(), report.stop()), (1, 2, StopReason::Deadline));
        assert!(!report.is_ambiguous(), "{report}");
    }
}

/// The resolution of tokio's timers.
const TICK: Duration = Duration::from_millis(1);
