//! Processes that are killed in mid-request, with their records and their ledger in PostgreSQL: what the next process makes
//! of it, also when the server was killed and restarted in between.
//!
//! The processes are those of the payments example. Where each is on its way is seen from its statements, of which the
//! proxy keeps one back, or the reply to one. The process is a client of nobody once it is dead: its connections close.

use futures_util::future::join_all;
use idempotency_tests::proxy::{Fault, Held, Proxy, Request};
use idempotency_tests::server::Server;

use super::behind::{BEGIN, Behind, CLAIM, COMMIT, COMPLETE_IN};
use crate::paying::{lines, persist, persisting, start};

/// How far a request has come when its process is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Point {
    /// Its claim is about to be made.
    BeforeClaim,
    /// Its claim is made, and the process does not know.
    Claimed,
    /// The handler is about to get its transaction.
    Handler,
    /// The handler is about to write the line.
    BeforeEffect,
    /// The line is in the transaction, and the process does not know.
    Effect,
    /// The answer is there, and is not recorded.
    BeforeRecord,
    /// The record is in the transaction, and the process does not know.
    Record,
    /// All is there, and nothing is committed.
    BeforeCommit,
    /// It is committed, and the process does not know.
    Committed,
}

/// What stops a process at a point.
enum Stopped {
    Kept(Held),
    Lost(Fault),
}

impl Point {
    fn arm(self, proxy: &Proxy) -> Stopped {
        let keep = |request| Stopped::Kept(proxy.hold_request(request));
        let lose = |request| Stopped::Lost(proxy.silence_reply(request));
        match self {
            Self::BeforeClaim => keep(Request::Runs(CLAIM)),
            Self::Claimed => lose(Request::Runs(CLAIM)),
            Self::Handler => keep(Request::Runs(BEGIN)),
            Self::BeforeEffect => keep(Request::Runs(LINE)),
            Self::Effect => lose(Request::Runs(LINE)),
            Self::BeforeRecord => keep(Request::Runs(COMPLETE_IN)),
            Self::Record => lose(Request::Runs(COMPLETE_IN)),
            Self::BeforeCommit => keep(Request::With(COMMIT)),
            Self::Committed => lose(Request::With(COMMIT)),
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
    /// Starts one whose connections are open.
    async fn start(behind: &Behind) -> Self {
        let proxy = Proxy::start(behind.postgres.address()).await;
        let payments = start(&behind.through(&proxy)).await;
        persist(&payments, "before").await;
        Self { payments, proxy }
    }

    /// Sends the order, kills the process at a point of it, and sees that it has not answered.
    async fn dies_at(self, point: Point, key: &'static str, case: &str) {
        let stopped = point.arm(&self.proxy);
        let cut = persisting(&self.payments, key);
        stopped.struck().await;
        self.payments.kill().await;
        assert!(!cut.is_finished(), "{case}: a process that was killed has answered");
        cut.abort();
        self.proxy.cut().await;
    }
}

/// S1. Fails when `machine::claim` never takes over a lease that has lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_claim_and_record_the_retry_runs_once_the_lease_has_lapsed() {
    let points = [
        (Point::BeforeClaim, "before-claim"),
        (Point::Claimed, "claimed"),
        (Point::Handler, "handler"),
        (Point::BeforeEffect, "before-effect"),
        (Point::Effect, "effect"),
        (Point::BeforeRecord, "before-record"),
        (Point::Record, "record"),
        (Point::BeforeCommit, "before-commit"),
    ];
    join_all([false, true].map(|restarts| async move {
        let behind = Behind::start().await;
        // One of each doomed process's first order.
        let mut written = 1;
        for (point, key) in points {
            let case = format!("{point:?}, restarted: {restarts}");
            Doomed::start(&behind).await.dies_at(point, key, &case).await;
            if restarts {
                behind.postgres.restart().await;
            }
            behind.assert_all_expire(&case).await;

            written += 1;
            let heir = start(&behind.direct()).await;
            let answer = persist(&heir, key).await;
            assert_eq!(
                (answer.status.as_u16(), answer.is_replay(), lines(&heir).await),
                (201, false, written),
                "{case}"
            );
            let replay = persist(&heir, key).await;
            assert!(replay.is_replay() && replay.body == answer.body, "{case}: {replay:?}");
            assert_eq!(lines(&heir).await, written, "{case}");
            behind.assert_all_expire(&case).await;
        }
    }))
    .await;
}

/// S2. Fails when `COMPLETE_IN` writes no response.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_commit_and_answer_the_retry_replays() {
    join_all([false, true].map(|restarts| async move {
        let (case, behind) = (format!("restarted: {restarts}"), Behind::start().await);
        Doomed::start(&behind).await.dies_at(Point::Committed, "k", &case).await;
        if restarts {
            behind.postgres.restart().await;
        }
        let heir = start(&behind.direct()).await;
        let answer = persist(&heir, "k").await;
        assert!(answer.is_replay(), "{case}: {answer:?}");
        assert_eq!((answer.status.as_u16(), lines(&heir).await), (201, 2), "{case}");
        behind.assert_all_expire(&case).await;
    }))
    .await;
}

/// S29. Fails when `machine::claim` counts no lapses, or holds at one more or less.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_kills_its_process_each_time_is_held_after_its_last_attempt() {
    let behind = Behind::share().await;
    for attempt in 1..=MOST_ATTEMPTS {
        Doomed::start(&behind).await.dies_at(Point::BeforeEffect, "k", &format!("attempt {attempt}")).await;
        behind.assert_all_expire("running").await;
    }
    let heir = start(&behind.direct()).await;
    let answer = persist(&heir, "k").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (409, Some("outcome-unknown")));
    assert_eq!(lines(&heir).await, 1);
    assert_eq!(
        behind.count("idempotency_record WHERE state = 5 AND sweep_from IS NULL").await,
        1,
        "what is held is kept"
    );
}

/// The statement with which the ledger writes a line.
pub(super) const LINE: &str = "INSERT INTO payment";

/// The layer's default.
const MOST_ATTEMPTS: u32 = 5;
