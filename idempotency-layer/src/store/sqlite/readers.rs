//! A few connections that only read, so that replays wait neither for a writer nor for the handlers' pool.
//!
//! One that does not come back, since the future that used it was dropped or its query failed, is closed; the next read
//! opens another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::failure;
use super::file::File;
use crate::store::{StoreError, StoreErrorKind};

pub(super) struct Readers {
    file: Arc<File>,
    permits: Semaphore,
    idle: Mutex<Vec<SqliteConnection>>,
}

impl Readers {
    pub(super) fn new(file: Arc<File>) -> Self {
        Self { file, permits: Semaphore::new(READERS), idle: Mutex::default() }
    }

    pub(super) async fn lend(&self, deadline: Instant) -> Result<Reader<'_>, StoreError> {
        let permit = timeout_at(deadline, self.permits.acquire())
            .await
            .map_err(|_| failure::unavailable("every connection that reads was busy for too long"))?
            .map_err(|error| StoreError::with_source(StoreErrorKind::Unavailable, error))?;
        let idle = self.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => self.file.reader().await?,
        };
        Ok(Reader { readers: self, connection, _permit: permit })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SqliteConnection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lent connection; closed unless it is given back.
pub(super) struct Reader<'a> {
    readers: &'a Readers,
    pub(super) connection: SqliteConnection,
    _permit: SemaphorePermit<'a>,
}

impl Reader<'_> {
    pub(super) fn give_back(self) {
        self.readers.lock().push(self.connection);
    }
}

const READERS: usize = 4;
