//! One run for each `Idempotency-Key`, and the same answer to every retry.

mod clock;
pub mod store;

#[cfg(feature = "conformance")]
pub mod conformance;

pub use self::clock::{Clock, ClockHand};
pub use self::store::{MemoryStore, SharedStore, SharedTransactionalStore, Store, TransactionalStore};

#[cfg(feature = "sqlite")]
pub use self::store::{SqliteStore, SqliteTransaction};
