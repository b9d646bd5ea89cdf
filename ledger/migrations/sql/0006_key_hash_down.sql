-- The keys' texts in their index again.
-- Takes the holder's lock, then reads the account as it stands after the last entry, and whether the key was answered before.
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
                WHEN EXISTS (SELECT FROM ledger_entry e WHERE e.holder_id = holder AND e.idempotency_key = key) THEN 'entry'
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

DROP INDEX ledger_entry_key;
CREATE UNIQUE INDEX ledger_entry_key ON ledger_entry (holder_id, idempotency_key) WHERE idempotency_key IS NOT NULL;
DROP FUNCTION ledger_key_hash(text);
