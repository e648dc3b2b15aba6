//! How an outage goes is a matter of what the server gets and of when its callers are well again: a [`Course`] is both,
//! measured in windows of 100 ms.

use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use reqwest_middleware::ClientBuilder;
use tokio::task::JoinSet;
use tokio::time::{Instant, interval};

use super::policy::Policy;
use super::server::Server;

/// What became of the calls of one simulation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Course {
    pub(super) policy: Policy,
    /// Calls in a second.
    pub(super) rate: u32,
    calls: usize,
    sent: usize,
    failed: usize,
    most_in_a_window: usize,
    /// From the end of the stall; `None` where it did not come.
    pub(super) recovery: Option<Duration>,
}

impl Course {
    /// Lets calls come at random moments, so many in a second, whatever becomes of those before them. The server stalls
    /// for 5 seconds.
    ///
    /// The same calls come at the same moments whatever the policy.
    pub(super) async fn of(policy: Policy, rate: u32) -> Self {
        // The jitter is drawn from it.
        fastrand::seed(SEED);
        let began = Instant::now();
        let server = Arc::new(Server::new(began + STALL.start..began + STALL.end));
        let client = || {
            let client = ClientBuilder::new(reqwest::Client::new()).with_arc(policy.middleware().into());
            client.with_arc(Arc::clone(&server) as _).build()
        };
        let clients: Vec<_> = std::iter::repeat_with(client).take(policy.clients()).collect();
        let mut turns = clients.iter().cycle();
        let mut draws = fastrand::Rng::with_seed(SEED);
        let mut running = JoinSet::new();
        let mut tick = interval(Duration::from_millis(1));
        while began.elapsed() < END {
            tick.tick().await;
            // A call comes or does not, ten times in a millisecond.
            for _ in 0..10 {
                if draws.u32(..10_000) < rate
                    && let Some(client) = turns.next()
                {
                    let call = client.post("http://pay.example/charges").body("{}");
                    running.spawn(async move {
                        let at = Instant::now();
                        let succeeded = call.send().await.is_ok();
                        Call { at, took: at.elapsed(), succeeded }
                    });
                }
            }
        }
        let calls = running.join_all().await;
        let mut windows = vec![Window::default(); window(END) + 1];
        for call in &calls {
            windows[window(call.at - began)].add(call);
        }
        let mut arrivals = vec![0; window(END) + 100];
        for at in server.arrivals() {
            arrivals[window(at - began)] += 1;
        }
        Self {
            policy,
            rate,
            calls: calls.len(),
            sent: arrivals.iter().sum(),
            failed: calls.iter().filter(|call| !call.succeeded).count(),
            most_in_a_window: arrivals.into_iter().max().unwrap_or_default(),
            recovery: recovery(&windows),
        }
    }

    /// The most that came in a window, in proportion to the calls that come in one by themselves.
    pub(super) fn peak(&self) -> f64 {
        self.most_in_a_window as f64 * 10.0 / f64::from(self.rate)
    }
}

/// A row of the table.
impl Display for Course {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { policy, rate, calls, sent, failed, recovery, .. } = *self;
        let load = rate / 10;
        let name = policy.name();
        let share = |part: usize| part as f64 / calls as f64;
        let (sent, peak, failed) = (share(sent), self.peak(), 100.0 * share(failed));
        write!(f, "| {load} % | {name} | {sent:.2} | {peak:.2} | {failed:.0} % | ")?;
        match recovery {
            Some(recovery) => write!(f, "{:.1} s |", recovery.as_secs_f64()),
            None => f.write_str("none |"),
        }
    }
}

struct Call {
    at: Instant,
    took: Duration,
    succeeded: bool,
}

/// The calls that begin within 100 ms.
#[derive(Clone, Copy, Default)]
struct Window {
    calls: u32,
    succeeded: u32,
    took: Duration,
}

impl Window {
    fn add(&mut self, call: &Call) {
        self.calls += 1;
        self.succeeded += u32::from(call.succeeded);
        self.took += call.took;
    }

    fn all(windows: &[Self]) -> Self {
        windows.iter().fold(Self::default(), |all, one| Self {
            calls: all.calls + one.calls,
            succeeded: all.succeeded + one.succeeded,
            took: all.took + one.took,
        })
    }

    fn mean(&self) -> Duration {
        self.took / self.calls.max(1)
    }
}

/// From the end of the stall until the first second in which 99 of 100 calls succeed, and take no more than twice the
/// time that they took before the stall.
fn recovery(windows: &[Window]) -> Option<Duration> {
    let usual = Window::all(&windows[..window(STALL.start)]).mean();
    let after = &windows[window(STALL.end)..];
    let is_well = |second: &[Window]| {
        let all = Window::all(second);
        all.succeeded * 100 >= all.calls * 99 && all.mean() <= 2 * usual
    };
    Some(WINDOW * u32::try_from(after.windows(10).position(is_well)?).expect("few windows"))
}

fn window(since: Duration) -> usize {
    (since.as_millis() / WINDOW.as_millis()) as usize
}

pub(super) const WINDOW: Duration = Duration::from_millis(100);

const STALL: Range<Duration> = Duration::from_secs(5)..Duration::from_secs(10);

const END: Duration = Duration::from_secs(50);

const SEED: u64 = 7;
