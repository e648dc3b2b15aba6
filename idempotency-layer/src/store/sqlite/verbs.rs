//! Each verb: one write transaction on the writer, or one read on a reader.
//!
//! What is to be done is decided by the state machine that all stores share; this file reads the record, asks, and writes
//! the answer down. It reads and writes in one transaction: what a reader saw is only ever a reason to ask the writer.

use std::time::{Duration, Instant};

use sqlx::sqlite::SqliteConnection;

use super::leases::Moment;
use super::writer::Lane;
use super::{SqliteStore, failure, file, renewals, row};
use crate::store::machine::{self, Change, Liveness, Millis, Record};
use crate::store::{
    Acquired, Claim, ClaimRequest, Completion, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId, Renewal,
    Resolution, Store, StoreError, StoreId, Watch, Write,
};

impl Store for SqliteStore {
    fn identity(&self) -> StoreId {
        self.identity
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let called = Instant::now();
        let deadline = self.queue_deadline();
        let id = &request.lease.record;
        let read = self.read(id, |found, now, live| machine::claim(found, request, now.wall, live)).await?;
        if let (claim, Change::Keep) = read {
            return Ok(claim);
        }
        let read_for = called.elapsed();
        // What was read is only a reason to ask the writer, who decides afresh.
        let decide = |found: Option<&Record>, now: Moment, live| {
            let (claim, change) = machine::claim(found, request, now.wall, live);
            if let (Claim::Acquired(_), Change::Put(record)) = (&claim, &change) {
                self.shared.leases.note(record, now, request.lease.duration);
            }
            (claim, change)
        };
        let step = self.step(id, deadline, decide).await?;
        if let Some(previous) = step.replaced.filter(|previous| *previous != request.lease.id) {
            self.shared.leases.forget(previous);
        }
        Ok(match step.answer {
            Claim::Acquired(acquired) => Claim::Acquired(Acquired { queued: read_for + step.queued, ..acquired }),
            other => other,
        })
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        if let Some(open) = self.shared.current.under(lease.id) {
            *open.renewal() = Some(*lease);
            // Open still, it finds the renewal when it ends. Otherwise it may have looked already.
            if self.shared.current.under(lease.id).is_some() {
                self.shared.leases.extend(lease.id, self.now(), lease.duration);
                return Ok(Renewal::Renewed { queued: Duration::ZERO });
            }
        }
        renewals::renew(self, lease).await
    }

    async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
        self.settle(lease, |found, now| machine::complete(found, lease, completion, now)).await
    }

    async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.settle(lease, |found, now| machine::release(found, lease, now)).await
    }

    async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.settle(lease, |found, _| machine::forget(found, lease)).await
    }

    async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.settle(lease, |found, now| machine::hold(found, lease, now)).await
    }

    async fn held(&self, page: &Page) -> Result<HeldPage, StoreError> {
        let mut reader = self.shared.readers.lend(self.queue_deadline()).await?;
        let (mut held, mut after) = (Vec::new(), page.start().copied());
        // Runs that live take no place on the page, nor do rows that cannot be read, about which an operator can decide
        // nothing here. So a page may take several reads to fill.
        while held.len() <= usize::from(page.limit().get()) {
            let batch = row::unexpiring(&mut reader.connection, after.as_ref()).await.map_err(failure::of_statement)?;
            let Some((last, _)) = batch.last() else { break };
            after = Some(*last);
            held.extend(batch.into_iter().filter_map(|(id, found)| self.as_held(&id, found.ok()?)));
        }
        reader.give_back();
        Ok(HeldPage::cut(held, page))
    }

    async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Result<Write, StoreError> {
        let decide = |found: Option<&Record>, now: Moment, live| {
            machine::resolve(found, held.hold, by, resolution, now.wall, live)
        };
        Ok(self.step(&held.record, self.settle_deadline(), decide).await?.answer)
    }

    async fn look(&self, record: &RecordId) -> Result<Look, StoreError> {
        self.read(record, |found, now, live| machine::look(record, found, now.wall, live)).await
    }

    async fn watch(&self, record: &RecordId) -> Result<Watch, StoreError> {
        Ok(self.watchers().watch(record))
    }
}

