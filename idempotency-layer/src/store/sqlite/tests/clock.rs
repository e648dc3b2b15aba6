//! Two clocks, and which of them decides.

use std::time::Duration;

use super::{Disk, answer, claimed, request_for};
use crate::Clock;
use crate::store::{Claim, Look, Renewal, Store, Write};

const HOUR: Duration = Duration::from_secs(3600);

/// Fails when `Leases::liveness` answers `ByClock` for a lease whose monotonic time runs.
#[tokio::test]
async fn the_wall_clock_set_forward_lapses_no_lease_of_this_process() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let lease = claimed(&store).await;
    hand.set_wall_forward(HOUR);
    assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::InFlight { .. }));
    assert!(matches!(store.look(&lease.record).await.unwrap(), Look::Running { lapsed: false, .. }));
    assert!(matches!(store.renew(&lease).await.unwrap(), Renewal::Renewed { .. }));
}

/// Fails when `Leases::liveness` leaves the record's `lease_until` as it is.
#[tokio::test]
async fn the_wall_clock_set_back_prolongs_no_lease_of_this_process() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let lease = claimed(&store).await;
    hand.set_wall_back(HOUR);
    hand.advance(lease.duration - Duration::from_millis(1));
    assert!(matches!(store.claim(&request_for(lease.record)).await.unwrap(), Claim::InFlight { .. }));
    hand.advance(Duration::from_millis(1));
    let Claim::Acquired(acquired) = store.claim(&request_for(lease.record)).await.unwrap() else { panic!() };
    assert_eq!(acquired.attempt, 2);
}

/// Fails when leases are shared by more than the clones of one store.
#[tokio::test]
async fn between_processes_the_wall_clock_decides() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let one = disk.store().await.clock(clock.clone());
    let other = disk.store().await.clock(clock);
    let lease = claimed(&one).await;
    assert!(matches!(other.claim(&request_for(lease.record)).await.unwrap(), Claim::InFlight { .. }));
    hand.set_wall_forward(HOUR);
    assert!(matches!(other.claim(&request_for(lease.record)).await.unwrap(), Claim::Acquired(_)));
    assert_eq!(one.renew(&lease).await.unwrap(), Renewal::Fenced);
}

/// Fails when `SqliteStore::now` reads the monotonic clock for both, and when `machine::visible` shows what has expired.
#[tokio::test]
async fn the_wall_clock_set_forward_by_the_retention_makes_a_recorded_key_new() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let lease = claimed(&store).await;
    assert_eq!(store.complete(&lease, &answer()).await.unwrap(), Write::Done);
    let retried = request_for(lease.record);
    hand.set_wall_forward(retried.retention - Duration::from_millis(1));
    assert!(matches!(store.claim(&retried).await.unwrap(), Claim::Recorded(_)));
    hand.set_wall_forward(Duration::from_millis(1));
    let Claim::Acquired(acquired) = store.claim(&retried).await.unwrap() else { panic!() };
    assert_eq!(acquired.attempt, 1);
}
