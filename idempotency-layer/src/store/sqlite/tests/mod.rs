//! Properties of the SQLite store that the conformance list cannot see: its connections, its line, its file.
//!
//! Each test names the change of the store that makes it fail.

mod clock;
mod held;
mod line;
mod revocation;
mod setup;
mod sweeping;
mod transactions;

use std::future::{self, Future};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

use super::SqliteStore;
use crate::store::{
    CallerFingerprint, Claim, ClaimRequest, Completion, Fingerprint, LapsePolicy, Lease, LeaseId, RecordId, Store,
    StoredResponse, UnknownOutcome,
};

/// A file of its own in a directory of its own.
struct Disk {
    directory: TempDir,
}

impl Disk {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    fn url(&self) -> String {
        format!("sqlite://{}", self.directory.path().join("app.db").display())
    }

    fn options(&self) -> SqliteConnectOptions {
        self.url().parse::<SqliteConnectOptions>().unwrap().create_if_missing(true)
    }

    /// A store with its tables, as another process would open it.
    async fn store(&self) -> SqliteStore {
        let store = SqliteStore::connect(&self.url()).await.unwrap();
        store.migrate().await.unwrap();
        store
    }

    /// A connection of the user's.
    async fn connection(&self) -> SqliteConnection {
        self.options().connect().await.unwrap()
    }

    /// Runs SQL as somebody else.
    async fn sql(&self, sql: &'static str) {
        let mut connection = self.connection().await;
        sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Asks for one number as somebody else.
    async fn number(&self, sql: &'static str) -> i64 {
        let mut connection = self.connection().await;
        let number = sqlx::query_scalar(sql).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }
}

/// A request for a record of its own, under a fresh lease of 30 s.
fn request() -> ClaimRequest {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let mut bytes = [0; 32];
    bytes[..2].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    request_for(RecordId::from_bytes(bytes))
}

fn request_for(record: RecordId) -> ClaimRequest {
    ClaimRequest {
        lease: Lease { record, id: LeaseId::random(), duration: Duration::from_secs(30) },
        fingerprint: Fingerprint::from_bytes([1; 32]),
        caller: CallerFingerprint::from_bytes([2; 32]),
        retention: Duration::from_secs(24 * 3600),
        policy: LapsePolicy { unknown: UnknownOutcome::Rerun, max_attempts: NonZeroU32::new(5).unwrap() },
    }
}

fn answer() -> Completion {
    Completion::Response(StoredResponse::new(StatusCode::CREATED, Bytes::from_static(b"done")).into())
}

async fn claimed(store: &SqliteStore) -> Lease {
    let request = request();
    assert!(matches!(store.claim(&request).await.unwrap(), Claim::Acquired(_)));
    request.lease
}

/// Polls so often, each time when woken, and drops the future right after the last poll: what that poll has sent is still
/// under way. None if the future had not ended by then.
async fn cut<F: Future>(future: F, polls: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