impl SqliteStore {
    /// Runs one verb on one record: read, decided and written in one write transaction.
    pub(super) async fn step<T>(
        &self,
        id: &RecordId,
        deadline: tokio::time::Instant,
        decide: impl FnOnce(Option<&Record>, Moment, Liveness) -> (T, Change),
    ) -> Result<Step<T>, StoreError> {
        let called = Instant::now();
        let mut turn = self.shared.writer.turn(Lane::Other, deadline).await?;
        let mut connection = turn.connection().await?;
        file::begin(&mut connection, deadline).await?;
        // In this order: a lease counted from `queued` never ends after the one counted from `now`.
        let queued = called.elapsed();
        let now = self.now();
        let found = row::fetch(&mut connection, id).await.map_err(failure::of_statement)?;
        let mut found = match found.as_ref().map(row::decode).transpose() {
            Ok(found) => found,
            Err(kind) => {
                file::rollback(&mut connection).await?;
                turn.give_back(connection);
                return Err(StoreError::new(kind));
            }
        };
        let live = self.liveness(found.as_mut(), now);
        let (answer, change) = decide(machine::visible(found.as_ref(), now.wall, live), now, live);
        let changed = self.write(&mut connection, id, change).await?;
        turn.give_back(connection);
        if changed {
            self.watchers().changed(id);
        }
        Ok(Step { answer, queued, replaced: found.filter(|_| changed).map(|record| record.lease) })
    }

    /// Ends the transaction with this change in it, and says whether there was one.
    async fn write(
        &self,
        connection: &mut SqliteConnection,
        id: &RecordId,
        change: Change,
    ) -> Result<bool, StoreError> {
        match change {
            Change::Keep => {
                file::rollback(connection).await?;
                return Ok(false);
            }
            Change::Put(record) => row::put(connection, id, &record).await.map_err(failure::of_statement)?,
            Change::Remove => row::remove(connection, id).await.map_err(failure::of_statement)?,
        }
        file::commit(connection).await?;
        Ok(true)
    }

    /// Decides a write of the holder, after which it holds nothing.
    async fn settle(
        &self,
        lease: &Lease,
        decide: impl FnOnce(Option<&Record>, Millis) -> (Write, Change),
    ) -> Result<Write, StoreError> {
        let decide = |found: Option<&Record>, now: Moment, _| decide(found, now.wall);
        let step = self.step(&lease.record, self.settle_deadline(), decide).await?;
        self.shared.leases.forget(lease.id);
        Ok(step.answer)
    }

    /// Reads a record without the writer.
    pub(super) async fn read<T>(
        &self,
        id: &RecordId,
        decide: impl FnOnce(Option<&Record>, Moment, Liveness) -> T,
    ) -> Result<T, StoreError> {
        let mut reader = self.shared.readers.lend(self.queue_deadline()).await?;
        let found = row::fetch(&mut reader.connection, id).await.map_err(failure::of_statement)?;
        reader.give_back();
        let mut found = found.as_ref().map(row::decode).transpose().map_err(StoreError::new)?;
        let now = self.now();
        let live = self.liveness(found.as_mut(), now);
        Ok(decide(machine::visible(found.as_ref(), now.wall, live), now, live))
    }

    fn as_held(&self, id: &RecordId, mut record: Record) -> Option<HeldRecord> {
        let now = self.now();
        let live = self.liveness(Some(&mut record), now);
        machine::held(id, &record, now.wall, live)
    }

    pub(super) fn liveness(&self, found: Option<&mut Record>, now: Moment) -> Liveness {
        let Some(record) = found else { return Liveness::ByClock };
        if self.shared.current.under(record.lease).is_some() {
            return Liveness::Held;
        }
        self.shared.leases.liveness(record, now)
    }

    pub(super) fn now(&self) -> Moment {
        Moment { wall: Millis::from(self.clock.wall()), monotonic: Millis::from(self.clock.monotonic()) }
    }
}

pub(super) struct Step<T> {
    pub(super) answer: T,
    /// How long the verb waited for its transaction to begin.
    queued: Duration,
    /// Whose record was changed.
    replaced: Option<LeaseId>,
}
