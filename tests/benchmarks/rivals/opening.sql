-- ledger_open with another protection than the advisory lock, or with none, for rivals that differ in nothing else.
CREATE FUNCTION rivals.open_by(protection text, holder text, type text, key text)
RETURNS TABLE (
    now timestamptz, recorded_at timestamptz, sequence bigint, balance bigint, held bigint, lots text, holds text, overdraft bigint,
    digest bytea, moved_by bigint, is_answered boolean
)
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF protection = 'row' THEN
        PERFORM FROM rivals.holder h WHERE h.holder_id = holder FOR UPDATE;
    ELSIF protection = 'table' THEN
        -- Not ledger_entry itself, for which the application has no right to such a lock; all of these spends meet here all the same.
        LOCK TABLE rivals.holder IN EXCLUSIVE MODE;
    END IF;
    RETURN QUERY
        SELECT
            clock_timestamp(), last.recorded_at, last.sequence, last.balance, last.held, last.lots::text, last.holds::text,
            last.overdraft, last.digest,
            CASE last.kind WHEN 'refusal' THEN (last.refusal ->> 'after')::bigint ELSE last.sequence END,
            EXISTS (
                SELECT
                FROM ledger_entry e
                WHERE e.holder_id = holder
                    AND ledger_key_hash(e.idempotency_key) = ledger_key_hash(key)
                    AND e.idempotency_key IS NOT NULL
            )
        FROM (VALUES (1)) AS always_one_row
        LEFT JOIN LATERAL (
            SELECT e.* FROM ledger_entry e WHERE e.holder_id = holder AND e.credit_type = type ORDER BY e.sequence DESC LIMIT 1
        ) last ON true;
END $$;
