-- What every append-only table's trigger calls. A statement trigger, so that no WHERE clause gets past it and TRUNCATE neither.
CREATE FUNCTION refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'LG001', TABLE = TG_TABLE_NAME;
END $$;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_entry
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER append_only;

CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger_refusal
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
ALTER TABLE ledger_refusal ENABLE ALWAYS TRIGGER append_only;

-- Takes the holder's lock, then reads the account as it stands after the last entry, and whether the key was answered before.
-- VOLATILE is what makes it right: each statement inside gets a snapshot of its own, so the read sees what was committed while the
-- lock was waited for. STABLE, or lock and read in one statement, would read with a snapshot older than the lock.
CREATE FUNCTION ledger_open(lock_number bigint, holder text, type text, key text)
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

-- The number of the account's last entry recorded at or before an instant, 0 when there is none. recorded_at rises with the number,
-- so it is found by halving, in the logarithm of the history's length.
CREATE FUNCTION ledger_sequence_at(holder text, type text, at timestamptz) RETURNS bigint
LANGUAGE plpgsql STABLE AS $$
DECLARE
    low    bigint := 0;
    high   bigint;
    middle bigint;
BEGIN
    SELECT COALESCE(max(e.sequence), 0)
    INTO high
    FROM ledger_entry e
    WHERE e.holder_id = holder AND e.credit_type = type;
    WHILE low < high LOOP
        middle := low + (high - low + 1) / 2;
        IF (SELECT e.recorded_at <= at FROM ledger_entry e WHERE e.holder_id = holder AND e.credit_type = type AND e.sequence = middle)
        THEN
            low := middle;
        ELSE
            high := middle - 1;
        END IF;
    END LOOP;
    RETURN low;
END $$;

-- The digest that an entry must have: SHA-256 over the previous digest and the canonical form, as ledger.rules.entries computes it.
CREATE FUNCTION ledger_entry_digest(e ledger_entry) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
RETURN sha256(e.previous_digest || convert_to(json_build_array(
    e.holder_id,
    e.credit_type,
    e.sequence,
    e.kind,
    e.amount,
    e.balance,
    e.held,
    e.lots,
    e.drawn,
    e.holds,
    e.overdraft,
    e.closes,
    e.settled,
    e.idempotency_key,
    encode(e.request_digest, 'hex'),
    (extract(epoch FROM e.effective_at) * 1000000)::bigint,
    (extract(epoch FROM e.recorded_at) * 1000000)::bigint,
    e.actor,
    e.reason,
    e.reference,
    e.metadata,
    e.counterpart,
    e.rating
)::text, 'UTF8'));

-- Refuses an entry that does not follow from the one before it: a gap, another balance than the previous one plus the amount, a
-- broken chain, held credits or an overdraft that change where they must not, or lots that do not add up to the balance (with an
-- overdraft they may add up to more: the difference is the debt). The lock keeps writers from colliding; this and the primary key make a
-- wrong balance impossible also for a writer who forgot the lock.
CREATE FUNCTION ledger_entry_follows() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    wrong record;
BEGIN
    SELECT n.holder_id, n.credit_type, n.sequence
    INTO wrong
    FROM appended n
    WHERE (
            n.sequence > 1
            AND NOT EXISTS (
                SELECT
                FROM ledger_entry p
                WHERE p.holder_id = n.holder_id
                    AND p.credit_type = n.credit_type
                    AND p.sequence = n.sequence - 1
                    AND p.balance + n.amount = n.balance
                    AND p.digest = n.previous_digest
                    AND p.recorded_at <= n.recorded_at
                    AND (p.held = n.held OR n.kind IN ('hold', 'capture', 'release'))
                    AND (p.overdraft IS NOT DISTINCT FROM n.overdraft OR n.kind = 'adjust')
            )
        )
        OR (
            SELECT CASE WHEN n.overdraft IS NULL THEN total <> n.balance ELSE total < n.balance END
            FROM (SELECT COALESCE(sum((lot ->> 1)::bigint), 0) AS total FROM json_array_elements(n.lots) lot) AS lots
        )
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'entry % of %/% does not follow from the one before it', wrong.sequence, wrong.holder_id, wrong.credit_type
            USING ERRCODE = 'LG002', TABLE = 'ledger_entry';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER follows AFTER INSERT ON ledger_entry
    REFERENCING NEW TABLE AS appended
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_entry_follows();
ALTER TABLE ledger_entry ENABLE ALWAYS TRIGGER follows;
