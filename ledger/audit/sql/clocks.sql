-- Moves of test clocks that are not numbered 1, 2, 3 …, and those that do not go forward: from the clock's time before, and the first one
-- from the time at which it was made.
SELECT
    'clocks', m.holder_id, m.credit_type, m.sequence,
    'move ' || m.number || ' to ' || COALESCE(m.shown, 'no time'), 'move ' || m.nth || ' to a time after ' || m.before
FROM (
    SELECT
        t.holder_id, t.credit_type, t.sequence, t.counterpart ->> 'clock' AS shown, t.counterpart ->> 'tick' AS number,
        row_number() OVER of_holder AS nth,
        COALESCE(lag((t.counterpart ->> 'clock')::timestamptz) OVER of_holder, t.effective_at, t.recorded_at) AS before
    FROM ledger_entry t
    WHERE t.holder_id >= %(since)s AND t.holder_id <= %(upto)s AND t.kind = 'adjust' AND t.counterpart ->> 'tick' IS NOT NULL
    WINDOW of_holder AS (PARTITION BY t.holder_id ORDER BY (t.counterpart ->> 'tick')::integer)
) AS m
WHERE m.number::numeric <> m.nth OR COALESCE(m.shown::timestamptz <= m.before, true)
