//! Postgres is killed, shut down, paused, cut off, silent, locked or read only at each point of a request's way, and comes
//! back: one run, one answer.
//!
//! To the process it is away in one of these ways, and at each point that is so until after the client has its answer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use idempotency_layer::SharedStore;
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use idempotency_tests::proxy::Request;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::behind::{Behind, CLAIM, DEADLINE, SETTLE, impatient};
use crate::request::{Answer, again_until, gated, keyed, layer, send, send_unrun, send_until, sending};

/// How a server is away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Fault {
    /// It is gone, and comes back with what was committed.
    Killed,
    /// Its operator has shut it down.
    Stopped,
    /// It stands still, with its connections open.
    Paused,
    /// Connections to it are closed and refused.
    Cut,
    /// Connections to it are open, and carry nothing; what was sent meanwhile arrives afterwards.
    Hung,
    /// Somebody else has the records' table locked: each statement waits for it, also after its client has given up.
    Locked,
    /// It takes no writes, as a standby.
    ReadOnly,
}

impl Fault {
    pub(super) const ALL: [Self; 7] =
        [Self::Killed, Self::Stopped, Self::Paused, Self::Cut, Self::Hung, Self::Locked, Self::ReadOnly];

    pub(super) async fn strike(self, behind: &Behind) {
        match self {
            Self::Killed => behind.postgres.kill(),
            Self::Stopped => behind.postgres.stop().await,
            Self::Paused => behind.postgres.pause(),
            Self::Cut => behind.proxy.cut().await,
            Self::Hung => drop(behind.proxy.hang()),
            Self::Locked => lock(behind).await,
            Self::ReadOnly => {
                behind.postgres.execute("ALTER SYSTEM SET default_transaction_read_only = on").await;
                reload(behind, "on").await;
            }
        }
    }

    pub(super) async fn mend(self, behind: &Behind) {
        match self {
            Self::Killed | Self::Stopped => behind.postgres.restart().await,
            Self::Paused => behind.postgres.resume(),
            Self::Cut | Self::Hung => behind.proxy.mend().await,
            Self::Locked => unlock(behind).await,
            Self::ReadOnly => {
                behind.postgres.execute("ALTER SYSTEM RESET default_transaction_read_only").await;
                reload(behind, "off").await;
            }
        }
    }

    /// For how long a client is kept out at worst by what it has sent itself: for nothing where what was sent is lost, and
    /// for a lease that nobody holds where it may arrive after everything else.
    fn lease(self) -> Duration {
        if let Self::Paused | Self::Hung | Self::Locked = self { SHORT } else { NEVER }
    }
}

/// Locks the records' table until [`unlock`].
async fn lock(behind: &Behind) {
    let mut connection = behind.witness().await;
    sqlx::raw_sql("BEGIN; LOCK TABLE idempotency_record").execute(&mut connection).await.unwrap();
    // Its process is ended by whoever unlocks.
    std::mem::forget(connection);
}

async fn unlock(behind: &Behind) {
    let ended = behind
        .count(
            "(SELECT pg_terminate_backend(pid, 20000) AS ended FROM pg_stat_activity \
             WHERE query LIKE '%LOCK TABLE%' AND datname = current_database() AND state = 'idle in transaction') t WHERE ended",
        )
        .await;
    assert_eq!(ended, 1);
}

/// Has the server read its settings, which is so for a connection that begins afterwards once this is back.
async fn reload(behind: &Behind, read_only: &str) {
    behind.postgres.execute("SELECT pg_reload_conf()").await;
    while behind.postgres.fetch::<String>("SHOW default_transaction_read_only").await != read_only {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Those that are open learn of it when it suits them.
    behind.disconnect().await;
}

/// Tries every fault, each on a server of its own, all at once.
async fn each_fault<F: Future<Output = ()>>(test: impl Fn(Fault) -> F) {
    join_all(Fault::ALL.map(test)).await;
}

/// What the client is told in time.
pub(super) async fn promptly(answer: impl Future<Output = Answer>, case: &str) -> Answer {
    timeout(BOUND, answer).await.unwrap_or_else(|_| panic!("{case}: the client waits for too long"))
}

#[track_caller]
pub(super) fn assert_unavailable(answer: &Answer, case: &str) {
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("store-unavailable")), "{case}");
}

/// What a client does that was told to come again.
pub(super) async fn persist(router: &axum::Router, key: &str) -> Answer {
    send_until(router, key, |answer| {
        !matches!(answer.problem(), Some("in-flight" | "store-unavailable" | "transaction-failed"))
    })
    .await
}

