//! Effects and records in one SQLite transaction: together or not at all, whatever ends it.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use idempotency_layer::store::SqliteTransaction;
use idempotency_layer::{IdempotencyLayer, Operation, SqliteStore, StoreError, StoreErrorKind, TransactionGuard};
use idempotency_tests::bank;
use idempotency_tests::gate::Gate;
use idempotency_tests::hooked::{Hook, Hooked, Hooking, Verb};
use sqlx::SqlitePool;
use tempfile::TempDir;

use crate::request::{Answer, keyed, send};

/// A table of effects beside the records, and what its handlers do.
struct Ledger {
    _folder: TempDir,
    pool: SqlitePool,
    store: SqliteStore,
}

impl Ledger {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let pool = bank::open(folder.path().join("ledger.db").to_str().unwrap()).await;
        sqlx::raw_sql(TABLES).execute(&pool).await.unwrap();
        let store = SqliteStore::new(pool.clone()).await.unwrap();
        store.migrate().await.unwrap();
        Self { _folder: folder, pool, store }
    }

    async fn effects(&self) -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM effect").fetch_one(&self.pool).await.unwrap()
    }
}

const TABLES: &str = "
CREATE TABLE effect (id INTEGER PRIMARY KEY, what TEXT NOT NULL);
CREATE TABLE single (id INTEGER PRIMARY KEY);
INSERT INTO single VALUES (1);
CREATE TABLE refusing (id INTEGER PRIMARY KEY);
CREATE TRIGGER refuse BEFORE INSERT ON refusing BEGIN SELECT RAISE(ROLLBACK, 'refused'); END;";

fn layer<S: idempotency_layer::Store>(store: S) -> IdempotencyLayer<S> {
    IdempotencyLayer::new(store).anonymous(true)
}

async fn write(transaction: &mut SqliteTransaction, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut *transaction.connection().await?).await.map(drop)
}

const EFFECT: &str = "INSERT INTO effect (what) VALUES ('paid')";

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

/// S32. Fails when `write_in` does not look for the mark, or not for the record it has written; when the commit hook lets
/// every COMMIT pass; and when `Run::finish` does not ask whether the transaction is back.
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
        let router = Router::new()
            .route("/pay", post(misdeed))
            .layer(layer(ledger.store.clone()))
            .with_state((ledger.store.clone(), misdeed_));
        let lost = send(&router, keyed("/pay", "k"), "").await;
        assert_eq!((lost.status.as_u16(), lost.problem()), (500, Some("transaction-lost")), "{misdeed_:?}");
        assert_eq!(ledger.effects().await, 0, "{misdeed_:?}: an effect without its record");

        let again = until_settled(&router, "k").await;
        assert!(again.status == 201 && !again.is_replay(), "{misdeed_:?}: a record without its effect: {again:?}");
        assert_eq!(ledger.effects().await, 1, "{misdeed_:?}");
        assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{misdeed_:?}");
        assert_eq!(ledger.effects().await, 1, "{misdeed_:?}");
    }
}

