//! A claim without an answer is taken back, so that the client's retry need not wait for a lease that nobody holds.
//!
//! The claim is sent again: it has the same id, so the store answers as it would have the first time. What it says was
//! acquired has not run and is given back. A first attempt is forgotten; at a later one the key must go on meaning its
//! request, and it is freed. When the store stays away, or too many claims are being taken back already, the lease
//! lapses, which is the same, only later.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};
use tracing::Instrument;

use crate::bound::Bound;
use crate::settle::{Step, write};
use crate::store::{Claim, ClaimRequest, Store, StoreError, Write};

/// Takes a claim back in a task of its own, if `room` has a place for it.
pub(crate) fn spawn(store: impl Store, request: ClaimRequest, room: &Arc<Bound>) {
    let Some(place) = room.take(1) else {
        tracing::debug!("a claim without an answer is left to lapse");
        return;
    };
    let undone = async move {
        let until = Instant::now() + request.lease.duration;
        if timeout_at(until, undo(store, request)).await.is_err() {
            tracing::debug!("a claim without an answer could not be taken back; its lease lapses");
        }
        drop(place);
    };
    tokio::spawn(undone.in_current_span());
}

async fn undo(store: impl Store, request: ClaimRequest) {
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
        match give_back(&store, &request).await {
            // Fenced means that it is somebody else's by now, which is as good.
            Ok(Write::Done | Write::Fenced) => return,
            Err(error) => {
                tracing::debug!(error = error.cause(), "a claim without an answer could not be taken back yet")
            }
        }
    }
}

async fn give_back(store: &impl Store, request: &ClaimRequest) -> Result<Write, StoreError> {
    match store.claim(request).await? {
        Claim::Acquired(acquired) => write(store, &request.lease, &Step::unrun(acquired.attempt)).await,
        _ => Ok(Write::Done),
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);
