-- Each refund beside the spend or capture that it gives back and the refund before it: `refunded_total` counts up and never passes what was
-- taken, and the credits go back to the lots that they came from, the last drawn first.
WITH refund AS (
    SELECT
        r.holder_id, r.credit_type, r.sequence, r.amount, r.refunded_total, r.drawn::text AS drawn_text,
        COALESCE(lag(r.refunded_total) OVER (PARTITION BY r.holder_id, r.credit_type, r.refers_to ORDER BY r.sequence), 0) AS refunded_before,
        s.drawn AS spent_from,
        CASE WHEN s.kind = 'spend' THEN -s.amount ELSE d.total END AS taken,
        d.total AS taken_from_lots
    FROM ledger_entry r
    JOIN ledger_entry s
        ON s.holder_id = r.holder_id AND s.credit_type = r.credit_type AND s.sequence = r.refers_to AND s.kind IN ('spend', 'capture')
    CROSS JOIN LATERAL (
        SELECT COALESCE(sum((part ->> 1)::numeric), 0) AS total FROM json_array_elements(s.drawn) AS part
    ) AS d
    WHERE r.holder_id >= %(since)s AND r.holder_id <= %(upto)s AND r.kind = 'refund'
), expected AS (
    SELECT
        r.*,
        (
            -- Where a spend took on the overdraft, what goes back to lots depends on the debt at that moment; the sums bind it.
            SELECT '[' || string_agg('[' || part.lot || ',' || part.amount || ']', ',' ORDER BY part.place DESC) || ']'
            FROM (
                SELECT
                    (p ->> 0) AS lot,
                    place,
                    LEAST(later + (p ->> 1)::numeric, r.refunded_before + r.amount) - GREATEST(later, r.refunded_before) AS amount
                FROM (
                    SELECT
                        p,
                        place,
                        COALESCE(sum((p ->> 1)::numeric) OVER (
                            ORDER BY place DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                        ), 0) AS later
                    FROM json_array_elements(r.spent_from) WITH ORDINALITY AS u (p, place)
                ) AS placed
            ) AS part
            WHERE part.amount > 0
        ) AS drawn_expected
    FROM refund r
)
SELECT
    'refunds',
    holder_id,
    credit_type,
    sequence,
    'refunded_total ' || COALESCE(refunded_total::text, 'null') || ' of ' || taken || ', drawn ' || left(drawn_text, 200),
    'refunded_total ' || refunded_before + amount || ' of ' || taken || ', drawn ' || left(drawn_expected, 200)
FROM expected
WHERE refunded_total IS DISTINCT FROM refunded_before + amount
    OR refunded_total > taken
    OR (taken = taken_from_lots AND drawn_text IS DISTINCT FROM drawn_expected)
