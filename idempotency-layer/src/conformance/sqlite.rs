//! The SQLite store on trial, as one process uses it and as several on one file do.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::OnceCell;

use super::Harness;
use super::key::random;
use super::transactional::{Ending, TransactionalHarness};
use crate::store::{RecordId, SqliteTransaction, StoreErrorKind};
use crate::{Clock, ClockHand, SqliteStore};

/// [`SqliteStore`]s in one folder, on a clock that stands still between [passes](Harness::pass).
#[derive(Clone, Debug)]
pub struct SqliteHarness {
    folder: PathBuf,
    clock: Clock,
    hand: ClockHand,
    handles: Handles,
}

#[derive(Clone, Debug)]
enum Handles {
    /// Each has connections of its own and knows nothing of the others' leases.
    Apart,
    /// All of them are clones of this one.
    Clones(Arc<OnceCell<SqliteStore>>),
}

impl SqliteHarness {
    /// A harness whose handles are as those of several processes on one file.
    ///
    /// The files are in this folder, which exists and is the test's own.
    #[must_use]
    pub fn processes(folder: impl Into<PathBuf>) -> Self {
        Self::with(Handles::Apart, folder.into())
    }

    /// A harness whose handles are clones, as those of one process are.
    ///
    /// The files are in this folder, which exists and is the test's own.
    #[must_use]
    pub fn clones(folder: impl Into<PathBuf>) -> Self {
        Self::with(Handles::Clones(Arc::default()), folder.into())
    }

    fn with(handles: Handles, folder: PathBuf) -> Self {
        let (clock, hand) = Clock::manual();
        Self { folder, clock, hand, handles }
    }

    async fn open_file(&self, name: &str) -> SqliteStore {
        let url = format!("sqlite:{}", self.folder.join(name).display());
        let store =
            SqliteStore::connect(&url).await.unwrap_or_else(|error| panic!("{url} cannot be opened: {error:?}"));
        store.migrate().await.unwrap_or_else(|error| panic!("{url} cannot be migrated: {error:?}"));
        store.clock(self.clock.clone())
    }
}

impl Harness for SqliteHarness {
    type Store = SqliteStore;

    async fn open(&self) -> SqliteStore {
        match &self.handles {
            Handles::Apart => self.open_file(RECORDS).await,
            Handles::Clones(store) => store.get_or_init(|| self.open_file(RECORDS)).await.clone(),
        }
    }

    async fn open_elsewhere(&self) -> SqliteStore {
        self.open_file(&format!("{}.db", RecordId::from_bytes(random()))).await
    }

    async fn pass(&self, by: Duration) {
        self.hand.advance(by);
    }

    async fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
        let damaged = self.open().await.damage(record, kind).await;
        damaged.unwrap_or_else(|error| panic!("a record cannot be damaged: {error:?}"));
    }

    fn lease(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn retention(&self) -> Duration {
        Duration::from_secs(4)
    }

    fn pushes(&self) -> bool {
        matches!(self.handles, Handles::Clones(_))
    }
}

impl TransactionalHarness for SqliteHarness {
    async fn write_effect(&self, transaction: &mut SqliteTransaction, name: &str) -> bool {
        match transaction.connection().await {
            Ok(mut connection) => write_effect(&mut connection, name).await.is_ok(),
            Err(_) => false,
        }
    }

    async fn effects(&self, name: &str) -> u64 {
        let counted = count_effects(&self.folder.join(RECORDS), name).await;
        counted.unwrap_or_else(|error| panic!("effects cannot be counted: {error:?}"))
    }

    async fn end_behind(&self, transaction: &mut SqliteTransaction, how: Ending, then: &str) -> bool {
        let statements: &[&'static str] = match how {
            Ending::Commit => &["COMMIT"],
            Ending::Rollback => &["ROLLBACK"],
            Ending::Failure => &["INSERT OR ROLLBACK INTO effect SELECT * FROM effect"],
            Ending::CommitThenBegin => &["COMMIT", "BEGIN IMMEDIATE"],
            Ending::RollbackThenBegin => &["ROLLBACK", "BEGIN IMMEDIATE"],
        };
        let Ok(mut connection) = transaction.connection().await else { return false };
        for statement in statements {
            // The store may have seen to it that it fails.
            let _refused = sqlx::query(*statement).execute(&mut *connection).await;
        }
        let _refused = write_effect(&mut connection, then).await;
        true
    }
}

/// The table comes with the first effect: a schema that is not committed is in nobody's way.
async fn write_effect(connection: &mut SqliteConnection, name: &str) -> sqlx::Result<()> {
    sqlx::query("CREATE TABLE IF NOT EXISTS effect (id INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT")
        .execute(&mut *connection)
        .await?;
    sqlx::query("INSERT INTO effect (name) VALUES (?)").bind(name).execute(connection).await?;
    Ok(())
}

async fn count_effects(file: &Path, name: &str) -> sqlx::Result<u64> {
    let mut connection = SqliteConnectOptions::new().filename(file).connect().await?;
    let table: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM sqlite_schema WHERE name = 'effect'")
        .fetch_one(&mut connection)
        .await?;
    let effects: i64 = match table {
        0 => 0,
        _ => {
            sqlx::query_scalar("SELECT COUNT(*) FROM effect WHERE name = ?")
                .bind(name)
                .fetch_one(&mut connection)
                .await?
        }
    };
    connection.close().await?;
    Ok(u64::try_from(effects).unwrap_or(0))
}

const RECORDS: &str = "records.db";
