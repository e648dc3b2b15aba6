//! The SQL of the verbs, one statement each, with the names of the schema's tables in it.
//!
//! 1. The time is [`statement_timestamp()`](https://www.postgresql.org/docs/current/functions-datetime.html): one moment
//!    for the whole statement, and inside a transaction of the handler's not the moment of its BEGIN.
//! 2. All names carry the schema: neither `search_path` nor a temporary table of a handler's leads them elsewhere.
//! 3. No statement needs more than READ COMMITTED, and none gives a wrong answer under a stricter isolation level; what it
//!    then fails with, it is sent again for.

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

/// The statements of a store, made once for its schema.
#[derive(Debug)]
pub(super) struct Statements {
    /// The schema's name, and as it is in SQL.
    pub(super) name: String,
    pub(super) schema: String,
    /// Makes a first run where there is no row, and gives the row that is there.
    pub(super) claim: SqlStr,
    /// Gives the row.
    pub(super) look: SqlStr,
    /// Starts a lease anew.
    pub(super) renew: SqlStr,
    /// Ends the run of a lease.
    pub(super) settle: SqlStr,
    /// Removes the run of a lease.
    pub(super) forget: SqlStr,
    /// Puts another record in the place of one that is as it was seen.
    pub(super) replace: SqlStr,
    /// Removes a record that is as it was seen.
    pub(super) remove: SqlStr,
    /// Gives some of the records that do not expire.
    pub(super) unexpiring: SqlStr,
    /// Ends the run of a lease inside the handler's transaction, if that is the one with the mark.
    pub(super) complete_in: SqlStr,
    /// Gives the row once nobody is writing it.
    pub(super) confirm: SqlStr,
    /// Removes some records that have expired.
    pub(super) sweep_records: SqlStr,
    /// Removes some leases whose runs are over.
    pub(super) sweep_leases: SqlStr,
    /// Removes what transactions that have ended left.
    pub(super) sweep_transactions: SqlStr,
    /// Makes a record that cannot be read.
    #[cfg(feature = "conformance")]
    pub(super) damage: SqlStr,
}

impl Statements {
    pub(super) fn new(name: &str) -> Self {
        let schema = quoted(name);
        let of = |text: &str| {
            let text = text
                .replace("{renewed_past_expiry}", RENEWED_PAST_EXPIRY)
                .replace("{readable}", READABLE)
                .replace("{seen}", SEEN)
                .replace("{columns}", COLUMNS)
                .replace("{joined}", JOINED)
                .replace("{now}", NOW)
                .replace("{s}", &schema);
            AssertSqlSafe(text).into_sql_str().clone()
        };
        Self {
            claim: of(CLAIM),
            look: of(LOOK),
            renew: of(RENEW),
            settle: of(SETTLE),
            forget: of(FORGET),
            replace: of(REPLACE),
            remove: of(REMOVE),
            unexpiring: of(UNEXPIRING),
            complete_in: of(COMPLETE_IN),
            confirm: of(CONFIRM),
            sweep_records: of(SWEEP_RECORDS),
            sweep_leases: of(SWEEP_LEASES),
            sweep_transactions: of(SWEEP_TRANSACTIONS),
            #[cfg(feature = "conformance")]
            damage: of(DAMAGE),
            name: name.to_owned(),
            schema,
        }
    }

    /// Opens a handler's transaction, tells how many records the lease holds, leaves the mark in it, and tells the
    /// transaction's id.
    ///
    /// It is one simple query, so that it is one round trip; what it is told are bytes and numbers of ours.
    pub(super) fn begin(&self, opening: &Opening<'_>) -> SqlStr {
        let [record, lease, mark] = [opening.record, opening.lease, opening.mark].map(literal);
        let Opening { isolation, idle_millis, .. } = opening;
        let fence = BEGIN_FENCE
            .replace("{renewed_past_expiry}", RENEWED_PAST_EXPIRY)
            .replace("{readable}", READABLE)
            .replace("$1", &record)
            .replace("$2", &lease)
            .replace("{now}", NOW)
            .replace("{s}", &self.schema);
        // A session that others have had may have statements of theirs, under the names that are next.
        let clean = if opening.is_legacy { "; DEALLOCATE ALL" } else { "" };
        let begin = format!("BEGIN ISOLATION LEVEL {isolation} READ WRITE{clean}");
        let mark = format!(
            "SET LOCAL idle_in_transaction_session_timeout = {idle_millis}; \
             INSERT INTO {}.idempotency_transaction (mark, lock) VALUES ({mark}, 0) RETURNING xid",
            self.schema
        );
        // What a serializable transaction has read of records would be in conflict with what others write beside them.
        let text = if *isolation == "SERIALIZABLE" {
            format!("BEGIN READ ONLY; {fence}; COMMIT; {begin}; {mark}")
        } else {
            format!("{begin}; {fence}; {mark}")
        };
        AssertSqlSafe(text).into_sql_str()
    }
}