/// S9 before the claim. Fails when `of_statement` takes an outage for a record that cannot be read.
#[tokio::test(flavor = "multi_thread")]
async fn away_before_the_claim_it_is_503_in_bounded_time_and_one_run_once_it_is_back() {
    each_fault(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::open());
        let router = gated(impatient(&behind.store().await).lease(fault.lease()), gate.clone());
        fault.strike(&behind).await;
        assert_unavailable(&promptly(send(&router, keyed("/pay", "k"), ""), &case).await, &case);
        assert_eq!(gate.entries(), 0, "{case}");

        fault.mend(&behind).await;
        let answer = persist(&router, "k").await;
        assert_eq!((answer.status.as_u16(), answer.is_replay(), gate.entries()), (201, false, 1), "{case}");
        assert!(persist(&router, "k").await.is_replay(), "{case}");
        behind.assert_all_expire(&case).await;
    })
    .await;
}

/// S8 and S9: the claim is made, and nobody hears of it. Fails when `PostgresStore::claim` tells the claim's own id that it
/// is in flight.
#[tokio::test(flavor = "multi_thread")]
async fn away_once_the_claim_is_made_it_is_503_in_bounded_time_and_one_run_once_it_is_back() {
    each_fault(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::open());
        let router = gated(impatient(&behind.store().await).lease(fault.lease()), gate.clone());
        let lost = behind.proxy.silence_reply(Request::Runs(CLAIM));
        let refused = sending(&router, keyed("/pay", "k"), "");
        lost.struck().await;
        fault.strike(&behind).await;
        assert_unavailable(&promptly(async { refused.await.unwrap() }, &case).await, &case);
        assert_eq!(gate.entries(), 0, "{case}");

        fault.mend(&behind).await;
        let answer = persist(&router, "k").await;
        assert_eq!((answer.status.as_u16(), answer.is_replay(), gate.entries()), (201, false, 1), "{case}");
        assert!(persist(&router, "k").await.is_replay(), "{case}");
        behind.assert_all_expire(&case).await;
    })
    .await;
}

/// Tells when a renewal has been answered, or given up.
struct Renewed(Arc<Notify>);

impl Hook for Renewed {
    fn after(&self, verb: Verb) -> Hooking {
        if verb == Verb::Renew {
            self.0.notify_one();
        }
        Box::pin(async { Ok(()) })
    }
}

/// S9 while the handler runs, for longer than a renewal takes and shorter than the lease. Fails when `beat` ends at a
/// renewal that fails, and when `RENEW` leaves the lease as it was.
#[tokio::test(flavor = "multi_thread")]
async fn away_while_the_handler_runs_its_lease_is_renewed_once_it_is_back_and_nobody_else_runs() {
    each_fault(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::closed());
        let renewed = Arc::new(Notify::new());
        let store = Hooked::new(behind.store().await.timeout(GIVES_UP), Arc::new(Renewed(renewed.clone())));
        let layer = layer(&SharedStore::new(store)).record_deadline(DEADLINE).lease(LONG);
        let router = gated(layer, gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        fault.strike(&behind).await;
        let refused = promptly(send_unrun(&router, keyed("/pay", "k"), "", &gate), &case).await;
        assert_unavailable(&refused, &case);
        renewed.notified().await;
        fault.mend(&behind).await;

        // Also once the lease that it began with has passed.
        let begun_with = tokio::time::sleep(LONG);
        let heir = behind.heir(&gate).await;
        for again in [&router, &heir] {
            let refused = send_until(again, "k", |answer| answer.problem() != Some("store-unavailable")).await;
            assert_eq!(refused.problem(), Some("in-flight"), "{case}");
        }
        begun_with.await;
        let refused = send_unrun(&heir, keyed("/pay", "k"), "", &gate).await;
        assert_eq!(refused.problem(), Some("in-flight"), "{case}");
        gate.release(1);
        assert_eq!(run.await.unwrap().body, "entry 1, attempt 1", "{case}");
        assert!(persist(&heir, "k").await.is_replay(), "{case}");
        assert_eq!(gate.entries(), 1, "{case}");
        behind.assert_all_expire(&case).await;
    })
    .await;
}

/// S9 at the record. Fails when `settle` ends at an error that is not about the record.
#[tokio::test(flavor = "multi_thread")]
async fn away_at_the_record_the_client_is_answered_in_bounded_time_and_the_record_follows() {
    each_fault(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::closed());
        let router = gated(impatient(&behind.store().await), gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        fault.strike(&behind).await;
        gate.release(2);
        let answer = promptly(async { run.await.unwrap() }, &case).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, &b"entry 1, attempt 1"[..]), "{case}");
        assert_unavailable(&promptly(send(&router, keyed("/pay", "k"), ""), &case).await, &case);
        if let Fault::Cut | Fault::Hung = fault {
            // The key is not free for those who can reach the server.
            let heir = behind.heir(&gate).await;
            assert_eq!(send(&heir, keyed("/pay", "k"), "").await.problem(), Some("in-flight"), "{case}");
        }

        fault.mend(&behind).await;
        let replay = persist(&router, "k").await;
        assert!(replay.is_replay() && replay.body == answer.body, "{case}: {replay:?}");
        assert_eq!(gate.entries(), 1, "{case}");
        behind.assert_all_expire(&case).await;
    })
    .await;
}

