//! A key means one request by one caller, before, while and after it runs.

use super::Harness;
use super::harness::lapse;
use super::key::{End, Key, Seen};
use super::stage::scenes;
use crate::store::Claim;

/// Another request under the same key is refused in every state, and changes nothing.
///
/// Fails on a store that forgets the request of a key that is free.
pub async fn another_request_is_refused_in_every_state<H: Harness>(harness: &H) {
    for (situation, key) in taken(harness).await {
        let before = key.seen().await;
        assert_is!(key.other_request().claim().await, Claim::Reused, "{situation}: another request");
        assert_eq!(key.seen().await, before, "{situation}: the record after another request");
    }
}

/// The same request with other credentials is told so in every state, and changes nothing.
///
/// Fails on a store that does not compare the caller.
pub async fn another_caller_is_told_in_every_state<H: Harness>(harness: &H) {
    for (situation, key) in taken(harness).await {
        let before = key.seen().await;
        assert_is!(key.other_caller().claim().await, Claim::CallerChanged, "{situation}: another caller");
        assert_eq!(key.seen().await, before, "{situation}: the record after another caller");
    }
}

/// Another request by another caller is another request.
///
/// Fails on a store that compares the caller first.
pub async fn the_request_is_compared_before_the_caller<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let lease = key.acquire().await;
    assert_is!(key.other_caller().other_request().claim().await, Claim::Reused, "both differ while it runs");
    key.end_held(End::Complete, &lease).await;
    assert_is!(key.other_caller().other_request().claim().await, Claim::Reused, "both differ from what is recorded");
}

/// A lapsed run is not taken over by another request.
///
/// Fails on a store whose takeover looks at the time alone.
pub async fn another_request_does_not_take_over<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    key.acquire().await;
    lapse(harness).await;
    assert_is!(key.other_request().claim().await, Claim::Reused, "another request on a lapsed run");
    key.acquire_as(2).await;
}

/// A lapsed run is not taken over by another caller.
///
/// Fails on a store whose takeover compares the request alone.
pub async fn another_caller_does_not_take_over<H: Harness>(harness: &H) {
    let key = Key::lapsing(harness).await;
    key.acquire().await;
    lapse(harness).await;
    assert_is!(key.other_caller().claim().await, Claim::CallerChanged, "another caller on a lapsed run");
    key.acquire_as(2).await;
}

/// A record in every state that remembers its request.
async fn taken<H: Harness>(harness: &H) -> Vec<(String, Key<H::Store>)> {
    let mut taken = Vec::new();
    for scene in scenes(harness).await {
        if scene.key.seen().await != Seen::Absent {
            taken.push((format!("{:?}", scene.stage), scene.key));
        }
    }
    taken
}
