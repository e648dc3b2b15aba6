//! Effects and records in one SQLite transaction: together or not at all, whatever ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use idempotency_layer::store::SqliteTransaction;
use idempotency_layer::{
    Operation, SqliteStore, TransactionError, TransactionErrorKind, TransactionGuard, UnknownOutcome,
};
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb, lost_if};

use crate::ledger::{EFFECT, Ledger, layer, write};
use crate::request::{Answer, keyed, send, send_until};

/// How a handler mistreats its transaction at its first attempt.
#[derive(Clone, Copy, Debug)]
enum Misdeed {
    OwnRollbackOfSqlite,
    Trigger,
    Commit,
    Rollback,
    RollbackAndGoOn,
    AnotherTransaction,
    KeptByTask,
    Forgotten,
    KeptConnection,
    TriggerOnRecords,
    TableBeforeRecords,
}

async fn misdeed(State((store, misdeed)): State<(SqliteStore, Misdeed)>, operation: Operation) -> Response {
    let mut transaction = operation.transaction(&store).await.unwrap();
    write(&mut transaction, EFFECT).await.unwrap();
    if operation.attempt() > 1 {
        return StatusCode::CREATED.into_response();
    }
    // Whatever SQLite says to these, the handler takes no notice and answers 201.
    let sql: &[&str] = match misdeed {
        Misdeed::OwnRollbackOfSqlite => &["INSERT OR ROLLBACK INTO single VALUES (1)", EFFECT],
        Misdeed::Trigger => &["INSERT INTO refusing VALUES (1)", EFFECT],
        Misdeed::Commit => &["COMMIT"],
        Misdeed::Rollback => &["ROLLBACK"],
        Misdeed::RollbackAndGoOn => &["ROLLBACK", EFFECT],
        Misdeed::AnotherTransaction => &["ROLLBACK", "BEGIN", EFFECT, "COMMIT"],
        Misdeed::TriggerOnRecords => &["CREATE TEMP TRIGGER erase AFTER INSERT ON main.idempotency_record \
             BEGIN DELETE FROM idempotency_record WHERE id = new.id; END"],
        Misdeed::TableBeforeRecords => {
            &["CREATE TEMP TABLE idempotency_record AS SELECT * FROM main.idempotency_record"]
        }
        Misdeed::KeptByTask | Misdeed::Forgotten | Misdeed::KeptConnection => &[],
    };
    // On one guard, so that the store cannot refuse the next statement between them.
    if let Ok(mut connection) = transaction.connection().await {
        for sql in sql {
            drop(sqlx::raw_sql(*sql).execute(&mut *connection).await);
        }
    }
    match misdeed {
        Misdeed::KeptByTask => keep(transaction),
        Misdeed::Forgotten => std::mem::forget(transaction),
        Misdeed::KeptConnection => {
            tokio::spawn(async move {
                let mut transaction = transaction;
                let mut connection = transaction.connection().await.unwrap();
                tokio::time::sleep(Duration::from_millis(300)).await;
                drop(sqlx::raw_sql(EFFECT).execute(&mut *connection).await);
                drop(sqlx::raw_sql("COMMIT").execute(&mut *connection).await);
            });
            // Until the task has the connection.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        _ => drop(transaction),
    }
    StatusCode::CREATED.into_response()
}

fn keep(transaction: TransactionGuard<SqliteTransaction>) {
    tokio::spawn(async move {
        let _kept = transaction;
        std::future::pending::<()>().await;
    });
}

/// S32. Fails when the commit hook lets every COMMIT pass; when `write_in` does not look for the record it has written;
/// when `Run::transaction` gives one that is not back to nobody who rolls it back; when `abandon` does nothing; and when
/// `Run::commit` does not free the key of a transaction that was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ended_behind_our_back_leaves_neither_effect_nor_record_and_the_store_works_on() {
    for misdeed_ in [
        Misdeed::OwnRollbackOfSqlite,
        Misdeed::Trigger,
        Misdeed::Commit,
        Misdeed::Rollback,
        Misdeed::RollbackAndGoOn,
        Misdeed::AnotherTransaction,
        Misdeed::KeptByTask,
        Misdeed::Forgotten,
        Misdeed::KeptConnection,
        Misdeed::TriggerOnRecords,
        Misdeed::TableBeforeRecords,
    ] {
        let ledger = Ledger::new().await;
        let begun = Instant::now();
        let router = Router::new()
            .route("/pay", post(misdeed))
            .layer(layer(ledger.store.clone()))
            .with_state((ledger.store.clone(), misdeed_));
        let lost = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((lost.status.as_u16(), lost.problem()), (500, Some("transaction-lost")), "{misdeed_:?}");
        assert_eq!(ledger.effects().await, 0, "{misdeed_:?}: an effect without its record");

        let again = until_settled(&router, "k").await;
        assert!(again.status == 201 && !again.is_replay(), "{misdeed_:?}: a record without its effect: {again:?}");
        // An open transaction is rolled back after 5 s, and a lease lapses after 30 s; nobody has waited for either.
        assert!(begun.elapsed() < Duration::from_secs(4), "{misdeed_:?}: {:?}", begun.elapsed());
        assert_eq!(ledger.effects().await, 1, "{misdeed_:?}");
        assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{misdeed_:?}");
        assert_eq!(ledger.effects().await, 1, "{misdeed_:?}");
    }
}

/// Sends until the answer is not 503 and not in flight.
async fn until_settled(router: &Router, key: &str) -> Answer {
    send_until(router, key, |answer| answer.status != 503 && answer.problem() != Some("in-flight")).await
}

