//! From `begin` to COMMIT: one transaction with the handler's effects and the record in it.
//!
//! 1. `begin` is one round trip: BEGIN, whether the lease holds the record, and the mark, a row that refers to nothing, so
//!    that COMMIT fails.
//! 2. `complete_in` finds the mark in the transaction that made it, takes its reference out, and writes the record, fenced
//!    by the lease, in one statement; then it commits. Until then the record's row is not locked: a holder that stands
//!    still is overtaken, and its completion finds another lease, or cannot be serialized.
//! 3. A COMMIT whose answer did not come is decided in the database. [`confirm`](TransactionalStore::confirm) waits for the
//!    row's lock, which the transaction has until then, before it reads.

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use tokio::time::{Instant, timeout_at};

use super::PostgresStore;
use super::failure::{
    is_conflict, is_constraint, is_of_connection, is_of_ended_transaction, of_statement, unavailable,
};
use super::line::Lent;
use super::open::Open;
use super::row::{self, Columns};
use super::statements::Opening;
use super::transaction::PostgresTransaction;
use crate::store::machine::{self, Liveness, State};
use crate::store::{Begin, Commit, Completion, Lease, LeaseId, StoreError, TransactionalStore};

impl TransactionalStore for PostgresStore {
    type Transaction = PostgresTransaction;

    async fn begin(&self, lease: &Lease) -> Result<Begin<PostgresTransaction>, StoreError> {
        let deadline = Instant::now() + self.timeout;
        let mark = *LeaseId::random().as_bytes();
        loop {
            let mut lent = self.lend(&self.shared.transactions.line, deadline).await?;
            match timeout_at(deadline, self.begin_on(&mut lent, lease, &mark)).await {
                Ok(Ok(Some(xid))) => {
                    let open = self.shared.transactions.note(lease.id, mark, xid, lent);
                    return Ok(Begin::Begun(PostgresTransaction { open }));
                }
                Ok(Ok(None)) => {
                    lent.discard();
                    return Ok(Begin::Fenced);
                }
                Ok(Err(error)) if is_of_connection(&error) && lent.is_kept() => lent.discard_all(),
                Ok(Err(error)) => return Err(of_statement(error)),
                Err(_) => return Err(unavailable("Postgres gave no transaction in time")),
            }
        }
    }

    async fn complete_in(
        &self,
        transaction: PostgresTransaction,
        lease: &Lease,
        completion: &Completion,
    ) -> Result<Commit, StoreError> {
        let Some(mut lent) = transaction.open.give_back() else { return Ok(Commit::Lost) };
        let deadline = Instant::now() + self.timeout;
        let written = timeout_at(deadline, self.write_in(&mut lent, &transaction.open, lease, completion)).await;
        let written = written.map_err(|_| unavailable("Postgres did not take the record in time"))?;
        let committed = match written {
            Ok(Written::Record) => timeout_at(deadline, self.end(&mut lent, "COMMIT")).await,
            Ok(Written::Nothing) => {
                lent.discard();
                return self.unless_overtaken(lease, Commit::Lost).await;
            }
            Err(error) => Ok(Err(error)),
        };
        match committed {
            Ok(Ok(())) => {
                lent.give_back();
                self.watchers().changed(&lease.record);
                Ok(Commit::Committed)
            }
            Ok(Err(error)) => {
                lent.discard();
                if is_of_ended_transaction(&error) {
                    self.unless_overtaken(lease, Commit::Lost).await
                } else if is_conflict(&error) || is_constraint(&error) {
                    self.unless_overtaken(lease, Commit::Aborted).await
                } else {
                    Err(of_statement(error))
                }
            }
            Err(_) => Err(unavailable("Postgres did not answer a COMMIT in time")),
        }
    }

    async fn rollback(&self, transaction: PostgresTransaction) {
        let Some(mut lent) = transaction.open.give_back() else { return };
        let deadline = Instant::now() + self.timeout;
        let rolled_back = timeout_at(deadline, self.end(&mut lent, ROLLBACK)).await;
        // Without an answer the connection is dropped, which rolls back as well.
        if let Ok(Ok(())) = rolled_back {
            lent.give_back();
        }
    }

    async fn abandon(&self, lease: &Lease) {
        let Some(open) = self.shared.transactions.under(lease.id) else { return };
        let abandoned = tokio::spawn(async move { open.abandon().await });
        // A guard that was kept is waited for in the task, which goes on without us.
        let _waited = tokio::time::timeout(self.timeout, abandoned).await;
    }

