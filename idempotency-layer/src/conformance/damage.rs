//! A record that cannot be read is told as such, and no verb overwrites or removes it.

use std::num::NonZeroU16;

use super::Harness;
use super::duplicates::resolutions;
use super::key::{End, Key, TOMBSTONE, answer_of, answered};
use crate::Store;
use crate::store::{Completion, Lease, LeaseId, Page, StoreError, StoreErrorKind};

/// Each verb on a record that cannot be read fails as [`Corrupt`](StoreErrorKind::Corrupt), in whatever state the
/// record was, and goes on failing: it was not overwritten.
///
/// Fails on a store that takes what it cannot read for absent.
pub async fn a_corrupt_record_is_told_and_left_alone<H: Harness>(harness: &H) {
    is_told_and_left_alone(StoreErrorKind::Corrupt, harness).await;
}

/// Each verb on a record of a newer version fails as [`Newer`](StoreErrorKind::Newer), in whatever state the record
/// was, and goes on failing: it was not overwritten.
///
/// Fails on a store that takes a newer version for a broken one.
pub async fn a_newer_record_is_told_and_left_alone<H: Harness>(harness: &H) {
    is_told_and_left_alone(StoreErrorKind::Newer, harness).await;
}

/// Held records are listed although another one cannot be read.
///
/// Fails on a store whose list reads all or nothing.
pub async fn a_corrupt_record_does_not_break_the_list<H: Harness>(harness: &H) {
    let mut keys = Vec::new();
    let any = Key::lasting(harness).await;
    for _ in 0..2 {
        let key = any.fresh();
        key.end_held(End::Hold, &key.acquire().await).await;
        keys.push(key);
    }
    let [damaged, whole] = &keys[..] else { unreachable!("two keys were held") };
    harness.damage(&damaged.record, StoreErrorKind::Corrupt).await;
    let mut page = Page::first(NonZeroU16::MAX);
    loop {
        let held = answered("held", whole.store.held(&page).await);
        if held.records.iter().any(|held| held.record == whole.record) {
            break;
        }
        let Some(next) = held.next else { panic!("a held record is not listed beside a corrupt one") };
        page = next;
    }
}

async fn is_told_and_left_alone<H: Harness>(kind: StoreErrorKind, harness: &H) {
    let any = Key::lasting(harness).await;
    for end in [None, Some(End::Complete), Some(End::Bury), Some(End::Release), Some(End::Hold)] {
        let key = any.fresh();
        let lease = key.acquire().await;
        if let Some(end) = end {
            key.end_held(end, &lease).await;
        }
        harness.damage(&key.record, kind).await;
        // The holder's own messages, then a stranger's, then the holder's again.
        for lease in [lease, key.request().lease, lease] {
            each_verb_tells(kind, &key, &lease).await;
        }
    }
}

async fn each_verb_tells<S: Store>(kind: StoreErrorKind, key: &Key<S>, lease: &Lease) {
    let mut request = key.request();
    tells(kind, "look", key.store.look(&key.record).await);
    tells(kind, "a claim by a stranger", key.store.claim(&request).await);
    request.lease = *lease;
    tells(kind, "claim", key.store.claim(&request).await);
    tells(kind, "another request", key.store.claim(&key.other_request().request()).await);
    tells(kind, "renew", key.store.renew(lease).await);
    tells(kind, "complete", key.store.complete(lease, &Completion::Response(answer_of(lease))).await);
    tells(kind, "complete", key.store.complete(lease, &Completion::Tombstone(TOMBSTONE)).await);
    tells(kind, "release", key.store.release(lease).await);
    tells(kind, "forget", key.store.forget(lease).await);
    tells(kind, "hold", key.store.hold(lease).await);
    let held = key.as_held_by(lease.id);
    for resolution in resolutions() {
        tells(kind, "resolve", key.store.resolve(&held, LeaseId::random(), &resolution).await);
    }
}

fn tells<T: std::fmt::Debug>(kind: StoreErrorKind, verb: &str, answer: Result<T, StoreError>) {
    assert_is!(answer, Err(error) if error.kind() == kind, "{verb} on a record that is {kind:?}");
}