/// Loses a commit, before or after it happens, and then as many confirmations.
struct LostCommit {
    happens: bool,
    confirmations_lost: bool,
    done: AtomicBool,
}

impl LostCommit {
    fn is_first(&self) -> bool {
        !self.done.swap(true, Ordering::SeqCst)
    }
}

impl Hook for LostCommit {
    fn before(&self, verb: Verb) -> Hooking {
        lost_if(match verb {
            Verb::CompleteIn => !self.happens && self.is_first(),
            Verb::Confirm => self.confirmations_lost,
            _ => false,
        })
    }

    fn after(&self, verb: Verb) -> Hooking {
        lost_if(verb == Verb::CompleteIn && self.happens && self.is_first())
    }
}

/// S28. Fails when `Run::commit` takes an error of `complete_in` for a commit or for an abort, or an answer that could not
/// be got for a commit; and when `confirm` takes a running record for a committed one, or the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_reply_to_commit_is_lost_the_answer_equals_the_database() {
    for (happens, confirmations_lost, expected) in [
        (true, false, (201, None)),
        (false, false, (503, Some("transaction-failed"))),
        (true, true, (503, Some("store-unavailable"))),
        (false, true, (503, Some("store-unavailable"))),
    ] {
        let case = format!("commit happens: {happens}, confirmations lost: {confirmations_lost}");
        // Waited for in full where no confirmation comes; never reached by one that does, however slow the machine.
        let deadline = Duration::from_secs(if confirmations_lost { 1 } else { 20 });
        let ledger = Ledger::new().await;
        let hook = Arc::new(LostCommit { happens, confirmations_lost, done: false.into() });
        let store = Hooked::new(ledger.store.clone(), hook);
        let router = Router::new()
            .route("/pay", post(pay))
            .layer(layer(store.clone()).record_deadline(deadline).lease(Duration::from_millis(1500)))
            .with_state(store);
        let answer = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((answer.status.as_u16(), answer.problem()), expected, "{case}");
        assert_eq!(ledger.effects().await, i64::from(happens), "{case}");

        // Whatever the first one was told, the retry gets the one effect.
        let retry = until_settled(&router, "k").await;
        assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, happens), "{case}");
        assert_eq!(ledger.effects().await, 1, "{case}");
    }
}

async fn pay(State(store): State<Hooked<SqliteStore>>, operation: Operation) -> Response {
    let mut transaction = operation.transaction(&store).await.unwrap();
    write(&mut transaction, EFFECT).await.unwrap();
    StatusCode::CREATED.into_response()
}

/// Takes its transaction of another store first, and twice of the right one.
async fn grasping(State((store, other)): State<(SqliteStore, SqliteStore)>, operation: Operation) -> Response {
    let kind = |refused: Result<_, TransactionError>| refused.map(drop).map_err(|error| error.kind());
    assert_eq!(kind(operation.transaction(&other).await), Err(TransactionErrorKind::OtherStore));
    let mut transaction = operation.transaction(&store).await.unwrap();
    write(&mut transaction, EFFECT).await.unwrap();
    assert_eq!(kind(operation.transaction(&store).await), Err(TransactionErrorKind::SecondTransaction));
    drop(transaction);
    assert_eq!(kind(operation.transaction(&store).await), Err(TransactionErrorKind::SecondTransaction));
    StatusCode::CREATED.into_response()
}

/// An effect in another file has no record beside it, and of two transactions one would be lost. Fails when
/// `Operation::transaction` does not compare the stores, and when `Slot::open` gives a slot that is open away again.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_one_transaction_and_of_its_own_store() {
    let (ledger, other) = (Ledger::new().await, Ledger::new().await);
    let router = Router::new()
        .route("/pay", post(grasping))
        .layer(layer(ledger.store.clone()))
        .with_state((ledger.store.clone(), other.store.clone()));
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.status, 201);
    assert_eq!((ledger.effects().await, other.effects().await), (1, 0));
    assert!(send(&router, keyed("/pay", "k"), "").await.is_replay());
}

/// A commit that never happens, and a store that takes no release until it is mended.
struct AwayAfterCommit(AtomicBool);

impl Hook for AwayAfterCommit {
    fn before(&self, verb: Verb) -> Hooking {
        lost_if(matches!(verb, Verb::CompleteIn | Verb::Release) && !self.0.load(Ordering::SeqCst))
    }
}

/// Under Hold, where a lease that lapses is held. Fails when `Run::commit` gives the release up at the deadline, or lets
/// the client wait for it beyond.
#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_an_aborted_transaction_is_freed_however_late() {
    let ledger = Ledger::new().await;
    let hook = Arc::new(AwayAfterCommit(AtomicBool::new(false)));
    let store = Hooked::new(ledger.store.clone(), Arc::clone(&hook) as Arc<dyn Hook>);
    let held = layer(store.clone()).unknown_outcome(UnknownOutcome::Hold).record_deadline(Duration::from_secs(1));
    let router = Router::new().route("/pay", post(pay)).layer(held).with_state(store);
    let answer = send(&router, keyed("/pay", "k"), "").await;
    assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("transaction-failed")));
    assert_eq!(send(&router, keyed("/pay", "k"), "").await.problem(), Some("in-flight"));
    hook.0.store(true, Ordering::SeqCst);
    let retry = until_settled(&router, "k").await;
    assert_eq!((retry.status.as_u16(), retry.is_replay()), (201, false));
    assert_eq!(ledger.effects().await, 1);
}
