-- Entries whose amount is not what the version of the rate that they name gives for their quantity, rounded up to whole credits.
SELECT
    'rates',
    rated.holder_id,
    rated.credit_type,
    rated.sequence,
    rated.kind || ' of ' || rated.amount || ' for ' || COALESCE(left(rated.rating::text, 200), ''),
    COALESCE(rated.cost || ' at ' || rated.price || ' per ' || rated.per, 'a version of a rate that exists')
FROM (
    SELECT
        e.*,
        r.price,
        r.per,
        r.published_at,
        CASE WHEN e.rating ->> 'quantity' ~ '^[1-9]\d{0,15}$' THEN -ceil((e.rating ->> 'quantity')::numeric * r.price / r.per) END AS cost
    FROM ledger_entry e
    LEFT JOIN ledger_rate r
        ON r.credit_type = e.credit_type AND r.code = e.rating ->> 'rate' AND r.version::text = e.rating ->> 'version'
    WHERE e.holder_id >= %(since)s
        AND e.holder_id <= %(upto)s
        AND e.sequence BETWEEN %(first)s AND %(last)s
        AND e.rating IS NOT NULL
) AS rated
WHERE NOT COALESCE(rated.kind IN ('spend', 'hold') AND rated.amount = rated.cost, false)
