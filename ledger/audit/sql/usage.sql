-- Sums of what accounts used that are not what their entries come to, up to the last one of each account whose sequence is a multiple of 256.
-- What a value without a row of its own used on a day is part of the row without a value. Of a label, each sum is also by rate: '-' is use
-- without a rate, '…' that by all rates which have no row of their own on the day.
WITH summed AS (
    SELECT a.holder_id, a.credit_type, a.sequence - a.sequence %% 256 AS upto
    FROM (
        SELECT e.holder_id, e.credit_type, max(e.sequence) AS sequence
        FROM ledger_entry e
        WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s
        GROUP BY e.holder_id, e.credit_type
    ) AS a
    WHERE a.sequence >= 256
), parts AS (
    -- What was taken of lots, and the debt that a spend made.
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.sequence AS used_by, timezone('UTC', COALESCE(e.effective_at, e.recorded_at)) AS at,
        CASE e.kind WHEN 'spend' THEN abs(e.amount) WHEN 'capture' THEN (
            SELECT COALESCE(sum((d ->> 1)::numeric), 0) FROM json_array_elements(e.drawn) AS d
        ) END AS amount,
        COALESCE(e.postpaid, 0)::numeric AS postpaid
    FROM summed s
    JOIN ledger_entry e ON e.holder_id = s.holder_id AND e.credit_type = s.credit_type AND e.sequence <= s.upto
    WHERE e.kind = 'spend' OR e.kind = 'capture'
    UNION ALL
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.refers_to, timezone('UTC', COALESCE(e.effective_at, e.recorded_at)),
        0 - abs(e.amount), 0 - COALESCE(e.postpaid, 0)
    FROM summed s
    JOIN ledger_entry e ON e.holder_id = s.holder_id AND e.credit_type = s.credit_type AND e.sequence <= s.upto
    WHERE e.kind = 'refund'
), labelled AS (
    SELECT p.holder_id, p.credit_type, p.at, p.amount, p.postpaid, u.metadata AS own, h.metadata AS of_hold,
        CASE WHEN u.rating IS NULL THEN h.rating ->> 'rate' ELSE u.rating ->> 'rate' END AS rate
    FROM parts p
    LEFT JOIN ledger_entry u ON u.holder_id = p.holder_id AND u.credit_type = p.credit_type AND u.sequence = p.used_by
    LEFT JOIN ledger_entry h
        ON h.holder_id = p.holder_id AND h.credit_type = p.credit_type AND u.kind = 'capture' AND h.sequence = u.refers_to
), valued AS (
    SELECT l.holder_id, l.credit_type, '' AS dimension, '' AS value, NULL AS rate, l.at, l.amount, l.postpaid
    FROM labelled l
    UNION ALL
    SELECT l.holder_id, l.credit_type, 'rate', l.rate, NULL, l.at, l.amount, l.postpaid
    FROM labelled l
    WHERE l.rate > ''
    UNION ALL
    SELECT l.holder_id, l.credit_type, 'label:' || m.key, m.value, l.rate, l.at, l.amount, l.postpaid
    FROM labelled l
    CROSS JOIN LATERAL (
        SELECT o.key, o.value::jsonb #>> '{}' AS value
        FROM json_each(l.own) AS o
        UNION ALL
        SELECT o.key, o.value::jsonb #>> '{}'
        FROM json_each(l.of_hold) AS o
        WHERE NOT EXISTS (SELECT FROM json_object_keys(l.own) AS k WHERE k = o.key)
    ) AS m
    WHERE m.value > '' AND m.key > ''
    UNION ALL
    SELECT l.holder_id, l.credit_type, 'label:model', l.rate, l.rate, l.at, l.amount, l.postpaid
    FROM labelled l
    WHERE l.rate > '' AND NOT EXISTS (
        SELECT
        FROM (VALUES (CASE WHEN l.own::jsonb ? 'model' THEN l.own ->> 'model' ELSE l.of_hold ->> 'model' END)) AS m (model)
        WHERE m.model > ''
    )
), known AS (
    SELECT u.holder_id, u.credit_type, u.dimension, u.value, u.day, u.amount, u.postpaid, u.entries,
        u.quarters, u.quarter_rates, u.quarter_amounts, u.quarter_postpaid, u.quarter_entries,
        u.rates, u.rate_amounts, u.rate_postpaid, u.rate_entries
    FROM ledger_usage u
    WHERE u.holder_id >= %(since)s AND u.holder_id <= %(upto)s
), cut AS (
    SELECT v.*, v.at::date AS day, left(v.value, 199) || CASE WHEN char_length(v.value) > 200 THEN '…' ELSE substr(v.value, 200) END AS name
    FROM valued v
), expected AS (
    SELECT c.holder_id, c.credit_type, c.dimension, COALESCE(k.value, '') AS value, c.day,
        CASE WHEN c.rate > '' THEN COALESCE(r.value, '…') ELSE '-' END AS rate,
        (date_part('hour', c.at) * 4 + div(date_part('minute', c.at)::numeric, 15)::integer)::smallint AS quarter,
        sum(c.amount) AS amount, sum(c.postpaid) AS postpaid, count(*) AS entries
    FROM cut c
    LEFT JOIN known k
        ON k.holder_id = c.holder_id
        AND k.credit_type = c.credit_type
        AND k.dimension = c.dimension
        AND k.day = c.day
        AND k.value = c.name
    LEFT JOIN known r
        ON r.holder_id = c.holder_id
        AND r.credit_type = c.credit_type
        AND r.dimension = 'rate'
        AND r.day = c.day
        AND r.value = c.rate
    GROUP BY 1, 2, 3, 4, 5, 6, 7
), found AS (
    SELECT k.holder_id, k.credit_type, k.dimension, k.value, k.day,
        COALESCE(CASE WHEN k.rates[q.place] = '' THEN '…' ELSE k.rates[q.place] END, '-') AS rate,
        q.quarter, q.amount, q.postpaid, q.entries
    FROM known k
    CROSS JOIN LATERAL unnest(k.quarters, k.quarter_rates, k.quarter_amounts, k.quarter_postpaid, k.quarter_entries)
        AS q (quarter, place, amount, postpaid, entries)
)
SELECT
    'usage', holder_id, credit_type, NULL::bigint,
    concat_ws(' ', dimension, value, 'on', day, 'in quarter', quarter, CASE WHEN rate <> '-' THEN 'by ' || rate END) || ': '
        || COALESCE(concat(f.amount, ', ', f.postpaid, ' on overage, by ', f.entries, ' entries'), 'no sum'),
    COALESCE(concat(e.amount, ', ', e.postpaid, ' on overage, by ', e.entries, ' entries'), 'no entry')
