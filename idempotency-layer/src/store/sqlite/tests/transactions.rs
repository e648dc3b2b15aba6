//! No record without its effect, no effect without its record, whatever the handler's SQL does.

use std::time::Duration;

use sqlx::{Connection, Executor};

use super::{Disk, answer, claimed, cut, request, request_for};
use crate::store::{
    Begin, Claim, Commit, Lease, Look, SqliteStore, SqliteTransaction, Store, TransactionalStore, Write,
};

const EFFECTS: &str = "SELECT COUNT(*) FROM effect";
pub(super) const INSERT: &str = "INSERT INTO effect (id) VALUES (1)";

/// A file with a table for effects, a store on it, and a transaction for a fresh claim.
pub(super) async fn begun() -> (Disk, SqliteStore, Lease, SqliteTransaction) {
    let disk = Disk::new();
    let store = disk.store().await;
    disk.sql("CREATE TABLE effect (id INTEGER PRIMARY KEY)").await;
    let lease = claimed(&store).await;
    let transaction = open(&store, &lease).await;
    (disk, store, lease, transaction)
}

pub(super) async fn open(store: &SqliteStore, lease: &Lease) -> SqliteTransaction {
    let Begin::Begun(transaction) = store.begin(lease).await.unwrap() else { panic!("fenced") };
    transaction
}

pub(super) async fn run(transaction: &mut SqliteTransaction, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut *transaction.connection().await?).await?;
    Ok(())
}

/// Neither effect nor record, and the next transaction of the same lease works.
pub(super) async fn nothing_happened(disk: &Disk, store: &SqliteStore, lease: &Lease) {
    assert_eq!(disk.number(EFFECTS).await, 0);
    assert!(matches!(store.look(&lease.record).await.unwrap(), Look::Running { .. }));
    let mut transaction = open(store, lease).await;
    run(&mut transaction, INSERT).await.unwrap();
    assert_eq!(store.complete_in(transaction, lease, &answer()).await.unwrap(), Commit::Committed);
    assert_eq!(disk.number(EFFECTS).await, 1);
}

/// Fails when `complete_in` does not arm the commit.
#[tokio::test]
async fn effect_and_record_appear_together() {
    let (disk, store, lease, mut transaction) = begun().await;
    run(&mut transaction, INSERT).await.unwrap();
    assert_eq!(disk.number(EFFECTS).await, 0);
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
    assert_eq!(disk.number(EFFECTS).await, 1);
    assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::Recorded(_)));
    assert_eq!(store.confirm(&lease).await.unwrap(), Commit::Committed);
    assert_eq!(disk.number("SELECT COUNT(*) FROM idempotency_record WHERE mark IS NOT NULL").await, 0);
}

/// Fails when the commit hook answers `true`, or (the last two) when the mark is not looked at.
#[tokio::test]
async fn a_handler_that_ends_its_transaction_leaves_neither_effect_nor_record() {
    for sql in [
        "INSERT INTO effect (id) VALUES (1); COMMIT",
        "COMMIT",
        "INSERT INTO effect (id) VALUES (1); ROLLBACK",
        "ROLLBACK; INSERT INTO effect (id) VALUES (1)",
        "ROLLBACK; BEGIN IMMEDIATE; INSERT INTO effect (id) VALUES (1); COMMIT",
        "ROLLBACK; SAVEPOINT one; INSERT INTO effect (id) VALUES (1); RELEASE one",
        "ROLLBACK; BEGIN; INSERT INTO effect (id) VALUES (1)",
        "ROLLBACK; BEGIN IMMEDIATE; INSERT INTO effect (id) VALUES (1)",
    ] {
        let (disk, store, lease, mut transaction) = begun().await;
        let _refused = run(&mut transaction, sql).await;
        let error = transaction.connection().await.unwrap_err();
        assert!(error.to_string().contains("rolled back"), "{sql}: {error}");
        assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Lost, "{sql}");
        nothing_happened(&disk, &store, &lease).await;
    }
}

/// Fails when neither the rollback hook nor the mark is looked at.
#[tokio::test]
async fn a_rollback_by_sqlite_itself_leaves_neither_effect_nor_record() {
    for sql in [
        "INSERT INTO effect (id) VALUES (1); INSERT OR ROLLBACK INTO effect (id) VALUES (1)",
        "CREATE TEMP TRIGGER refuse AFTER INSERT ON effect BEGIN SELECT RAISE(ROLLBACK, 'no'); END; \
         INSERT INTO effect (id) VALUES (1)",
    ] {
        let (disk, store, lease, mut transaction) = begun().await;
        assert!(run(&mut transaction, sql).await.is_err());
        assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Lost, "{sql}");
        nothing_happened(&disk, &store, &lease).await;
    }
}

/// Fails when the hook's flag alone is believed: here it is put back, and only the mark tells.
#[tokio::test]
async fn a_transaction_without_the_mark_is_not_the_one_that_was_begun() {
    let (disk, store, lease, mut transaction) = begun().await;
    run(&mut transaction, "ROLLBACK; BEGIN IMMEDIATE; INSERT INTO effect (id) VALUES (1)").await.unwrap();
    transaction.open.fate.rolled_back.store(false, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Lost);
    nothing_happened(&disk, &store, &lease).await;
}

