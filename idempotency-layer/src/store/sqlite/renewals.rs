//! Renewals of one process, written together.
//!
//! Each renewal puts itself on the list and joins the line for the writer. Whoever is served first writes all that are
//! on the list in one transaction and answers each. If the one who writes is dropped in the midst of it, the others
//! find their answer gone and put themselves on the list again.
//!
//! The lease of the open transaction is renewed without the writer, for whose turn it would wait until the transaction
//! has ended. A renewal looks whether its transaction is open once it is on the list, and a transaction that opens looks
//! through the list, so that neither misses the other.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use sqlx::sqlite::SqliteConnection;
use tokio::sync::oneshot;

use super::writer::{Lane, Turn};
use super::{SqliteStore, failure, file, row};
use crate::store::machine::{self, Change};
use crate::store::{Lease, LeaseId, Renewal, StoreError, StoreErrorKind};

#[derive(Default)]
pub(super) struct Renewals {
    asked: Mutex<Vec<Asked>>,
}

struct Asked {
    lease: Lease,
    since: Instant,
    answer: oneshot::Sender<Result<Renewal, StoreError>>,
}

pub(super) async fn renew(store: &SqliteStore, lease: &Lease) -> Result<Renewal, StoreError> {
    let since = Instant::now();
    let deadline = store.settle_deadline();
    loop {
        let (answer, mut answered) = oneshot::channel();
        store.shared.renewals.lock().push(Asked { lease: *lease, since, answer });
        if store.shared.current.under(lease.id).is_some() {
            return Ok(extend(store, lease, since));
        }
        tokio::select! {
            biased;
            answer = &mut answered => match answer {
                Ok(answer) => return answer,
                Err(_) => continue,
            },
            turn = store.shared.writer.turn(Lane::Renewal, deadline) => write_all(store, turn?, deadline).await,
        }
        // Either this renewal was on the list that was just written, or its answer came while the turn did.
        if let Ok(answer) = answered.await {
            return answer;
        }
    }
}

/// Answers the renewals of a lease whose transaction has just been opened.
pub(super) fn answer_waiting(store: &SqliteStore, lease: LeaseId) {
    let own: Vec<_> = store.shared.renewals.lock().extract_if(.., |asked| asked.lease.id == lease).collect();
    for asked in own {
        let renewed = extend(store, &asked.lease, asked.since);
        // Whoever has gone meanwhile needs no answer.
        let _gone = asked.answer.send(Ok(renewed));
    }
}

/// Renews a lease without the file, whose write lock its transaction holds.
fn extend(store: &SqliteStore, lease: &Lease, since: Instant) -> Renewal {
    let queued = since.elapsed();
    store.shared.leases.extend(lease.id, store.now(), lease.duration);
    Renewal::Renewed { queued }
}

async fn write_all(store: &SqliteStore, turn: Turn, deadline: tokio::time::Instant) {
    let asked = std::mem::take(&mut *store.shared.renewals.lock());
    let (mut waiting, mut leases) = (Vec::new(), Vec::new());
    for asked in asked {
        if !asked.answer.is_closed() {
            leases.push((asked.lease, asked.since));
            waiting.push(asked.answer);
        }
    }
    match write(store, turn, &leases, deadline).await {
        Ok(answers) => {
            for (waiting, answer) in waiting.into_iter().zip(answers) {
                // Whoever has gone meanwhile needs no answer; the lease is renewed all the same.
                let _gone = waiting.send(answer.map_err(StoreError::new));
            }
        }
        Err(error) => {
            let (kind, text) = (error.kind(), source_text(&error));
            for waiting in waiting {
                let _gone = waiting.send(Err(StoreError::with_source(kind, text.clone())));
            }
        }
    }
}

async fn write(
    store: &SqliteStore,
    mut turn: Turn,
    leases: &[(Lease, Instant)],
    deadline: tokio::time::Instant,
) -> Result<Vec<Result<Renewal, StoreErrorKind>>, StoreError> {
    if leases.is_empty() {
        return Ok(Vec::new());
    }
    let mut connection = turn.connection().await?;
    file::begin(&mut connection, deadline).await?;
    let mut answers = Vec::with_capacity(leases.len());
    for (lease, since) in leases {
        answers.push(renew_one(store, &mut connection, lease, *since).await?);
    }
    file::commit(&mut connection).await?;
    turn.give_back(connection);
    Ok(answers)
}

async fn renew_one(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    lease: &Lease,
    since: Instant,
) -> Result<Result<Renewal, StoreErrorKind>, StoreError> {
    let queued = since.elapsed();
    let now = store.now();
    let found = row::fetch(connection, &lease.record).await.map_err(failure::of_statement)?;
    let mut found = match found.as_ref().map(row::decode).transpose() {
        Ok(found) => found,
        Err(kind) => return Ok(Err(kind)),
    };
    let live = store.liveness(found.as_mut(), now);
    let (answer, change) = machine::renew(machine::visible(found.as_ref(), now.wall, live), lease, now.wall);
    if let Change::Put(record) = change {
        store.shared.leases.note(&record, now, lease.duration);
        row::put(connection, &lease.record, &record).await.map_err(failure::of_statement)?;
    }
    Ok(Ok(match answer {
        Renewal::Renewed { .. } => Renewal::Renewed { queued },
        Renewal::Fenced => {
            store.shared.leases.forget(lease.id);
            Renewal::Fenced
        }
    }))
}

impl Renewals {
    fn lock(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One error, told to many.
fn source_text(error: &StoreError) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
