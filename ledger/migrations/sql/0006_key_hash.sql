-- The unique index of the keys holds 8 bytes of each instead of its text: keys are as long as their callers like, UUIDs mostly.

-- The first 8 bytes of SHA-256 over the key, which any language computes alike, on every version and platform. A key is printable ASCII;
-- `decode` takes it as bytes, of which the backslash alone would mean something else. Not PostgreSQL's own hash functions: they promise
-- no value from one major version to the next.
CREATE FUNCTION ledger_key_hash(key text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN substr(sha256(decode(replace(key, E'\\', E'\\\\'), 'escape')), 1, 8);

-- One effect per key and holder; also where a replayed request finds its first answer. A key whose hash another key of the holder has is
-- refused as taken (docs/adr/0013).
CREATE UNIQUE INDEX ledger_entry_key_hash ON ledger_entry (holder_id, ledger_key_hash(idempotency_key)) WHERE idempotency_key IS NOT NULL;
DROP INDEX ledger_entry_key;
ALTER INDEX ledger_entry_key_hash RENAME TO ledger_entry_key;

-- Takes the holder's lock, then reads the account as it stands after the last entry, and whether the key was answered before, or one
-- that has its hash: who replays the answer compares the texts.
-- VOLATILE is what makes it right: each statement inside gets a snapshot of its own, so the read sees what was committed while the
-- lock was waited for. STABLE, or lock and read in one statement, would read with a snapshot older than the lock.
CREATE OR REPLACE FUNCTION ledger_open(lock_number bigint, holder text, type text, key text)
RETURNS TABLE (
    now         timestamptz,
    sequence    bigint,
    balance     bigint,
    held        bigint,
    lots        text,
    holds       text,
    overdraft   bigint,
    digest      bytea,
    answered_by text
)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(lock_number);
    RETURN QUERY
        SELECT
            -- Never before the last entry, also when the clock was set back.
            GREATEST(clock_timestamp(), last.recorded_at),
            last.sequence,
            last.balance,
            last.held,
            last.lots::text,
            last.holds::text,
            last.overdraft,
            last.digest,
            CASE
                WHEN EXISTS (
                    SELECT
                    FROM ledger_entry e
                    WHERE e.holder_id = holder
                        AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(key)
                        AND e.idempotency_key IS NOT NULL
                ) THEN 'entry'
                WHEN EXISTS (SELECT FROM ledger_refusal r WHERE r.holder_id = holder AND r.idempotency_key = key) THEN 'refusal'
            END
        FROM (VALUES (1)) AS always_one_row
        LEFT JOIN LATERAL (
            SELECT e.*
            FROM ledger_entry e
            WHERE e.holder_id = holder AND e.credit_type = type
            ORDER BY e.sequence DESC
            LIMIT 1
        ) last ON true;
END $$;
