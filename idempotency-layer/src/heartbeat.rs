//! While a run lasts, its lease is renewed every third of its duration, and a handler whose lease cannot be renewed is
//! told so.
//!
//! *Lost* means one of two things, and nothing else: the store said so, or the local monotonic clock has passed the
//! lease since the last confirmed renewal *was sent*. A lease that is lost by the clock is renewed all the same: as
//! long as nobody took over, every renewal that gets through keeps others out.
//!
//! A heartbeat is a task of its own, so that a handler that blocks its thread still has one. It begins with the first
//! renewal: most runs are over before, and all that they cost is a place in the line of one task for all runs of a
//! layer on their runtime, which starts those that are due. It ends with its [`Heartbeat`]: a run that is gone must not hold its key.
//!
//! Each runtime has a line of its own, so that a run is renewed where it runs: another runtime may end, be blocked, or be
//! driven by nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::operation::Operation;
use crate::store::{Lease, Renewal, Store};

/// The heartbeats of a layer: those whose first renewal is not due yet, and the task that will start them.
#[derive(Debug)]
pub(crate) struct Heartbeats<St> {
    store: St,
    /// One for each runtime that runs are on: one, as a rule, and hardly ever more than a few.
    lines: Mutex<Vec<Line>>,
}

/// The heartbeats of one runtime. It is there while its starter is.
#[derive(Debug)]
struct Line {
    runtime: Id,
    waiting: BTreeMap<Place, Waiting>,
    places: u64,
    /// Starts what is due.
    starter: JoinHandle<()>,
    wakes_at: Instant,
    /// Wakes the starter, which sleeps for something later.
    sooner: Arc<Notify>,
}

/// When the first renewal is due, and a number that tells those of one moment apart.
type Place = (Instant, u64);

#[derive(Debug)]
struct Waiting {
    operation: Operation,
    since: Instant,
}

impl<St: Store> Heartbeats<St> {
    pub(crate) fn new(store: St) -> Self {
        Self { store, lines: Mutex::default() }
    }

    /// Renews the lease of an operation, which counts from `since`, until the heartbeat ends.
    pub(crate) fn begin(self: &Arc<Self>, operation: Operation, since: Instant) -> Heartbeat<St> {
        let due = since + operation.lease().duration / 3;
        let runtime = Handle::current().id();
        let mut lines = self.lock();
        let at = lines.iter().position(|line| line.runtime == runtime).unwrap_or_else(|| {
            // Without those of runtimes that have gone.
            lines.retain(|line| !line.starter.is_finished() || !line.waiting.is_empty());
            let sooner = Arc::new(Notify::new());
            let starter = tokio::spawn(start_what_is_due(Arc::downgrade(self), runtime, Arc::clone(&sooner)));
            lines.push(Line { runtime, waiting: BTreeMap::new(), places: 0, starter, wakes_at: due, sooner });
            lines.len() - 1
        });
        let line = &mut lines[at];
        line.places += 1;
        let place = (due, line.places);
        line.waiting.insert(place, Waiting { operation: operation.clone(), since });
        if due < line.wakes_at {
            line.wakes_at = due;
            line.sooner.notify_one();
        }
        Heartbeat { heartbeats: Arc::clone(self), runtime, place, operation }
    }

    /// Starts the heartbeats that are due and says when the next one is. `None`: there is none, and the starter ends.
    fn start_due(&self, runtime: Id, now: Instant) -> Option<Instant> {
        let mut lines = self.lock();
        let at = lines.iter().position(|line| line.runtime == runtime)?;
        let line = &mut lines[at];
        while let Some(first) = line.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let Waiting { operation, since } = first.remove();
            let stop = CancellationToken::new();
            let task = tokio::spawn(beat(self.store.clone(), operation.clone(), since, stop.clone()));
            // Under the lock: whoever finds its place empty finds its heartbeat here.
            *operation.beating() = Some(Beating { stop, task });
        }
        match line.waiting.first_key_value() {
            Some(((next, _), _)) => {
                line.wakes_at = *next;
                Some(*next)
            }
            None => {
                lines.swap_remove(at);
                None
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Line>> {
        // What is done under the lock leaves each line whole at each step.
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn start_what_is_due<St: Store>(heartbeats: Weak<Heartbeats<St>>, runtime: Id, sooner: Arc<Notify>) {
    loop {
        let next = heartbeats.upgrade().and_then(|heartbeats| heartbeats.start_due(runtime, Instant::now()));
        let Some(next) = next else { return };
        tokio::select! {
            () = sleep_until(next) => {}
            () = sooner.notified() => {}
        }
    }
}

/// The renewals of one lease; dropped, they end.
#[derive(Debug)]
pub(crate) struct Heartbeat<St: Store> {
    heartbeats: Arc<Heartbeats<St>>,
    runtime: Id,
    place: Place,
    operation: Operation,
}

impl<St: Store> Heartbeat<St> {
    /// Whose lease it renews.
    pub(crate) fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Ends it and waits for a renewal under way, so that none meets the write that follows.
    pub(crate) async fn stop(&self) {
        let Some(mut beating) = self.leave() else { return };
        beating.stop.cancel();
        if timeout(STOP_PATIENCE, &mut beating.task).await.is_err() {
            // A renewal without an answer may still arrive; stores take it in any state.
            tracing::debug!("a renewal under way did not end in time and was dropped");
        }
    }

    /// Leaves the line, or takes the heartbeat out of the operation.
    fn leave(&self) -> Option<Beating> {
        let mut lines = self.heartbeats.lock();
        let waiting = lines.iter_mut().find(|line| line.runtime == self.runtime);
        let waiting = waiting.and_then(|line| line.waiting.remove(&self.place));
        drop(lines);
        if waiting.is_some() { None } else { self.operation.beating().take() }
    }
}

impl<St: Store> Drop for Heartbeat<St> {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

/// A heartbeat that has begun; dropped, it ends.
#[derive(Debug)]
pub(crate) struct Beating {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Drop for Beating {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn beat(store: impl Store, operation: Operation, mut since: Instant, stop: CancellationToken) {
    let lease: &Lease = operation.lease();
    let period = lease.duration / 3;
    let mut due = since + period;
    loop {
        let wait = until_lost(sleep_until(due), since + lease.duration, &operation);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = wait => {}
        }
        let sent = Instant::now();
        // A store that never answers is asked again; a reply that comes later than a lease is of no use.
        let renewal = timeout(lease.duration, store.renew(lease));
        match until_lost(renewal, since + lease.duration, &operation).await {
            Ok(Ok(Renewal::Renewed { queued })) => {
                since = sent + queued;
                due = since + period;
            }
            Ok(Ok(Renewal::Fenced)) => {
                operation.lose();
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

/// Awaits a future, and tells that the key is lost if the deadline passes before it is there.
async fn until_lost<T>(future: impl Future<Output = T>, deadline: Instant, operation: &Operation) -> T {
    tokio::pin!(future);
    tokio::select! {
        biased;
        value = &mut future => return value,
        () = sleep_until(deadline), if !operation.is_lost() => operation.lose(),
    }
    future.await
}

/// How long a renewal under way may hold up the end of its run.
const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// A failed renewal is tried again this often within the time to the next.
const RETRIES_PER_PERIOD: u32 = 5;