/// S8 and S28: the record is made, and nobody hears of it. Fails when `Run::answer_to` takes a write without an answer for
/// one that is fenced.
#[tokio::test(flavor = "multi_thread")]
async fn away_once_the_record_is_made_the_client_gets_what_is_recorded() {
    each_fault(|fault| async move {
        let (case, behind, gate) = (format!("{fault:?}"), Behind::start().await, Gate::closed());
        let router = gated(impatient(&behind.store().await), gate.clone());
        let run = sending(&router, keyed("/pay", "k"), "");
        gate.entered().await;
        let lost = behind.proxy.silence_reply(Request::Runs(SETTLE));
        gate.release(2);
        lost.struck().await;
        fault.strike(&behind).await;
        let answer = promptly(async { run.await.unwrap() }, &case).await;
        assert_eq!((answer.status.as_u16(), &answer.body[..]), (201, &b"entry 1, attempt 1"[..]), "{case}");

        fault.mend(&behind).await;
        let replay = persist(&behind.heir(&gate).await, "k").await;
        assert!(replay.is_replay() && replay.body == answer.body, "{case}: {replay:?}");
        // It has let go of it, and not lost it.
        assert!(persist(&router, "k").await.is_replay(), "{case}");
        assert_eq!(gate.entries(), 1, "{case}");
        behind.assert_all_expire(&case).await;
    })
    .await;
}

/// S9, where a network keeps connections open and carries nothing on one any more, and everyone here waits for less than
/// an answer may take. Fails when `take` gives a connection that owes an answer, whatever since.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_silent_is_not_lent_again_and_again() {
    let (behind, gate) = (Behind::start().await, Gate::open());
    let router = gated(impatient(&behind.store().await).lease(SHORT), gate.clone());
    let lost = behind.proxy.silence_reply(Request::Runs(CLAIM));
    assert_unavailable(&promptly(send(&router, keyed("/pay", "k"), ""), "silent").await, "silent");
    lost.struck().await;
    let next = timeout(BOUND, persist(&router, "other")).await.expect("a connection that says nothing is lent again");
    assert_eq!(next.status, 201);
    assert_eq!(persist(&router, "k").await.status, 201);
}

/// S9, where somebody has the records locked for long. A server does not see that the client of a statement that waits has
/// gone, and so many would be waiting after a while that it takes no more. Fails when sessions have no `lock_timeout`.
#[tokio::test(flavor = "multi_thread")]
async fn what_waits_for_a_lock_and_for_nobody_ends_although_the_lock_stays() {
    let (behind, gate) = (Behind::share().await, Gate::open());
    lock(&behind).await;
    {
        let router = gated(impatient(&behind.store().await).lease(SHORT), gate.clone());
        assert_unavailable(&promptly(send(&router, keyed("/pay", "k"), ""), "locked").await, "locked");
        assert!(behind.waiting().await > 0);
    }
    again_until(async || behind.waiting().await, |waiting| *waiting == 0).await;
    unlock(&behind).await;
    assert_eq!(gate.entries(), 0);
}

/// S9, where a connection is never more than begun. Fails when `lend` has no time for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_silent_while_it_is_opened_is_given_up() {
    let (behind, gate) = (Behind::start().await, Gate::open());
    let store = behind.store().await.timeout(GIVES_UP);
    let router = gated(layer(&SharedStore::new(store)).record_deadline(LONG), gate.clone());
    let silent = behind.proxy.silence_reply(Request::With("user\0postgres"));
    behind.disconnect().await;
    assert_unavailable(&promptly(send(&router, keyed("/pay", "k"), ""), "opening").await, "opening");
    silent.struck().await;
    assert_eq!(persist(&router, "k").await.body, "entry 1, attempt 1");
}

const SHORT: Duration = Duration::from_secs(2);

/// Nothing here waits for it.
const NEVER: Duration = Duration::from_secs(30);

/// A renewal falls into the outage, and gives up while there is time left.
const LONG: Duration = Duration::from_secs(9);

/// How long a store waits for its server.
const GIVES_UP: Duration = Duration::from_secs(2);

/// Many times what a client is to wait for.
const BOUND: Duration = Duration::from_secs(6);
