//! The SQLite store on trial, as one process uses it and as several on one file do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OnceCell;

use super::Harness;
use super::key::random;
use crate::store::{RecordId, StoreErrorKind};
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

const RECORDS: &str = "records.db";