/// Sends until the answer is not 503 and not in flight.
async fn until_settled(router: &Router, key: &'static str) -> Answer {
    loop {
        let answer = send(router, keyed("/pay", key), "").await;
        if answer.status != 503 && answer.problem() != Some("in-flight") {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Loses a commit, before or after it happens, and then as many confirmations.
struct LostCommit {
    happens: bool,
    confirmations_lost: bool,
    done: std::sync::atomic::AtomicBool,
}

impl LostCommit {
    fn lose(&self, lose: bool, once: bool) -> Hooking {
        use std::sync::atomic::Ordering;
        let lose = lose && (!once || !self.done.swap(true, Ordering::SeqCst));
        Box::pin(async move { if lose { Err(StoreError::new(StoreErrorKind::Unavailable)) } else { Ok(()) } })
    }
}

impl Hook for LostCommit {
    fn before(&self, verb: Verb) -> Hooking {
        match verb {
            Verb::CompleteIn => self.lose(!self.happens, true),
            Verb::Confirm => self.lose(self.confirmations_lost, false),
            _ => self.lose(false, false),
        }
    }

    fn after(&self, verb: Verb) -> Hooking {
        self.lose(verb == Verb::CompleteIn && self.happens, true)
    }
}

/// S28. Fails when `run` answers with the handler's response after an error of `complete_in`, and when `confirm` takes a
/// running record for a committed one, or the other way round.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_reply_to_commit_is_lost_the_answer_equals_the_database() {
    for (happens, confirmations_lost, expected) in [
        (true, false, (201, None)),
        (false, false, (503, Some("transaction-failed"))),
        (true, true, (503, Some("store-unavailable"))),
        (false, true, (503, Some("store-unavailable"))),
    ] {
        let case = format!("commit happens: {happens}, confirmations lost: {confirmations_lost}");
        let ledger = Ledger::new().await;
        let hook = Arc::new(LostCommit { happens, confirmations_lost, done: false.into() });
        let store = Hooked::new(ledger.store.clone(), hook);
        let router = Router::new()
            .route("/pay", post(pay))
            .layer(layer(store.clone()).record_deadline(Duration::from_millis(300)).lease(Duration::from_millis(1500)))
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

#[derive(Clone)]
struct Slow {
    store: SqliteStore,
    pool: SqlitePool,
    takes: Duration,
    gate: Gate,
}

/// Holds one of the user's connections, opens its transaction, and takes its time in it.
async fn slow(State(slow): State<Slow>, operation: Operation) -> Response {
    let _own = slow.pool.acquire().await.unwrap();
    let mut transaction = match operation.transaction(&slow.store).await {
        Ok(transaction) => transaction,
        Err(error) => return error.into_response(),
    };
    write(&mut transaction, EFFECT).await.unwrap();
    slow.gate.pass().await;
    tokio::time::sleep(slow.takes).await;
    StatusCode::CREATED.into_response()
}

fn slow_router(ledger: &Ledger, lease: Duration, takes: Duration) -> (Router, Gate) {
    let (store, pool, gate) = (ledger.store.clone(), ledger.pool.clone(), Gate::open());
    let slow_one = Slow { store: store.clone(), pool, takes, gate: gate.clone() };
    (Router::new().route("/pay", post(slow)).layer(layer(store).lease(lease)).with_state(slow_one), gate)
}

/// S27. Fails when the store sends renewals of the open transaction's lease to the writer, where they wait for the very
/// transaction.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_longer_than_its_lease_commits() {
    let ledger = Ledger::new().await;
    let (router, gate) = slow_router(&ledger, Duration::from_millis(600), Duration::from_millis(2000));
    let run = tokio::spawn({
        let router = router.clone();
        async move { send(&router, keyed("/pay", "k"), "").await }
    });
    gate.entered().await;
    let mut in_flight = 0;
    let answer = loop {
        let duplicate = send(&router, keyed("/pay", "k"), "").await;
        match duplicate.problem() {
            Some("in-flight") => in_flight += 1,
            None => break duplicate,
            Some(other) => panic!("{other}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(answer.is_replay());
    assert_eq!(answer.status, 201);
    assert!(in_flight > 10, "the duplicates came while it ran: {in_flight}");
    assert_eq!(run.await.unwrap().status, 201);
    assert_eq!(ledger.effects().await, 1);
}

/// S27. Lease 1.5 s, run 1.2 s, four handlers that hold all four connections of the user's pool, other keys arriving
/// meanwhile. Fails when renewals wait behind queued transactions (`Lane::Renewal` joins `others`), and when the lease
/// is counted from before the queue (`since = sent`).
#[tokio::test(flavor = "multi_thread")]
async fn runs_that_queue_for_the_writer_commit_or_are_refused_before_they_ran() {
    let ledger = Ledger::new().await;
    let (router, _) = slow_router(&ledger, Duration::from_millis(1500), Duration::from_millis(1200));
    let keys = ["a", "b", "c", "d", "e"];
    let clients: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let router = router.clone();
            tokio::spawn(async move {
                loop {
                    let answer = send(&router, keyed("/pay", key), "").await;
                    match (answer.status.as_u16(), answer.problem()) {
                        (201, None) => return,
                        (503, Some("transaction-failed" | "store-unavailable")) | (409, Some("in-flight")) => {}
                        other => panic!("{key}: {other:?}"),
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    for client in clients {
        tokio::time::timeout(Duration::from_secs(60), client).await.expect("a deadlock").unwrap();
    }
    assert_eq!(ledger.effects().await, 5);
}
