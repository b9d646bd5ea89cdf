-- As before, but that earlier answers are joined: asked for by EXISTS, where a table looked small, all of it was read for each request.
CREATE OR REPLACE FUNCTION ledger_open_many(lock_numbers bigint[], holders text[], types text[], keys text[])
RETURNS TABLE (
    is_locked   boolean,
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
DECLARE
    locked boolean[];
BEGIN
    SELECT array_agg(pg_try_advisory_xact_lock(number)) INTO locked FROM unnest(lock_numbers) AS number;
    RETURN QUERY
        SELECT
            asked.is_locked,
            -- Never before the last entry, also when the clock was set back.
            GREATEST(clock_timestamp(), last.recorded_at),
            last.sequence,
            last.balance,
            last.held,
            last.lots::text,
            last.holds::text,
            last.overdraft,
            last.digest,
            CASE WHEN entry.is_there THEN 'entry' WHEN refusal.is_there THEN 'refusal' END
        FROM unnest(locked, holders, types, keys) WITH ORDINALITY AS asked (is_locked, holder, type, key, place)
        LEFT JOIN LATERAL (
            SELECT e.*
            FROM ledger_entry e
            WHERE asked.is_locked AND e.holder_id = asked.holder AND e.credit_type = asked.type
            ORDER BY e.sequence DESC
            LIMIT 1
        ) last ON true
        -- Joined, not EXISTS: where a table looks small, that would be answered by reading all of it.
        LEFT JOIN LATERAL (
            SELECT true AS is_there
            FROM ledger_entry e
            WHERE asked.is_locked
                AND e.holder_id = asked.holder
                AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(asked.key)
                AND e.idempotency_key IS NOT NULL
            LIMIT 1
        ) entry ON true
        LEFT JOIN LATERAL (
            SELECT true AS is_there
            FROM ledger_refusal r
            WHERE asked.is_locked AND r.holder_id = asked.holder AND r.idempotency_key = asked.key
            LIMIT 1
        ) refusal ON true
        ORDER BY asked.place;
END $$;
