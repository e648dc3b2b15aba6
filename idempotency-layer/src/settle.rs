//! The record is written before the client is answered, and written on when the store is away.
//!
//! A write that gets no answer is sent again, under the same lease id, until the store decides or the process ends;
//! so is one that a store which is set up wrongly has refused, since somebody may set that right. The client waits for
//! it no longer than the record deadline.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use futures_util::poll;
use tokio::time::{sleep, timeout};

use crate::policy::Settlement;
use crate::store::{Completion, Lease, Store, StoreError, StoreErrorKind, Write};

/// What is written, once the policy has spoken.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Complete(Completion),
    Release,
    Forget,
    Hold,
}

impl Step {
    /// Gives back the key of a run that did nothing. At a first attempt it was never used; at a later one it must go on
    /// meaning its request.
    pub(crate) fn unrun(attempt: u32) -> Self {
        if attempt == 1 { Self::Forget } else { Self::Release }
    }

    /// The step of a settlement that records nothing; a record is made of its completion.
    pub(crate) fn without_response(settlement: Settlement) -> Self {
        match settlement {
            Settlement::Forget => Self::Forget,
            Settlement::Hold => Self::Hold,
            Settlement::Release | Settlement::Record => Self::Release,
        }
    }
}

/// Writes one step until the store has decided. `None`: the record cannot be read, and stays as it is.
pub(crate) async fn settle(store: &impl Store, lease: &Lease, step: &Step) -> Option<Write> {
    let mut first = pin!(write(store, lease, step));
    // What is answered at once needs no timer, and the timers of what is not need no room in every run.
    let mut answer = match poll!(first.as_mut()) {
        Poll::Ready(answer) => Ok(answer),
        Poll::Pending => Box::pin(timeout(SEND_AGAIN_AFTER, first)).await,
    };
    let mut pause = FIRST_PAUSE;
    loop {
        match answer {
            Ok(Ok(write)) => return Some(write),
            Ok(Err(error)) if matches!(error.kind(), StoreErrorKind::Corrupt | StoreErrorKind::Newer) => {
                tracing::error!(error = error.cause(), kind = ?error.kind(), "a record cannot be written");
                return None;
            }
            Ok(Err(error)) => {
                tracing::warn!(error = error.cause(), kind = ?error.kind(), "a record could not be written; trying again");
            }
            Err(_) => tracing::warn!("the write of a record got no answer; sending it again"),
        }
        answer = Box::pin(async {
            sleep(pause).await;
            timeout(SEND_AGAIN_AFTER, write(store, lease, step)).await
        })
        .await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

/// Writes one step once.
pub(crate) async fn write(store: &impl Store, lease: &Lease, step: &Step) -> Result<Write, StoreError> {
    match step {
        Step::Complete(completion) => store.complete(lease, completion).await,
        Step::Release => store.release(lease).await,
        Step::Forget => store.forget(lease).await,
        Step::Hold => store.hold(lease).await,
    }
}

/// Longer than a store that works may take: a store answers once its own bounds have passed.
const SEND_AGAIN_AFTER: Duration = Duration::from_secs(30);

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
