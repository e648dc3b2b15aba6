//! Every store of this crate runs the conformance list, bare and erased.

mod memory;
