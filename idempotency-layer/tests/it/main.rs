//! Every store of this crate runs the conformance list, bare and erased, and the list is shown to catch broken stores.

#![expect(clippy::unwrap_used, reason = "in a test an `unwrap` is an assertion")]

mod caught;
mod memory;
mod model;
mod mutants;
#[cfg(feature = "sqlite")]
mod sqlite;
mod transactional;
