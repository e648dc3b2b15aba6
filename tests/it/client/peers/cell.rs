//! A cell of the tables: how many attempts there were, how often was charged, what the caller has, and when.
//!
//! The time is told in words that do not depend on the machine:
//!
//! - *at once*: the client did not wait; *soon*: it waited, and no longer than its own back-off does;
//! - *kept*, *early*: the second attempt came when the server had asked for it, or before;
//! - *after*: a limit of time had to pass first; *in time*, *late*: whether the call ended with it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use idempotency_tests::untrusted::Untrusted;
use reqwest::header::HeaderValue;
use reqwest::{Body, Method, Request};
use tokio::time::{Instant, timeout};

use super::super::bodies::streamed;
use super::super::*;
use super::peer::{Caller, Limit, Peer};
use super::situation::{Clock, Counts, Situation, Trouble};

/// What one client made of one situation.
pub(super) struct Cell {
    attempts: usize,
    charges: usize,
    has: String,
    when: String,
}

/// A call that is about to be made.
pub(super) struct Call {
    peer: Peer,
    situation: Situation,
    server: Server,
    caller: Caller,
    request: Request,
    dials: Arc<AtomicUsize>,
}

/// Where it goes to.
enum Server {
    Provider(Provider),
    Untrusted(Untrusted),
}

impl Call {
    /// What takes time that is none of the call's.
    pub(super) async fn prepare(situation: Situation, peer: Peer) -> Self {
        let server = Server::start(&situation).await;
        let mut request = Request::new(Method::POST, server.url().parse().unwrap());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if situation.keyed && !peer.is_ours() {
            request.headers_mut().insert("idempotency-key", HeaderValue::from_static("order-4711"));
        }
        *request.body_mut() = Some(if situation.streams { streamed(CHARGE) } else { Body::from(CHARGE) });
        let limit = match situation.clock {
            Clock::Limit(limit) => Some(limit),
            _ => None,
        };
        let dials = Arc::new(AtomicUsize::new(0));
        let caller = peer.caller(situation.version, limit, &dials);
        Self { peer, situation, server, caller, request, dials }
    }

    /// Makes it.
    pub(super) async fn measure(self) -> Cell {
        if let (Server::Provider(provider), Trouble::Down) = (&self.server, &self.situation.trouble) {
            provider.down().await;
        }
        let began = Instant::now();
        let has = timeout(PATIENCE, answered(self.caller, self.request)).await.ok();
        let elapsed = began.elapsed();
        let (received, charges) = match &self.server {
            Server::Provider(provider) => (provider.received(), provider.ledger().len()),
            Server::Untrusted(_) => (Vec::new(), 0),
        };
        let attempts = match self.situation.counts {
            Counts::Requests => received.len(),
            Counts::Connections => self.dials.load(Ordering::SeqCst),
        };
        let gap = received.get(1).map(|second| second.arrived - received[0].arrived);
        let waits = self.peer.waits(attempts.saturating_sub(1));
        let when = match has {
            None => format!("not in {} s", PATIENCE.as_secs()),
            Some(_) => when(self.situation.clock, waits, gap, elapsed),
        };
        Cell { attempts, charges, has: has.unwrap_or_else(|| "nothing".to_owned()), when }
    }
}

/// What the caller has in the end.
async fn answered(caller: Caller, request: Request) -> String {
    let Ok(response) = caller.send(request).await else { return "error".to_owned() };
    let status = response.status().as_u16();
    match response.bytes().await {
        Ok(_) => status.to_string(),
        Err(_) => format!("{status}, body cut"),
    }
}

impl Server {
    async fn start(situation: &Situation) -> Self {
        if let Trouble::Untrusted = situation.trouble {
            return Self::Untrusted(Untrusted::start().await);
        }
        let provider = Provider::start(situation.version).await;
        match situation.trouble.clone() {
            Trouble::Strikes(faults) => provider.script(faults),
            Trouble::StrikesThenRejects(fault) => {
                provider.rejects_duplicates();
                provider.script([fault]);
            }
            Trouble::StrikesAfter(work, faults) => {
                provider.work_for(work);
                provider.script(faults);
            }
            Trouble::Persists(fault) => provider.always(fault),
            // It goes down when the call is made: its port is not its own from then on.
            Trouble::Down => {}
            Trouble::Untrusted => unreachable!("it has a server of its own"),
        }
        Self::Provider(provider)
    }

    fn url(&self) -> String {
        match self {
            Self::Provider(provider) => provider.charges(),
            Self::Untrusted(server) => server.url(),
        }
    }
}

/// In a word. `waits` is how long the client waits of its own accord, at most, and `gap` is between the first two attempts.
fn when(clock: Clock, waits: Duration, gap: Option<Duration>, elapsed: Duration) -> String {
    let limit = match (clock, gap) {
        (Clock::Asked(asked), Some(gap)) => return if gap >= asked { "kept" } else { "early" }.to_owned(),
        (Clock::Limit(Limit::Call(limit)), _) => {
            return if elapsed < limit + SLACK { "in time" } else { "late" }.to_owned();
        }
        (Clock::Limit(Limit::Attempt(limit)), _) => limit,
        (Clock::Unlimited, _) => DEFAULT_LIMIT,
        (Clock::Waits | Clock::Asked(_), _) => Duration::ZERO,
    };
    match elapsed.checked_sub(limit) {
        Some(rest) if rest < waits + SLACK => match (limit.is_zero(), waits.is_zero()) {
            (true, true) => "at once".to_owned(),
            (true, false) => "soon".to_owned(),
            (false, _) => format!("after {} s", limit.as_secs()),
        },
        None if elapsed < waits + SLACK => "at once".to_owned(),
        // No word is right, and so the table is wrong.
        _ => format!("after {elapsed:.1?}"),
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} · {} · {} · {}", self.attempts, self.charges, self.has, self.when)
    }
}

/// What a busy machine may take for itself.
const SLACK: Duration = Duration::from_millis(1500);

/// How long an attempt may take in this crate where nobody says so.
const DEFAULT_LIMIT: Duration = Duration::from_secs(10);

/// How long a caller waits who has set no limit.
const PATIENCE: Duration = Duration::from_secs(12);
