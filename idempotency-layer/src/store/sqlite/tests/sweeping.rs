//! What leaves the file, and what does not.

use std::time::Duration;

use super::{Disk, answer, claimed, request};
use crate::Clock;
use crate::store::{Claim, Renewal, Store, UnknownOutcome, Write};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Fails when a sweep ends after its first batch, or removes what `lives`, what is held or would be, or what it cannot
/// read.
#[tokio::test]
async fn a_sweep_removes_what_has_expired_and_nothing_else() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let (held, newer) = (claimed(&store).await, claimed(&store).await);
    assert_eq!(store.hold(&held).await.unwrap(), Write::Done);
    assert_eq!(store.complete(&newer, &answer()).await.unwrap(), Write::Done);
    disk.sql("UPDATE idempotency_record SET format = 2 WHERE state = 2").await;
    let mut silent = request();
    silent.policy.unknown = UnknownOutcome::Hold;
    assert!(matches!(store.claim(&silent).await.unwrap(), Claim::Acquired(_)));
    let mut settled = Vec::new();
    // More than a batch of rows that stay, all of which expire before the first of those that go.
    for _ in 0..120 {
        let mut long = request();
        long.lease.duration = 3 * DAY;
        long.retention = 3 * DAY;
        assert!(matches!(store.claim(&long).await.unwrap(), Claim::Acquired(_)));
    }
    disk.sql("UPDATE idempotency_record SET lease_until = 0, expires_at = 0 WHERE state = 1 AND on_unknown = 1").await;
    for _ in 0..130 {
        let lease = claimed(&store).await;
        assert_eq!(store.complete(&lease, &answer()).await.unwrap(), Write::Done);
        settled.push(lease);
    }
    assert_eq!(store.sweep().await.unwrap(), 0);
    hand.advance(DAY);
    assert_eq!(store.sweep().await.unwrap(), 130);
    assert_eq!(disk.number("SELECT COUNT(*) FROM idempotency_record").await, 123);
}

/// Fails when the clock alone decides what is swept.
#[tokio::test]
async fn a_lease_of_this_process_is_not_swept_when_the_wall_clock_is_set_forward() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let lease = claimed(&store).await;
    hand.set_wall_forward(2 * DAY);
    assert_eq!(store.sweep().await.unwrap(), 0);
    assert!(matches!(store.renew(&lease).await.unwrap(), Renewal::Renewed { .. }));
}
