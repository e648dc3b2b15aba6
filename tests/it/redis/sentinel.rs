//! Behind Sentinel a store goes on with whichever server is the primary.

use idempotency_layer::conformance::{Harness, RedisHarness};
use idempotency_tests::redis::RedisSentinels;

use super::list;

/// S12. Fails when `Link::give_up` keeps the connection to the server that was the primary.
#[tokio::test(flavor = "multi_thread")]
async fn the_whole_list_holds_after_a_promotion_also_over_handles_from_before() {
    let group = RedisSentinels::start().await;
    let harness = RedisHarness::sentinel(group.urls(), group.master_name()).lease_of(crate::model::LEASE);
    let clones = harness.clone().clones();
    let _opened_before = clones.open().await;
    group.fail_over().await;
    list::hold_over_clones(&clones).await;
    list::hold(&harness).await;
}
