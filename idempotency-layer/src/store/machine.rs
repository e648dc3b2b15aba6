//! What each verb makes of a record, decided without a database.
//!
//! The memory and SQLite stores read a record, ask this file, and write what it says, all in one critical section or
//! one write transaction. Stores that decide inside their server say the same in its language; the conformance list
//! holds all of them to it.
//!
//! Times are whole milliseconds on the store's clock. A lease of `d` taken at `t` is live before `t + d` and lapsed
//! from then on; retention likewise. An expired record is absent to every verb.
//!
//! A run under Hold that has lapsed is held in the eyes of everyone but its holder, before any claim has found it so:
//! it does not expire, it is seen and listed as held, and it is decided like any other hold.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Acquired, CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, HeldCause, HeldRecord, LapsePolicy,
    Lease, LeaseId, Look, RecordId, Recorded, Renewal, Resolution, StoredResponse, Tombstone, UnknownOutcome, Write,
};

/// A moment on the store's clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Millis(pub(crate) i64);

impl Millis {
    pub(crate) fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(whole_millis(duration)))
    }

    pub(crate) fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl From<Duration> for Millis {
    /// The moment so long after the clock's origin.
    fn from(since_origin: Duration) -> Self {
        Self(whole_millis(since_origin))
    }
}

pub(crate) fn whole_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// One key's record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) state: State,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) caller: CallerFingerprint,
    /// The holder while RUNNING; afterwards the id that wrote the state, so that its duplicates are known.
    pub(crate) lease: LeaseId,
    pub(crate) attempt: u32,
    /// How many of the attempts lapsed.
    pub(crate) lapsed: u32,
    pub(crate) policy: LapsePolicy,
    pub(crate) retention: Duration,
    pub(crate) claimed_at: Millis,
    pub(crate) lease_until: Millis,
    /// The last write; the retention counts from here.
    pub(crate) written_at: Millis,
}

#[derive(Clone, Debug)]
pub(crate) enum State {
    Running,
    Recorded(Arc<StoredResponse>),
    Tombstone(Tombstone),
    Free,
    Held(HeldCause),
}

/// What is to be written.
#[must_use]
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Keep,
    Put(Record),
    Remove,
}

impl Record {
    /// When the record may be removed; never while it is held, or would be if its holder went silent.
    pub(crate) fn expires_at(&self) -> Option<Millis> {
        let kept_until = self.written_at.plus(self.retention);
        match self.state {
            State::Held(_) => None,
            State::Running if self.policy.unknown == UnknownOutcome::Hold => None,
            State::Running => Some(kept_until.max(self.lease_until)),
            State::Recorded(_) | State::Tombstone(_) | State::Free => Some(kept_until),
        }
    }

    fn is_expired(&self, now: Millis, live: Liveness) -> bool {
        let holder_lives = matches!(self.state, State::Running) && live == Liveness::Held;
        !holder_lives && self.expires_at().is_some_and(|at| at <= now)
    }

    fn is_lapsed(&self, now: Millis, live: Liveness) -> bool {
        live == Liveness::ByClock && self.lease_until <= now
    }

    /// Whether it is held in the eyes of everyone but its holder.
    fn is_held(&self, now: Millis, live: Liveness) -> bool {
        match self.state {
            State::Held(_) => true,
            State::Running => self.policy.unknown == UnknownOutcome::Hold && self.is_lapsed(now, live),
            State::Recorded(_) | State::Tombstone(_) | State::Free => false,
        }
    }

    fn settled(&self, state: State, by: LeaseId, now: Millis) -> Self {
        Self { state, lease: by, written_at: now, ..self.clone() }
    }

    fn is_running_under(&self, id: LeaseId) -> bool {
        matches!(self.state, State::Running) && self.lease == id
    }
}

/// Whether something stronger than the clock says that the holder lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Liveness {
    /// The lease is live for as long as the record says.
    ByClock,
    /// The holder is known to live, whatever the clock says.
    Held,
}

