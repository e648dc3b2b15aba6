//! Effects in memory beside the records of a memory store, broken in one way.

use std::collections::{HashMap, HashSet};
use std::future;
use std::sync::{Arc, Mutex, MutexGuard};

use idempotency_layer::conformance::transactional::Ending;
use idempotency_layer::store::{
    Begin, Claim, ClaimRequest, Commit, Completion, HeldPage, HeldRecord, Lease, LeaseId, Look, Page, RecordId,
    Renewal, Resolution, StoreError, StoreErrorKind, StoreId, StoredResponse, Watch, Write,
};
use idempotency_layer::{MemoryStore, Store, TransactionalStore};

use super::Mutation::{self, *};

#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    records: MemoryStore,
    book: Arc<Mutex<Book>>,
    mutation: Option<Mutation>,
}

/// What is there beside the records.
#[derive(Debug, Default)]
struct Book {
    effects: Vec<String>,
    /// The transaction of each lease that has one; another one, or none, does not commit.
    open: HashMap<LeaseId, LeaseId>,
    committed: HashSet<LeaseId>,
    /// The leases for which a begin is under way, for the mutant that keeps them out.
    beginning: HashSet<LeaseId>,
}

#[derive(Debug)]
pub(crate) struct Transaction {
    ledger: Ledger,
    lease: Lease,
    /// Tells it from any other.
    id: LeaseId,
    effects: Vec<String>,
    /// What was there when it began.
    before: Vec<String>,
    is: Is,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// As it was begun.
    Open,
    Ended,
    /// Another one, in the place of one that has ended.
    Another,
}

impl Transaction {
    pub(super) fn write(&mut self, effect: &str) {
        if self.ledger.has(EffectsAppearAtOnce) {
            self.ledger.book().effects.push(effect.to_owned());
        } else if self.is != Is::Ended {
            self.effects.push(effect.to_owned());
        }
    }

    pub(super) fn end_behind(&mut self, how: Ending, then: &str) {
        let effects = std::mem::take(&mut self.effects);
        let commits = matches!(how, Ending::Commit | Ending::CommitThenBegin);
        if commits && self.ledger.has(HandlersCommit) {
            self.ledger.book().effects.extend(effects);
        }
        let begins = matches!(how, Ending::CommitThenBegin | Ending::RollbackThenBegin);
        self.is = if begins { Is::Another } else { Is::Ended };
        self.write(then);
    }

    /// What is there once its effects are.
    fn applied(&self, book: &mut Book) {
        if self.ledger.has(CommitsWriteBackWhatTheyRead) {
            book.effects.clone_from(&self.before);
        }
        book.effects.extend(self.effects.iter().cloned());
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let mut book = self.ledger.book.lock().unwrap();
        if book.open.get(&self.lease.id) == Some(&self.id) {
            book.open.remove(&self.lease.id);
            if self.ledger.has(DropCommits) {
                self.applied(&mut book);
            }
        }
    }
}

impl Ledger {
    pub(super) fn new(records: MemoryStore, mutation: Option<Mutation>) -> Self {
        Self { records, book: Arc::default(), mutation }
    }

    pub(super) fn effects(&self, name: &str) -> u64 {
        self.book().effects.iter().filter(|effect| *effect == name).count() as u64
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    async fn holds(&self, lease: &Lease) -> Result<bool, StoreError> {
        let look = self.records.look(&lease.record).await?;
        Ok(matches!(look, Look::Running { lease: holder, lapsed, .. }
            if holder == lease.id && !(lapsed && self.has(BeginIsFencedByTime))))
    }

    async fn lost_or_fenced(&self, lease: &Lease) -> Result<Commit, StoreError> {
        let lost = self.has(LostIsNotFenced) || self.holds(lease).await?;
        Ok(if lost { Commit::Lost } else { Commit::Fenced })
    }

    /// Whether it is the transaction that was begun under this lease.
    fn may_commit(&self, transaction: &Transaction, lease: &Lease) -> bool {
        let is_open = match transaction.is {
            Is::Open => true,
            Is::Ended => self.has(WhatWasRolledBackIsRecorded),
            Is::Another => self.has(AnyTransactionCommits),
        };
        let is_its_own = transaction.lease == *lease || self.has(CommitTrustsWhoeverCompletes);
        is_open && is_its_own && self.book().open.get(&transaction.lease.id) == Some(&transaction.id)
    }

    /// What is recorded of a completion.
    fn kept(&self, completion: &Completion) -> Completion {
        match completion {
            Completion::Response(response) if self.has(CommitsDropTheTrailers) => {
                Completion::Response(Arc::new(StoredResponse { trailers: None, ..StoredResponse::clone(response) }))
            }
            other => other.clone(),
        }
    }
}

impl TransactionalStore for Ledger {
    type Transaction = Transaction;

