//! A held key runs for nobody until an operator decides, and the operator finds it.

use std::num::NonZeroU16;

use super::Harness;
use super::duplicates::resolutions;
use super::harness::{expire, lapse};
use super::key::{End, Key, answered, random};
use super::overlap::overlap;
use crate::Store;
use crate::store::{Claim, HeldCause, HeldRecord, LeaseId, Page, RecordId, Resolution, UnknownOutcome, Write};

/// A held key runs for nobody, however often it is asked.
///
/// Fails on a store that takes HELD for FREE.
pub async fn a_held_key_runs_for_nobody<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    key.end_held(End::Hold, &key.acquire().await).await;
    for _ in 0..3 {
        assert_is!(key.claim().await, Claim::Held, "a claim on a held key");
    }
}

/// A held key is held after its retention, whether its holder or a lapse held it.
///
/// Fails on a store where held records expire.
pub async fn a_held_key_does_not_expire<H: Harness>(harness: &H) {
    let by_hand = Key::expiring(harness).await;
    by_hand.end_held(End::Hold, &by_hand.acquire().await).await;
    let by_lapse = Key::expiring(harness).await.unknown(UnknownOutcome::Hold);
    by_lapse.acquire().await;
    lapse(harness).await;
    assert_is!(by_lapse.claim().await, Claim::Held, "a claim on a run that lapsed under Hold");
    expire(harness).await;
    assert_is!(by_hand.claim().await, Claim::Held, "a claim on a key that its holder held");
    assert_is!(by_lapse.claim().await, Claim::Held, "a claim on a key that a lapse held");
}

/// Held records are listed in the order of their ids, page by page, each once, and none that is not held.
///
/// Fails on a store that repeats on a page the record that the page begins after.
pub async fn held_records_are_listed_in_the_order_of_their_ids<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let mut ids = neighbours(8);
    // Held in another order than that of their ids, so that the order of insertion does not pass for it.
    for at in [5, 2, 7, 1, 6, 3] {
        let key = key.at(ids[at]);
        key.end_held(End::Hold, &key.acquire().await).await;
    }
    let running = key.at(ids[4]);
    running.acquire().await;

    let start = ids.remove(0);
    ids.remove(3);
    let mut page = Page::first(NonZeroU16::MIN.saturating_add(1)).after(start);
    let mut listed = Vec::new();
    for _ in 0..3 {
        let held = answered("held", key.store.held(&page).await);
        assert_eq!(held.records.len(), 2, "a page that is followed by more is as long as its limit");
        listed.extend(held.records.iter().map(|held| held.record));
        let Some(next) = held.next else { break };
        page = next;
    }
    assert_eq!(listed, ids, "the held records in pages of two");
}

/// The last page says that it is the last, also when it is full or empty.
///
/// Fails on a store that leads on from every full page.
pub async fn the_list_of_held_records_ends<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await.through(harness.open_elsewhere().await);
    let two = Page::first(NonZeroU16::MIN.saturating_add(1));
    assert_eq!(answered("held", key.store.held(&two).await).next, None, "after an empty page");
    let ids = neighbours(2);
    for id in &ids {
        let key = key.at(*id);
        key.end_held(End::Hold, &key.acquire().await).await;
    }
    let held = answered("held", key.store.held(&two).await);
    assert_eq!((held.records.len(), held.next), (2, None), "a full page that is the last");
    let held = answered("held", key.store.held(&two.after(ids[1])).await);
    assert_eq!((held.records.len(), held.next), (0, None), "the page after the last record");
}

/// The first page begins at the smallest id.
///
/// Fails on a store that skips the record which a page begins at.
pub async fn the_first_page_begins_at_the_smallest_id<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await.through(harness.open_elsewhere().await);
    let ids = [[0; 32], [0x7f; 32], [0x80; 32], [0xff; 32]].map(RecordId::from_bytes);
    for at in [2, 0, 3, 1] {
        let key = key.at(ids[at]);
        key.end_held(End::Hold, &key.acquire().await).await;
    }
    let held = answered("held", key.store.held(&Page::first(NonZeroU16::MAX)).await);
    let listed: Vec<_> = held.records.iter().map(|held| held.record).collect();
    assert_eq!(listed, ids, "all held records of a store that has no others");
}

