//! While a run lasts, its lease is renewed every third; a lease that cannot be renewed is told to the handler.
//!
//! *Lost* means one of two things, and nothing else: the store said so, or the local monotonic clock has passed the
//! lease since the last confirmed renewal *was sent*. A lease that is lost by the clock is renewed all the same: as
//! long as nobody took over, every renewal that gets through keeps others out.
//!
//! The heartbeat is a task of its own, so that a handler that blocks its thread still has one. It ends with its
//! [`Heartbeat`]: a run that is gone must not hold its key.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::store::{Lease, Renewal, Store};

/// The renewals of one lease.
pub(crate) struct Heartbeat {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Heartbeat {
    /// Renews a lease that counts from `since`, and fires `lost` when it is lost.
    pub(crate) fn start(store: impl Store, lease: Lease, since: Instant, lost: CancellationToken) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(beat(store, lease, since, lost, stop.clone()));
        Self { stop, task }
    }

    /// Ends it and waits for a renewal under way, so that none meets the write that follows.
    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        if timeout(STOP_PATIENCE, &mut self.task).await.is_err() {
            // `drop` aborts it. A renewal without an answer may still arrive; stores take it in any state.
            tracing::debug!("a renewal under way did not end in time and was dropped");
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn beat(store: impl Store, lease: Lease, mut since: Instant, lost: CancellationToken, stop: CancellationToken) {
    let period = lease.duration / 3;
    let mut due = since + period;
    loop {
        let wait = until_lost(sleep_until(due), since + lease.duration, &lost);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = wait => {}
        }
        let sent = Instant::now();
        // A store that never answers is asked again; a reply that comes later than a lease is of no use.
        let renewal = timeout(lease.duration, store.renew(&lease));
        match until_lost(renewal, since + lease.duration, &lost).await {
            Ok(Ok(Renewal::Renewed { queued })) => {
                since = sent + queued;
                due = since + period;
            }
            Ok(Ok(Renewal::Fenced)) => {
                lost.cancel();
                return;
            }
            Ok(Err(error)) => {
                tracing::warn!(error = error.cause(), kind = ?error.kind(), "a lease could not be renewed; trying again");
                due = Instant::now() + period / RETRIES_PER_PERIOD;
            }
            Err(_) => due = Instant::now(),
        }
    }
}

/// Awaits a future, and fires `lost` if the deadline passes before it is there.
async fn until_lost<T>(future: impl Future<Output = T>, deadline: Instant, lost: &CancellationToken) -> T {
    tokio::pin!(future);
    tokio::select! {
        biased;
        value = &mut future => return value,
        () = sleep_until(deadline), if !lost.is_cancelled() => lost.cancel(),
    }
    future.await
}

/// How long a renewal under way may hold up the end of its run.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// A failed renewal is tried again this often within the time to the next.
const RETRIES_PER_PERIOD: u32 = 5;
