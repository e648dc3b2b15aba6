//! A store in memory that is broken in one way: its verbs, its list of held records, its watches.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use idempotency_layer::Store;
use idempotency_layer::store::{
    Claim, ClaimRequest, Completion, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId, Renewal, Resolution,
    StoreError, StoreErrorKind, StoreId, StoredResponse, Watch, Write,
};
use tokio::sync::Notify;

use super::Mutation::{self, *};
use super::row::{Row, Rules, State};

#[derive(Clone, Debug)]
pub(crate) struct MutantStore {
    mutation: Option<Mutation>,
    identity: StoreId,
    table: Arc<Mutex<Table>>,
    /// What this handle saw, for the mutant that believes it.
    remembered: Arc<Mutex<HashMap<RecordId, Look>>>,
}

#[derive(Debug, Default)]
struct Table {
    now: Duration,
    rows: BTreeMap<RecordId, Row>,
    /// Why a record cannot be read.
    damaged: HashMap<RecordId, StoreErrorKind>,
    watched: HashMap<RecordId, Arc<Notify>>,
    last_retention: Duration,
}

impl MutantStore {
    pub(super) fn new(mutation: Option<Mutation>) -> Self {
        Self { mutation, identity: StoreId::random(), table: Arc::default(), remembered: Arc::default() }
    }

    pub(super) fn reopen(&self) -> Self {
        Self { remembered: Arc::default(), ..self.clone() }
    }

    pub(super) fn elsewhere(&self) -> Self {
        Self::new(self.mutation)
    }

    pub(super) fn pass(&self, by: Duration) {
        self.table.lock().unwrap().now += by;
    }

    pub(super) fn damage(&self, record: &RecordId, kind: StoreErrorKind) {
        let mut table = self.table.lock().unwrap();
        table.rows.remove(record);
        table.damaged.insert(*record, kind);
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn place(&self, record: &RecordId) -> RecordId {
        let mut bytes = *record.as_bytes();
        if self.has(IdsAreShortened) {
            bytes[31] = 0;
        }
        RecordId::from_bytes(bytes)
    }

    /// Takes a copy of the record out, as a verb sees it.
    fn read(&self, id: RecordId) -> Result<(Option<Row>, Rules), StoreError> {
        let table = self.table.lock().unwrap();
        let rules = Rules { now: table.now, mutation: self.mutation };
        match table.damaged.get(&id) {
            Some(StoreErrorKind::Corrupt) if self.has(CorruptIsAbsent) => {}
            Some(_) if self.has(NewerIsCorrupt) => return Err(StoreError::new(StoreErrorKind::Corrupt)),
            Some(kind) => return Err(StoreError::new(*kind)),
            None => {}
        }
        let row = table.rows.get(&id).filter(|row| !rules.is_expired(row, table.last_retention));
        Ok((row.cloned(), rules))
    }

    fn write(&self, id: RecordId, row: Option<Row>, wakes: bool) {
        let mut table = self.table.lock().unwrap();
        if let Some(row) = &row {
            table.last_retention = row.retention;
        }
        let before = match &row {
            Some(row) => table.rows.insert(id, row.clone()),
            None => table.rows.remove(&id),
        };
        if before == row || !wakes || self.has(WakesNobody) {
            return;
        }
        match table.watched.get(&id) {
            Some(notify) if self.has(WakesOneWatcher) => notify.notify_one(),
            Some(notify) => notify.notify_waiters(),
            None => {}
        }
    }

    /// One atomic step, unless the mutation lets others in between.
    async fn step<T>(
        &self,
        record: &RecordId,
        races: impl FnOnce(&Option<Row>, &Rules) -> bool,
        verb: impl FnOnce(&Rules, &mut Option<Row>) -> T,
    ) -> Result<T, StoreError> {
        let id = self.place(record);
        let (row, rules) = self.read(id)?;
        if races(&row, &rules) {
            let mut row = row;
            yield_to_others().await;
            let answer = verb(&rules, &mut row);
            self.write(id, row, true);
            return Ok(answer);
        }
        self.atomic(id, true, verb)
    }

    fn atomic<T>(
        &self,
        id: RecordId,
        wakes: bool,
        verb: impl FnOnce(&Rules, &mut Option<Row>) -> T,
    ) -> Result<T, StoreError> {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _turn = ONE_AT_A_TIME.lock().unwrap();
        let (mut row, rules) = self.read(id)?;
        let answer = verb(&rules, &mut row);
        self.write(id, row, wakes);
        Ok(answer)
    }
}

async fn yield_to_others() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}

fn never(_: &Option<Row>, _: &Rules) -> bool {
    false
}

