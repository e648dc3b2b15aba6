//! Records in this process's memory: for tests, for one process, and for work that may be forgotten with it.
//!
//! A restart forgets every key. Records leave by time only: there is no capacity, and no live record is ever evicted,
//! since a key that is forgotten early is an operation that runs twice.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, btree_map};
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
        let place = records.place(id);
        let (answer, change) = decide(place.find(now)?, now);
        match change {
            Change::Keep => {}
            Change::Put(record) => place.put(record),
            Change::Remove => place.remove(),
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
        records.place(id).remove();
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
        /// In a box: the map is moved whole whenever it grows.
        record: Box<Record>,
        /// The one entry of this record in [`Records::due`]; none while it does not expire.
        due: Option<Millis>,
    },
    #[cfg_attr(not(feature = "conformance"), expect(dead_code, reason = "built by the conformance list only"))]
    Unreadable(StoreErrorKind),
}

#[derive(Debug, Default)]
struct Records {
    slots: HashMap<RecordId, Slot>,
    due: Due,
    watchers: Watchers,
}

impl Records {
    fn place(&mut self, id: &RecordId) -> Place<'_> {
        Place { id: *id, slot: self.slots.entry(*id), due: &mut self.due, watchers: &mut self.watchers }
    }

    /// Removes what has expired, a few records at a time, so that no single verb pays for many.
    fn drop_expired(&mut self, now: Millis) {
        for _ in 0..SWEPT_PER_STEP {
            let Some(id) = self.due.pop(now) else { return };
            let Some(Slot::Record { record, due }) = self.slots.get_mut(&id) else { continue };
            match record.expires_at() {
                Some(at) if at <= now => {
                    self.slots.remove(&id);
                    self.watchers.changed(&id);
                }
                later => {
                    *due = later;
                    self.due.put(later, id);
                }
            }
        }
    }
}

/// One entry for each record that expires, due at its expiry or before it: a write that prolongs a record leaves the
/// entry alone, and the entry is put back when it comes up too early.
///
/// Those of one millisecond are together, so that a busy store does not search a tree for each.
#[derive(Debug, Default)]
struct Due(BTreeMap<Millis, Vec<RecordId>>);

impl Due {
    fn put(&mut self, at: Option<Millis>, id: RecordId) {
        if let Some(at) = at {
            self.0.entry(at).or_default().push(id);
        }
    }

    fn remove(&mut self, at: Option<Millis>, id: &RecordId) {
        let Some(btree_map::Entry::Occupied(mut ids)) = at.map(|at| self.0.entry(at)) else { return };
        if let Some(found) = ids.get().iter().position(|due| due == id) {
            ids.get_mut().swap_remove(found);
        }
        if ids.get().is_empty() {
            ids.remove();
        }
    }

    /// Takes one that is due.
    fn pop(&mut self, now: Millis) -> Option<RecordId> {
        let mut first = self.0.first_entry().filter(|first| *first.key() <= now)?;
        let id = first.get_mut().pop();
        if first.get().is_empty() {
            first.remove();
        }
        id
    }
}

/// The place of one record, found once for all of a step.
struct Place<'a> {
    id: RecordId,
    slot: Entry<'a, RecordId, Slot>,
    due: &'a mut Due,
    watchers: &'a mut Watchers,
}

impl Place<'_> {
    fn find(&self, now: Millis) -> Result<Option<&Record>, StoreError> {
        match &self.slot {
            Entry::Vacant(_) => Ok(None),
            Entry::Occupied(slot) => match slot.get() {
                Slot::Unreadable(kind) => Err(StoreError::new(*kind)),
                Slot::Record { record, .. } => Ok(machine::visible(Some(record), now, Liveness::ByClock)),
            },
        }
    }

    fn put(self, record: Record) {
        let expires_at = record.expires_at();
        match self.slot {
            Entry::Vacant(slot) => {
                self.due.put(expires_at, self.id);
                slot.insert(Slot::Record { record: Box::new(record), due: expires_at });
            }
            Entry::Occupied(mut slot) => {
                let Slot::Record { record: kept, due } = slot.get_mut() else {
                    unreachable!("`find` answers no verb where a record cannot be read");
                };
                // An entry that comes up too early is put back then.
                let stays = due.is_some_and(|due| expires_at.is_some_and(|at| due <= at));
                if !stays {
                    self.due.remove(*due, &self.id);
                    self.due.put(expires_at, self.id);
                    *due = expires_at;
                }
                **kept = record;
            }
        }
        self.watchers.changed(&self.id);
    }

    fn remove(self) {
        if let Entry::Occupied(slot) = self.slot
            && let Slot::Record { due, .. } = slot.remove()
        {
            self.due.remove(due, &self.id);
        }
        self.watchers.changed(&self.id);
    }
}

/// Two records leave for each that comes, so that the map shrinks back after a burst.
const SWEPT_PER_STEP: usize = 2;
