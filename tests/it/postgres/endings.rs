//! A handler's transaction that is ended by other hands than the store's: by the handler's SQL, by who keeps it, by the
//! database. Neither effect nor record is left, and the store works on.

use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::future::join_all;
use http::StatusCode;
use idempotency_layer::store::postgres::Isolation;
use idempotency_layer::{Operation, PostgresStore, PostgresTransaction, SharedStore, TransactionGuard};
use idempotency_tests::gate::Gate;
use tokio::sync::oneshot;

use super::behind::{Behind, EFFECT, LEVELS, patient, paying, write};
use super::outcomes::OPEN;
use crate::request::{Answer, again_until, keyed, layer, send, send_until, sending};

/// How a handler mistreats its transaction at its first attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Misdeed {
    /// Statements in the transaction, after its effect. Whatever the database says to them, the handler takes no notice.
    Sql(&'static [&'static str]),
    /// The transaction is in a task that lives on.
    KeptByTask,
    Forgotten,
    /// A task is using its connection, and goes on to, and commits.
    KeptConnection,
}

const MISDEEDS: [Misdeed; 18] = [
    Misdeed::Sql(&["COMMIT"]),
    Misdeed::Sql(&["COMMIT", EFFECT]),
    Misdeed::Sql(&["COMMIT; BEGIN", EFFECT]),
    Misdeed::Sql(&["COMMIT", "BEGIN", EFFECT, "COMMIT"]),
    Misdeed::Sql(&["END"]),
    Misdeed::Sql(&["COMMIT AND CHAIN", EFFECT]),
    Misdeed::Sql(&["PREPARE TRANSACTION 'mine'"]),
    Misdeed::Sql(&["ROLLBACK"]),
    Misdeed::Sql(&["ROLLBACK", EFFECT]),
    Misdeed::Sql(&["ROLLBACK; BEGIN", EFFECT]),
    Misdeed::Sql(&["ROLLBACK", "BEGIN", EFFECT, "COMMIT"]),
    Misdeed::Sql(&["ROLLBACK AND CHAIN", EFFECT]),
    Misdeed::Sql(&["SELECT 1 / 0", EFFECT]),
    Misdeed::Sql(&["SET CONSTRAINTS ALL IMMEDIATE"]),
    Misdeed::Sql(&[TERMINATE, EFFECT]),
    Misdeed::KeptByTask,
    Misdeed::Forgotten,
    Misdeed::KeptConnection,
];

impl Misdeed {
    /// What the client is told. A connection that has ended is nobody's fault, as far as the store can tell.
    fn answer(self) -> (u16, Option<&'static str>) {
        match self {
            Self::Sql([TERMINATE, ..]) => (503, Some("transaction-failed")),
            _ => (500, Some("transaction-lost")),
        }
    }
}

#[derive(Clone)]
struct Mistreating {
    store: PostgresStore,
    misdeed: Misdeed,
    /// Where who keeps a connection waits, until its run has been answered.
    kept: Gate,
}

async fn mistreat(State(state): State<Mistreating>, operation: Operation) -> Response {
    let mut transaction = operation.transaction(&state.store).await.unwrap();
    write(&mut transaction, EFFECT).await.unwrap();
    if operation.attempt() > 1 {
        return StatusCode::CREATED.into_response();
    }
    match state.misdeed {
        Misdeed::Sql(statements) => {
            let mut connection = transaction.connection().await.unwrap();
            for sql in statements {
                drop(sqlx::raw_sql(*sql).execute(&mut *connection).await);
            }
        }
        Misdeed::KeptByTask => keep(transaction),
        Misdeed::Forgotten => std::mem::forget(transaction),
        Misdeed::KeptConnection => {
            let (has, is_had) = oneshot::channel();
            tokio::spawn(async move {
                let mut transaction = transaction;
                let mut connection = transaction.connection().await.unwrap();
                has.send(()).unwrap();
                state.kept.pass().await;
                drop(sqlx::raw_sql(EFFECT).execute(&mut *connection).await);
                drop(sqlx::raw_sql("COMMIT").execute(&mut *connection).await);
            });
            is_had.await.unwrap();
        }
    }
    StatusCode::CREATED.into_response()
}

fn keep(transaction: TransactionGuard<PostgresTransaction>) {
    tokio::spawn(async move {
        let _kept = transaction;
        std::future::pending::<()>().await;
    });
}

/// Sends until the answer is not 503 and not in flight.
async fn until_settled(router: &Router) -> Answer {
    send_until(router, "k", |answer| answer.status != 503 && answer.problem() != Some("in-flight")).await
}

