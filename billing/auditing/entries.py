"""The laws of prices that are billed by entries: what was billed is what the ledger has, and one subscription bills each entry.

The quantities are worked out again from claims and entries alone: the refunds of each entry are added up, and its share is
divided with more decimals than the generator rounds to.
"""

# The open claims of such prices, each with what it billed before a conversion: a number, or a fraction as text.
_CLAIMED = """
    SELECT c.id, c.subscription_id, s.ref, owner.holder_id, c.starts_at, c.ends_at, c.created_at,
        p.definition -> 'entries' ->> 'credit_type' AS credit_type, p.definition -> 'entries' ->> 'rate' AS rate,
        p.definition -> 'entries' ->> 'component' AS component, coalesce(p.definition -> 'filters', '{}') AS filters,
        CASE
            WHEN p.definition -> 'conversion' IS NULL THEN ARRAY[c.snapshot ->> 'quantity']
            WHEN c.snapshot -> 'usage' -> 'groups' IS NULL THEN ARRAY[c.snapshot -> 'usage' ->> 'measured']
            ELSE ARRAY(SELECT part -> 1 ->> 'measured' FROM jsonb_array_elements(c.snapshot -> 'usage' -> 'groups') AS part)
        END AS billed
    FROM billing_claim AS c
    JOIN billing_price AS p ON p.id = c.price_id AND p.definition ->> 'billed_by' = 'entries'
    JOIN billing_subscription AS s ON s.id = c.subscription_id
    JOIN billing_customer AS owner ON owner.id = s.customer_id
    WHERE c.kind = 2 AND c.released_at IS NULL
"""

# Each claim with each entry of its rate and time that passes its filters, as the ledger had it when the claim was made.
_COUNTED = f"""
    WITH claimed AS MATERIALIZED ({_CLAIMED}), rated AS MATERIALIZED (
        SELECT e.holder_id, e.credit_type, e.sequence, coalesce(e.effective_at, e.recorded_at) AS at, e.recorded_at,
            coalesce(e.rating, h.rating) AS rating, coalesce(h.metadata, e.metadata) AS labels,
            CASE e.kind
                WHEN 'spend' THEN -e.amount::numeric
                ELSE (SELECT coalesce(sum((lot ->> 1)::numeric), 0) FROM json_array_elements(e.drawn) AS lot)
            END AS taken,
            CASE WHEN e.kind = 'spend' THEN coalesce(e.requested, -e.amount) WHEN e.rating IS NULL THEN -h.amount END AS asked
        FROM (SELECT DISTINCT holder_id, credit_type FROM claimed) AS account
        JOIN ledger_entry AS e ON e.holder_id = account.holder_id AND e.credit_type = account.credit_type
        LEFT JOIN ledger_entry AS h ON e.kind = 'capture' AND h.holder_id = e.holder_id AND h.credit_type = e.credit_type
            AND h.sequence = e.refers_to
        WHERE e.kind IN ('spend', 'capture')
    ), given_back AS MATERIALIZED (
        SELECT e.holder_id, e.credit_type, e.refers_to, e.amount, e.recorded_at
        FROM (SELECT DISTINCT holder_id, credit_type FROM claimed) AS account
        JOIN ledger_entry AS e ON e.holder_id = account.holder_id AND e.credit_type = account.credit_type
        WHERE e.kind = 'refund'
    ), counted AS MATERIALIZED (
        SELECT claimed.*, rated.sequence, coalesce(rated.asked, rated.taken) AS whole,
            rated.taken - coalesce((
                SELECT sum(back.amount) FROM given_back AS back
                WHERE back.holder_id = rated.holder_id AND back.credit_type = rated.credit_type
                    AND back.refers_to = rated.sequence AND back.recorded_at <= claimed.created_at
            ), 0) AS kept,
            (
                SELECT coalesce(sum(used.value::numeric), 0)
                FROM (
                    SELECT 'quantity' AS key, rated.rating ->> 'quantity' AS value
                    UNION ALL SELECT part.key, part.value FROM json_each_text(rated.rating -> 'quantities') AS part
                ) AS used
                WHERE claimed.component IS NULL OR used.key = claimed.component
            ) AS units
        FROM claimed JOIN rated ON rated.holder_id = claimed.holder_id AND rated.credit_type = claimed.credit_type
            AND rated.rating ->> 'rate' = claimed.rate AND rated.at >= claimed.starts_at AND rated.at < claimed.ends_at
            AND rated.recorded_at <= claimed.created_at
        WHERE (
            SELECT count(*) = count(*) FILTER (WHERE allowed.value ? (rated.labels ->> allowed.key))
            FROM jsonb_each(claimed.filters) AS allowed
        )
    )
"""

ENTRIES_LAWS = {
    "usage billed by entries differs from the ledger": f"""
        {_COUNTED}, there AS (
            SELECT id, sum(CASE
                WHEN whole = 0 OR kept = whole THEN units
                ELSE round(units * 1.000000000000000000000000000000 * kept / whole, 12)
            END) AS units
            FROM counted
            GROUP BY id
        ), billed AS (
            SELECT id, (
                SELECT coalesce(sum(round(split_part(part, '/', 1)::numeric * 1.000000000000000000000000000000
                    / coalesce(nullif(split_part(part, '/', 2), '')::numeric, 1), 12)), 0)
                FROM unnest(claimed.billed) AS part
            ) AS units
            FROM claimed
        )
        SELECT format('claim %s of %s: %s of the rate %s are billed, the ledger has %s', claimed.id, claimed.ref,
            trim_scale(billed.units), claimed.rate, trim_scale(coalesce(there.units, 0)))
        FROM claimed JOIN billed USING (id) LEFT JOIN there USING (id)
        WHERE billed.units <> coalesce(there.units, 0)
    """,
    "entry is billed by two subscriptions": f"""
        {_COUNTED}
        SELECT format('entry %s of %s in %s: %s', sequence, holder_id, credit_type, string_agg(DISTINCT ref, ', '))
        FROM counted
        GROUP BY holder_id, credit_type, sequence, rate
        HAVING count(DISTINCT subscription_id) > 1 AND (count(DISTINCT component) <= 1 OR bool_or(component IS NULL))
    """,
}