/// The record as every verb sees it: expired is absent.
pub(crate) fn visible(found: Option<&Record>, now: Millis, live: Liveness) -> Option<&Record> {
    found.filter(|record| !record.is_expired(now, live))
}

/// Decides a claim on a [visible] record. The store fills in [`Acquired::queued`].
pub(crate) fn claim(found: Option<&Record>, request: &ClaimRequest, now: Millis, live: Liveness) -> (Claim, Change) {
    let Some(record) = found else {
        return run(request, now, 1, 0);
    };
    if record.fingerprint != request.fingerprint {
        return (Claim::Reused, Change::Keep);
    }
    if record.caller != request.caller {
        return (Claim::CallerChanged, Change::Keep);
    }
    let own = record.lease == request.lease.id;
    match &record.state {
        State::Recorded(response) => {
            let expires_in = record.written_at.plus(record.retention).since(now);
            (Claim::Recorded(Recorded { response: Arc::clone(response), expires_in }), Change::Keep)
        }
        State::Tombstone(tombstone) => (Claim::Unavailable(*tombstone), Change::Keep),
        State::Held(_) => (Claim::Held, Change::Keep),
        // A duplicate of the claim whose run ended here. To claim again would leave a lease that nobody holds.
        State::Free if own => (Claim::InFlight { age: now.since(record.claimed_at) }, Change::Keep),
        State::Free => run(request, now, record.attempt.saturating_add(1), record.lapsed),
        State::Running if own => {
            let renewed = Record { lease_until: now.plus(request.lease.duration), written_at: now, ..record.clone() };
            (Claim::Acquired(Acquired { attempt: record.attempt, queued: Duration::ZERO }), Change::Put(renewed))
        }
        State::Running if record.is_lapsed(now, live) => {
            let lapsed = record.lapsed.saturating_add(1);
            let may_rerun = record.policy.unknown == UnknownOutcome::Rerun && lapsed < record.policy.max_attempts.get();
            if may_rerun {
                run(request, now, record.attempt.saturating_add(1), lapsed)
            } else {
                let held = record.settled(State::Held(HeldCause::Lapsed), request.lease.id, now);
                (Claim::Held, Change::Put(Record { lapsed, ..held }))
            }
        }
        State::Running => (Claim::InFlight { age: now.since(record.claimed_at) }, Change::Keep),
    }
}

fn run(request: &ClaimRequest, now: Millis, attempt: u32, lapsed: u32) -> (Claim, Change) {
    let record = Record {
        state: State::Running,
        fingerprint: request.fingerprint,
        caller: request.caller,
        lease: request.lease.id,
        attempt,
        lapsed,
        policy: request.policy,
        retention: request.retention,
        claimed_at: now,
        lease_until: now.plus(request.lease.duration),
        written_at: now,
    };
    (Claim::Acquired(Acquired { attempt, queued: Duration::ZERO }), Change::Put(record))
}

/// Decides a renewal. The store fills in how long it was queued.
pub(crate) fn renew(found: Option<&Record>, lease: &Lease, now: Millis) -> (Renewal, Change) {
    let renewed = Renewal::Renewed { queued: Duration::ZERO };
    match found {
        Some(record) if record.is_running_under(lease.id) => {
            let record = Record { lease_until: now.plus(lease.duration), written_at: now, ..record.clone() };
            (renewed, Change::Put(record))
        }
        Some(record) if record.lease == lease.id => (renewed, Change::Keep),
        _ => (Renewal::Fenced, Change::Keep),
    }
}

/// Decides a completion.
pub(crate) fn complete(found: Option<&Record>, lease: &Lease, completion: &Completion, now: Millis) -> (Write, Change) {
    let state = || match completion {
        Completion::Response(response) => State::Recorded(Arc::clone(response)),
        Completion::Tombstone(tombstone) => State::Tombstone(*tombstone),
    };
    settle(found, lease.id, state, |state| matches!(state, State::Recorded(_) | State::Tombstone(_)), now)
}

