//! Records whose retention is over leave the file, a few at a time.
//!
//! An expired record is absent to every verb with or without this; sweeping is about room. Each batch is a transaction of
//! its own, and between two of them whoever waits for the writer is served. Never removed: a lease that this process
//! knows to live, a held record, a run under Hold, a row in a format that this version does not know.
//!
//! One sweeper per file is enough, and more do no harm. Once a minute keeps each sweep short.

use std::time::Duration;

use sqlx::Row;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use super::leases::Moment;
use super::writer::Lane;
use super::{SqliteStore, failure, file, row};
#[cfg(doc)]
use crate::store::StoreErrorKind;
use crate::store::{LeaseId, RecordId, StoreError, Sweeper, code};

impl SqliteStore {
    /// Removes what has expired by now, and says how many records that were.
    ///
    /// # Errors
    ///
    /// - [`Misconfigured`](StoreErrorKind::Misconfigured) when the file was not [migrated](SqliteStore::migrate).
    /// - [`Unavailable`](StoreErrorKind::Unavailable) when others wrote to the file for too long. Batches before that are
    ///   removed; the next sweep removes the rest.
    pub async fn sweep(&self) -> Result<u64, StoreError> {
        let now = self.now();
        let mut removed = 0;
        let mut after = Cursor::START;
        loop {
            let deadline = self.settle_deadline();
            let mut turn = self.shared.writer.turn(Lane::Other, deadline).await?;
            let mut connection = turn.connection().await?;
            file::begin(&mut connection, deadline).await?;
            let batch = batch(&mut connection, now, &after).await.map_err(failure::of_statement)?;
            for (id, lease) in &batch.expired {
                if !self.lives(*lease, now) {
                    row::remove(&mut connection, id).await.map_err(failure::of_statement)?;
                    removed += 1;
                }
            }
            file::commit(&mut connection).await?;
            turn.give_back(connection);
            for (id, _) in &batch.expired {
                self.watchers().changed(id);
            }
            match batch.next {
                Some(next) => after = next,
                None => return Ok(removed),
            }
        }
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

    fn lives(&self, lease: LeaseId, now: Moment) -> bool {
        self.shared.leases.lives(lease, now)
    }
}

struct Batch {
    expired: Vec<(RecordId, LeaseId)>,
    next: Option<Cursor>,
}

/// Where the next batch begins. Rows that stay are passed by, or a batch of them would end the sweep.
struct Cursor {
    expires_at: i64,
    id: Vec<u8>,
}

impl Cursor {
    const START: Self = Self { expires_at: i64::MIN, id: Vec::new() };
}

async fn batch(connection: &mut SqliteConnection, now: Moment, after: &Cursor) -> sqlx::Result<Batch> {
    let rows = sqlx::query(EXPIRED)
        .bind(now.wall.0)
        .bind(after.expires_at)
        .bind(after.id.as_slice())
        .bind(row::FORMAT)
        .bind(code::RUNNING)
        .bind(code::RECORDED)
        .bind(code::TOMBSTONE)
        .bind(code::FREE)
        .bind(BATCH)
        .fetch_all(connection)
        .await?;
    let next = match rows.last() {
        Some(last) if i64::try_from(rows.len()).is_ok_and(|rows| rows == BATCH) => {
            Some(Cursor { expires_at: last.try_get("expires_at")?, id: last.try_get("id")? })
        }
        _ => None,
    };
    Ok(Batch { expired: rows.iter().filter_map(expired).collect(), next })
}

/// None for a row whose ids this version cannot have written.
fn expired(row: &SqliteRow) -> Option<(RecordId, LeaseId)> {
    let id = row.try_get::<&[u8], _>("id").ok()?.try_into().ok()?;
    let lease = row.try_get::<&[u8], _>("lease").ok()?.try_into().ok()?;
    Some((RecordId::from_bytes(id), LeaseId::from_bytes(lease)))
}

const EXPIRED: &str = "SELECT id, lease, expires_at FROM idempotency_record \
     WHERE expires_at <= ? AND (expires_at, id) > (?, ?) AND format = ? AND state IN (?, ?, ?, ?) \
     ORDER BY expires_at, id LIMIT ?";

const BATCH: i64 = 100;
