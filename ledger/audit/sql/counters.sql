-- Counts after which a subject has used something else in a step than the entries up to it counted, and counters that are not what all
-- entries counted, or do not name the last of them.
WITH counted AS (
    SELECT
        e.holder_id, e.credit_type, e.sequence, (count ->> 0)::bigint AS setting, count ->> 1 AS subject, (count ->> 2)::bigint AS start_us,
        (count ->> 4)::numeric AS used, COALESCE(count ->> 5, count ->> 4)::numeric AS total,
        sum((count ->> 3)::numeric) OVER (
            PARTITION BY e.holder_id, e.credit_type, count ->> 0, count ->> 2, count ->> 1 ORDER BY e.sequence
        ) AS expected
    FROM ledger_entry e
    CROSS JOIN LATERAL json_array_elements(e.counts) AS count
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.counts IS NOT NULL
), last AS (
    SELECT DISTINCT ON (holder_id, credit_type, setting, start_us, subject) *
    FROM counted
    ORDER BY holder_id, credit_type, setting, start_us, subject, sequence DESC
), known AS (
    SELECT c.holder_id, c.credit_type, c.setting, c.subject, c.start_us, c.used, c.sequence
    FROM ledger_budget_counter c
    WHERE c.holder_id >= %(since)s AND c.holder_id <= %(upto)s
)
SELECT 'counters', holder_id, credit_type, sequence, used || ' used by ' || subject || ', ' || total || ' in the window', expected || ' used'
FROM counted
WHERE used <> expected OR total < used
UNION ALL
SELECT
    'counters', holder_id, credit_type, COALESCE(l.sequence, k.sequence),
    COALESCE(k.used || ' used by ' || subject || ', the last time by ' || k.sequence, 'no counter of ' || subject),
    COALESCE(l.expected || ' used, the last time by ' || l.sequence, 'no entry counted it')
FROM last l
FULL JOIN known k USING (holder_id, credit_type, setting, subject, start_us)
WHERE (l.expected, l.sequence) IS DISTINCT FROM (k.used::numeric, k.sequence)