/// S32. Fails when the mark that `begin` leaves is one with which a COMMIT succeeds (`lock` is NULL); when the sessions of
/// handlers may write outside of what was begun for them; when `abandon` does nothing; and when `Run::commit` does not free
/// the key of a transaction that was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_ended_behind_our_back_leaves_neither_effect_nor_record_and_the_store_works_on() {
    join_all(LEVELS.map(|level| async move {
        let behind = Behind::share().await;
        for misdeed in MISDEEDS {
            leaves_nothing(&behind, level, misdeed).await;
        }
    }))
    .await;
}

async fn leaves_nothing(behind: &Behind, level: Isolation, misdeed: Misdeed) {
    let case = format!("{level:?}, {misdeed:?}");
    behind.execute("TRUNCATE effect, idempotency_record").await;
    // Where a connection is kept, the client waits for so long.
    let store = behind.store().await.isolation(level).timeout(Duration::from_secs(2));
    let kept = Gate::closed();
    let router = Router::new().route("/pay", post(mistreat)).layer(layer(&SharedStore::new(store.clone())));
    let router = router.with_state(Mistreating { store: store.clone(), misdeed, kept: kept.clone() });
    let begun = Instant::now();
    let lost = send(&router, keyed("/pay", "k"), "").await;
    assert_eq!((lost.status.as_u16(), lost.problem()), misdeed.answer(), "{case}");
    kept.release(1);
    assert_eq!(behind.effects().await, 0, "{case}: an effect without its record");

    let again = until_settled(&router).await;
    assert!(again.status == 201 && !again.is_replay(), "{case}: a record without its effect: {again:?}");
    // Nobody has waited for a lease, or for a transaction that is idle.
    assert!(begun.elapsed() < Duration::from_secs(20), "{case}: {:?}", begun.elapsed());
    assert_eq!(behind.effects().await, 1, "{case}");
    assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{case}");
    works_on(&store.clone().timeout(Duration::from_secs(20)), &case).await;
    // What was kept has been let go of by now, and has changed nothing.
    again_until(async || behind.count(OPEN).await, |open| *open == 0).await;
    assert_eq!(behind.effects().await, 13, "{case}");
}

/// As many transactions as the store has connections for them, one after the other and all at once.
async fn works_on(store: &PostgresStore, case: &str) {
    let own = store.clone();
    let handler = async move |operation: Operation| {
        let mut transaction = operation.transaction(&own).await.unwrap();
        write(&mut transaction, EFFECT).await.unwrap();
        StatusCode::CREATED
    };
    let router = Router::new().route("/pay", post(handler)).layer(patient(store));
    let keys = (0..12).map(|at| format!("other-{at}"));
    let answers = join_all(keys.map(|key| {
        let router = router.clone();
        async move { send(&router, keyed("/pay", &key), "").await }
    }));
    for answer in answers.await {
        assert_eq!((answer.status.as_u16(), answer.is_replay()), (201, false), "{case}: {answer:?}");
    }
}

/// S32 by the database: an operator ends the connection, or the server one that does nothing. Fails when `begin` sets no
/// `idle_in_transaction_session_timeout`, and when `complete_in` takes a connection that has ended for the handler's fault.
#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_the_server_ends_leaves_neither_effect_nor_record_and_its_key_is_free() {
    for by_operator in [true, false] {
        join_all(LEVELS.map(|level| async move {
            let (case, behind, gate) = (format!("{level:?}, {by_operator}"), Behind::share().await, Gate::closed());
            let idle = Duration::from_millis(if by_operator { 60_000 } else { 50 });
            let store = behind.store().await.isolation(level).max_idle_transaction(idle);
            let router = paying(&store, layer(&SharedStore::new(store.clone())), &gate);
            let run = sending(&router, keyed("/pay", "k"), "");
            gate.entered().await;
            if by_operator {
                behind.disconnect().await;
            }
            again_until(async || behind.count(OPEN).await, |open| *open == 0).await;
            gate.release(10);
            let answer = run.await.unwrap();
            assert_eq!((answer.status.as_u16(), answer.problem()), (503, Some("transaction-failed")), "{case}");
            assert_eq!(behind.effects().await, 0, "{case}");
            let again = until_settled(&router).await;
            // On a slow machine the next one may have been idle for too long as well.
            assert!(again.status == 201 && again.body != "attempt 1", "{case}: {again:?}");
            assert_eq!(behind.effects().await, 1, "{case}");
            assert!(send(&router, keyed("/pay", "k"), "").await.is_replay(), "{case}");
        }))
        .await;
    }
}

const TERMINATE: &str = "SELECT pg_terminate_backend(pg_backend_pid())";