FROM expected e
FULL JOIN found f USING (holder_id, credit_type, dimension, value, day, quarter, rate)
WHERE (e.amount, e.postpaid, e.entries) IS DISTINCT FROM (f.amount, f.postpaid, f.entries)
UNION ALL
SELECT
    'usage', holder_id, credit_type, NULL::bigint,
    concat_ws(' ', dimension, value, 'on', day) || ': ' || concat(amount, ', ', postpaid, ' on overage, by ', entries, ' entries'),
    'the sums of its quarters'
FROM known
WHERE (amount, postpaid, entries) <> (
    SELECT sum(q.amount), sum(q.postpaid), sum(q.entries)::bigint
    FROM unnest(quarter_amounts, quarter_postpaid, quarter_entries) AS q (amount, postpaid, entries)
)
UNION ALL
SELECT
    'usage', holder_id, credit_type, NULL::bigint,
    concat_ws(' ', dimension, value, 'on', day, 'by', rate) || ': '
        || COALESCE(concat(r.amount, ', ', r.postpaid, ' on overage, by ', r.entries, ' entries'), 'no sum'),
    COALESCE(concat(q.amount, ', ', q.postpaid, ' on overage, by ', q.entries, ' entries'), 'no quarter')
FROM (
    SELECT k.holder_id, k.credit_type, k.dimension, k.value, k.day, COALESCE(CASE WHEN r.rate = '' THEN '…' ELSE r.rate END, '-') AS rate,
        r.amount, r.postpaid, r.entries
    FROM known k
    CROSS JOIN LATERAL unnest(k.rates, k.rate_amounts, k.rate_postpaid, k.rate_entries) AS r (rate, amount, postpaid, entries)
) AS r
FULL JOIN (
    SELECT f.holder_id, f.credit_type, f.dimension, f.value, f.day, f.rate,
        sum(f.amount) AS amount, sum(f.postpaid) AS postpaid, sum(f.entries) AS entries
    FROM found f
    WHERE f.dimension LIKE 'label:%%'
    GROUP BY 1, 2, 3, 4, 5, 6
) AS q USING (holder_id, credit_type, dimension, value, day, rate)
WHERE (r.amount, r.postpaid, r.entries) IS DISTINCT FROM (q.amount, q.postpaid, q.entries)
