//! A record as a row, and back.
//!
//! Reading is total: a row that this version cannot have written is [`Corrupt`](StoreErrorKind::Corrupt), one in a later
//! format is [`Newer`](StoreErrorKind::Newer), and the format is looked at before anything else. Writing replaces the
//! whole row; the caller has read it before, in the same transaction, and stops at one that cannot be read.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Row, Sqlite};

use crate::store::code::{self, FREE, HELD, RECORDED, RUNNING, TOMBSTONE};
use crate::store::headers;
use crate::store::machine::{Millis, Record, State, whole_millis};
use crate::store::{
    CallerFingerprint, Fingerprint, LapsePolicy, LeaseId, RecordId, StoreErrorKind, StoredResponse, Tombstone,
};

/// The format of the rows that this version writes.
pub(super) const FORMAT: i64 = 1;

pub(super) async fn fetch(connection: &mut SqliteConnection, id: &RecordId) -> sqlx::Result<Option<SqliteRow>> {
    sqlx::query(SELECT).bind(&id.as_bytes()[..]).fetch_optional(connection).await
}

/// Some of the records that do not expire, after this id and in the order of their ids, or why one cannot be read. None
/// are left where there are none.
pub(super) async fn unexpiring(
    connection: &mut SqliteConnection,
    after: Option<&RecordId>,
) -> sqlx::Result<Vec<(RecordId, Result<Record, StoreErrorKind>)>> {
    let rows = sqlx::query(SELECT_UNEXPIRING)
        .bind(FORMAT)
        .bind(RUNNING)
        .bind(HELD)
        .bind(after.map_or(&[][..], |after| &after.as_bytes()[..]))
        .bind(BATCH)
        .fetch_all(connection)
        .await?;
    let id = |row: &SqliteRow| array(row, "id").map(RecordId::from_bytes).ok();
    Ok(rows.iter().filter_map(|row| Some((id(row)?, decode(row)))).collect())
}

pub(super) async fn put(connection: &mut SqliteConnection, id: &RecordId, record: &Record) -> sqlx::Result<()> {
    let (state, cause, response, tombstone) = match &record.state {
        State::Running => (RUNNING, None, None, None),
        State::Recorded(response) => (RECORDED, None, Some(response), None),
        State::Tombstone(tombstone) => (TOMBSTONE, None, None, Some(tombstone)),
        State::Free => (FREE, None, None, None),
        State::Held(cause) => (HELD, Some(code::of_cause(*cause)), None, None),
    };
    let status = response.map(|response| response.status).or(tombstone.map(|tombstone| tombstone.status));
    sqlx::query(REPLACE)
        .bind(&id.as_bytes()[..])
        .bind(FORMAT)
        .bind(state)
        .bind(&record.fingerprint.as_bytes()[..])
        .bind(&record.caller.as_bytes()[..])
        .bind(&record.lease.as_bytes()[..])
        .bind(i64::from(record.attempt))
        .bind(i64::from(record.lapsed))
        .bind(code::of_unknown(record.policy.unknown))
        .bind(i64::from(record.policy.max_attempts.get()))
        .bind(whole_millis(record.retention))
        .bind(record.claimed_at.0)
        .bind(record.lease_until.0)
        .bind(record.written_at.0)
        .bind(record.expires_at().map(|at| at.0))
        .bind(cause)
        .bind(status.map(|status| i64::from(status.as_u16())))
        .bind(response.map(|response| headers::encode(&response.headers)))
        .bind(response.map(|response| &response.body[..]))
        .bind(response.and_then(|response| response.trailers.as_ref()).map(headers::encode))
        .bind(tombstone.map(|tombstone| code::of_reason(tombstone.reason)))
        .execute(connection)
        .await?;
    Ok(())
}

/// Leaves a mark that only this transaction sees.
pub(super) async fn set_mark(connection: &mut SqliteConnection, id: &RecordId, mark: &[u8; 16]) -> sqlx::Result<()> {
    sqlx::query("UPDATE idempotency_record SET mark = ? WHERE id = ?")
        .bind(&mark[..])
        .bind(&id.as_bytes()[..])
        .execute(connection)
        .await?;
    Ok(())
}

/// Whether the record that this id has settled is in the file, and not only where the handler's SQL has led the write.
pub(super) async fn is_settled_by(
    connection: &mut SqliteConnection,
    id: &RecordId,
    lease: LeaseId,
) -> sqlx::Result<bool> {
    let row = sqlx::query(SELECT_SETTLED)
        .bind(&id.as_bytes()[..])
        .bind(&lease.as_bytes()[..])
        .bind(RECORDED)
        .bind(TOMBSTONE)
        .fetch_optional(connection)
        .await?;
    Ok(row.is_some())
}

pub(super) async fn remove(connection: &mut SqliteConnection, id: &RecordId) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM idempotency_record WHERE id = ?").bind(&id.as_bytes()[..]).execute(connection).await?;
    Ok(())
}

/// Puts a row there that reads as this kind of error.
#[cfg(feature = "conformance")]
pub(super) async fn damage(connection: &mut SqliteConnection, id: &RecordId, kind: StoreErrorKind) -> sqlx::Result<()> {
    let (format, state) = if kind == StoreErrorKind::Newer { (FORMAT + 1, RUNNING) } else { (FORMAT, 0) };
    sqlx::query(DAMAGE).bind(&id.as_bytes()[..]).bind(format).bind(state).execute(connection).await?;
    Ok(())
}

