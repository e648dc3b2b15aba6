//! Processes that are killed in mid-request, with their records in Redis: what the next process makes of it.
//!
//! The processes are those of the payments example. Where each is on its way is seen from its commands, of which the proxy
//! keeps one back, or the reply to one.

use idempotency_tests::proxy::{Fault, Held, Proxy, Request};
use idempotency_tests::server::Server;

use super::behind::{Behind, PLAIN_CLAIM, SETTLE};
use crate::paying::{lines, persist, persisting, start};

/// How far a request has come when its process is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Its claim is made, and the process does not know.
    Claimed,
    /// The handler is about to write the line.
    BeforeEffect,
    /// The line is in the ledger, and the process does not know.
    Effect,
    /// The answer is there, and is not recorded.
    BeforeRecord,
    /// It is recorded, and the process does not know.
    Recorded,
}

/// What stops a process at a point.
enum Stopped {
    Kept(Held),
    Lost(Fault),
}

impl Point {
    fn arm(self, proxy: &Proxy) -> Stopped {
        match self {
            Self::Claimed => Stopped::Lost(proxy.silence_reply(Request::With(PLAIN_CLAIM))),
            Self::BeforeEffect => Stopped::Kept(proxy.hold_request(Request::With(EFFECT))),
            Self::Effect => Stopped::Lost(proxy.silence_reply(Request::With(EFFECT))),
            Self::BeforeRecord => Stopped::Kept(proxy.hold_request(Request::With(&SETTLE.hash))),
            Self::Recorded => Stopped::Lost(proxy.silence_reply(Request::With(&SETTLE.hash))),
        }
    }
}

impl Stopped {
    async fn struck(&self) {
        match self {
            Self::Kept(held) => held.struck().await,
            Self::Lost(fault) => fault.struck().await,
        }
    }
}

/// A server of payments that is about to be killed, behind a proxy of its own.
struct Doomed {
    payments: Server,
    proxy: Proxy,
}

impl Doomed {
    async fn start(behind: &Behind) -> Self {
        let proxy = Proxy::start(behind.redis.address()).await;
        let payments = start(&format!("redis://{}", proxy.address())).await;
        Self { payments, proxy }
    }

    /// Sends the order, kills the process at a point of it, and sees that it has not answered.
    async fn dies_at(self, point: Point, case: &str) {
        let stopped = point.arm(&self.proxy);
        let cut = persisting(&self.payments, "k");
        stopped.struck().await;
        self.payments.kill().await;
        assert!(!cut.is_finished(), "{case}: a process that was killed has answered");
        cut.abort();
    }
}

/// S1. Fails when `claim.lua` never takes over a lease that has lapsed, and when `plain::met` takes a run for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_claim_and_record_the_retry_runs_once_the_lease_has_lapsed() {
    for point in [Point::Claimed, Point::BeforeEffect, Point::Effect, Point::BeforeRecord] {
        let (case, behind) = (format!("{point:?}"), Behind::durable().await);
        behind.learn().await;
        Doomed::start(&behind).await.dies_at(point, &case).await;
        behind.assert_all_expire(&case).await;

        let heir = start(&behind.redis.url()).await;
        let answer = persist(&heir, "k").await;
        assert_eq!((answer.status.as_u16(), answer.is_replay(), lines(&heir).await), (201, false, 1), "{case}");
        let replay = persist(&heir, "k").await;
        assert!(replay.is_replay() && replay.body == answer.body, "{case}: {replay:?}");
        assert_eq!(lines(&heir).await, 1, "{case}");
        behind.assert_all_expire(&case).await;
    }
}

/// S2. Fails when `end.lua` writes no response.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_record_and_answer_the_retry_replays() {
    let behind = Behind::durable().await;
    behind.learn().await;
    Doomed::start(&behind).await.dies_at(Point::Recorded, "recorded").await;
    let heir = start(&behind.redis.url()).await;
    let answer = persist(&heir, "k").await;
    assert!(answer.is_replay(), "{answer:?}");
    assert_eq!((answer.status.as_u16(), lines(&heir).await), (201, 1));
    behind.assert_all_expire("recorded").await;
}

/// S29. Fails when `claim.lua` counts no lapses, or holds at one more or less.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_kills_its_process_each_time_is_held_after_its_last_attempt() {
    let behind = Behind::durable().await;
    behind.learn().await;
    for attempt in 1..=MOST_ATTEMPTS {
        Doomed::start(&behind).await.dies_at(Point::BeforeEffect, &format!("attempt {attempt}")).await;
    }
    let heir = start(&behind.redis.url()).await;
    let answer = persist(&heir, "k").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (409, Some("outcome-unknown")));
    assert_eq!(lines(&heir).await, 0);
    assert_eq!(behind.records().await.into_values().collect::<Vec<_>>(), [None], "what is held is kept");
}

/// The command with which the ledger writes a line.
pub(super) const EFFECT: &str = "HSETNX";

/// The layer's default.
const MOST_ATTEMPTS: u32 = 5;
