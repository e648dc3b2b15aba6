//! One holder for each key, however many ask at once.

use super::Harness;
use super::key::Key;
use super::overlap::overlap;
use crate::store::{Claim, RecordId};

/// Of 64 claims that overlap, over several handles, one is acquired and the others are in flight.
///
/// Fails on a store that reads the record in one step and writes it in another.
pub async fn one_of_many_overlapping_claimers_holds<H: Harness>(harness: &H) {
    for _ in 0..ROUNDS {
        let key = Key::lasting(harness).await;
        let mut calls = Vec::new();
        for _ in 0..HANDLES {
            let handle = key.through(harness.open().await);
            calls.extend((0..CLAIMERS / HANDLES).map(|_| {
                let handle = handle.clone();
                async move { handle.claim().await }
            }));
        }
        let mut holders = 0;
        for claim in overlap(calls).await {
            match claim {
                Claim::Acquired(_) => holders += 1,
                Claim::InFlight { .. } => {}
                other => panic!("an overlapping claim was neither acquired nor in flight: {other:?}"),
            }
        }
        assert_eq!(holders, 1, "of {CLAIMERS} overlapping claimers, so many hold the key");
    }
}

/// Records whose ids differ in one byte only, be it the first or the last, are two records.
///
/// Fails on a store that shortens the id.
pub async fn keys_are_apart<H: Harness>(harness: &H) {
    let key = Key::lasting(harness).await;
    let _holder = key.acquire().await;
    for at in 0..32 {
        let mut bytes = *key.record.as_bytes();
        bytes[at] ^= 1;
        key.other_request().at(RecordId::from_bytes(bytes)).acquire_as(1).await;
    }
}

pub(super) const CLAIMERS: usize = 64;
pub(super) const HANDLES: usize = 4;
const ROUNDS: usize = 4;
