-- The records of idempotency keys, and which of these scripts have run. `PostgresStore::migrate` applies this script; run
-- by hand, in one transaction and with the schema first in `search_path`, it does the same.

CREATE TABLE IF NOT EXISTS idempotency_schema (
    version bigint PRIMARY KEY
);

-- An answer is written over its claim: the room that is left in each page keeps that update in its page, where it changes
-- no index.
CREATE TABLE idempotency_record (
    id          bytea    PRIMARY KEY, -- SHA-256 over scope, principal and key
    format      smallint NOT NULL,    -- of the row; a version that does not know it leaves the row alone
    state       smallint NOT NULL,    -- 1 running, 2 recorded, 3 tombstone, 4 free, 5 held
    fingerprint bytea    NOT NULL,
    caller      bytea    NOT NULL,
    lease       bytea    NOT NULL,    -- who holds it, or who wrote the state
    attempt     bigint   NOT NULL,
    lapsed      bigint   NOT NULL,    -- how many of the attempts lapsed
    on_unknown  smallint NOT NULL,    -- 1 run again, 2 hold
    max_lapsed  bigint   NOT NULL,    -- after so many lapsed runs the record is held
    retention   bigint   NOT NULL,    -- milliseconds from written_at
    claimed_at  bigint   NOT NULL,    -- this and every other moment: milliseconds since the Unix epoch
    lease_until bigint   NOT NULL,
    written_at  bigint   NOT NULL,
    sweep_from  bigint,               -- not expired before; none while held, and while running under 2, hold
    held_cause  smallint,             -- 1 outcome unknown, 2 lapsed
    status      smallint,             -- of recorded and tombstone
    headers     bytea,
    body        bytea,
    trailers    bytea,
    reason      smallint              -- of tombstone: 1 too large, 2 streamed, 3 upgraded
) WITH (fillfactor = 30);

CREATE INDEX idempotency_record_sweep ON idempotency_record (sweep_from) WHERE sweep_from IS NOT NULL;
CREATE INDEX idempotency_record_held ON idempotency_record (id) WHERE sweep_from IS NULL;

-- What became of a run's lease after its claim: it was renewed, or it was closed by whoever took over. A claim that
-- arrives once more, after everything, is another run of the same lease.
CREATE TABLE idempotency_lease (
    lease       bytea   NOT NULL,
    claimed_at  bigint  NOT NULL,     -- of the run's record
    record      bytea   NOT NULL,
    lease_until bigint  NOT NULL,
    written_at  bigint  NOT NULL,
    is_closed   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (lease, claimed_at)
);

CREATE INDEX idempotency_lease_written ON idempotency_lease (written_at);

-- A transaction that a handler has been given leaves a row here that refers to nothing, which fails at COMMIT. Only the
-- store's completion takes the reference out. Nothing here counts once its transaction has ended.
CREATE UNLOGGED TABLE idempotency_commit (
    id smallint PRIMARY KEY CHECK (false)
);

CREATE UNLOGGED TABLE idempotency_transaction (
    mark bytea    PRIMARY KEY,
    xid  xid8     NOT NULL DEFAULT pg_current_xact_id(),
    lock smallint CONSTRAINT only_the_idempotency_store_commits
        REFERENCES idempotency_commit DEFERRABLE INITIALLY DEFERRED
);

INSERT INTO idempotency_schema (version) VALUES (1);
