-- Entries that break the law `claims`: the claims after them are not what follows from the entry before. Only entries of accounts that
-- have claims are read.
--
-- Counted again: an adjustment with a key takes a claim of what it says, or withdraws what is left of one; a revocation without a key
-- lowers one claim on its lot by what it takes back; nothing else changes any. What came back to a claimed lot is taken back next.
WITH named AS (
    SELECT e.holder_id, e.credit_type, e.sequence
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s AND %(last)s
        AND (
            e.claims IS NOT NULL
            OR (e.idempotency_key IS NULL AND e.kind = 'revoke')
            OR (e.kind = 'adjust' AND e.counterpart ->> 'claim' IS NOT NULL)
        )
    UNION
    SELECT e.holder_id, e.credit_type, e.sequence + 1
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s - 1 AND %(last)s - 1
        AND e.claims IS NOT NULL
), entry AS (
    SELECT
        e.*,
        COALESCE(p.claims, '[]') AS p_claims,
        COALESCE(e.claims, '[]') AS n_claims
    FROM named
    JOIN ledger_entry e USING (holder_id, credit_type, sequence)
    LEFT JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
), counted AS (
    SELECT
        e.*,
        CASE
            WHEN e.kind = 'adjust' AND e.idempotency_key IS NOT NULL AND e.counterpart ->> 'claim' = 'taken' THEN
                left(e.p_claims::text, -1) || CASE e.p_claims::text WHEN '[]' THEN '' ELSE ',' END
                || format('[%%s,%%s,%%s]]', e.sequence, e.counterpart ->> 'amount', btrim(e.counterpart ->> 'lots', '[]'))
            WHEN e.kind = 'adjust' AND e.idempotency_key IS NOT NULL AND e.counterpart ->> 'claim' = 'withdrawn' THEN (
                SELECT '[' || COALESCE(string_agg(claim::text, ',' ORDER BY place), '') || ']'
                FROM json_array_elements(e.p_claims) WITH ORDINALITY AS known (claim, place)
                WHERE NOT (claim ->> 0 = e.counterpart ->> 'setting' AND claim ->> 1 = e.counterpart ->> 'amount')
            )
            WHEN e.kind = 'revoke' AND e.idempotency_key IS NULL AND e.postpaid IS NULL THEN (
                SELECT CASE WHEN min(settled.first) IS NOT NULL THEN '[' || COALESCE(string_agg(
                    CASE WHEN place = settled.first
                        THEN regexp_replace(claim::text, '^(\[\d+,)\d+', '\1' || (claim ->> 1)::bigint + e.amount)
                        ELSE claim::text
                    END, ',' ORDER BY place
                ) FILTER (WHERE place <> settled.first OR (claim ->> 1)::bigint <> -e.amount), '') || ']' END
                FROM json_array_elements(e.p_claims) WITH ORDINALITY AS known (claim, place)
                CROSS JOIN (
                    SELECT min(place) AS first
                    FROM json_array_elements(e.p_claims) WITH ORDINALITY AS known (claim, place)
                    WHERE e.refers_to::text IN (SELECT lot FROM json_array_elements_text(claim) WITH ORDINALITY AS lots (lot, n) WHERE n > 2)
                ) AS settled
            )
            ELSE e.p_claims::text
        END AS expected,
        EXISTS (
            SELECT
            FROM json_array_elements(CASE WHEN json_typeof(e.lots) = 'array' THEN e.lots END) AS lot
            JOIN (
                SELECT number FROM json_array_elements(e.n_claims) AS claim
                CROSS JOIN json_array_elements_text(claim) WITH ORDINALITY AS lots (number, n)
                WHERE n > 2
            ) AS claimed ON lot ->> 0 = claimed.number
        ) AS is_open
    FROM entry e
)
SELECT
    'claims',
    f.holder_id,
    f.credit_type,
    f.sequence,
    f.kind || ' of ' || f.amount || ', claims ' || left(f.n_claims::text, 200) || ' instead of ' || COALESCE(left(f.expected, 200), 'others'),
    NULL
FROM counted f
WHERE (f.n_claims::text = f.expected) IS NOT TRUE
    OR (
        f.is_open
        -- It is taken back before anything else is used.
        AND NOT EXISTS (
            SELECT FROM ledger_entry n
            WHERE n.holder_id = f.holder_id AND n.credit_type = f.credit_type AND n.sequence = f.sequence + 1
                AND n.kind NOT IN ('spend', 'hold', 'transfer_out', 'adjust')
        )
    )