pub(super) fn decode(row: &SqliteRow) -> Result<Record, StoreErrorKind> {
    let format: i64 = get(row, "format")?;
    if format > FORMAT {
        return Err(StoreErrorKind::Newer);
    }
    if format < FORMAT {
        return Err(StoreErrorKind::Corrupt);
    }
    Ok(Record {
        state: state(row)?,
        fingerprint: Fingerprint::from_bytes(array(row, "fingerprint")?),
        caller: CallerFingerprint::from_bytes(array(row, "caller")?),
        lease: LeaseId::from_bytes(array(row, "lease")?),
        attempt: number(row, "attempt")?,
        lapsed: number(row, "lapsed")?,
        policy: LapsePolicy {
            unknown: code::unknown(get(row, "on_unknown")?).ok_or(StoreErrorKind::Corrupt)?,
            max_attempts: NonZeroU32::new(number(row, "max_lapsed")?).ok_or(StoreErrorKind::Corrupt)?,
        },
        retention: Duration::from_millis(number(row, "retention")?),
        claimed_at: Millis(get(row, "claimed_at")?),
        lease_until: Millis(get(row, "lease_until")?),
        written_at: Millis(get(row, "written_at")?),
    })
}

/// The mark that a transaction left in the row, seen from inside it.
pub(super) fn mark(row: &SqliteRow) -> Result<Option<Vec<u8>>, StoreErrorKind> {
    get(row, "mark")
}

fn state(row: &SqliteRow) -> Result<State, StoreErrorKind> {
    match get::<i64>(row, "state")? {
        RUNNING => Ok(State::Running),
        RECORDED => Ok(State::Recorded(Arc::new(StoredResponse {
            status: status(row)?,
            headers: header_map(&get::<Vec<u8>>(row, "headers")?)?,
            body: Bytes::from(get::<Vec<u8>>(row, "body")?),
            trailers: get::<Option<Vec<u8>>>(row, "trailers")?.map(|bytes| header_map(&bytes)).transpose()?,
        }))),
        TOMBSTONE => Ok(State::Tombstone(Tombstone {
            status: status(row)?,
            reason: code::reason(get(row, "reason")?).ok_or(StoreErrorKind::Corrupt)?,
        })),
        FREE => Ok(State::Free),
        HELD => code::cause(get(row, "held_cause")?).map(State::Held).ok_or(StoreErrorKind::Corrupt),
        _ => Err(StoreErrorKind::Corrupt),
    }
}

fn status(row: &SqliteRow) -> Result<StatusCode, StoreErrorKind> {
    StatusCode::from_u16(number(row, "status")?).map_err(|_| StoreErrorKind::Corrupt)
}

fn header_map(bytes: &[u8]) -> Result<http::HeaderMap, StoreErrorKind> {
    headers::decode(bytes).map_err(|headers::Damaged| StoreErrorKind::Corrupt)
}

fn number<T: TryFrom<i64>>(row: &SqliteRow, column: &str) -> Result<T, StoreErrorKind> {
    T::try_from(get(row, column)?).map_err(|_| StoreErrorKind::Corrupt)
}

fn array<const N: usize>(row: &SqliteRow, column: &str) -> Result<[u8; N], StoreErrorKind> {
    get::<&[u8]>(row, column)?.try_into().map_err(|_| StoreErrorKind::Corrupt)
}

fn get<'r, T>(row: &'r SqliteRow, column: &str) -> Result<T, StoreErrorKind>
where
    T: sqlx::Decode<'r, Sqlite> + sqlx::Type<Sqlite>,
{
    row.try_get(column).map_err(|_| StoreErrorKind::Corrupt)
}

const SELECT: &str = "SELECT format, state, fingerprint, caller, lease, attempt, lapsed, on_unknown, max_lapsed, \
     retention, claimed_at, lease_until, written_at, held_cause, status, headers, body, trailers, reason, mark \
     FROM idempotency_record WHERE id = ?";

const SELECT_UNEXPIRING: &str = "SELECT id, format, state, fingerprint, caller, lease, attempt, lapsed, on_unknown, \
     max_lapsed, retention, claimed_at, lease_until, written_at, held_cause FROM idempotency_record \
     WHERE expires_at IS NULL AND format = ? AND state IN (?, ?) AND length(id) = 32 AND id > ? ORDER BY id LIMIT ?";

const BATCH: i64 = 100;

const SELECT_SETTLED: &str =
    "SELECT 1 FROM main.idempotency_record WHERE id = ? AND lease = ? AND state IN (?, ?) AND mark IS NULL";

const REPLACE: &str = "REPLACE INTO idempotency_record (id, format, state, fingerprint, caller, lease, attempt, \
     lapsed, on_unknown, max_lapsed, retention, claimed_at, lease_until, written_at, expires_at, held_cause, status, \
     headers, body, trailers, reason) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

#[cfg(feature = "conformance")]
const DAMAGE: &str = "INSERT INTO idempotency_record (id, format, state, fingerprint, caller, lease, attempt, lapsed, \
     on_unknown, max_lapsed, retention, claimed_at, lease_until, written_at) \
     VALUES (?, ?, ?, zeroblob(32), zeroblob(32), zeroblob(16), 1, 0, 1, 1, 0, 0, 0, 0) \
     ON CONFLICT (id) DO UPDATE SET format = excluded.format, state = excluded.state";
