//! The embedded stores, each with a clock that the test moves.

use idempotency_layer::{Clock, ClockHand, MemoryStore, SharedStore, SqliteStore};
use tempfile::TempDir;

/// A store under test.
#[derive(Debug)]
pub struct Subject {
    /// For messages.
    pub name: &'static str,
    /// The store.
    pub store: SharedStore,
    /// Moves its clock.
    pub hand: ClockHand,
    _folder: Option<TempDir>,
}

/// One of each.
pub async fn embedded() -> [Subject; 2] {
    [memory(), sqlite().await]
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
