-- Entries whose amount is not what their request asked for:
--   rates      the version of the rate that they name gives another amount for their quantity, rounded up to whole credits;
--   requested  a partial spend took less than it asked for, although something was left to spend.
SELECT
    wrong.law,
    asked.holder_id,
    asked.credit_type,
    asked.sequence,
    asked.kind || ' of ' || asked.amount || ' for ' || COALESCE(left(asked.rating::text, 200), asked.requested::text, ''),
    wrong.expected
FROM (
    SELECT
        e.*,
        r.price,
        r.per,
        CASE WHEN e.rating ->> 'quantity' ~ '^(0|[1-9]\d{0,15})$' THEN -ceil((e.rating ->> 'quantity')::numeric * r.price / r.per) END AS cost,
        (extract(epoch FROM COALESCE(e.effective_at, e.recorded_at)) * 1000000)::bigint AS effective_us
    FROM ledger_entry e
    LEFT JOIN ledger_rate r
        ON r.credit_type = e.credit_type AND r.code = e.rating ->> 'rate' AND r.version::text = e.rating ->> 'version'
    WHERE e.holder_id >= %(since)s
        AND e.holder_id <= %(upto)s
        AND e.sequence BETWEEN %(first)s AND %(last)s
        AND (e.rating IS NOT NULL OR e.requested IS NOT NULL)
) AS asked
CROSS JOIN LATERAL (
    SELECT 'rates' AS law, COALESCE(asked.cost || ' at ' || asked.price || ' per ' || asked.per, 'a version of a rate that exists') AS expected
    WHERE asked.rating IS NOT NULL
        AND NOT COALESCE(asked.kind IN ('spend', 'hold') AND COALESCE(-asked.requested, asked.amount) = asked.cost, false)
    UNION ALL
    SELECT 'requested', NULL
    WHERE asked.requested IS NOT NULL
        AND NOT COALESCE(
            asked.kind = 'spend'
            AND asked.requested >= -asked.amount
            AND (
                asked.requested = -asked.amount
                -- What can be spent after it, less what is owed, plus the overdraft.
                OR asked.balance + COALESCE(asked.overdraft, 0) - (
                    SELECT COALESCE(sum((lot ->> 1)::numeric), 0)
                    FROM json_array_elements(asked.lots) AS lot
                    WHERE (lot ->> 2)::numeric > asked.effective_us OR (lot ->> 3)::numeric <= asked.effective_us
                ) <= 0
                OR EXISTS (
                    SELECT
                    FROM json_array_elements(asked.budgets) AS budget
                    CROSS JOIN LATERAL json_array_elements(budget -> 9) AS counter
                    CROSS JOIN LATERAL json_array_elements(counter -> 1) AS step
                    WHERE budget ->> 8 = '1'
                    GROUP BY budget ->> 0, budget ->> 1, counter ->> 0
                    HAVING sum((step ->> 1)::numeric) >= (budget ->> 1)::numeric
                )
            ),
            false
        )
) AS wrong
