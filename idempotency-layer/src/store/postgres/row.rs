//! A record as a row, and back.
//!
//! Reading is total: a row that this version cannot have written is [`Corrupt`](StoreErrorKind::Corrupt), one in a later
//! format is [`Newer`](StoreErrorKind::Newer), and the format is looked at before anything else.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row};

use crate::store::code::{self, FREE, HELD, RECORDED, RUNNING, TOMBSTONE};
use crate::store::headers;
use crate::store::machine::{Millis, Record, State, whole_millis};
use crate::store::{
    CallerFingerprint, Completion, Fingerprint, LapsePolicy, LeaseId, RecordId, StoreErrorKind, StoredResponse,
    Tombstone,
};

pub(super) type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// A row that can be read.
#[derive(Debug)]
pub(super) struct Found {
    /// As every verb is to see it: with what its lease's own row says.
    pub(super) record: Record,
    /// As [`SEEN`](super::statements) compares it.
    pub(super) seen: Seen,
}

/// What tells whether a row is still the one that was read.
#[derive(Debug)]
pub(super) struct Seen {
    lease: LeaseId,
    state: i16,
    attempt: i64,
    written_at: i64,
    /// Of the lease's own row; -1 where there is none.
    renewed_until: i64,
    renewed_at: i64,
}

impl Seen {
    /// Binds `$2` to `$7`.
    pub(super) fn bind<'q>(&self, statement: Statement<'q>) -> Statement<'q> {
        statement
            .bind(self.lease.as_bytes().to_vec())
            .bind(self.state)
            .bind(self.attempt)
            .bind(self.written_at)
            .bind(self.renewed_until)
            .bind(self.renewed_at)
    }
}

/// The columns that a state fills.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) state: i16,
    pub(super) cause: Option<i16>,
    pub(super) status: Option<i16>,
    pub(super) headers: Option<Vec<u8>>,
    pub(super) body: Option<Bytes>,
    pub(super) trailers: Option<Vec<u8>>,
    pub(super) reason: Option<i16>,
}

impl Columns {
    pub(super) fn of(state: &State) -> Self {
        match state {
            State::Running => Self::empty(RUNNING),
            State::Recorded(response) => Self::of_response(response),
            State::Tombstone(tombstone) => Self::of_tombstone(*tombstone),
            State::Free => Self::empty(FREE),
            State::Held(cause) => Self { cause: Some(small(code::of_cause(*cause))), ..Self::empty(HELD) },
        }
    }

    pub(super) fn of_completion(completion: &Completion) -> Self {
        match completion {
            Completion::Response(response) => Self::of_response(response),
            Completion::Tombstone(tombstone) => Self::of_tombstone(*tombstone),
        }
    }

    /// Binds status, headers, body, trailers and reason.
    pub(super) fn bind_answer<'q>(&'q self, statement: Statement<'q>) -> Statement<'q> {
        statement
            .bind(self.status)
            .bind(self.headers.as_deref())
            .bind(self.body.as_deref())
            .bind(self.trailers.as_deref())
            .bind(self.reason)
    }

    fn empty(state: i64) -> Self {
        Self { state: small(state), cause: None, status: None, headers: None, body: None, trailers: None, reason: None }
    }

    fn of_response(response: &StoredResponse) -> Self {
        Self {
            status: i16::try_from(response.status.as_u16()).ok(),
            headers: Some(headers::encode(&response.headers)),
            body: Some(response.body.clone()),
            trailers: response.trailers.as_ref().map(headers::encode),
            ..Self::empty(RECORDED)
        }
    }

    fn of_tombstone(tombstone: Tombstone) -> Self {
        Self {
            status: i16::try_from(tombstone.status.as_u16()).ok(),
            reason: Some(small(code::of_reason(tombstone.reason))),
            ..Self::empty(TOMBSTONE)
        }
    }
}

/// A code, which is a small number.
pub(super) fn small(code: i64) -> i16 {
    // What does not fit is damage, which no reader takes for a record.
    i16::try_from(code).unwrap_or(i16::MAX)
}

/// Milliseconds, as many as the database adds to a moment without an overflow.
pub(super) fn millis(duration: Duration) -> i64 {
    whole_millis(duration).clamp(0, MOST_MILLIS)
}

/// Binds `$8` to `$26` of a replacement.
pub(super) fn bind<'q>(statement: Statement<'q>, record: &'q Record, columns: &'q Columns) -> Statement<'q> {
    let statement = statement
        .bind(columns.state)
        .bind(&record.fingerprint.as_bytes()[..])
        .bind(&record.caller.as_bytes()[..])
        .bind(&record.lease.as_bytes()[..])
        .bind(i64::from(record.attempt))
        .bind(i64::from(record.lapsed))
        .bind(small(code::of_unknown(record.policy.unknown)))
        .bind(i64::from(record.policy.max_attempts.get()))
        .bind(millis(record.retention))
        .bind(record.claimed_at.0)
        .bind(record.lease_until.0)
        .bind(record.written_at.0)
        .bind(record.expires_at().map(|at| at.0))
        .bind(columns.cause);
    columns.bind_answer(statement)
}

