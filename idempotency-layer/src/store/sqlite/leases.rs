//! The leases of this process on a clock that does not jump.
//!
//! The file holds wall-clock times, since other processes read them. For a lease that this process took, the monotonic
//! clock decides instead, either way: the wall clock set forward does not lapse it, the wall clock set back does not
//! prolong it. That holds for all clones of one store; another store on the same file, even in this process, goes by
//! the wall clock.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::LeaseId;
use crate::store::machine::{Liveness, Millis, Record, State};

/// One moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) wall: Millis,
    pub(super) monotonic: Millis,
}

#[derive(Default)]
pub(super) struct Leases {
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    leases: HashMap<LeaseId, Until>,
    /// How many leases there may be before those of holders that went silent are looked for.
    prune_at: usize,
}

#[derive(Clone, Copy)]
struct Until {
    /// As the row says it. A row that says otherwise was renewed by somebody else, and goes by the wall clock.
    wall: Millis,
    monotonic: Millis,
}

impl Leases {
    /// Notes what a claim or renewal is about to write. Noted before the commit, so that no reader of the row is
    /// earlier; a lease that is then not committed is in no row, and its note means nothing.
    pub(super) fn note(&self, record: &Record, now: Moment, duration: Duration) {
        let mut taken = self.lock();
        if taken.leases.len() >= taken.prune_at {
            taken.leases.retain(|_, until| until.monotonic.plus(KEPT_AFTER_LAPSE) > now.monotonic);
            taken.prune_at = (taken.leases.len() * 2).max(PRUNED_FROM);
        }
        taken.leases.insert(record.lease, Until { wall: record.lease_until, monotonic: now.monotonic.plus(duration) });
    }

    /// Lets a lease live on although nothing was written: its transaction holds the file's write lock.
    pub(super) fn extend(&self, id: LeaseId, now: Moment, duration: Duration) {
        if let Some(until) = self.lock().leases.get_mut(&id) {
            until.monotonic = now.monotonic.plus(duration);
        }
    }

    pub(super) fn forget(&self, id: LeaseId) {
        self.lock().leases.remove(&id);
    }

    /// Whether the holder of a running record lives. A lease that is known to have lapsed is shown as lapsed in the
    /// record, whatever the row says.
    pub(super) fn liveness(&self, record: &mut Record, now: Moment) -> Liveness {
        if !matches!(record.state, State::Running) {
            return Liveness::ByClock;
        }
        let Some(until) = self.lock().leases.get(&record.lease).copied() else {
            return Liveness::ByClock;
        };
        if until.monotonic > now.monotonic {
            return Liveness::Held;
        }
        if until.wall == record.lease_until {
            record.lease_until = record.lease_until.min(now.wall);
        }
        Liveness::ByClock
    }

    /// Whether this process knows the lease to live.
    pub(super) fn lives(&self, id: LeaseId, now: Moment) -> bool {
        self.lock().leases.get(&id).is_some_and(|until| until.monotonic > now.monotonic)
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a lapsed lease stays known, in case the wall clock is set back.
const KEPT_AFTER_LAPSE: Duration = Duration::from_secs(24 * 60 * 60);

const PRUNED_FROM: usize = 1024;
