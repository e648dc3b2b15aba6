//! A store knows itself again, and no other.

use super::Harness;
use super::key::{Key, Seen};
use crate::{SharedStore, Store};

/// A store, its clones and what wraps it have one identity.
///
/// Fails on a store that makes its identity up each time it is asked.
pub async fn clones_have_one_identity<H: Harness>(harness: &H) {
    let store = harness.open().await;
    let identity = store.identity();
    assert_eq!(store.identity(), identity, "asked again");
    assert_eq!(store.clone().identity(), identity, "of a clone");
    assert_eq!(SharedStore::new(store).identity(), identity, "behind a `SharedStore`");
}

/// A store on other records has another identity, and shares no record.
///
/// Fails on a store whose identity is that of its kind.
pub async fn another_store_has_another_identity<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let elsewhere = key.through(harness.open_elsewhere().await);
    assert_ne!(key.store.identity(), elsewhere.store.identity(), "of two stores");
    key.acquire().await;
    assert_eq!(elsewhere.seen().await, Seen::Absent, "in another store");
    elsewhere.other_request().acquire_as(1).await;
}

/// Each handle on the same records sees at once what another one wrote.
///
/// Fails on a store that answers from what a handle remembers.
pub async fn handles_reach_the_same_records<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let other = key.through(harness.open().await);
    assert_eq!(other.seen().await, Seen::Absent, "before the claim");
    let lease = key.acquire().await;
    assert_eq!(other.seen().await, Seen::Running(lease.id), "a run claimed over the first handle");
    other.end_held(super::key::End::Release, &lease).await;
    assert_eq!(key.seen().await, Seen::Free, "a run released over the second handle");
    key.acquire_as(2).await;
}