/// What a handler's transaction is opened with.
#[derive(Debug)]
pub(super) struct Opening<'a> {
    pub(super) isolation: &'static str,
    pub(super) record: &'a [u8],
    pub(super) lease: &'a [u8],
    pub(super) mark: &'a [u8],
    pub(super) idle_millis: u128,
    pub(super) is_legacy: bool,
}

/// A name as an identifier, whatever is in it.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

fn literal(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("'\\x{digits}'::bytea")
}

/// Milliseconds since the Unix epoch.
const NOW: &str = "(date_part('epoch', statement_timestamp()) * 1000)::bigint";

/// In the order in which `row.rs` reads them.
const COLUMNS: &str = "r.format, r.state, r.fingerprint, r.caller, r.lease, r.attempt, r.lapsed, r.on_unknown, \
     r.max_lapsed, r.retention, r.claimed_at, r.lease_until, r.written_at, r.held_cause, r.status, r.headers, r.body, \
     r.trailers, r.reason, l.lease_until, l.written_at, {now}";

/// Whether `row.rs` can read a run: what it cannot is for no verb to write over.
const READABLE: &str = "r.format = 1 AND r.on_unknown IN (1, 2) AND r.max_lapsed BETWEEN 1 AND 4294967295 \
     AND r.attempt BETWEEN 0 AND 4294967295 AND r.lapsed BETWEEN 0 AND 4294967295 AND r.retention >= 0 \
     AND octet_length(r.fingerprint) = 32 AND octet_length(r.caller) = 32";

/// Only a run can have been renewed. Without the OFFSET the lease would be looked for beside every record.
const JOINED: &str = "LEFT JOIN LATERAL (\
         SELECT l.lease_until, l.written_at FROM {s}.idempotency_lease l \
         WHERE r.state = 1 AND l.lease = r.lease AND l.claimed_at = r.claimed_at OFFSET 0) l ON true";

/// Whether the lease `$2`, whose row has been there for its time, was renewed since.
const RENEWED_PAST_EXPIRY: &str = "(r.sweep_from IS NULL OR r.sweep_from > {now} \
     OR greatest(r.lease_until, r.written_at + r.retention) > {now} \
     OR EXISTS (SELECT FROM {s}.idempotency_lease l WHERE l.lease = $2 AND l.claimed_at = r.claimed_at \
         AND greatest(l.lease_until, l.written_at + r.retention) > {now}))";

/// One row, always. Without a record in it, either it was made, or another claim's has been committed since this
/// statement began, which in READ COMMITTED it cannot see; then it is sent again.
///
/// Where there is a row, no other is tried: `ON CONFLICT` waits for whoever is writing the row, and that is a handler's
/// transaction until it has committed, or until the server gives it up.
const CLAIM: &str = "WITH found AS MATERIALIZED (SELECT * FROM {s}.idempotency_record WHERE id = $1), \
     made AS (\
         INSERT INTO {s}.idempotency_record (id, format, state, fingerprint, caller, lease, attempt, lapsed, \
             on_unknown, max_lapsed, retention, claimed_at, lease_until, written_at, sweep_from) \
         SELECT $1, 1, 1, $2, $3, $4, 1, 0, $5, $6, $7, {now}, {now} + $8, {now}, {now} + $9 \
         WHERE NOT EXISTS (SELECT FROM found) \
         ON CONFLICT (id) DO NOTHING RETURNING 1) \
     SELECT {columns}, m.made FROM (SELECT count(*) AS made FROM made) m LEFT JOIN found r ON true {joined}";

