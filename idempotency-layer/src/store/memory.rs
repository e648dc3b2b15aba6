//! Records in this process's memory: for tests, for one process, and for work that may be forgotten with it.
//!
//! A restart forgets every key. Records leave by time only: there is no capacity, and no live record is ever evicted,
//! since a key that is forgotten early is an operation that runs twice.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::machine::{self, Change, Liveness, Millis, Record};
use super::watchers::Watchers;
use super::{
    Claim, ClaimRequest, Completion, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId, Renewal, Resolution,
    Store, StoreError, StoreErrorKind, StoreId, Watch, Write,
};
use crate::Clock;

/// A store in memory. Clones share the records.
///
/// It holds every record for its retention, however many there are: 24 h of responses by default. Expired ones leave as
/// new ones come; there is nothing to sweep.
///
/// ```
/// use idempotency_layer::{IdempotencyLayer, MemoryStore};
///
/// let layer = IdempotencyLayer::new(MemoryStore::new());
/// ```
#[derive(Clone, Debug)]
pub struct MemoryStore {
    identity: StoreId,
    clock: Clock,
    records: Arc<Mutex<Records>>,
}

impl MemoryStore {
    /// An empty store on the machine's monotonic clock.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty store on this clock, of which only the monotonic side is read.
    #[must_use]
    pub fn with_clock(clock: Clock) -> Self {
        Self { identity: StoreId::random(), clock, records: Arc::default() }
    }

    fn now(&self) -> Millis {
        Millis::from(self.clock.monotonic())
    }

    /// Runs one verb on one record: found, decided and written under one lock.
    fn step<T>(
        &self,
        id: &RecordId,
        decide: impl FnOnce(Option<&Record>, Millis) -> (T, Change),
    ) -> Result<T, StoreError> {
        let mut records = self.lock();
        // Read under the lock: a step that waited for it would otherwise write a lease that began before the last one.
        let now = self.now();
        records.drop_expired(now);
        let (answer, change) = decide(records.find(id, now)?, now);
        match change {
            Change::Keep => {}
            Change::Put(record) => records.put(*id, record),
            Change::Remove => records.remove(id),
        }
        Ok(answer)
    }

    fn lock(&self) -> MutexGuard<'_, Records> {
        // Every change is made whole under the lock, so a panic elsewhere leaves nothing half done.
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a record there that cannot be read, for the conformance list.
    #[cfg(feature = "conformance")]
    pub(crate) fn damage(&self, id: &RecordId, kind: StoreErrorKind) {
        let mut records = self.lock();
        records.remove(id);
        records.slots.insert(*id, Slot::Unreadable(kind));
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl Store for MemoryStore {
    fn identity(&self) -> StoreId {
        self.identity
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        self.step(&request.lease.record, |found, now| machine::claim(found, request, now, Liveness::ByClock))
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        self.step(&lease.record, |found, now| machine::renew(found, lease, now))
    }

    async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
        self.step(&lease.record, |found, now| machine::complete(found, lease, completion, now))
    }

    async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.step(&lease.record, |found, now| machine::release(found, lease, now))
    }

    async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.step(&lease.record, |found, _| machine::forget(found, lease))
    }

    async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.step(&lease.record, |found, now| machine::hold(found, lease, now))
    }

    async fn held(&self, page: &Page) -> Result<HeldPage, StoreError> {
        let records = self.lock();
        let now = self.now();
        let mut held: Vec<HeldRecord> = records
            .slots
            .iter()
            .filter(|(id, _)| page.start().is_none_or(|start| *id > start))
            .filter_map(|(id, slot)| match slot {
                Slot::Record { record, .. } => machine::held(id, record, now, Liveness::ByClock),
                Slot::Unreadable(_) => None,
            })
            .collect();
        drop(records);
        held.sort_unstable_by_key(|held| held.record);
        Ok(HeldPage::cut(held, page))
    }

    async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Result<Write, StoreError> {
        self.step(&held.record, |found, now| machine::resolve(found, held.hold, by, resolution, now, Liveness::ByClock))
    }

    async fn look(&self, record: &RecordId) -> Result<Look, StoreError> {
        self.step(record, |found, now| (machine::look(record, found, now, Liveness::ByClock), Change::Keep))
    }

    async fn watch(&self, record: &RecordId) -> Result<Watch, StoreError> {
        Ok(self.lock().watchers.watch(record))
    }
}

/// What a record's place holds.
#[derive(Debug)]
enum Slot {
    Record {
        record: Record,
        /// The one entry of this record in [`Records::due`]; none while it does not expire.
        due: Option<Millis>,
    },
    #[cfg_attr(not(feature = "conformance"), expect(dead_code, reason = "built by the conformance list only"))]
    Unreadable(StoreErrorKind),
}

#[derive(Debug, Default)]
struct Records {
    slots: HashMap<RecordId, Slot>,
    /// One entry for each record that expires, due at its expiry or before it: a write that prolongs a record leaves
    /// the entry alone, and the entry is put back when it comes up too early.
    due: BTreeSet<(Millis, RecordId)>,
    watchers: Watchers,
}

impl Records {
    fn find(&self, id: &RecordId, now: Millis) -> Result<Option<&Record>, StoreError> {
        match self.slots.get(id) {
            None => Ok(None),
            Some(Slot::Unreadable(kind)) => Err(StoreError::new(*kind)),
            Some(Slot::Record { record, .. }) => Ok(machine::visible(Some(record), now, Liveness::ByClock)),
        }
    }

    fn put(&mut self, id: RecordId, record: Record) {
        let expires_at = record.expires_at();
        match self.slots.entry(id) {
            Entry::Vacant(slot) => {
                self.due.extend(expires_at.map(|at| (at, id)));
                slot.insert(Slot::Record { record, due: expires_at });
            }
            Entry::Occupied(mut slot) => {
                let before = match slot.get() {
                    Slot::Record { due, .. } => *due,
                    Slot::Unreadable(_) => None,
                };
                // An entry that comes up too early is put back then.
                let stays = before.is_some_and(|before| expires_at.is_some_and(|at| before <= at));
                let due = if stays { before } else { expires_at };
                if !stays {
                    if let Some(before) = before {
                        self.due.remove(&(before, id));
                    }
                    self.due.extend(due.map(|at| (at, id)));
                }
                slot.insert(Slot::Record { record, due });
            }
        }
        self.watchers.changed(&id);
    }

    fn remove(&mut self, id: &RecordId) {
        if let Some(Slot::Record { due: Some(due), .. }) = self.slots.remove(id) {
            self.due.remove(&(due, *id));
        }
        self.watchers.changed(id);
    }

    /// Removes what has expired, a few records at a time, so that no single verb pays for many.
    fn drop_expired(&mut self, now: Millis) {
        for _ in 0..SWEPT_PER_STEP {
            match self.due.first() {
                Some((at, _)) if *at <= now => {}
                _ => return,
            }
            let Some((_, id)) = self.due.pop_first() else { return };
            let Some(Slot::Record { record, due }) = self.slots.get_mut(&id) else { continue };
            match record.expires_at() {
                Some(at) if at <= now => {
                    self.slots.remove(&id);
                    self.watchers.changed(&id);
                }
                later => {
                    *due = later;
                    self.due.extend(later.map(|at| (at, id)));
                }
            }
        }
    }
}

/// Two records leave for each that comes, so that the map shrinks back after a burst.
const SWEPT_PER_STEP: usize = 2;