/// The list tells why a record is held, how often it ran, and for how long it has been held.
///
/// Fails on a store that tells one cause for all.
pub async fn the_list_tells_cause_attempt_and_age<H: Harness>(harness: &H) {
    let by_hand = Key::lapsing(harness).await;
    by_hand.end_held(End::Release, &by_hand.acquire_as(1).await).await;
    by_hand.end_held(End::Hold, &by_hand.acquire_as(2).await).await;
    let by_lapse = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    by_lapse.acquire_as(1).await;
    lapse(harness).await;
    assert_is!(by_lapse.claim().await, Claim::Held, "a claim on a run that lapsed under Hold");

    let long = listed(&by_hand).await;
    assert_eq!((long.cause, long.attempt), (HeldCause::Unknown, 2), "held by the holder of the second attempt");
    assert!(long.age >= harness.lease() * 9 / 10, "held more than a lease ago: {:?}", long.age);
    let short = listed(&by_lapse).await;
    assert_eq!((short.cause, short.attempt), (HeldCause::Lapsed, 1), "held because the first attempt lapsed");
    assert!(short.age < harness.lease() / 2, "held just now: {:?}", short.age);
}

/// Who looks at a held key by its id is told what the list tells, and decides with it.
///
/// Fails on a store that keeps the cause for the list.
pub async fn looking_finds_a_hold_as_the_list_does<H: Harness>(harness: &H) {
    let by_hand = Key::lapsing(harness).await;
    let holder = by_hand.acquire_as(1).await;
    by_hand.end_held(End::Hold, &holder).await;
    let by_lapse = Key::lapsing(harness).await.unknown(UnknownOutcome::Hold);
    by_lapse.acquire_as(1).await;
    lapse(harness).await;
    assert_is!(by_lapse.claim().await, Claim::Held, "a claim on a run that lapsed under Hold");
    assert_eq!(by_hand.hold().await.hold, holder.id, "the id that wrote the hold");
    for key in [by_hand, by_lapse] {
        let (listed, found) = (listed(&key).await, key.hold().await);
        assert!(found.age >= listed.age, "held for {:?} and then for {:?}", listed.age, found.age);
        assert_eq!(found, HeldRecord { age: found.age, ..listed }, "found, and listed");
        assert_eq!(key.resolve(&found, LeaseId::random(), &Resolution::Free).await, Write::Done);
        key.acquire_as(2).await;
    }
}

/// A settled key answers with the operator's response and is no longer listed.
///
/// Fails on a store that drops the response.
pub async fn a_held_key_is_settled<H: Harness>(harness: &H) {
    let [settle, ..] = resolutions();
    let key = held(&Key::lasting(harness).await).await;
    assert_eq!(key.decide(&settle).await, Write::Done);
    let Resolution::Settle(response) = settle else { unreachable!("the first resolution settles") };
    assert_is!(key.claim().await, Claim::Recorded(recorded) if recorded.response == response, "a claim on a settled key");
    assert!(is_not_listed(&key).await, "a settled key is still listed as held");
}

/// A key that an operator freed is run again, as the next attempt of the same request, and is no longer listed.
///
/// Fails on a store that forgets what it frees.
pub async fn a_held_key_is_freed<H: Harness>(harness: &H) {
    let key = held(&Key::lasting(harness).await).await;
    assert_eq!(key.decide(&Resolution::Free).await, Write::Done);
    assert!(is_not_listed(&key).await, "a freed key is still listed as held");
    assert_is!(key.other_request().claim().await, Claim::Reused, "another request on a freed key");
    key.acquire_as(2).await;
}

/// A key that an operator forgot is new to any request, and is no longer listed.
///
/// Fails on a store that frees what it should forget.
pub async fn a_held_key_is_forgotten<H: Harness>(harness: &H) {
    let key = held(&Key::lasting(harness).await).await;
    assert_eq!(key.decide(&Resolution::Forget).await, Write::Done);
    assert!(is_not_listed(&key).await, "a forgotten key is still listed as held");
    key.other_request().acquire_as(1).await;
}

