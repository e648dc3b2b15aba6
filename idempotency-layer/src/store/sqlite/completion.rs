//! From `begin` to COMMIT: one write transaction with the handler's effects and the record in it.
//!
//! 1. `begin` takes the turn, opens a connection, and leaves a random mark in the record, inside the transaction.
//! 2. `complete_in` finds the mark or does not commit: a transaction that ended and was replaced by another has no mark.
//!    The record is written where the mark is and looked for in the file, and one COMMIT, the only one that the connection
//!    accepts, ends both.
//! 3. A COMMIT whose answer did not come is decided all the same: the connection holds the file's write lock until then.
//!    [`confirm`](TransactionalStore::confirm) takes that lock before it reads.
//!
//! While the transaction is open, its lease is renewed without the database: nobody else can write. What was renewed so
//! is written when the transaction has been rolled back, for other processes to see; after a mere drop, only the next
//! renewal does that. A constraint that is checked at COMMIT only, a deferred foreign key, and does not hold is
//! [`Commit::Aborted`].

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::open::{Ending, Fate, Held, Open, Seat};
use super::transaction::SqliteTransaction;
use super::writer::Lane;
use super::{SqliteStore, failure, file, renewals, row};
use crate::store::machine::{self, Change, Liveness, Record, State};
use crate::store::{Begin, Commit, Completion, Lease, LeaseId, StoreError, TransactionalStore, Write};

impl TransactionalStore for SqliteStore {
    type Transaction = SqliteTransaction;

    async fn begin(&self, lease: &Lease) -> Result<Begin<SqliteTransaction>, StoreError> {
        let deadline = self.queue_deadline();
        let turn = self.shared.writer.turn(Lane::Other, deadline).await?;
        let mut connection = self.shared.file.writer().await?;
        let fate = Arc::new(Fate::default());
        fate.govern(&mut connection).await.map_err(failure::of_statement)?;
        file::begin_outermost(&mut connection, deadline).await?;
        let now = self.now();
        let found = row::fetch(&mut connection, &lease.record).await.map_err(failure::of_statement)?;
        let mut found = found.as_ref().map(row::decode).transpose().map_err(StoreError::new)?;
        let live = self.liveness(found.as_mut(), now);
        if !machine::visible(found.as_ref(), now.wall, live).is_some_and(|record| is_running(record, lease.id)) {
            self.shared.leases.forget(lease.id);
            return Ok(Begin::Fenced);
        }
        let mark = *LeaseId::random().as_bytes();
        row::set_mark(&mut connection, &lease.record, &mark).await.map_err(failure::of_statement)?;

        let current = Arc::clone(&self.shared.current);
        let held =
            Held { connection, seat: Seat { current: Arc::clone(&current), fate: Arc::clone(&fate), _turn: turn } };
        let open = Arc::new(Open {
            lease: lease.id,
            mark,
            fate,
            cell: tokio::sync::Mutex::new(Some(held)),
            expiry: std::sync::OnceLock::new(),
            renewal: std::sync::Mutex::default(),
        });
        self.expire(&open);
        drop(current.replace(Some(Arc::clone(&open))));
        renewals::answer_waiting(self, lease.id);
        Ok(Begin::Begun(SqliteTransaction { open }))
    }

    async fn complete_in(
        &self,
        transaction: SqliteTransaction,
        lease: &Lease,
        completion: &Completion,
    ) -> Result<Commit, StoreError> {
        let open = Arc::clone(&transaction.open);
        open.fall_silent().await;
        let held = match open.give_back() {
            Ok(held) => held,
            Err(Ending::Expired) => return Ok(Commit::Aborted),
            Err(_) => return Ok(Commit::Lost),
        };
        let commit = self.commit(held, &open, lease, completion).await?;
        if commit != Commit::Committed {
            self.keep_renewal(&open).await;
        }
        Ok(commit)
    }

    async fn rollback(&self, transaction: SqliteTransaction) {
        match transaction.open.give_back() {
            Ok(held) => held.close().await,
            Err(_) => transaction.open.close().await,
        }
        self.keep_renewal(&transaction.open).await;
    }

    async fn abandon(&self, lease: &Lease) {
        let Some(open) = self.shared.current.under(lease.id) else { return };
        let store = self.clone();
        let revoked = tokio::spawn(async move { store.revoke(&open, Ending::Abandoned).await });
        // A guard that was kept is waited for in the task, which goes on without us.
        let _waited = tokio::time::timeout_at(self.queue_deadline(), revoked).await;
    }

