//! One statement of the store's own: sent, bounded, and sent again where that is right.

use std::time::Duration;

use futures_util::TryStreamExt;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, Connection, Either, Executor};
use tokio::time::{Instant, sleep, timeout_at};

use super::PostgresStore;
use super::failure::{self, is_conflict, is_of_connection, of_statement};
use super::line::{Lent, Line};
use super::row::Statement;
use crate::store::StoreError;

/// What a statement came to.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Rows written, or given.
    pub(super) affected: u64,
    pub(super) rows: Vec<PgRow>,
}

/// A statement's answer, and how long it waited here before it was sent.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) answer: Answer,
    pub(super) queued: Duration,
}

impl PostgresStore {
    /// Sends a statement over a connection of the line.
    pub(super) async fn ask<'q>(
        &self,
        line: &std::sync::Arc<Line>,
        statement: impl Fn() -> Statement<'q> + Send + Sync,
    ) -> Result<Told, StoreError> {
        let called = Instant::now();
        let deadline = called + self.timeout;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut lent = self.lend(line, deadline).await?;
            let queued = called.elapsed();
            let sent = timeout_at(deadline, self.run(&mut lent, statement())).await;
            let error = match sent {
                Ok(Ok(answer)) => {
                    lent.give_back();
                    return Ok(Told { answer, queued });
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    lent.discard();
                    return Err(failure::unavailable(SILENT));
                }
            };
            if is_of_connection(&error) {
                let is_kept = lent.is_kept();
                lent.discard_all();
                if is_kept && attempts < ATTEMPTS {
                    continue;
                }
            } else if !self.is_legacy {
                // It has answered. Behind an old pooler it may be in the midst of its transaction.
                lent.give_back();
            }
            if is_conflict(&error) && attempts < ATTEMPTS {
                sleep(PAUSE).await;
                continue;
            }
            return Err(of_statement(error));
        }
    }

    /// A connection of the line, by the deadline.
    pub(super) async fn lend(&self, line: &std::sync::Arc<Line>, deadline: Instant) -> Result<Lent, StoreError> {
        match timeout_at(deadline, line.lend()).await {
            Ok(lent) => lent.map_err(of_statement),
            Err(_) => Err(failure::unavailable("no connection to Postgres could be had in time")),
        }
    }

    async fn run(&self, connection: &mut PgConnection, statement: Statement<'_>) -> sqlx::Result<Answer> {
        if !self.is_legacy {
            return run(connection, statement).await;
        }
        // What is prepared in one transaction may be asked for in another session. Without a name it is prepared anew, and
        // inside one transaction all of it goes to one session.
        //
        // Who stands still before its COMMIT, or is gone without a word, keeps a session and a key. The server ends that.
        let begin = format!("BEGIN; SET LOCAL idle_in_transaction_session_timeout = {}", self.timeout.as_millis());
        let mut transaction = connection.begin_with(AssertSqlSafe(begin)).await?;
        let answer = run(&mut transaction, statement.persistent(false)).await?;
        transaction.commit().await?;
        Ok(answer)
    }
}

async fn run(connection: &mut PgConnection, statement: Statement<'_>) -> sqlx::Result<Answer> {
    let mut answer = Answer::default();
    let mut told = connection.fetch_many(statement);
    while let Some(next) = told.try_next().await? {
        match next {
            Either::Left(result) => answer.affected += result.rows_affected(),
            Either::Right(row) => answer.rows.push(row),
        }
    }
    Ok(answer)
}

const SILENT: &str = "Postgres did not answer in time";

/// How often a statement is sent: over a broken connection and once more, or until nobody is in its way.
const ATTEMPTS: u32 = 5;

/// Before a statement that was in another's way is sent again.
const PAUSE: Duration = Duration::from_millis(2);
