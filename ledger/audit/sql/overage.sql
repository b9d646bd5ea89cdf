-- Entries that break the law `overage`: the overage after them, or how many of their credits are postpaid, is not what follows from the
-- entry before. Only entries of accounts that have an overage are read.
--
-- Counted again: a grant without a key is on overage, of exactly what the next entry lacks, within the limit of a period that is that of
-- its instant; the postpaid credits of all others are the drawn ones of postpaid lots. What came back to a lot is taken back by the next
-- entry, and lowers what is used if the lot was granted in the period of that instant.
WITH named AS (
    SELECT e.holder_id, e.credit_type, e.sequence
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s AND %(last)s
        AND (e.overage IS NOT NULL OR e.postpaid IS NOT NULL OR (e.idempotency_key IS NULL AND e.kind IN ('grant', 'revoke')))
    UNION
    SELECT e.holder_id, e.credit_type, e.sequence + 1
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s - 1 AND %(last)s - 1
        AND e.overage IS NOT NULL
), entry AS (
    SELECT
        e.*,
        p.overage AS p_overage,
        p.claims AS p_claims,
        p.kind AS p_kind,
        p.postpaid AS p_postpaid,
        p.sequence AS p_sequence,
        (extract(epoch FROM COALESCE(e.effective_at, e.recorded_at)) * 1000000)::bigint AS now_us
    FROM named
    JOIN ledger_entry e USING (holder_id, credit_type, sequence)
    LEFT JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
), counted AS (
    SELECT
        e.*,
        -- The credits that it drew from postpaid lots, or gave back to them: a lot is postpaid that a grant without a key opened.
        COALESCE((
            SELECT sum((d ->> 1)::numeric)
            FROM json_array_elements(CASE WHEN json_typeof(e.drawn) = 'array' THEN e.drawn END) AS d
            JOIN ledger_entry g
                ON g.holder_id = e.holder_id AND g.credit_type = e.credit_type AND g.sequence::text = d ->> 0
                AND g.kind = 'grant' AND g.idempotency_key IS NULL
        ), 0) AS of_postpaid,
        -- Open postpaid lots: none, but that of a grant for the next entry, and what came back by this one.
        COALESCE((
            SELECT sum((lot ->> 1)::numeric)
            FROM json_array_elements(CASE WHEN json_typeof(e.lots) = 'array' THEN e.lots END) AS lot
            WHERE lot ->> 5 = '2'
        ), 0) AS open_postpaid,
        COALESCE((
            SELECT sum((lot ->> 1)::numeric)
            FROM ledger_entry p
            CROSS JOIN json_array_elements(CASE WHEN json_typeof(p.lots) = 'array' THEN p.lots END) AS lot
            WHERE p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1 AND lot ->> 5 = '2'
        ), 0) AS open_before,
        (e.overage ->> 1)::numeric AS used,
        EXISTS (
            SELECT FROM ledger_entry n WHERE n.holder_id = e.holder_id AND n.credit_type = e.credit_type AND n.sequence = e.sequence + 1
        ) AS has_next,
        COALESCE((e.p_overage ->> 1)::numeric, 0) AS used_before
    FROM entry e
)
SELECT
    'overage',
    f.holder_id,
    f.credit_type,
    f.sequence,
    f.kind || ' of ' || f.amount || ', postpaid ' || COALESCE(f.postpaid::text, 'null') || ', overage ' || COALESCE(left(f.overage::text, 200), 'null'),
    NULL
FROM counted f
WHERE NOT COALESCE(
    COALESCE(f.postpaid, 0) = CASE
        WHEN f.kind = 'grant' AND f.idempotency_key IS NULL THEN f.amount
        WHEN f.kind IN ('spend', 'hold', 'capture', 'release', 'refund', 'revoke') THEN f.of_postpaid
        ELSE 0
    END
    -- What came back is taken back at once, and what was granted is taken at once.
    AND CASE
        WHEN f.kind IN ('refund', 'release') THEN f.open_postpaid = f.open_before + f.of_postpaid
        WHEN f.kind = 'grant' AND f.idempotency_key IS NULL THEN f.open_before = 0 AND f.open_postpaid = f.amount
        WHEN f.kind = 'revoke' AND f.idempotency_key IS NULL THEN f.open_postpaid = f.open_before - f.of_postpaid
        WHEN f.kind IN ('spend', 'hold', 'capture') AND f.p_kind = 'grant' THEN f.open_postpaid = 0
        ELSE f.open_before = 0 AND f.open_postpaid = 0
    END
    AND (f.open_postpaid = 0 OR f.has_next)
    AND (f.idempotency_key IS NOT NULL OR f.kind <> 'revoke' OR f.of_postpaid > 0 OR f.p_claims IS NOT NULL)
    AND CASE
        WHEN f.overage IS NULL THEN f.p_overage IS NULL AND f.postpaid IS NULL
        WHEN f.kind = 'adjust' AND f.idempotency_key IS NOT NULL AND f.counterpart ->> 'overage' IN ('set', 'ended') THEN
            f.used = 0
            OR (
                f.used = f.used_before
                AND (f.overage ->> 2, f.overage ->> 3, f.overage ->> 10) = (f.p_overage ->> 2, f.p_overage ->> 3, f.p_overage ->> 10)
            )
        WHEN f.kind = 'grant' AND f.idempotency_key IS NULL THEN
            f.used <= COALESCE((f.overage ->> 0)::numeric, f.used)
            AND f.now_us < LEAST((f.overage ->> 3)::numeric, COALESCE((f.overage ->> 9)::numeric, (f.overage ->> 3)::numeric))
            AND CASE
                WHEN f.now_us < (f.p_overage ->> 3)::numeric THEN f.used = f.used_before + f.amount AND f.overage ->> 2 = f.p_overage ->> 2
                ELSE f.used = f.amount AND f.overage ->> 2 = f.sequence::text
            END
        WHEN f.kind = 'revoke' AND f.idempotency_key IS NULL AND f.postpaid IS NOT NULL THEN
            f.used = f.used_before - CASE
                WHEN f.now_us < (f.p_overage ->> 3)::numeric AND f.refers_to >= (f.p_overage ->> 2)::numeric THEN -f.amount
                ELSE 0
            END
        ELSE f.overage::text = f.p_overage::text
    END,
    false
)
-- A grant on overage is what the next entry lacks: it takes all of it.
OR (
    f.p_kind = 'grant'
    AND f.p_postpaid IS NOT NULL
    AND NOT COALESCE(f.kind IN ('spend', 'hold', 'capture') AND (
        SELECT (d ->> 1)::numeric = f.p_postpaid
        FROM json_array_elements(CASE WHEN json_typeof(f.drawn) = 'array' THEN f.drawn END) AS d
        WHERE d ->> 0 = f.p_sequence::text
        LIMIT 1
    ), false)
)