/// An operator decides about held keys only.
///
/// Fails on a store that resolves whatever it finds.
pub async fn only_a_held_key_is_resolved<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for end in [None, Some(End::Complete), Some(End::Bury), Some(End::Release)] {
        let key = any.fresh();
        let lease = key.acquire().await;
        if let Some(end) = end {
            key.end_held(end, &lease).await;
        }
        let before = key.seen().await;
        let not_held = key.as_held_by(lease.id);
        for resolution in resolutions() {
            let answer = key.resolve(&not_held, LeaseId::random(), &resolution).await;
            assert_eq!(answer, Write::Fenced, "{resolution:?} after {end:?}");
            assert_eq!(key.seen().await, before, "the record after {end:?} and {resolution:?}");
        }
    }
    let key = any.fresh();
    let absent = key.as_held_by(LeaseId::random());
    for resolution in resolutions().into_iter().filter(|resolution| *resolution != Resolution::Forget) {
        let answer = key.resolve(&absent, LeaseId::random(), &resolution).await;
        assert_eq!(answer, Write::Fenced, "{resolution:?} of nothing");
    }
}

/// The first of two operators decides.
///
/// Fails on a store that lets a second decision replace the first.
pub async fn a_second_decision_is_fenced<H: Harness>(harness: &H) {
    let any = Key::lasting(harness).await;
    for first in resolutions() {
        for second in resolutions() {
            let key = held(&any).await;
            let hold = key.hold().await;
            assert_eq!(key.resolve(&hold, LeaseId::random(), &first).await, Write::Done);
            let before = key.seen().await;
            let nothing_left = first == Resolution::Forget && second == Resolution::Forget;
            let expected = if nothing_left { Write::Done } else { Write::Fenced };
            let answer = key.resolve(&hold, LeaseId::random(), &second).await;
            assert_eq!(answer, expected, "{second:?} by another operator after {first:?}");
            assert_eq!(key.seen().await, before, "the record after {first:?} and another's {second:?}");
        }
    }
}

/// Of two operators who decide at the same time one decides.
///
/// Fails on a store that reads that a key is held in one step and resolves it in another.
pub async fn one_of_two_overlapping_decisions_counts<H: Harness>(harness: &H) {
    let [settle, free, _] = resolutions();
    let any = Key::lasting(harness).await;
    let another = harness.open().await;
    for _ in 0..16 {
        let key = held(&any).await;
        let hold = key.hold().await;
        let other = key.through(another.clone());
        let decisions = [(key.clone(), settle.clone()), (other, free.clone())];
        let calls =
            decisions.map(|(key, resolution)| async move { key.resolve(&hold, LeaseId::random(), &resolution).await });
        let answers = overlap(calls.into()).await;
        let done = answers.iter().filter(|answer| **answer == Write::Done).count();
        assert_eq!(done, 1, "two overlapping decisions got {answers:?}");
    }
}

/// Another key, held.
async fn held<S: Store>(any: &Key<S>) -> Key<S> {
    let key = any.fresh();
    key.end_held(End::Hold, &key.acquire_as(1).await).await;
    key
}

pub(super) async fn listed<S: Store>(key: &Key<S>) -> HeldRecord {
    match from(key).await {
        Some(held) if held.record == key.record => held,
        other => panic!("a held record is not listed where it belongs, but {other:?}"),
    }
}

pub(super) async fn is_not_listed<S: Store>(key: &Key<S>) -> bool {
    from(key).await.is_none_or(|held| held.record != key.record)
}

/// The first record listed from this key's on.
async fn from<S: Store>(key: &Key<S>) -> Option<HeldRecord> {
    let page = Page::first(NonZeroU16::MIN).after(before(key.record));
    answered("held", key.store.held(&page).await).records.first().copied()
}

/// The id just before this one.
fn before(id: RecordId) -> RecordId {
    let mut bytes = *id.as_bytes();
    for byte in bytes.iter_mut().rev() {
        let (less, borrow) = byte.overflowing_sub(1);
        *byte = less;
        if !borrow {
            break;
        }
    }
    RecordId::from_bytes(bytes)
}

/// Ids in their order that no other record comes between.
pub(super) fn neighbours(count: u8) -> Vec<RecordId> {
    let mut bytes = random();
    (0..count)
        .map(|last| {
            bytes[31] = last;
            RecordId::from_bytes(bytes)
        })
        .collect()
}