    async fn confirm(&self, lease: &Lease) -> Result<Commit, StoreError> {
        let decide = |found: Option<&Record>, _, _: Liveness| (outcome(found, lease.id), Change::Keep);
        Ok(self.step(&lease.record, self.settle_deadline(), decide).await?.answer)
    }
}

impl SqliteStore {
    async fn commit(
        &self,
        mut held: Held,
        open: &Open,
        lease: &Lease,
        completion: &Completion,
    ) -> Result<Commit, StoreError> {
        if !self.write_in(&mut held, open, lease, completion).await? {
            held.close().await;
            return self.lost_or_fenced(lease).await;
        }
        open.fate.armed.store(true, Ordering::SeqCst);
        match sqlx::query("COMMIT").execute(&mut held.connection).await {
            Ok(_) => {}
            Err(error) if failure::is_constraint(&error) || failure::is_busy(&error) => {
                // SQLite leaves the transaction open after these, and closing the connection ends it.
                open.fate.armed.store(false, Ordering::SeqCst);
                held.close().await;
                return Ok(Commit::Aborted);
            }
            Err(error) => return Err(failure::of_statement(error)),
        }
        self.shared.leases.forget(lease.id);
        drop(held);
        self.watchers().changed(&lease.record);
        Ok(Commit::Committed)
    }

    /// Writes the record where the mark is, and says whether it was there.
    async fn write_in(
        &self,
        held: &mut Held,
        open: &Open,
        lease: &Lease,
        completion: &Completion,
    ) -> Result<bool, StoreError> {
        if open.lease != lease.id || open.fate.rolled_back.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let found = row::fetch(&mut held.connection, &lease.record).await.map_err(failure::of_statement)?;
        let Some(found) = found else { return Ok(false) };
        let record = row::decode(&found).map_err(StoreError::new)?;
        if row::mark(&found).map_err(StoreError::new)? != Some(open.mark.to_vec()) {
            return Ok(false);
        }
        // Nobody else has been able to write since `begin`, so the lease is as good as then, whatever the clocks say.
        let (Write::Done, Change::Put(record)) = machine::complete(Some(&record), lease, completion, self.now().wall)
        else {
            return Ok(false);
        };
        row::put(&mut held.connection, &lease.record, &record).await.map_err(failure::of_statement)?;
        // A temporary trigger or table of the handler's may have sent the record elsewhere.
        if !row::is_settled_by(&mut held.connection, &lease.record, lease.id).await.map_err(failure::of_statement)? {
            return Ok(false);
        }
        // Nothing but our own statements has run since the mark was seen, and none of them rolls back in silence.
        Ok(!open.fate.rolled_back.load(Ordering::SeqCst))
    }

    /// Why there was no mark: the transaction was ended, and since then somebody may have taken the record over.
    async fn lost_or_fenced(&self, lease: &Lease) -> Result<Commit, StoreError> {
        self.read(&lease.record, |found, _, _| match found {
            Some(record) if is_running(record, lease.id) => Commit::Lost,
            _ => Commit::Fenced,
        })
        .await
    }

    async fn revoke(&self, open: &Open, why: Ending) {
        open.revoke(why).await;
        self.keep_renewal(open).await;
    }

    /// Writes what a holder was told while its transaction was open, which has ended without a commit.
    async fn keep_renewal(&self, open: &Open) {
        let Some(lease) = open.renewal().take() else { return };
        // Whoever is fenced by now, or gets no answer, is told so by its own next renewal.
        let _told = renewals::renew(self, &lease).await;
    }

    fn expire(&self, open: &Arc<Open>) {
        let (store, late) = (self.clone(), Arc::clone(open));
        let expiry = tokio::spawn(async move {
            tokio::time::sleep(store.max_transaction).await;
            store.revoke(&late, Ending::Expired).await;
        });
        // Set once, here, before anybody else has seen it.
        let _only = open.expiry.set(expiry.abort_handle());
    }
}

fn outcome(found: Option<&Record>, id: LeaseId) -> Commit {
    match found {
        Some(record) if record.lease == id => match record.state {
            State::Recorded(_) | State::Tombstone(_) => Commit::Committed,
            State::Running | State::Free | State::Held(_) => Commit::Aborted,
        },
        _ => Commit::Fenced,
    }
}

fn is_running(record: &Record, id: LeaseId) -> bool {
    matches!(record.state, State::Running) && record.lease == id
}