/// The time at which the row was read.
pub(super) fn now(row: &PgRow) -> Result<Millis, StoreErrorKind> {
    get(row, NOW).map(Millis)
}

/// The id of a row of the list, as it is there.
pub(super) fn raw_id(row: &PgRow) -> Result<Vec<u8>, StoreErrorKind> {
    get(row, LAST)
}

/// The id of a row of the list.
pub(super) fn id(row: &PgRow) -> Result<RecordId, StoreErrorKind> {
    array(row, LAST).map(RecordId::from_bytes)
}

/// Whether a claim has made the record.
pub(super) fn is_made(row: &PgRow) -> Result<bool, StoreErrorKind> {
    get::<i64>(row, LAST).map(|made| made > 0)
}

/// The record, unless there is none.
pub(super) fn found(row: &PgRow) -> Result<Option<Found>, StoreErrorKind> {
    let Some(format) = get::<Option<i16>>(row, FORMAT)? else { return Ok(None) };
    if format > THIS_FORMAT {
        return Err(StoreErrorKind::Newer);
    }
    if format < THIS_FORMAT {
        return Err(StoreErrorKind::Corrupt);
    }
    let mut record = Record {
        state: state(row)?,
        fingerprint: Fingerprint::from_bytes(array(row, 2)?),
        caller: CallerFingerprint::from_bytes(array(row, 3)?),
        lease: LeaseId::from_bytes(array(row, 4)?),
        attempt: number(row, 5)?,
        lapsed: number(row, 6)?,
        policy: LapsePolicy {
            unknown: code::unknown(i64::from(get::<i16>(row, 7)?)).ok_or(StoreErrorKind::Corrupt)?,
            max_attempts: NonZeroU32::new(number(row, 8)?).ok_or(StoreErrorKind::Corrupt)?,
        },
        retention: Duration::from_millis(number(row, 9)?),
        claimed_at: Millis(get(row, 10)?),
        lease_until: Millis(get(row, 11)?),
        written_at: Millis(get(row, 12)?),
    };
    let renewed = (get::<Option<i64>>(row, 19)?, get::<Option<i64>>(row, 20)?);
    let seen = Seen {
        lease: record.lease,
        state: get(row, STATE)?,
        attempt: i64::from(record.attempt),
        written_at: record.written_at.0,
        renewed_until: renewed.0.unwrap_or(-1),
        renewed_at: renewed.1.unwrap_or(-1),
    };
    if let (Some(until), Some(at)) = renewed {
        record.lease_until = record.lease_until.max(Millis(until));
        record.written_at = record.written_at.max(Millis(at));
    }
    Ok(Some(Found { record, seen }))
}

fn state(row: &PgRow) -> Result<State, StoreErrorKind> {
    match i64::from(get::<i16>(row, STATE)?) {
        RUNNING => Ok(State::Running),
        RECORDED => Ok(State::Recorded(Arc::new(StoredResponse {
            status: status(row)?,
            headers: header_map(get(row, 15)?)?,
            body: Bytes::copy_from_slice(get(row, 16)?),
            trailers: get::<Option<&[u8]>>(row, 17)?.map(header_map).transpose()?,
        }))),
        TOMBSTONE => Ok(State::Tombstone(Tombstone {
            status: status(row)?,
            reason: code::reason(i64::from(get::<i16>(row, 18)?)).ok_or(StoreErrorKind::Corrupt)?,
        })),
        FREE => Ok(State::Free),
        HELD => code::cause(i64::from(get::<i16>(row, 13)?)).map(State::Held).ok_or(StoreErrorKind::Corrupt),
        _ => Err(StoreErrorKind::Corrupt),
    }
}

fn status(row: &PgRow) -> Result<StatusCode, StoreErrorKind> {
    let status = u16::try_from(get::<i16>(row, 14)?).map_err(|_| StoreErrorKind::Corrupt)?;
    StatusCode::from_u16(status).map_err(|_| StoreErrorKind::Corrupt)
}

fn header_map(bytes: &[u8]) -> Result<http::HeaderMap, StoreErrorKind> {
    headers::decode(bytes).map_err(|headers::Damaged| StoreErrorKind::Corrupt)
}

fn number<T: TryFrom<i64>>(row: &PgRow, column: usize) -> Result<T, StoreErrorKind> {
    T::try_from(get(row, column)?).map_err(|_| StoreErrorKind::Corrupt)
}

fn array<const N: usize>(row: &PgRow, column: usize) -> Result<[u8; N], StoreErrorKind> {
    get::<&[u8]>(row, column)?.try_into().map_err(|_| StoreErrorKind::Corrupt)
}

fn get<'r, T>(row: &'r PgRow, column: usize) -> Result<T, StoreErrorKind>
where
    T: sqlx::Decode<'r, Postgres> + sqlx::Type<Postgres>,
{
    row.try_get(column).map_err(|_| StoreErrorKind::Corrupt)
}

/// The format of the rows that this version writes.
const THIS_FORMAT: i16 = 1;

const FORMAT: usize = 0;
const STATE: usize = 1;
const NOW: usize = 21;
/// What a statement gives beside the columns of the record.
const LAST: usize = 22;

/// 2^52, about 143,000 years.
const MOST_MILLIS: i64 = 1 << 52;
