//! Every store of this crate runs the conformance list, bare and erased, and the list is shown to catch broken stores.

mod memory;
mod model;
mod mutants;
