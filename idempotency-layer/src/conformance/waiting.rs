//! Whoever waits for another's run is woken by its end, and never sleeps through one that came before.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::Duration;

use super::Harness;
use super::duplicates::resolutions;
use super::key::{End, Key, Seen, answered};
use crate::Store;
use crate::store::{Watch, Write};

/// Each end of a run wakes every watcher, over each handle. A store that does not push has nothing to show here.
///
/// Fails on a store that wakes one watcher only.
pub async fn each_end_of_a_run_wakes_every_watcher<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for end in End::ALL {
        let key = any.fresh();
        let lease = key.acquire().await;
        let other = key.through(harness.open().await);
        let watches = [watch(&key).await, watch(&key).await, watch(&other).await];
        let before = key.seen().await;
        key.end_held(end, &lease).await;
        assert_ne!(other.seen().await, before, "what another handle sees after {end:?}");
        for woken in watches {
            wakes(harness, woken, &format!("{end:?} after the watch")).await;
        }
    }
}

/// A change after the subscription is not missed, although nobody has awaited the watch yet.
///
/// Fails on a store that subscribes when the watch is first polled.
pub async fn a_change_before_the_first_poll_is_not_missed<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let lease = key.acquire().await;
    let woken = watch(&key).await;
    assert_eq!(key.seen().await, Seen::Running(lease.id), "a look between the subscription and the change");
    key.end_held(End::Complete, &lease).await;
    wakes(harness, woken, "a completion between the look and the first poll").await;
}

/// A watch that was polled and put aside wakes all the same.
///
/// Fails on a store that never wakes anybody.
pub async fn a_change_after_the_first_poll_wakes<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let lease = key.acquire().await;
    let mut woken = watch(&key).await;
    let early = pin!(&mut woken).poll(&mut Context::from_waker(Waker::noop()));
    key.end_held(End::Complete, &lease).await;
    if early.is_pending() {
        wakes(harness, woken, "a completion after the first poll").await;
    }
}

/// An operator's decision wakes watchers.
///
/// Fails on a store that pushes what holders write and nothing else.
pub async fn a_decision_wakes<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for resolution in resolutions() {
        let key = any.fresh();
        key.end_held(End::Hold, &key.acquire().await).await;
        let woken = watch(&key).await;
        assert_eq!(key.decide(&resolution).await, Write::Done, "after a look, since the subscription");
        wakes(harness, woken, &format!("{resolution:?} by an operator")).await;
    }
}

async fn watch<S: Store>(key: &Key<S>) -> Watch {
    answered("watch", key.store.watch(&key.record).await)
}

/// Asserts that the watch ends, where the store pushes. The time is real, and only runs out on failure.
async fn wakes<H: Harness>(harness: &H, woken: Watch, situation: &str) {
    if harness.pushes() {
        let ended = tokio::time::timeout(PUSHED_WITHIN, woken).await;
        assert!(ended.is_ok(), "{situation} did not wake a watcher within {PUSHED_WITHIN:?}");
    }
}

const PUSHED_WITHIN: Duration = Duration::from_secs(5);
