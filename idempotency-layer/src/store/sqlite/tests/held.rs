//! What a process knows of its leases decides what it shows as held.

use std::num::NonZeroU16;
use std::time::Duration;

use super::{Disk, answer, request};
use crate::store::{
    Begin, Claim, Commit, HeldCause, HeldRecord, Lease, LeaseId, Look, Page, RecordId, Renewal, Resolution, Store,
    TransactionalStore, UnknownOutcome, Write,
};
use crate::{Clock, SqliteStore};

const HOUR: Duration = Duration::from_secs(3600);

/// Fails when `as_held`, or the verb `resolve`, goes by the clock.
#[tokio::test]
async fn a_run_that_this_process_knows_to_live_is_not_held() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock.clone());
    let other = disk.store().await.clock(clock);
    let lease = claimed_under_hold(&store).await;
    hand.set_wall_forward(HOUR);
    assert_eq!(listed(&store).await, []);
    assert!(matches!(store.look(&lease.record).await.unwrap(), Look::Running { lapsed: false, .. }));
    let [held] = listed(&other).await[..] else { panic!("another process cannot know that it lives") };
    assert_eq!((held.record, held.hold, held.cause), (lease.record, lease.id, HeldCause::Lapsed));
    assert_eq!(store.resolve(&held, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Fenced);
    assert_eq!(other.resolve(&held, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Done);
}

/// Fails when `as_held` asks the leases alone.
#[tokio::test]
async fn a_run_whose_transaction_is_open_is_not_held() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let lease = claimed_under_hold(&store).await;
    hand.advance(HOUR);
    assert_eq!(listed(&store).await.len(), 1);
    let Begin::Begun(transaction) = store.begin(&lease).await.unwrap() else { panic!("nobody overtook it") };
    assert_eq!(listed(&store).await, []);
    assert!(matches!(store.look(&lease.record).await.unwrap(), Look::Running { lapsed: false, .. }));
    assert_eq!(store.complete_in(transaction, &lease, &answer()).await.unwrap(), Commit::Committed);
}

/// Fails when `SELECT_UNEXPIRING` leaves out the leases that the wall clock says are live.
#[tokio::test]
async fn a_run_that_this_process_knows_to_have_lapsed_is_held() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let lease = claimed_under_hold(&store).await;
    hand.set_wall_back(HOUR);
    hand.advance(lease.duration);
    let [held] = listed(&store).await[..] else { panic!("one run has lapsed") };
    assert_eq!((held.record, held.age), (lease.record, Duration::ZERO));
    assert_eq!(store.resolve(&held, LeaseId::random(), &Resolution::Free).await.unwrap(), Write::Done);
}

/// Fails when `held` reads once.
#[tokio::test]
async fn held_records_are_found_behind_more_live_runs_than_one_read_brings() {
    let disk = Disk::new();
    let (clock, hand) = Clock::manual();
    let store = disk.store().await.clock(clock);
    let mut expected = Vec::new();
    for at in 0..250 {
        let lease = claimed_under_hold(&store).await;
        if [0, 1, 120, 249].contains(&at) {
            expected.push(lease.record);
        }
    }
    // All lapse but those that are renewed.
    hand.advance(HOUR);
    for held in listed(&store).await {
        if !expected.contains(&held.record) {
            let lease = Lease { record: held.record, id: held.hold, duration: HOUR };
            assert!(matches!(store.renew(&lease).await.unwrap(), Renewal::Renewed { .. }));
        }
    }
    for limit in [1, 2, 3, 4, 5] {
        let mut page = Some(Page::first(NonZeroU16::new(limit).unwrap()));
        let (mut found, mut pages): (Vec<RecordId>, usize) = (Vec::new(), 0);
        while let Some(this) = page {
            let held = store.held(&this).await.unwrap();
            found.extend(held.records.iter().map(|held| held.record));
            (page, pages) = (held.next, pages + 1);
        }
        assert_eq!(found, expected, "in pages of {limit}");
        assert_eq!(pages, expected.len().div_ceil(limit.into()), "in pages of {limit}");
    }
}

async fn claimed_under_hold(store: &SqliteStore) -> Lease {
    let mut request = request();
    request.policy.unknown = UnknownOutcome::Hold;
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
    request.lease
}

async fn listed(store: &SqliteStore) -> Vec<HeldRecord> {
    store.held(&Page::first(NonZeroU16::MAX)).await.unwrap().records
}
