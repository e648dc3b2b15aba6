-- The records of idempotency keys, and which of these scripts have run. `SqliteStore::migrate` applies this script; run
-- by hand, in one transaction, it does the same.

CREATE TABLE idempotency_schema (
    version INTEGER PRIMARY KEY NOT NULL
) STRICT;

CREATE TABLE idempotency_record (
    id          BLOB    NOT NULL PRIMARY KEY, -- SHA-256 over scope, principal and key
    format      INTEGER NOT NULL,             -- of the row; a version that does not know it leaves the row alone
    state       INTEGER NOT NULL,             -- 1 running, 2 recorded, 3 tombstone, 4 free, 5 held
    fingerprint BLOB    NOT NULL,
    caller      BLOB    NOT NULL,
    lease       BLOB    NOT NULL,             -- who holds it, or who wrote the state
    attempt     INTEGER NOT NULL,
    lapsed      INTEGER NOT NULL,             -- how many of the attempts lapsed
    on_unknown  INTEGER NOT NULL,             -- 1 run again, 2 hold
    max_lapsed  INTEGER NOT NULL,             -- after so many lapsed runs the record is held
    retention   INTEGER NOT NULL,             -- milliseconds from written_at
    claimed_at  INTEGER NOT NULL,             -- this and every other moment: milliseconds since the Unix epoch
    lease_until INTEGER NOT NULL,
    written_at  INTEGER NOT NULL,
    expires_at  INTEGER,                      -- none while held, and while running under 2, hold
    held_cause  INTEGER,                      -- 1 outcome unknown, 2 lapsed
    status      INTEGER,                      -- of recorded and tombstone
    headers     BLOB,
    body        BLOB,
    trailers    BLOB,
    reason      INTEGER,                      -- of tombstone: 1 too large, 2 streamed, 3 upgraded
    mark        BLOB                          -- only ever seen inside the holder's own transaction
) STRICT;

CREATE INDEX idempotency_record_expiry ON idempotency_record (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX idempotency_record_held ON idempotency_record (id) WHERE expires_at IS NULL;

INSERT INTO idempotency_schema (version) VALUES (1);