/// Decides a release.
pub(crate) fn release(found: Option<&Record>, lease: &Lease, now: Millis) -> (Write, Change) {
    settle(found, lease.id, || State::Free, |state| matches!(state, State::Free), now)
}

/// Decides a hold.
pub(crate) fn hold(found: Option<&Record>, lease: &Lease, now: Millis) -> (Write, Change) {
    settle(found, lease.id, || State::Held(HeldCause::Unknown), |state| matches!(state, State::Held(_)), now)
}

/// A RUNNING record under this id takes the new state; one that this id has put there already stays.
fn settle(
    found: Option<&Record>,
    id: LeaseId,
    state: impl FnOnce() -> State,
    is_there: impl FnOnce(&State) -> bool,
    now: Millis,
) -> (Write, Change) {
    match found {
        Some(record) if record.is_running_under(id) => (Write::Done, Change::Put(record.settled(state(), id, now))),
        Some(record) if record.lease == id && is_there(&record.state) => (Write::Done, Change::Keep),
        _ => (Write::Fenced, Change::Keep),
    }
}

/// Decides a forget.
pub(crate) fn forget(found: Option<&Record>, lease: &Lease) -> (Write, Change) {
    match found {
        None => (Write::Done, Change::Keep),
        Some(record) if record.is_running_under(lease.id) => (Write::Done, Change::Remove),
        Some(_) => (Write::Fenced, Change::Keep),
    }
}

/// Decides an operator's resolution of the hold that this id wrote, or of its run that lapsed under Hold.
pub(crate) fn resolve(
    found: Option<&Record>,
    hold: LeaseId,
    by: LeaseId,
    resolution: &Resolution,
    now: Millis,
    live: Liveness,
) -> (Write, Change) {
    let Some(record) = found else {
        let forgotten = matches!(resolution, Resolution::Forget);
        return (if forgotten { Write::Done } else { Write::Fenced }, Change::Keep);
    };
    if record.is_held(now, live) {
        if record.lease != hold {
            // The same record, held again since: what the operator saw is not what is there.
            return (Write::Fenced, Change::Keep);
        }
        let change = match resolution {
            Resolution::Settle(response) => Change::Put(record.settled(State::Recorded(Arc::clone(response)), by, now)),
            Resolution::Free => Change::Put(Record { lapsed: 0, ..record.settled(State::Free, by, now) }),
            Resolution::Forget => Change::Remove,
        };
        return (Write::Done, change);
    }
    match (&record.state, resolution) {
        (State::Recorded(_), Resolution::Settle(_)) | (State::Free, Resolution::Free) if record.lease == by => {
            (Write::Done, Change::Keep)
        }
        _ => (Write::Fenced, Change::Keep),
    }
}

/// What somebody sees who does not claim.
pub(crate) fn look(id: &RecordId, found: Option<&Record>, now: Millis, live: Liveness) -> Look {
    let Some(record) = found else {
        return Look::Absent;
    };
    match &record.state {
        State::Running if record.is_held(now, live) => {
            Look::Held(told(id, record, HeldCause::Lapsed, record.lease_until, now))
        }
        State::Running => Look::Running {
            lease: record.lease,
            age: now.since(record.claimed_at),
            lapsed: record.is_lapsed(now, live),
        },
        State::Recorded(response) => Look::Recorded(Arc::clone(response)),
        State::Tombstone(tombstone) => Look::Unavailable(*tombstone),
        State::Free => Look::Free,
        State::Held(cause) => Look::Held(told(id, record, *cause, record.written_at, now)),
    }
}

/// The record as the list of held records tells of it, which is as looking at it does; none if it is not held.
pub(crate) fn held(id: &RecordId, record: &Record, now: Millis, live: Liveness) -> Option<HeldRecord> {
    match look(id, Some(record), now, live) {
        Look::Held(held) => Some(held),
        _ => None,
    }
}

fn told(id: &RecordId, record: &Record, cause: HeldCause, since: Millis, now: Millis) -> HeldRecord {
    HeldRecord { record: *id, hold: record.lease, attempt: record.attempt, cause, age: now.since(since) }
}