    async fn begin(&self, lease: &Lease) -> Result<Begin<Transaction>, StoreError> {
        if self.has(DroppedBeginsStay) {
            if !self.book().beginning.insert(lease.id) {
                return Err(StoreError::new(StoreErrorKind::Unavailable));
            }
            tokio::task::yield_now().await;
            self.book().beginning.remove(&lease.id);
        }
        if !self.holds(lease).await? && !self.has(BeginIsNotFenced) {
            return Ok(Begin::Fenced);
        }
        let id = LeaseId::random();
        self.book().open.insert(lease.id, id);
        let before = self.book().effects.clone();
        let ledger = self.clone();
        Ok(Begin::Begun(Transaction { ledger, lease: *lease, id, effects: Vec::new(), before, is: Is::Open }))
    }

    // Nothing is awaited between the fence and the effects but a memory store, which does not wait.
    async fn complete_in(
        &self,
        transaction: Transaction,
        lease: &Lease,
        completion: &Completion,
    ) -> Result<Commit, StoreError> {
        if !self.may_commit(&transaction, lease) {
            return self.lost_or_fenced(lease).await;
        }
        if self.has(CommitTakesTwoSteps) {
            transaction.applied(&mut self.book());
            tokio::task::yield_now().await;
            let _done: Write = self.records.complete(lease, completion).await?;
        } else if self.holds(lease).await? {
            let _done: Write = self.records.complete(lease, &self.kept(completion)).await?;
            if !(self.has(TombstonesDropTheEffect) && matches!(completion, Completion::Tombstone(_))) {
                transaction.applied(&mut self.book());
            }
        } else if self.has(CommitIsNotFenced) {
            transaction.applied(&mut self.book());
        } else {
            return Ok(Commit::Fenced);
        }
        let mut book = self.book();
        book.open.remove(&transaction.lease.id);
        book.committed.insert(lease.id);
        drop(book);
        Ok(Commit::Committed)
    }

    async fn rollback(&self, transaction: Transaction) {
        let mut book = self.book();
        if self.has(RollbackCommits) {
            transaction.applied(&mut book);
        }
        book.open.remove(&transaction.lease.id);
    }

    async fn abandon(&self, lease: &Lease) {
        if !self.has(AbandonDoesNothing) {
            self.book().open.remove(&lease.id);
        }
    }

    async fn confirm(&self, lease: &Lease) -> Result<Commit, StoreError> {
        let committed = self.book().committed.contains(&lease.id) && !self.has(ConfirmLooksForARun);
        Ok(match self.records.look(&lease.record).await? {
            _ if committed => Commit::Committed,
            Look::Recorded(_) if self.has(ConfirmBelievesAnyRecord) => Commit::Committed,
            Look::Running { lease: holder, .. } if holder == lease.id => {
                if self.has(ConfirmBelievesTheHolder) {
                    Commit::Committed
                } else {
                    Commit::Aborted
                }
            }
            _ => Commit::Fenced,
        })
    }
}

impl Store for Ledger {
    fn identity(&self) -> StoreId {
        self.records.identity()
    }

    async fn claim(&self, request: &ClaimRequest) -> Result<Claim, StoreError> {
        if self.has(ClaimsWaitForTransactions) && !self.book().open.is_empty() {
            return future::pending().await;
        }
        if self.has(RenewalIsPartOfTheTransaction)
            && let Look::Running { lease, age, .. } = self.records.look(&request.lease.record).await?
            && self.book().open.contains_key(&lease)
        {
            return Ok(Claim::InFlight { age });
        }
        self.records.claim(request).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        let is_open = self.book().open.contains_key(&lease.id);
        if is_open && (self.has(RenewalIsNotWritten) || self.has(RenewalIsPartOfTheTransaction)) {
            return Ok(Renewal::Renewed { queued: std::time::Duration::ZERO });
        }
        self.records.renew(lease).await
    }

    async fn complete(&self, lease: &Lease, completion: &Completion) -> Result<Write, StoreError> {
        self.records.complete(lease, completion).await
    }

    async fn release(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.records.release(lease).await
    }

    async fn forget(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.records.forget(lease).await
    }

    async fn hold(&self, lease: &Lease) -> Result<Write, StoreError> {
        self.records.hold(lease).await
    }

    async fn held(&self, page: &Page) -> Result<HeldPage, StoreError> {
        self.records.held(page).await
    }

    async fn resolve(&self, held: &HeldRecord, by: LeaseId, resolution: &Resolution) -> Result<Write, StoreError> {
        self.records.resolve(held, by, resolution).await
    }

    async fn look(&self, record: &RecordId) -> Result<Look, StoreError> {
        self.records.look(record).await
    }

    async fn watch(&self, record: &RecordId) -> Result<Watch, StoreError> {
        self.records.watch(record).await
    }
}
