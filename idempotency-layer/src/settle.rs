//! The record is written before the client is answered, and written on when the store is away.
//!
//! A write that gets no answer is sent again, under the same lease id, until the store decides or the process ends. The
//! client waits for that no longer than the record deadline.

use std::time::Duration;

use tokio::time::sleep;

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
    let mut pause = FIRST_PAUSE;
    loop {
        match write(store, lease, step).await {
            Ok(write) => return Some(write),
            Err(error) if error.kind() == StoreErrorKind::Unavailable => {
                tracing::warn!(error = %error, "a record could not be written; trying again");
            }
            Err(error) => {
                tracing::error!(error = %error, kind = ?error.kind(), "a record cannot be written");
                return None;
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn write(store: &impl Store, lease: &Lease, step: &Step) -> Result<Write, StoreError> {
    match step {
        Step::Complete(completion) => store.complete(lease, completion).await,
        Step::Release => store.release(lease).await,
        Step::Forget => store.forget(lease).await,
        Step::Hold => store.hold(lease).await,
    }
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LAST_PAUSE: Duration = Duration::from_secs(1);
