//! What may hold records, and whose tables are touched.

use std::error::Error;
use std::time::Duration;

use sqlx::SqlitePool;
use sqlx::sqlite::SqliteJournalMode;

use super::{Disk, answer, claimed, request, request_for};
use crate::SqliteStore;
use crate::store::{Begin, Claim, Commit, Store, StoreError, StoreErrorKind, TransactionalStore, Write};

fn reason(error: &StoreError) -> String {
    assert_eq!(error.kind(), StoreErrorKind::Misconfigured);
    error.source().unwrap().to_string()
}

/// Fails when the name of the database is not asked for.
#[tokio::test]
async fn a_database_in_memory_is_refused_and_the_reason_says_what_to_do() {
    for url in ["sqlite::memory:", "sqlite://x?mode=memory&cache=shared", "sqlite://"] {
        let error = SqliteStore::connect(url).await.unwrap_err();
        assert!(reason(&error).contains("give a file"), "{url}: {error:?}");
    }
    let pool = SqlitePool::connect("sqlite::memory:").await.unwrap();
    assert!(reason(&SqliteStore::new(pool.clone()).await.unwrap_err()).contains("give a file"));
}

/// Fails when the first opening does not take the write lock.
#[tokio::test]
async fn a_read_only_database_is_refused() {
    let disk = Disk::new();
    let store = disk.store().await;
    let pool = SqlitePool::connect_with(disk.options().read_only(true)).await.unwrap();
    assert!(reason(&SqliteStore::new(pool.clone()).await.unwrap_err()).contains("read-only"));
    drop(store);
}

/// Fails when `no such table` is passed on as any other error.
#[tokio::test]
async fn verbs_before_migrate_say_what_is_missing() {
    let disk = Disk::new();
    let store = SqliteStore::connect(&disk.url()).await.unwrap();
    let error = store.claim(&request()).await.unwrap_err();
    assert!(reason(&error).contains("SqliteStore::migrate"));
    let error = store.complete(&request().lease, &answer()).await.unwrap_err();
    assert!(reason(&error).contains("SqliteStore::migrate"));
    store.migrate().await.unwrap();
    let lease = claimed(&store).await;
    assert_eq!(store.complete(&lease, &answer()).await.unwrap(), Write::Done);
}

/// Fails when the version is read outside the write transaction that applies the scripts.
#[tokio::test(flavor = "multi_thread")]
async fn processes_may_migrate_at_once_and_again_beside_the_users_tables() {
    let disk = Disk::new();
    disk.sql("CREATE TABLE _sqlx_migrations (mine INTEGER); CREATE TABLE orders (id INTEGER)").await;
    let starts = (0..8).map(|_| {
        let url = disk.url();
        tokio::spawn(async move {
            let store = SqliteStore::connect(&url).await.unwrap();
            store.migrate().await.unwrap();
            store.migrate().await.unwrap();
        })
    });
    for start in starts.collect::<Vec<_>>() {
        start.await.unwrap();
    }
    assert_eq!(disk.number("SELECT COUNT(*) FROM idempotency_schema").await, 1);
    assert_eq!(disk.number("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table'").await, 4);
}

/// Fails when `applied > known` is not looked at.
#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let disk = Disk::new();
    let store = disk.store().await;
    disk.sql("INSERT INTO idempotency_schema (version) VALUES (99)").await;
    assert!(reason(&store.migrate().await.unwrap_err()).contains("99"));
}

/// Fails when an error of the script is passed on as any other.
#[tokio::test]
async fn a_table_of_the_users_that_is_in_the_way_is_named_and_left_alone() {
    let disk = Disk::new();
    disk.sql("CREATE TABLE idempotency_record (mine INTEGER)").await;
    let store = SqliteStore::connect(&disk.url()).await.unwrap();
    assert!(reason(&store.migrate().await.unwrap_err()).contains("idempotency_record already exists"));
    assert_eq!(disk.number("SELECT COUNT(*) FROM sqlite_schema WHERE type = 'table'").await, 1);
}

/// Fails when the store takes its connections from the pool.
#[tokio::test]
async fn a_pool_whose_only_connection_is_taken_does_not_stop_the_store() {
    let disk = Disk::new();
    let options = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1);
    let pool = options.connect_with(disk.options()).await.unwrap();
    let store = SqliteStore::new(pool.clone()).await.unwrap();
    let taken = pool.acquire().await.unwrap();
    store.migrate().await.unwrap();
    let lease = claimed(&store).await;
    assert_eq!(store.complete(&lease, &answer()).await.unwrap(), Write::Done);
    assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::Recorded(_)));
    drop(taken);
}

/// Fails when a row is replaced, or removed, without having been read (`decode`'s error ignored).
#[tokio::test]
async fn a_row_that_cannot_be_read_is_left_alone_by_every_verb() {
    for (damage, kind) in [
        ("UPDATE idempotency_record SET format = 2", StoreErrorKind::Newer),
        ("UPDATE idempotency_record SET state = 77", StoreErrorKind::Corrupt),
        ("UPDATE idempotency_record SET lease = x'00'", StoreErrorKind::Corrupt),
        ("UPDATE idempotency_record SET state = 2, status = 200, body = x'', headers = x'01'", StoreErrorKind::Corrupt),
        ("UPDATE idempotency_record SET attempt = -1", StoreErrorKind::Corrupt),
    ] {
        let disk = Disk::new();
        let store = disk.store().await;
        let lease = claimed(&store).await;
        disk.sql(damage).await;
        assert_eq!(store.claim(&request_for(lease.record)).await.unwrap_err().kind(), kind, "{damage}");
        assert_eq!(store.renew(&lease).await.unwrap_err().kind(), kind, "{damage}");
        assert_eq!(store.complete(&lease, &answer()).await.unwrap_err().kind(), kind, "{damage}");
        assert_eq!(store.forget(&lease).await.unwrap_err().kind(), kind, "{damage}");
        assert_eq!(store.look(&lease.record).await.unwrap_err().kind(), kind, "{damage}");
        assert_eq!(disk.number("SELECT COUNT(*) FROM idempotency_record").await, 1);
        // The store works on.
        claimed(&store).await;
    }
}

/// Fails when the store's later connections ask for the journal mode of the pool's options.
#[tokio::test]
async fn a_pool_that_asks_for_another_journal_mode_does_not_stop_the_store() {
    let disk = Disk::new();
    let pool = SqlitePool::connect_with(disk.options().journal_mode(SqliteJournalMode::Delete)).await.unwrap();
    let store = SqliteStore::new(pool).await.unwrap();
    store.migrate().await.unwrap();
    let lease = claimed(&store).await;
    let Begin::Begun(transaction) = store.begin(&lease).await.unwrap() else { panic!("fenced") };
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
    assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::Recorded(_)));
}

/// Fails when the setters take a duration as it is: no clock reaches so far.
#[tokio::test]
async fn no_bound_is_so_long_that_it_cannot_be_waited_for() {
    let disk = Disk::new();
    let store = disk.store().await.queue_timeout(Duration::MAX).max_transaction(Duration::MAX);
    let lease = claimed(&store).await;
    let Begin::Begun(transaction) = store.begin(&lease).await.unwrap() else { panic!("fenced") };
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
}
