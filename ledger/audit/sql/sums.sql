-- The sums of the slice's entries per credit type, kind, source of grants and day, for the accounting identity and the law `totals`.
-- `day` is null for what the totals have not counted yet.
SELECT
    e.credit_type,
    e.kind,
    CASE WHEN e.recorded_at < %(counted_until)s THEN (e.recorded_at AT TIME ZONE 'UTC')::date END AS day,
    CASE WHEN e.kind = 'grant' THEN COALESCE((
        SELECT CASE lot ->> 5 WHEN '1' THEN 'promotional' WHEN '2' THEN 'postpaid' ELSE 'purchased' END
        FROM json_array_elements(CASE WHEN json_typeof(e.lots) = 'array' THEN e.lots END) AS lot
        WHERE lot ->> 0 = e.sequence::text
        LIMIT 1
    ), 'purchased') END AS source,
    count(*) AS entries,
    sum(e.amount) AS amount,
    COALESCE(sum(CASE WHEN e.kind = 'capture' THEN (
        SELECT sum((part ->> 1)::numeric) FROM json_array_elements(CASE WHEN json_typeof(e.drawn) = 'array' THEN e.drawn END) AS part
        WHERE part ->> 1 ~ '^\d+$'
    ) END), 0) AS captured
FROM ledger_entry e
WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.sequence BETWEEN %(first)s AND %(last)s
GROUP BY 1, 2, 3, 4
