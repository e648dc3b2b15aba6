//! A caller orders from a shop, which has a provider charge: whatever fails on the way and whoever is killed, the order
//! is in the books once, each of its charges is made once, and the caller gets its answer.
//!
//! ```text
//! caller ──(network)──► shop, a process of its own ──(faults)──► provider
//!                        (kills)
//! ```
//!
//! The tests here have their records and books in SQLite; `redis::chain` and `postgres::chain` do the same with
//! servers.

mod caller;
pub(crate) mod callers;
pub(crate) mod faults;
pub(crate) mod kills;
pub(crate) mod network;
mod premises;

use tempfile::TempDir;

/// Whoever is at a gate, or comes to it later.
const EVERYONE: usize = 1000;

/// A file in a folder of the test's.
fn sqlite(folder: &TempDir, name: &str) -> String {
    format!("sqlite:{}", folder.path().join(name).display())
}
