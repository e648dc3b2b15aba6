//! The conformance list and the model's scripts all at once, for servers to which something happens meanwhile.

use futures_util::{StreamExt, stream};
use idempotency_layer::conformance::{Erased, Harness, RedisHarness, properties};

use crate::model::{AT_ONCE, LEASE, agrees};

/// Checks every property over one connection, over several, and through a `SharedStore`; and the model over several.
pub(super) async fn hold(harness: &RedisHarness) {
    // One after another: what a busy machine does late must not look like a store that does.
    check("clones", harness.beside().clones()).await;
    check("connections", harness.beside()).await;
    check("erased", Erased(harness.beside())).await;
    // What the steps themselves take counts for the model as no time.
    agrees(SCRIPTS, || harness.beside().lease_of(LEASE * 2)).await;
}

async fn check<H: Harness + Clone>(how: &str, harness: H) {
    let checks = properties::<H>().into_iter().map(|property| {
        let harness = harness.clone();
        async move {
            let name = property.name();
            tokio::spawn(async move { property.check(&harness).await }).await.err().map(|_| name)
        }
    });
    let checked = stream::iter(checks).buffer_unordered(AT_ONCE);
    let broken: Vec<_> = checked.filter_map(async |broken| broken).collect().await;
    assert!(broken.is_empty(), "over {how} the store does not keep {broken:?}");
}

/// Checks every property over handles that are there already.
pub(super) async fn hold_over_clones(clones: &RedisHarness) {
    check("clones", clones.clone()).await;
}

const SCRIPTS: usize = 32;
