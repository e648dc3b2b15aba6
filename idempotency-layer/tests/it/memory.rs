//! The memory store keeps every property.

use idempotency_layer::conformance::{Erased, MemoryHarness};

mod bare {
    use super::MemoryHarness;

    idempotency_layer::conformance_tests!(MemoryHarness::new());
}

mod erased {
    use super::{Erased, MemoryHarness};

    idempotency_layer::conformance_tests!(Erased(MemoryHarness::new()));
}
