//! The Redis store keeps every property, within one process and between processes.

use idempotency_layer::conformance::{Erased, RedisHarness};
use idempotency_tests::redis::shared;

async fn single() -> RedisHarness {
    RedisHarness::single(shared().await.url())
}

mod clones {
    idempotency_layer::conformance_tests!(super::single().await.clones());
}

mod connections {
    idempotency_layer::conformance_tests!(super::single().await);
}

mod erased {
    idempotency_layer::conformance_tests!(super::Erased(super::single().await));
}
