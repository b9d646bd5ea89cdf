-- Compares each refund with its spend or capture and with the refund before it: `refunded_total` adds up and never exceeds the spend, and
-- the credits go back to the lots that they came from, the lot drawn last first, or where receipts share a lot, to the one that has its terms
-- now. What a spend took on the overdraft counts as drawn last;
-- its credits came from the lots that repaid it, in the order of the debts. What a refund brings of a cost is the part of what its credits took,
-- counted from the end as the credits are, and rounded down.
WITH refund AS (
    SELECT
        r.holder_id, r.credit_type, r.sequence, r.amount, r.refunded_total, r.idempotency_key, r.refers_to, r.recorded_at,
        (extract(epoch FROM COALESCE(r.effective_at, r.recorded_at)) * 1000000)::bigint AS now_us,
        r.drawn::text AS drawn_text,
        r.costs,
        r.cost_changes::text AS changes_text,
        s.cost_changes AS spent_costs,
        COALESCE(lag(r.refunded_total) OVER of_spend, 0) AS refunded_before,
        lead((r.sequence - 1, r.recorded_at)) OVER of_spend IS NOT DISTINCT FROM (r.sequence, r.recorded_at) AS goes_on,
        -- The lot that the refund opened, if it opened one: its priority, and whether it is promotional.
        opened.terms AS opened,
        r.lots,
        s.drawn AS spent_from,
        CASE WHEN s.kind = 'spend' THEN -s.amount WHEN s.kind = 'capture' THEN d.total END AS taken,
        d.total AS taken_from_lots,
        o.owed - (-s.amount - d.total) AS owed_by_older
    FROM ledger_entry r
    JOIN ledger_entry s
        ON s.holder_id = r.holder_id AND s.credit_type = r.credit_type AND s.sequence = r.refers_to AND s.kind IN ('spend', 'capture')
    CROSS JOIN LATERAL (
        SELECT COALESCE(sum((part ->> 1)::numeric), 0) AS total FROM json_array_elements(s.drawn) AS part
    ) AS d
    CROSS JOIN LATERAL (
        SELECT COALESCE(sum((lot ->> 1)::numeric), 0) - s.balance AS owed FROM json_array_elements(CASE WHEN json_typeof(s.lots) = 'array' THEN s.lots END) AS lot
    ) AS o
    LEFT JOIN LATERAL (
        SELECT json_build_array(COALESCE((lot ->> 4)::numeric, 100), NULLIF(lot ->> 5, '0'), lot ->> 7)::text AS terms
        FROM json_array_elements(CASE WHEN json_typeof(r.lots) = 'array' THEN r.lots END) AS lot
        WHERE (lot ->> 0)::numeric = r.sequence
        LIMIT 1
    ) AS opened ON true
    WHERE r.holder_id >= %(since)s AND r.holder_id <= %(upto)s AND r.kind = 'refund'
    WINDOW of_spend AS (PARTITION BY r.holder_id, r.credit_type, r.refers_to ORDER BY r.sequence)
), source AS (
    -- The lots that the spend's credits came from, in the order in which they were taken.
    SELECT r.holder_id, r.credit_type, r.sequence, 0 AS adjustment, u.place, (u.part ->> 0)::numeric AS lot, (u.part ->> 1)::numeric AS amount,
        -cost.minor AS cost, cost.currency
    FROM refund r
    CROSS JOIN json_array_elements(r.spent_from) WITH ORDINALITY AS u (part, place)
    LEFT JOIN LATERAL (
        SELECT (c ->> 1)::numeric AS minor, c ->> 2 AS currency
        FROM json_array_elements(CASE WHEN json_typeof(r.spent_costs) = 'array' THEN r.spent_costs END) AS c
        WHERE c ->> 0 = u.part ->> 0
        LIMIT 1
    ) AS cost ON true
    UNION ALL
    SELECT r.holder_id, r.credit_type, r.sequence, repaid.sequence, repaid.place, repaid.lot, repaid.amount,
        div(cost.minor * (repaid.older + repaid.amount), repaid.whole) - div(cost.minor * repaid.older, repaid.whole), cost.currency
    FROM refund r
    CROSS JOIN LATERAL (
        -- All debts of the account form one queue, the oldest first. The repayments of this spend begin where those of older debts, less
        -- what was refunded of them, end.
        SELECT
            queue.sequence,
            queue.place,
            queue.lot,
            LEAST(queue.begins + queue.amount, r.owed_by_older + r.taken - r.taken_from_lots - queue.lowered)
                - GREATEST(queue.begins, r.owed_by_older) AS amount,
            queue.amount AS whole,
            GREATEST(queue.begins, r.owed_by_older) - queue.begins AS older
        FROM (
            SELECT
                a.sequence,
                u.place,
                (u.part ->> 0)::numeric AS lot,
                (u.part ->> 1)::numeric AS amount,
                refunds.of_older + COALESCE(sum((u.part ->> 1)::numeric) OVER (
                    ORDER BY a.sequence, u.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ), 0) AS begins,
                refunds.lowered
            FROM ledger_entry a
            CROSS JOIN json_array_elements(a.drawn) WITH ORDINALITY AS u (part, place)
            CROSS JOIN LATERAL (
                SELECT
                    COALESCE(sum(q.amount - given.back) FILTER (WHERE q.refers_to < r.refers_to), 0) AS of_older,
                    COALESCE(sum(q.amount - given.back) FILTER (WHERE q.refers_to = r.refers_to), 0) AS lowered
                FROM ledger_entry q
                CROSS JOIN LATERAL (
                    SELECT COALESCE(sum((b.part ->> 1)::numeric), 0) AS back FROM json_array_elements(q.drawn) AS b (part)
                ) AS given
                WHERE q.holder_id = r.holder_id
                    AND q.credit_type = r.credit_type
                    AND q.kind = 'refund'
                    AND q.sequence > r.refers_to
                    AND q.sequence < a.sequence
            ) AS refunds
            WHERE a.holder_id = r.holder_id
                AND a.credit_type = r.credit_type
                AND a.kind = 'adjust'
                AND a.sequence > r.refers_to
                AND a.sequence < r.sequence
        ) AS queue
    ) AS repaid
    LEFT JOIN LATERAL (
        SELECT -(c ->> 1)::numeric AS minor, c ->> 2 AS currency
        FROM ledger_entry a
        CROSS JOIN json_array_elements(CASE WHEN json_typeof(a.cost_changes) = 'array' THEN a.cost_changes END) AS c
        WHERE a.holder_id = r.holder_id AND a.credit_type = r.credit_type AND a.sequence = repaid.sequence AND (c ->> 0)::numeric = repaid.lot
        LIMIT 1
    ) AS cost ON true
    WHERE r.taken > r.taken_from_lots AND repaid.amount > 0
), given_back AS (
    -- The part of each source that the refund gives back, counted from the end: the credit that was taken last is at place 0.
    SELECT
        r.holder_id, r.credit_type, r.sequence, placed.lot, placed.rank, placed.amount AS whole, placed.cost, placed.currency,
        GREATEST(placed.later, r.refunded_before) - placed.later AS before,
        LEAST(placed.later + placed.amount, r.refunded_before + r.amount) - GREATEST(placed.later, r.refunded_before) AS amount
    FROM refund r
    JOIN (
        SELECT
            s.*,
            row_number() OVER taking AS rank,
            r.taken - COALESCE(sum(s.amount) OVER taking, 0) AS later
        FROM source s
        JOIN refund r USING (holder_id, credit_type, sequence)
        WINDOW taking AS (PARTITION BY s.holder_id, s.credit_type, s.sequence ORDER BY s.adjustment, s.place)
    ) AS placed USING (holder_id, credit_type, sequence)
), destination AS (
    SELECT
        g.holder_id, g.credit_type, g.sequence, g.rank, g.amount, g.currency,
        div(g.cost * (g.before + g.amount), g.whole) - div(g.cost * g.before, g.whole) AS cost,
        CASE
            WHEN (opening.lot ->> 3)::numeric <= r.now_us
                AND json_build_array(COALESCE((opening.lot ->> 4)::numeric, 100), NULLIF(opening.lot ->> 5, '0'), opening.lot ->> 7)::text = r.opened
            THEN g.sequence
            ELSE COALESCE(shared.lot, g.lot)
        END AS lot
    FROM given_back g
    JOIN refund r USING (holder_id, credit_type, sequence)
    LEFT JOIN LATERAL (
        SELECT made.lot
        FROM ledger_entry o
        CROSS JOIN json_array_elements(CASE WHEN json_typeof(o.lots) = 'array' THEN o.lots END) AS made (lot)
        WHERE o.holder_id = r.holder_id
            AND o.credit_type = r.credit_type
            AND o.sequence = CASE WHEN g.lot <= 9223372036854775807 THEN g.lot::bigint END
            AND (made.lot ->> 0)::numeric = g.lot
        LIMIT 1
    ) AS opening ON true
    LEFT JOIN LATERAL (
        -- Of a received lot: the one of its terms that is open after the refund, of which there is one (the law `shared`).
        SELECT (there.lot ->> 0)::numeric AS lot
        FROM json_array_elements(
            CASE WHEN opening.lot ->> 6 = '1' AND json_typeof(r.lots) = 'array' THEN r.lots END
        ) AS there (lot)
        WHERE there.lot ->> 6 = '1'
            AND g.currency IS NOT DISTINCT FROM (
                SELECT c ->> 2
                FROM json_array_elements(CASE WHEN json_typeof(r.costs) = 'array' THEN r.costs END) AS c
                WHERE c ->> 0 = there.lot ->> 0
                LIMIT 1
            )
            AND ((there.lot ->> 3)::numeric, there.lot ->> 4, there.lot ->> 5, there.lot ->> 7)
                IS NOT DISTINCT FROM ((opening.lot ->> 3)::numeric, opening.lot ->> 4, opening.lot ->> 5, opening.lot ->> 7)
        LIMIT 1
    ) AS shared ON true
    WHERE g.amount > 0
), expected AS (
    SELECT
        holder_id, credit_type, sequence,
        '[' || string_agg('[' || lot || ',' || amount || ']', ',' ORDER BY lot = sequence, rank DESC) || ']' AS drawn_expected,
        '[' || string_agg('[' || lot || ',' || cost || ',"' || currency || '"]', ',' ORDER BY lot = sequence, rank DESC) || ']' AS changes_expected
    FROM (
        SELECT holder_id, credit_type, sequence, lot, sum(amount) AS amount, max(rank) AS rank, sum(cost) AS cost, max(currency) AS currency
        FROM destination
        GROUP BY holder_id, credit_type, sequence, lot
    ) AS by_lot
    GROUP BY holder_id, credit_type, sequence
)
SELECT
    'refunds',
    r.holder_id,
    r.credit_type,
    r.sequence,
    'refunded_total ' || COALESCE(r.refunded_total::text, 'null') || ' of ' || r.taken || ', drawn ' || left(r.drawn_text, 200)
        || CASE WHEN r.idempotency_key IS NULL THEN ', no key' ELSE '' END,
    'refunded_total ' || r.refunded_before + r.amount || ' of ' || r.taken || ', drawn ' || left(COALESCE(x.drawn_expected, '[]'), 200)
        || CASE WHEN r.idempotency_key IS NULL THEN ', followed by the refund with the key' ELSE '' END
FROM refund r
LEFT JOIN expected x USING (holder_id, credit_type, sequence)
WHERE r.refunded_total IS DISTINCT FROM r.refunded_before + r.amount
    OR r.refunded_total > r.taken
    OR r.drawn_text <> COALESCE(x.drawn_expected, '[]')
    OR (r.idempotency_key IS NULL AND NOT r.goes_on)
UNION ALL
SELECT
    'cost', r.holder_id, r.credit_type, r.sequence,
    'changes ' || left(COALESCE(r.changes_text, 'nothing'), 400), 'changes ' || left(COALESCE(x.changes_expected, 'nothing'), 400)
FROM refund r
LEFT JOIN expected x USING (holder_id, credit_type, sequence)
WHERE r.changes_text IS DISTINCT FROM x.changes_expected
