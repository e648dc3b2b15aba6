//! Every store, for a property that each must have; and the embedded ones on a clock that the test moves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use idempotency_layer::{Clock, ClockHand, MemoryStore, PostgresStore, RedisStore, SharedStore, SqliteStore};
use tempfile::TempDir;
use tokio::time::sleep;

use crate::{postgres, redis};

/// A store under test, with what moves its clock.
#[derive(Debug)]
pub struct Subject<H = ClockHand> {
    /// For messages.
    pub name: &'static str,
    /// The store.
    pub store: SharedStore,
    /// Moves its clock.
    pub hand: H,
    _folder: Option<TempDir>,
}

/// How a store's time passes.
#[derive(Debug)]
pub enum Time {
    /// When the test moves it.
    Moved(ClockHand),
    /// As it does everywhere: the clock is the server's.
    Real,
}

impl Time {
    /// Is there once so much of it has passed.
    pub async fn pass(&self, by: Duration) {
        match self {
            Self::Moved(hand) => hand.advance(by),
            Self::Real => sleep(by).await,
        }
    }
}

/// One of each.
pub async fn all() -> [Subject<Time>; 4] {
    [memory().in_time(), sqlite().await.in_time(), redis().await, postgres().await]
}

/// One of each whose clock is the test's.
pub async fn embedded() -> [Subject; 2] {
    [memory(), sqlite().await]
}

impl Subject {
    fn in_time(self) -> Subject<Time> {
        Subject { name: self.name, store: self.store, hand: Time::Moved(self.hand), _folder: self._folder }
    }
}

/// What is a subject's own on servers that tests share.
static SUBJECTS: AtomicU64 = AtomicU64::new(0);

/// A schema of its own on the server that tests share.
async fn postgres() -> Subject<Time> {
    let store = PostgresStore::connect(&postgres::shared().await.url()).await.expect("a store");
    let store = store.schema(&format!("subject_{}", SUBJECTS.fetch_add(1, Ordering::SeqCst)));
    store.migrate().await.expect("a migrated store");
    Subject { name: "postgres", store: SharedStore::new(store), hand: Time::Real, _folder: None }
}

/// Keys of its own on the server that tests share.
async fn redis() -> Subject<Time> {
    let store = RedisStore::connect(&redis::shared().await.url()).await.expect("a store");
    let store = store.prefix(&format!("subject-{}:", SUBJECTS.fetch_add(1, Ordering::SeqCst)));
    Subject { name: "redis", store: SharedStore::new(store), hand: Time::Real, _folder: None }
}

fn memory() -> Subject {
    let (clock, hand) = Clock::manual();
    Subject { name: "memory", store: SharedStore::new(MemoryStore::with_clock(clock)), hand, _folder: None }
}

async fn sqlite() -> Subject {
    let (clock, hand) = Clock::manual();
    let folder = tempfile::tempdir().expect("a folder");
    let store = sqlite_in(&folder).await.clock(clock);
    Subject { name: "sqlite", store: SharedStore::new(store), hand, _folder: Some(folder) }
}

/// A migrated store in a folder of the test's.
pub async fn sqlite_in(folder: &TempDir) -> SqliteStore {
    let path = folder.path().join("records.db");
    let store = SqliteStore::connect(&format!("sqlite:{}", path.display())).await.expect("a store");
    store.migrate().await.expect("a migrated store");
    store
}