const LOOK: &str = "SELECT {columns} FROM {s}.idempotency_record r {joined} WHERE r.id = $1";

/// The record's row is left alone: whoever writes it in a transaction is not to be in conflict with its own renewals.
/// What the record says may be old by the time the lease is written; whoever took over has closed it then.
const RENEW: &str = "INSERT INTO {s}.idempotency_lease AS l (lease, claimed_at, record, lease_until, written_at) \
     SELECT $2, r.claimed_at, $1, {now} + $3, {now} FROM {s}.idempotency_record r \
     WHERE r.id = $1 AND r.lease = $2 AND r.state = 1 AND {readable} AND {renewed_past_expiry} \
     ON CONFLICT (lease, claimed_at) DO UPDATE SET lease_until = excluded.lease_until, written_at = excluded.written_at \
     WHERE NOT l.is_closed";

/// An end other than held expires, which its retention says from here on; `sweep_from` stays, as a time before that.
const SETTLE: &str = "UPDATE {s}.idempotency_record r \
     SET state = $3, written_at = {now}, held_cause = $4, status = $5, headers = $6, body = $7, trailers = $8, \
         reason = $9, sweep_from = CASE WHEN $3 = 5 THEN NULL ELSE coalesce(r.sweep_from, {now}) END \
     WHERE r.id = $1 AND r.lease = $2 AND r.state = 1 AND {readable} AND {renewed_past_expiry}";

const FORGET: &str = "DELETE FROM {s}.idempotency_record r \
     WHERE r.id = $1 AND r.lease = $2 AND r.state = 1 AND {readable} AND {renewed_past_expiry}";

/// `$2` to `$7` are what was seen. A row that somebody else is writing is passed by. A run that is taken over has its
/// lease closed in the same step, unless it was renewed since: that is the one row that both write.
const SEEN: &str = "WITH seen AS MATERIALIZED (\
         SELECT r.id, r.claimed_at FROM {s}.idempotency_record r \
         WHERE r.id = $1 AND r.format = 1 AND r.lease = $2 AND r.state = $3 AND r.attempt = $4 \
             AND r.written_at = $5 FOR UPDATE SKIP LOCKED), \
     closed AS (\
         INSERT INTO {s}.idempotency_lease AS l (lease, claimed_at, record, lease_until, written_at, is_closed) \
         SELECT $2, seen.claimed_at, $1, 0, {now}, true FROM seen WHERE $3 = 1 \
         ON CONFLICT (lease, claimed_at) DO UPDATE SET is_closed = true, written_at = excluded.written_at \
         WHERE l.lease_until = $6 AND l.written_at = $7 RETURNING 1)";

/// After [`SEEN`].
const REPLACE: &str = "{seen} UPDATE {s}.idempotency_record r SET state = $8, fingerprint = $9, caller = $10, lease = $11, \
         attempt = $12, lapsed = $13, on_unknown = $14, max_lapsed = $15, retention = $16, claimed_at = $17, \
         lease_until = $18, written_at = $19, sweep_from = $20, held_cause = $21, status = $22, headers = $23, \
         body = $24, trailers = $25, reason = $26 \
     FROM seen WHERE r.id = seen.id AND ($3 <> 1 OR EXISTS (SELECT FROM closed))";

/// After [`SEEN`].
const REMOVE: &str = "{seen} DELETE FROM {s}.idempotency_record r \
     USING seen WHERE r.id = seen.id AND ($3 <> 1 OR EXISTS (SELECT FROM closed))";

const UNEXPIRING: &str = "SELECT {columns}, r.id FROM {s}.idempotency_record r {joined} \
     WHERE r.sweep_from IS NULL AND r.id > $1 ORDER BY r.id LIMIT $2";

const BEGIN_FENCE: &str = "SELECT count(*) FROM {s}.idempotency_record r \
     WHERE r.id = $1 AND r.lease = $2 AND r.state = 1 AND {readable} AND {renewed_past_expiry}";

