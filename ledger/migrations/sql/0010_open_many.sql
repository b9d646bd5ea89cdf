-- Takes the locks of many requests' holders as far as nobody else has them, then reads their accounts, and whether their keys were
-- answered before: what ledger_open does for one request, without waiting for anybody. One row per request, in their order.
-- VOLATILE for the same reason: the read is a statement of its own, with a snapshot younger than the locks.
CREATE FUNCTION ledger_open_many(lock_numbers bigint[], holders text[], types text[], keys text[])
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
            CASE
                WHEN NOT asked.is_locked THEN NULL
                WHEN EXISTS (
                    SELECT
                    FROM ledger_entry e
                    WHERE e.holder_id = asked.holder
                        AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(asked.key)
                        AND e.idempotency_key IS NOT NULL
                ) THEN 'entry'
                WHEN EXISTS (SELECT FROM ledger_refusal r WHERE r.holder_id = asked.holder AND r.idempotency_key = asked.key) THEN 'refusal'
            END
        FROM unnest(locked, holders, types, keys) WITH ORDINALITY AS asked (is_locked, holder, type, key, place)
        LEFT JOIN LATERAL (
            SELECT e.*
            FROM ledger_entry e
            WHERE asked.is_locked AND e.holder_id = asked.holder AND e.credit_type = asked.type
            ORDER BY e.sequence DESC
            LIMIT 1
        ) last ON true
        ORDER BY asked.place;
END $$;
