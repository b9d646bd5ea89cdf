-- Computes the costs of lots after each entry of a slice from those before it, and returns the entries that say otherwise. Only entries of
-- accounts in which a lot was sold are read. What a refund brings is compared in refunds.sql.
--
-- A lot that credits leave keeps its basis: what is left of them costs (paid - fraction) * credits / of, rounded up to minor units. Credits
-- that come bring their cost. Then the basis stays if it gives the new cost; otherwise a new basis begins, with the rounding so far as its fraction.
WITH named AS (
    SELECT e.holder_id, e.credit_type, e.sequence
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s AND %(last)s
        AND (e.costs IS NOT NULL OR e.cost_changes IS NOT NULL OR e.sale IS NOT NULL)
    UNION
    SELECT e.holder_id, e.credit_type, e.sequence + 1
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s - 1 AND %(last)s - 1
        AND e.costs IS NOT NULL
), entry AS (
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.kind, e.amount, e.drawn, e.counterpart, e.cost_changes, e.sale, e.lots,
        p.lots AS p_lots, p.holds AS p_holds, p.costs AS p_costs,
        COALESCE(e.costs::text, '') AS costs_text,
        COALESCE(e.cost_changes::text, '') AS changes_text,
        COALESCE(e.costs::text, '[]') ~ '^\[(\[\d+,\d+,"[A-Z]{3}",\d+,\d+(,[1-9]\d{0,5})?\](,(?!\])|(?=\]$)))*\]$'
            AND COALESCE(e.cost_changes::text, '[]') ~ '^\[(\[\d+,-?\d+,"[A-Z]{3}"\](,(?!\])|(?=\]$)))*\]$'
            AND COALESCE(e.sale ->> 'paid_minor', '0') ~ '^\d+$'
            AND (e.sale IS NULL OR COALESCE(e.sale ->> 'currency', '') ~ '^[A-Z]{3}$')
            AND COALESCE(p.costs::text, '[]') ~ '^\[(\[\d+,\d+,"[A-Z]{3}",\d+,\d+(,[1-9]\d{0,5})?\](,(?!\])|(?=\]$)))*\]$'
            AS is_canonical
    FROM named
    JOIN ledger_entry e USING (holder_id, credit_type, sequence)
    LEFT JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
), judged AS (
    SELECT
        e.*,
        CASE WHEN e.is_canonical THEN (
            WITH before AS (
                SELECT (c ->> 0)::numeric AS lot, (c ->> 1)::numeric AS minor, c ->> 2 AS currency, (c ->> 3)::numeric AS paid,
                    (c ->> 4)::numeric AS per, COALESCE((c ->> 5)::numeric, 0) AS fraction
                FROM json_array_elements(e.p_costs) AS c
            ), there AS (
                SELECT lot, sum(credits) AS credits
                FROM (
                    SELECT (l ->> 0)::numeric AS lot, (l ->> 1)::numeric AS credits
                    FROM json_array_elements(CASE WHEN json_typeof(e.p_lots) = 'array' THEN e.p_lots END) AS l
                    UNION ALL
                    SELECT (l ->> 0)::numeric, (l ->> 1)::numeric
                    FROM json_array_elements(CASE WHEN json_typeof(e.p_holds) = 'array' THEN e.p_holds END) AS h
                    CROSS JOIN json_array_elements(h -> 2) AS l
                ) AS parts
                GROUP BY lot
            ), drawn AS (
                SELECT (d ->> 0)::numeric AS lot, (d ->> 1)::numeric AS credits, place
                FROM json_array_elements(CASE WHEN json_typeof(e.drawn) = 'array' THEN e.drawn END) WITH ORDINALITY AS u (d, place)
            ), taken AS (
                SELECT d.lot, d.place, there.credits - d.credits AS credits, b.currency, b.paid, b.per, b.fraction, b.minor AS minor_before,
                    div(
                        (b.paid * 1000000 - b.fraction) * (there.credits - d.credits) + b.per * 1000000 - 1,
                        b.per * 1000000
                    ) AS minor
                FROM drawn d
                JOIN before b USING (lot)
                JOIN there USING (lot)
                -- These give to the lots that they name, or only set credits of them aside.
                WHERE e.kind NOT IN ('grant', 'refund', 'hold', 'release', 'transfer_in')
            ), brought AS (
                -- What comes into each lot: of a sale, of another lot into the one that the entry opened, of a transfer, or of a refund.
                SELECT e.sequence::numeric AS lot, 1 AS place, e.amount::numeric AS credits, (e.sale ->> 'paid_minor')::numeric AS minor,
                    e.sale ->> 'currency' AS currency
                WHERE e.kind = 'grant' AND e.sale IS NOT NULL
                UNION ALL
                SELECT e.sequence, 2, d.credits, t.minor_before - t.minor, t.currency
                FROM taken t
                JOIN drawn d USING (lot)
                WHERE EXISTS (
                    SELECT FROM json_array_elements(CASE WHEN json_typeof(e.lots) = 'array' THEN e.lots END) AS l
                    WHERE (l ->> 0)::numeric = e.sequence
                )
                UNION ALL
                SELECT COALESCE((SELECT lot FROM drawn), e.sequence), 1, e.amount, -(c ->> 1)::numeric, c ->> 2
                FROM ledger_entry o
                CROSS JOIN json_array_elements(o.cost_changes) AS c
                WHERE e.kind = 'transfer_in'
                    AND o.holder_id = e.counterpart ->> 'holder_id'
                    AND o.credit_type = e.credit_type
                    AND o.sequence = (e.counterpart ->> 'sequence')::bigint
                    AND c ->> 0 = e.counterpart ->> 'grant'
                UNION ALL
                SELECT d.lot, d.place, d.credits, (c ->> 1)::numeric, c ->> 2
                FROM drawn d
                JOIN json_array_elements(e.cost_changes) AS c ON (c ->> 0)::numeric = d.lot
                WHERE e.kind = 'refund'
            ), joined AS (
                SELECT w.lot, w.place, w.minor AS change, w.currency, there.credits AS credits_before, b.*,
                    COALESCE(b.b_minor, 0) + w.minor AS minor, COALESCE(there.credits, 0) + w.credits AS credits
                FROM brought w
                LEFT JOIN (
                    SELECT lot AS b_lot, minor AS b_minor, paid AS b_paid, per AS b_per, fraction AS b_fraction, currency AS b_currency FROM before
                ) AS b ON b.b_lot = w.lot
                LEFT JOIN there ON there.lot = w.lot AND b.b_lot IS NOT NULL
            ), based AS (
                SELECT j.*, j.b_lot IS NOT NULL AND j.credits <= j.b_per AND j.minor = div(
                    (j.b_paid * 1000000 - j.b_fraction) * j.credits + j.b_per * 1000000 - 1, j.b_per * 1000000
                ) AS stays
                FROM joined j
            ), after AS (
                SELECT b.lot, b.minor, b.currency, b.paid, b.per, b.fraction
                FROM before b
                WHERE b.lot NOT IN (SELECT lot FROM taken UNION ALL SELECT lot FROM based)
                UNION ALL
                SELECT lot, minor, currency, paid, per, fraction FROM taken WHERE credits > 0
                UNION ALL
                SELECT lot, minor, currency,
                    CASE WHEN stays THEN b_paid ELSE minor END,
                    CASE WHEN stays THEN b_per ELSE credits END,
                    CASE
                        WHEN stays THEN b_fraction
                        WHEN b_lot IS NULL THEN 0
                        ELSE div(b_minor * 1000000 * b_per - (b_paid * 1000000 - b_fraction) * credits_before, b_per)
                    END
                FROM based
            )
            SELECT ARRAY[
                (
                    SELECT '[' || string_agg('[' || lot || ',' || minor || ',"' || currency || '",' || paid || ',' || per
                        || CASE WHEN fraction > 0 THEN ',' || fraction ELSE '' END || ']', ',' ORDER BY lot) || ']'
                    FROM after
                ),
                (
                    SELECT '[' || string_agg('[' || lot || ',' || change || ',"' || currency || '"]', ',' ORDER BY place) || ']'
                    FROM (
                        SELECT lot, place, minor - minor_before AS change, currency FROM taken
                        UNION ALL
                        SELECT lot, place, change, currency FROM based
                    ) AS changes
                ),
                CASE WHEN EXISTS (SELECT FROM based WHERE b_currency <> currency) THEN 'another currency' END
            ]
        ) END AS expected
    FROM entry e
)
SELECT
    CASE WHEN j.is_canonical THEN 'cost' ELSE 'form' END,
    j.holder_id,
    j.credit_type,
    j.sequence,
    left('changes ' || COALESCE(NULLIF(j.changes_text, ''), 'nothing') || ', costs ' || COALESCE(NULLIF(j.costs_text, ''), 'nothing'), 400),
    CASE WHEN j.is_canonical THEN
        left('changes ' || COALESCE(j.expected[2], 'nothing') || ', costs ' || COALESCE(j.expected[1], 'nothing'), 400)
    END
FROM judged j
WHERE NOT j.is_canonical
    OR j.costs_text <> COALESCE(j.expected[1], '')
    OR j.changes_text <> COALESCE(j.expected[2], '')
    OR j.expected[3] IS NOT NULL