impl Store for MutantStore {
    fn identity(&self) -> StoreId {
        static OF_ALL: LazyLock<StoreId> = LazyLock::new(StoreId::random);
        match self.mutation {
            Some(IdentityIsMadeUp) => StoreId::random(),
            Some(OneIdentityForAll) => *OF_ALL,
            _ => self.identity,
        }
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if self.has(ClaimTakesTwoSteps) {
            let mut reserved = request.clone();
            reserved.lease.id = LeaseId::random();
            let claim = self.step(&request.lease.record, never, |rules, row| rules.claim(row, &reserved)).await?;
            yield_to_others().await;
            self.atomic(request.lease.record, true, |_, row| {
                if let Some(row) = row.as_mut().filter(|row| row.lease == reserved.lease.id) {
                    row.lease = request.lease.id;
                }
            })?;
            return Ok(claim);
        }
        let races = |row: &Option<Row>, rules: &Rules| match row {
            None => self.has(ClaimChecksThenActs),
            Some(row) => self.has(TakeoverChecksThenActs) && row.state == State::Running && rules.is_lapsed(row),
        };
        self.step(&request.lease.record, races, |rules, row| rules.claim(row, request)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        let races = |_: &Option<Row>, _: &Rules| self.has(RenewalChecksThenActs);
        self.step(&lease.record, races, |rules, row| rules.renew(row, lease)).await
    }

    async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
        if let (true, Completion::Response(response)) = (self.has(CompletionTakesTwoSteps), completion) {
            let empty = StoredResponse { body: bytes::Bytes::new(), ..StoredResponse::clone(response) };
            let completion = Completion::Response(Arc::new(empty));
            let answer = self.step(&lease.record, never, |rules, row| rules.complete(row, lease, &completion)).await?;
            yield_to_others().await;
            self.atomic(lease.record, true, |_, row| {
                if let Some(row) = row.as_mut().filter(|row| row.lease == lease.id) {
                    row.state = State::Recorded(Arc::clone(response));
                }
            })?;
            return Ok(answer);
        }
        let races = |_: &Option<Row>, _: &Rules| self.has(CompletionChecksThenActs);
        self.step(&lease.record, races, |rules, row| rules.complete(row, lease, completion)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
        let answer = self.step(&lease.record, never, |rules, row| rules.release(row, lease)).await?;
        if self.has(ReleaseIsRepeatedUnfenced) {
            yield_to_others().await;
            self.atomic(lease.record, true, |_, row| {
                if let Some(row) = row {
                    row.state = State::Free;
                }
            })?;
        }
        Ok(answer)
    }

    async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.step(&lease.record, never, |rules, row| rules.forget(row, lease)).await
    }

    async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.step(&lease.record, never, |rules, row| rules.hold(row, lease)).await
    }

    async fn held(&self, page: &Page) -> Result<HeldPage, StoreError> {
        let table = self.table.lock().unwrap();
        if self.has(ACorruptRecordBreaksTheList) && !table.damaged.is_empty() {
            return Err(StoreError::new(StoreErrorKind::Corrupt));
        }
        let begins = |id: &RecordId| match page.start() {
            Some(start) if self.has(PagesRepeatTheirStart) => id >= start,
            Some(start) => id > start,
            None => !self.has(FirstPageSkipsTheSmallestId) || *id > RecordId::from_bytes([0; 32]),
        };
        let rules = Rules { now: table.now, mutation: self.mutation };
        let (mut records, mut left_out) = (Vec::new(), 0);
        for (id, row) in table.rows.iter().filter(|(id, _)| begins(id)) {
            match rules.held(*id, row) {
                Some(held) => records.push(held),
                None => left_out += usize::from(self.has(LiveRunsTakePlaces) && row.is_under_hold()),
            }
        }
        let limit = usize::from(page.limit().get()).saturating_sub(left_out);
        let more = records.len() > limit || self.has(FullPagesLeadOn) && records.len() == limit;
        records.truncate(limit);
        let next = records.last().filter(|_| more).map(|last| page.after(last.record));
        Ok(HeldPage { records, next })
    }

    async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Result<Write, StoreError> {
        let verb = |rules: &Rules, row: &mut Option<Row>| rules.resolve(row, held.hold, by, resolution);
        if self.has(DecisionChecksThenActs) || self.has(DecisionOfALapseChecksThenActs) {
            return self.step(&held.record, |_, _| true, verb).await;
        }
        let wakes = !self.has(DecisionsDoNotWake);
        self.atomic(held.record, wakes, verb)
    }

    async fn look(&self, record: &RecordId) -> Result<Look, StoreError> {
        let (row, rules) = self.read(self.place(record))?;
        let seen = rules.look(*record, &row);
        if self.has(HandlesRemember) {
            return Ok(self.remembered.lock().unwrap().entry(*record).or_insert(seen).clone());
        }
        Ok(seen)
    }

    async fn watch(&self, record: &RecordId) -> Result<Watch, StoreError> {
        let notify = Arc::clone(self.table.lock().unwrap().watched.entry(*record).or_default());
        if self.has(SubscribesWhenPolled) {
            return Ok(Watch::new(async move { notify.notified().await }));
        }
        Ok(Watch::new(notify.notified_owned()))
    }
}
