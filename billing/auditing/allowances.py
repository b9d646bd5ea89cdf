"""The laws of allowances: what is charged for a day is granted for that day, once. Claims and orders alone say so.

The times of fees, of allowances and of orders are compared by multiranges of PostgreSQL, which the generator does not use.
"""

# Up to where a run has looked since the last order: what comes later is not due yet, or the next run grants it.
_SEEN = """
    SELECT s.id, s.ref, c.recurring_due_at AS until
    FROM billing_subscription AS s
    JOIN billing_customer AS owner ON owner.id = s.customer_id AND owner.holder_id <> ''
    JOIN billing_cursor AS c ON c.subscription_id = s.id AND c.recurring_due_at IS NOT NULL
    WHERE c.recurring_amendments_seen >= (SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = s.id)
"""

ALLOWANCE_LAWS = {
    "credits of a span were granted twice": """
        SELECT format('subscription %s: allowance claims %s and %s', a.subscription_id, a.id, b.id)
        FROM billing_claim AS a JOIN billing_claim AS b
            ON b.subscription_id = a.subscription_id AND b.kind = 5 AND b.id > a.id AND b.released_at IS NULL
            AND (
                tstzrange(a.starts_at, a.ends_at) && tstzrange(b.starts_at, b.ends_at)
                OR (a.snapshot ->> 'holder_id', a.snapshot ->> 'credit_type', a.snapshot ->> 'grant')
                    = (b.snapshot ->> 'holder_id', b.snapshot ->> 'credit_type', b.snapshot ->> 'grant')
            )
        WHERE a.kind = 5 AND a.released_at IS NULL
    """,
    "credits of a paid day were not granted": f"""
        WITH seen AS ({_SEEN}), paid AS (
            SELECT c.subscription_id, range_agg(tstzrange(c.starts_at, c.ends_at)) AS days
            FROM billing_claim AS c
            JOIN billing_price AS p ON p.id = c.price_id
            JOIN billing_plan AS plan ON plan.id = p.plan_id
            WHERE c.kind = 1 AND c.released_at IS NULL AND c.amount_minor > 0
                AND plan.allowance IS NOT NULL AND plan.allowance ->> 'per_quantity_of' IS NULL
            GROUP BY c.subscription_id
        ), given AS (
            SELECT subscription_id, range_agg(tstzrange(starts_at, ends_at)) AS days
            FROM billing_claim WHERE kind = 5 AND released_at IS NULL
            GROUP BY subscription_id
        ), missing AS (
            SELECT seen.ref,
                paid.days * tstzmultirange(tstzrange(NULL, seen.until)) - coalesce(given.days, '{{}}'::tstzmultirange) AS days
            FROM seen
            JOIN paid ON paid.subscription_id = seen.id
            LEFT JOIN given ON given.subscription_id = seen.id
        )
        SELECT format('subscription %s: %s', ref, days) FROM missing WHERE NOT isempty(days)
    """,
    "credits for time that is not charged": f"""
        WITH seen AS ({_SEEN}), charged AS (
            SELECT subscription_id, range_agg(days) AS days
            FROM (
                SELECT subscription_id, tstzrange(starts_at, ends_at) AS days
                FROM billing_claim WHERE kind = 1 AND released_at IS NULL
                UNION ALL
                SELECT subscription_id, tstzrange(starts_at, ends_at)
                FROM billing_itemversion WHERE superseded_at IS NULL
            ) AS stretch
            GROUP BY subscription_id
        ), given AS (
            SELECT subscription_id, range_agg(tstzrange(starts_at, ends_at)) AS days
            FROM billing_claim WHERE kind = 5 AND released_at IS NULL AND quantity > 0
            GROUP BY subscription_id
        ), beyond AS (
            SELECT seen.ref,
                given.days * tstzmultirange(tstzrange(NULL, seen.until)) - coalesce(charged.days, '{{}}'::tstzmultirange) AS days
            FROM seen
            JOIN given ON given.subscription_id = seen.id
            LEFT JOIN charged ON charged.subscription_id = seen.id
        )
        SELECT format('subscription %s: %s', ref, days) FROM beyond WHERE NOT isempty(days)
    """,
}
