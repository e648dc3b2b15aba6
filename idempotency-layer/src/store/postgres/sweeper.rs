//! Records whose retention is over leave the tables, a few at a time.
//!
//! An expired record is absent to every verb with or without this; sweeping is about room. Each batch is a statement of its
//! own that passes by what somebody else is writing, and after it the sweep rests for nine times as long as it took. Never removed: a held record, a run under Hold, a run whose lease is
//! live or was until a minute ago, a row in a format that this version does not know. Leases of runs that are over, and
//! what handlers' transactions leave, go in the same way.
//!
//! One sweeper per database is enough, and more do no harm. Once a minute keeps each sweep short.

use std::time::Duration;

use sqlx::SqlStr;
use tokio::time::{Instant, sleep};

use super::PostgresStore;
use super::row::millis;
#[cfg(doc)]
use crate::store::StoreErrorKind;
use crate::store::{StoreError, Sweeper};

impl PostgresStore {
    /// Removes what has expired by now, and says how many records that were.
    ///
    /// # Errors
    ///
    /// - [`Misconfigured`](StoreErrorKind::Misconfigured) when the schema was not [migrated](PostgresStore::migrate).
    /// - [`Unavailable`](StoreErrorKind::Unavailable) when the server does not answer. Batches before that are removed; the
    ///   next sweep removes the rest.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        let removed = self.sweep_in_batches(&self.statements.sweep_records).await?;
        let _leases = self.sweep_in_batches(&self.statements.sweep_leases).await?;
        let transactions = || sqlx::query(self.statements.sweep_transactions.clone()).bind(BATCH);
        let _marks = self.ask(&self.shared.verbs, transactions).await?;
        Ok(removed)
    }

    /// Sweeps at once and then with this pause between, in a task of the current runtime, until the [`Sweeper`] is
    /// dropped.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn spawn_sweeper(&self, pause: Duration) -> Sweeper {
        let store = self.clone();
        Sweeper::spawn(pause, move || {
            let store = store.clone();
            async move { store.sweep().await }
        })
    }

    async fn sweep_in_batches(&self, statement: &SqlStr) -> Result<u64, StoreError> {
        let mut removed = 0;
        loop {
            let sweep = || sqlx::query(statement.clone()).bind(BATCH).bind(millis(GRACE));
            let begun = Instant::now();
            let batch = self.ask(&self.shared.verbs, sweep).await?.answer.affected;
            removed += batch;
            if batch < BATCH.unsigned_abs() {
                return Ok(removed);
            }
            sleep(begun.elapsed() * REST).await;
        }
    }
}

const BATCH: i64 = 200;

/// So many times as long as a batch took, the sweep rests: what it costs the database is a tenth of what it could.
const REST: u32 = 9;

/// By when a statement that began before has ended.
const GRACE: Duration = Duration::from_secs(60);
