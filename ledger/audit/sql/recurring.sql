-- Recurring grants whose row does not say what the entries say: the last entry that set or ended it, the last one of a period since then,
-- and when the next period begins. And entries that set, end or handle one whose next_grant_at is not the earliest of all of the account.
WITH setting AS (
    SELECT DISTINCT ON (s.holder_id, s.credit_type, s.counterpart ->> 'recurring_grant')
        s.holder_id, s.credit_type, s.counterpart ->> 'recurring_grant' AS name, s.sequence, s.counterpart ->> 'next_at' AS next_at
    FROM ledger_entry s
    WHERE s.holder_id >= %(since)s AND s.holder_id <= %(upto)s
        AND s.kind = 'adjust' AND s.counterpart ->> 'recurring_grant' IS NOT NULL AND s.counterpart ->> 'period_start' IS NULL
    ORDER BY s.holder_id, s.credit_type, s.counterpart ->> 'recurring_grant', s.sequence DESC
), expected AS (
    SELECT
        s.holder_id, s.credit_type, s.name, s.sequence AS setting, COALESCE(period.sequence, s.sequence) AS last,
        (CASE WHEN period.sequence IS NULL THEN s.next_at ELSE period.next_at END)::timestamptz AS next_at
    FROM setting s
    LEFT JOIN LATERAL (
        SELECT p.sequence, p.metadata ->> 'next_at' AS next_at
        FROM ledger_entry p
        WHERE p.holder_id = s.holder_id AND p.credit_type = s.credit_type AND p.sequence > s.sequence
            AND (p.kind = 'grant' OR p.kind = 'adjust') AND p.actor = 'ledger' AND p.idempotency_key IS NOT NULL
            AND p.metadata ->> 'recurring_grant' = s.name
        ORDER BY p.sequence DESC
        LIMIT 1
    ) AS period ON true
), handled AS (
    SELECT
        e.holder_id, e.credit_type, e.sequence, e.next_grant_at,
        COALESCE(e.counterpart ->> 'recurring_grant', e.metadata ->> 'recurring_grant') AS name,
        (CASE WHEN e.metadata ->> 'period_start' IS NULL THEN e.counterpart ->> 'next_at' ELSE e.metadata ->> 'next_at' END)::timestamptz
            AS next_at
    FROM ledger_entry e
    WHERE e.holder_id >= %(since)s AND e.holder_id <= %(upto)s AND e.idempotency_key IS NOT NULL
        AND (
            (e.kind = 'adjust' AND e.counterpart ->> 'recurring_grant' IS NOT NULL)
            OR (e.kind = 'grant' AND e.actor = 'ledger' AND e.metadata ->> 'recurring_grant' IS NOT NULL)
        )
), found AS (
    SELECT r.holder_id, r.credit_type, r.name, r.setting, r.last, r.next_at
    FROM ledger_recurring_grant r
    WHERE r.holder_id >= %(since)s AND r.holder_id <= %(upto)s
)
SELECT
    'recurring', holder_id, credit_type, COALESCE(e.setting, f.setting),
    name || COALESCE(': set by ' || f.setting || ', last ' || f.last || ', next at ' || COALESCE(f.next_at::text, 'no time'), ' has no row'),
    COALESCE('set by ' || e.setting || ', last ' || e.last || ', next at ' || COALESCE(e.next_at::text, 'no time'), 'no entry sets it')
FROM expected e
FULL JOIN found f USING (holder_id, credit_type, name)
WHERE (e.setting, e.last, e.next_at) IS DISTINCT FROM (f.setting, f.last, f.next_at)
UNION ALL
SELECT
    'recurring', holder_id, credit_type, sequence, 'next grant at ' || COALESCE(next_grant_at::text, 'no time'),
    'next grant at ' || COALESCE(earliest::text, 'no time')
FROM (
    SELECT holder_id, credit_type, sequence, min(next_grant_at) AS next_grant_at, min(known.next_at) AS earliest
    FROM (
        SELECT
            e.holder_id, e.credit_type, e.sequence, e.next_grant_at, n.name,
            max(CASE WHEN e.name = n.name THEN e.sequence END)
                OVER (PARTITION BY e.holder_id, e.credit_type, n.name ORDER BY e.sequence) AS latest
        FROM handled e
        JOIN (SELECT DISTINCT holder_id, credit_type, name FROM handled) n USING (holder_id, credit_type)
    ) AS each
    LEFT JOIN (SELECT holder_id, credit_type, sequence AS latest, next_at FROM handled) known USING (holder_id, credit_type, latest)
    GROUP BY holder_id, credit_type, sequence
) AS compared
WHERE next_grant_at IS DISTINCT FROM earliest