/// Both rows are reached through their unique index alone, so that a serializable transaction has read nothing that
/// others write. A row that this makes, and does not find, has a state that no record has.
const COMPLETE_IN: &str = "WITH marked AS (\
         INSERT INTO {s}.idempotency_transaction AS t (mark, lock) VALUES ($3, 1) \
         ON CONFLICT (mark) DO UPDATE SET lock = NULL WHERE t.xid = pg_current_xact_id() \
         RETURNING t.lock IS NULL AS is_ours), \
     done AS (\
         INSERT INTO {s}.idempotency_record AS r (id, format, state, fingerprint, caller, lease, attempt, lapsed, \
             on_unknown, max_lapsed, retention, claimed_at, lease_until, written_at) \
         SELECT $1, 0, 0, '', '', '', 0, 0, 0, 0, 0, 0, 0, 0 FROM marked WHERE is_ours \
         ON CONFLICT (id) DO UPDATE SET state = $4, written_at = {now}, status = $5, headers = $6, body = $7, \
             trailers = $8, reason = $9, sweep_from = coalesce(r.sweep_from, {now}) \
         WHERE r.lease = $2 AND r.state = 1 AND {readable} RETURNING r.state) \
     SELECT (SELECT count(*) FROM marked WHERE is_ours), (SELECT max(state) FROM done)";

const CONFIRM: &str = "SELECT {columns} FROM {s}.idempotency_record r {joined} WHERE r.id = $1 FOR SHARE OF r";

/// The records are chosen before any is removed: a limit inside a join may be run again and again. A run is left alone for
/// a while after it has expired, by which time whatever would have renewed it has ended.
const SWEEP_RECORDS: &str = "WITH expired AS MATERIALIZED (\
         SELECT r.id FROM {s}.idempotency_record r \
         WHERE r.sweep_from <= {now} AND r.format = 1 AND r.state IN (1, 2, 3, 4) \
             AND r.written_at + r.retention + CASE WHEN r.state = 1 THEN $2 ELSE 0 END <= {now} \
             AND NOT (r.state = 1 AND r.lease_until + $2 > {now}) \
             AND NOT (r.state = 1 AND EXISTS (SELECT FROM {s}.idempotency_lease l WHERE l.lease = r.lease \
                 AND l.claimed_at = r.claimed_at AND greatest(l.lease_until, l.written_at + r.retention) + $2 > {now})) \
         ORDER BY r.sweep_from LIMIT $1 FOR UPDATE OF r SKIP LOCKED) \
     DELETE FROM {s}.idempotency_record r USING expired WHERE r.id = expired.id";

/// A closed lease is of use for as long as a renewal that began before it may be under way.
const SWEEP_LEASES: &str = "WITH over AS MATERIALIZED (\
         SELECT l.lease, l.claimed_at FROM {s}.idempotency_lease l WHERE l.written_at <= {now} - $2 \
             AND NOT EXISTS (SELECT FROM {s}.idempotency_record r \
                 WHERE r.id = l.record AND r.lease = l.lease AND r.claimed_at = l.claimed_at AND r.state = 1) \
         ORDER BY l.written_at LIMIT $1 FOR UPDATE SKIP LOCKED) \
     DELETE FROM {s}.idempotency_lease l USING over WHERE l.lease = over.lease AND l.claimed_at = over.claimed_at";

/// What can be seen here has been committed or will not be.
const SWEEP_TRANSACTIONS: &str = "WITH over AS MATERIALIZED (\
         SELECT t.mark FROM {s}.idempotency_transaction t ORDER BY t.mark LIMIT $1 FOR UPDATE SKIP LOCKED) \
     DELETE FROM {s}.idempotency_transaction t USING over WHERE t.mark = over.mark";

#[cfg(feature = "conformance")]
const DAMAGE: &str = "INSERT INTO {s}.idempotency_record (id, format, state, fingerprint, caller, lease, attempt, lapsed, \
         on_unknown, max_lapsed, retention, claimed_at, lease_until, written_at) \
     VALUES ($1, $2, 0, '', '', '', 0, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT (id) DO UPDATE SET format = excluded.format";
