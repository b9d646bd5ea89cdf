-- What left a holder, was held or was transferred while the holder was frozen, and freezes that are not numbered 1, 2, 3 …. In the
-- account of the freeze the entries' numbers tell what came after it, in others their times.
WITH change AS (
    SELECT
        c.holder_id, c.credit_type, c.sequence, c.recorded_at, c.counterpart ->> 'holder' AS word,
        (c.counterpart ->> 'change')::numeric AS number,
        row_number() OVER of_holder AS nth,
        lead(c.credit_type) OVER of_holder AS end_type,
        lead(c.sequence) OVER of_holder AS end_sequence,
        lead(c.recorded_at) OVER of_holder AS end_recorded_at
    FROM ledger_entry c
    WHERE c.holder_id >= %(since)s AND c.holder_id <= %(upto)s AND c.kind = 'adjust' AND c.counterpart ->> 'change' IS NOT NULL
    WINDOW of_holder AS (PARTITION BY c.holder_id ORDER BY (c.counterpart ->> 'change')::integer)
)
SELECT 'frozen', c.holder_id, c.credit_type, c.sequence, 'change ' || c.number, 'change ' || c.nth
FROM change c
WHERE c.number <> c.nth
UNION ALL
SELECT 'frozen', e.holder_id, e.credit_type, e.sequence, e.kind || ' of ' || e.amount, 'none after change ' || c.number
FROM change c
JOIN ledger_entry e ON e.holder_id = c.holder_id
WHERE c.word = 'frozen'
    AND (e.kind = 'spend' OR (e.kind = 'transfer_in' AND e.refers_to IS NULL) OR (e.kind = 'transfer_out' AND e.refers_to IS NULL)
        OR (e.kind = 'hold' AND e.refers_to IS NULL) OR (e.kind = 'capture' AND e.amount < 0))
    AND CASE WHEN e.credit_type = c.credit_type THEN e.sequence > c.sequence ELSE e.recorded_at > c.recorded_at END
    AND CASE
        WHEN c.end_sequence IS NULL THEN true
        WHEN e.credit_type = c.end_type THEN e.sequence < c.end_sequence
        ELSE e.recorded_at < c.end_recorded_at
    END
