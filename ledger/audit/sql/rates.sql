-- Entries whose amount is not what their request asked for:
--   rates      the version of the rate that they name gives another amount for their quantities: the exact sum over its components,
--              rounded up once to whole credits, which is what a spend or hold took, and what a capture drew;
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
        priced.cost,
        priced.prices,
        (extract(epoch FROM COALESCE(e.effective_at, e.recorded_at)) * 1000000)::bigint AS effective_us
    FROM ledger_entry e
    LEFT JOIN ledger_rate r
        ON r.credit_type = e.credit_type AND r.code = e.rating ->> 'rate' AND r.version::text = e.rating ->> 'version'
    LEFT JOIN LATERAL (
        -- The components one after the other: `over / under` is the exact cost of those up to it. `div` is exact, `/` is not.
        WITH RECURSIVE component AS (
            SELECT row_number() OVER (ORDER BY part.name) AS place, part.*
            FROM (
                SELECT 'quantity' AS name, e.rating ->> 'quantity' AS used, r.price::numeric AS price, r.per::numeric AS per
                WHERE r.components IS NULL AND e.rating -> 'quantities' IS NULL
                UNION ALL
                SELECT 'quantity', e.rating -> 'quantities' ->> 'quantity', r.price, r.per
                WHERE r.components IS NULL AND json_typeof(e.rating -> 'quantities') = 'object'
                UNION ALL
                SELECT
                    member.key,
                    e.rating -> 'quantities' ->> member.key,
                    (member.value ->> 'price')::numeric,
                    (member.value ->> 'per')::numeric
                FROM json_each(r.components) AS member
            ) AS part
        ), summed AS (
            SELECT 0::bigint AS place, 0::numeric AS over, 1::numeric AS under, '' AS prices
            UNION ALL
            SELECT
                component.place,
                summed.over * component.per
                    + CASE WHEN component.used ~ '^(0|[1-9]\d{0,15})(\.\d{0,11}[1-9])?$' THEN component.used::numeric END
                        * component.price * summed.under,
                summed.under * component.per,
                concat_ws(', ', NULLIF(summed.prices, ''), component.name || ' ' || component.price || ' per ' || component.per)
            FROM summed
            JOIN component ON component.place = summed.place + 1
        )
        SELECT
            -(div(summed.over, summed.under) + CASE WHEN div(summed.over, summed.under) * summed.under < summed.over THEN 1 ELSE 0 END) AS cost,
            CASE WHEN r.components IS NULL THEN r.price || ' per ' || r.per ELSE summed.prices END AS prices
        FROM summed
        -- A rate whose components are not those that the entry names has no cost.
        WHERE summed.place = (SELECT count(*) FROM component)
            AND summed.place > 0
            AND NOT EXISTS (
                SELECT
                FROM json_each(CASE WHEN json_typeof(e.rating -> 'quantities') = 'object' THEN e.rating -> 'quantities' END) AS named
                WHERE named.key NOT IN (SELECT component.name FROM component)
            )
    ) AS priced ON r.code IS NOT NULL
    WHERE e.holder_id >= %(since)s
        AND e.holder_id <= %(upto)s
        AND e.sequence BETWEEN %(first)s AND %(last)s
        AND (e.rating IS NOT NULL OR e.requested IS NOT NULL)
) AS asked
CROSS JOIN LATERAL (
    SELECT 'rates' AS law, COALESCE(asked.cost || ' at ' || asked.prices, 'a version of a rate that exists') AS expected
    WHERE asked.rating IS NOT NULL
        AND NOT COALESCE(
            CASE asked.kind
                WHEN 'capture' THEN asked.cost = -(
                    SELECT COALESCE(sum((part ->> 1)::numeric), 0)
                    FROM json_array_elements(CASE WHEN json_typeof(asked.drawn) = 'array' THEN asked.drawn END) AS part
                )
                WHEN 'spend' THEN COALESCE(-asked.requested, asked.amount) = asked.cost
                WHEN 'hold' THEN asked.amount = asked.cost
            END,
            false
        )
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
                        OR NOT COALESCE((lot -> 7 -> 'rates')::jsonb ? (asked.rating ->> 'rate'), lot -> 7 -> 'rates' IS NULL)
                        OR EXISTS (
                            SELECT
                            FROM json_each(lot -> 7 -> 'labels') AS label
                            WHERE NOT COALESCE(label.value::jsonb ? (asked.metadata ->> label.key), false)
                        )
                        OR (lot -> 7 IS NOT NULL AND asked.actor = 'billing')
                ) <= 0
                OR EXISTS (
                    SELECT
                    FROM json_array_elements(asked.budgets) AS known
                    CROSS JOIN LATERAL (
                        SELECT known AS budget UNION ALL SELECT json_array_elements(known -> 10 -> 'later')
                    ) AS versions
                    JOIN json_array_elements(asked.counts) AS count ON count ->> 0 = budget ->> 9
                    WHERE COALESCE((budget -> 10 ->> 'from')::numeric <= asked.effective_us, true)
                        AND COALESCE((budget -> 10 ->> 'until')::numeric > asked.effective_us, true)
                        AND budget ->> 8 = '1' AND COALESCE(count ->> 5, count ->> 4)::numeric >= (budget ->> 1)::numeric
                )
            ),
            false
        )
) AS wrong