/// Fails when the transaction is begun with plain SQL: the driver's `begin` is then an error.
#[tokio::test]
async fn nested_transactions_are_savepoints_and_open_ones_are_committed() {
    let (disk, store, lease, mut transaction) = begun().await;
    {
        let mut connection = transaction.connection().await.unwrap();
        let mut kept = connection.begin().await.unwrap();
        kept.execute("INSERT INTO effect (id) VALUES (1)").await.unwrap();
        kept.commit().await.unwrap();
        let mut undone = connection.begin().await.unwrap();
        undone.execute("INSERT INTO effect (id) VALUES (2)").await.unwrap();
        drop(undone);
        connection.execute("SAVEPOINT left_open; INSERT INTO effect (id) VALUES (3)").await.unwrap();
    }
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
    assert_eq!(disk.number("SELECT SUM(id) FROM effect").await, 4);
}

/// Fails when a transaction's connection is used again.
#[tokio::test]
async fn settings_of_one_handler_do_not_meet_the_next() {
    let (_disk, store, lease, mut transaction) = begun().await;
    run(&mut transaction, "PRAGMA query_only = ON; CREATE TEMP TABLE leftover (id INTEGER)").await.unwrap_err();
    store.rollback(transaction).await;
    let mut transaction = open(&store, &lease).await;
    run(&mut transaction, "CREATE TEMP TABLE leftover (id INTEGER); INSERT INTO effect (id) VALUES (1)").await.unwrap();
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
}

/// Fails when a constraint that fails at COMMIT is an `Err`.
#[tokio::test]
async fn a_deferred_foreign_key_that_does_not_hold_aborts() {
    let (disk, store, lease, transaction) = begun().await;
    store.rollback(transaction).await;
    disk.sql("CREATE TABLE child (id INTEGER REFERENCES effect DEFERRABLE INITIALLY DEFERRED)").await;
    let mut transaction = open(&store, &lease).await;
    run(&mut transaction, "INSERT INTO child VALUES (9)").await.unwrap();
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Aborted);
    assert_eq!(disk.number("SELECT COUNT(*) FROM child").await, 0);
    nothing_happened(&disk, &store, &lease).await;
}

/// Fails when a transaction is given to an id that does not hold the record.
#[tokio::test]
async fn only_the_holder_gets_a_transaction() {
    let disk = Disk::new();
    let store = disk.store().await;
    let lease = claimed(&store).await;
    assert!(matches!(store.begin(&request_for(lease.record).lease).await.unwrap(), Begin::Fenced));
    assert!(matches!(store.begin(&request().lease).await.unwrap(), Begin::Fenced));
    assert_eq!(store.release(&lease).await.unwrap(), Write::Done);
    assert!(matches!(store.begin(&lease).await.unwrap(), Begin::Fenced));
}

/// Fails when `lost_or_fenced` does not read the record.
#[tokio::test]
async fn a_late_holder_whose_transaction_was_ended_is_fenced() {
    let (disk, store, lease, mut transaction) = begun().await;
    run(&mut transaction, "ROLLBACK").await.unwrap();
    let (clock, hand) = crate::Clock::manual();
    hand.advance(Duration::from_secs(3600));
    let other = disk.store().await.clock(clock);
    assert!(matches!(other.claim(&request_for(lease.record)).await.unwrap(), Claim::Acquired(_)));
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Fenced);
    assert_eq!(store.confirm(&lease).await.unwrap(), Commit::Fenced);
}

/// Fails when `confirm` reads without the write lock, or answers `Committed` for a record that still runs.
#[tokio::test(flavor = "multi_thread")]
async fn the_answer_to_a_cut_commit_equals_what_is_in_the_database() {
    let (mut committed, mut aborted, mut unanswered) = (0, 0, 0);
    let disk = Disk::new();
    let store = disk.store().await;
    disk.sql("CREATE TABLE effect (id INTEGER PRIMARY KEY)").await;
    // How many polls a statement takes is the driver's affair, so each number of them is tried more than once.
    for polls in (0..8).cycle().take(160) {
        let lease = claimed(&store).await;
        let mut transaction = open(&store, &lease).await;
        run(&mut transaction, "INSERT INTO effect DEFAULT VALUES").await.unwrap();
        let answer = answer();
        let answered = cut(store.complete_in(transaction, &lease, &answer), polls).await;
        let confirmed = store.confirm(&lease).await.unwrap();
        let effects = disk.number(EFFECTS).await;
        let look = store.look(&lease.record).await.unwrap();
        match confirmed {
            Commit::Committed => {
                committed += 1;
                assert!(matches!(look, Look::Recorded(_)), "after {polls} polls");
            }
            Commit::Aborted => {
                aborted += 1;
                assert!(matches!(look, Look::Running { .. }), "after {polls} polls");
            }
            other => panic!("{other:?} after {polls} polls"),
        }
        assert_eq!(effects, committed, "after {polls} polls");
        unanswered += i64::from(answered.is_none() && confirmed == Commit::Committed);
    }
    assert!(unanswered > 0 && aborted > 0, "{unanswered} committed without an answer, {aborted} aborted");
}