    async fn confirm(&self, lease: &Lease) -> Result<Commit, StoreError> {
        let confirm = || sqlx::query(self.statements.confirm.clone()).bind(&lease.record.as_bytes()[..]);
        let rows = self.ask(&self.shared.verbs, confirm).await?.answer.rows;
        let Some(row) = rows.first() else { return Ok(Commit::Fenced) };
        let (found, now) = (row::found(row).map_err(StoreError::new)?, row::now(row).map_err(StoreError::new)?);
        let found = found.filter(|found| machine::visible(Some(&found.record), now, Liveness::ByClock).is_some());
        let commit = match found {
            Some(found) if found.record.lease == lease.id => match found.record.state {
                State::Recorded(_) | State::Tombstone(_) => Commit::Committed,
                State::Running | State::Free | State::Held(_) => Commit::Aborted,
            },
            _ => Commit::Fenced,
        };
        if commit == Commit::Committed {
            self.watchers().changed(&lease.record);
        }
        Ok(commit)
    }
}

/// What a completion found in its transaction.
enum Written {
    Record,
    /// No mark, or another lease's record, or none.
    Nothing,
}

impl PostgresStore {
    /// Opens the transaction and gives its id, if the lease holds its record.
    async fn begin_on(
        &self,
        connection: &mut PgConnection,
        lease: &Lease,
        mark: &[u8; 16],
    ) -> sqlx::Result<Option<String>> {
        let begin = self.statements.begin(&Opening {
            isolation: self.isolation.in_sql(),
            record: lease.record.as_bytes(),
            lease: lease.id.as_bytes(),
            mark,
            idle_millis: self.max_idle.as_millis(),
            is_legacy: self.is_legacy,
        });
        let rows = sqlx::raw_sql(begin).fetch_all(connection).await?;
        let [held, xid] = &rows[..] else {
            return Err(sqlx::Error::Protocol("a transaction was begun with other answers than its own".into()));
        };
        Ok(if text(held)? == "1" { Some(text(xid)?.to_owned()) } else { None })
    }

    async fn write_in(
        &self,
        lent: &mut Lent,
        open: &Open,
        lease: &Lease,
        completion: &Completion,
    ) -> sqlx::Result<Written> {
        if open.lease != lease.id {
            return Ok(Written::Nothing);
        }
        if self.is_legacy {
            // Outside of the transaction, what is prepared here could be run there. This cannot.
            let row = sqlx::raw_sql("SELECT pg_current_xact_id()").fetch_one(&mut **lent).await?;
            if text(&row)? != open.xid {
                return Ok(Written::Nothing);
            }
        }
        let columns = Columns::of_completion(completion);
        let statement = sqlx::query(self.statements.complete_in.clone())
            .bind(&lease.record.as_bytes()[..])
            .bind(&lease.id.as_bytes()[..])
            .bind(&open.mark[..])
            .bind(columns.state);
        let statement = columns.bind_answer(statement).persistent(!self.is_legacy);
        let row: PgRow = statement.fetch_one(&mut **lent).await?;
        let (is_marked, state): (i64, Option<i16>) = (row.try_get(0)?, row.try_get(1)?);
        Ok(if is_marked == 1 && state == Some(columns.state) { Written::Record } else { Written::Nothing })
    }

    /// Ends the transaction, so that the connection can be used for another.
    async fn end(&self, lent: &mut Lent, how: &'static str) -> sqlx::Result<()> {
        if self.is_legacy {
            // What the handler has had prepared is in a session that is another's from the end on.
            sqlx::Connection::clear_cached_statements(&mut **lent).await?;
        }
        sqlx::raw_sql(how).execute(&mut **lent).await?;
        Ok(())
    }

    /// What to tell a holder whose transaction was rolled back: that it was overtaken, if it was.
    async fn unless_overtaken(&self, lease: &Lease, commit: Commit) -> Result<Commit, StoreError> {
        Ok(match self.find(&lease.record).await? {
            Some((found, now)) if found.is_running_under(lease.id) && found.is_visible(now) => commit,
            _ => Commit::Fenced,
        })
    }
}

/// A handler may have ended the transaction and gone on; what it has set in the session goes with it.
const ROLLBACK: &str = "ROLLBACK; RESET ALL";

/// A value of a simple query.
fn text(row: &PgRow) -> sqlx::Result<&str> {
    row.try_get_raw(0)?.as_str().map_err(sqlx::Error::Decode)
}
