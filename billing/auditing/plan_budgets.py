"""The law of the budgets of plans: what stands on an account is what the plan and the quantities say. Orders and entries say so.

The plan at a time, the quantities then and the last setting of a budget are read by SQL of its own, which the generator does not
use. A budget whose last setting was somebody else's is theirs.
"""

from ledger.values import MAX_AMOUNT

# Those of which a run has looked at the last order, and of which nothing has begun, changed or ended since.
BUDGET_LAWS = {
    "budgets of a plan differ from the account": f"""
        WITH seen AS MATERIALIZED (
            SELECT *
            FROM (
                SELECT s.id, s.ref, s.time_zone, owner.holder_id, c.usage_due_at,
                    coalesce(ledger_clock(owner.holder_id), transaction_timestamp()) AS now
                FROM billing_subscription AS s
                JOIN billing_customer AS owner ON owner.id = s.customer_id AND owner.holder_id <> ''
                JOIN billing_cursor AS c ON c.subscription_id = s.id
                WHERE EXISTS (
                        SELECT FROM billing_itemversion AS v JOIN billing_plan AS p ON p.id = v.plan_id
                        WHERE v.subscription_id = s.id AND p.budgets IS NOT NULL)
                    AND least(c.recurring_amendments_seen, c.usage_amendments_seen)
                        >= (SELECT max(a.sequence) FROM billing_amendment AS a WHERE a.subscription_id = s.id)
                    AND NOT EXISTS (
                        SELECT FROM billing_suspendedbilling AS b WHERE b.subscription_id = s.id AND b.resumed_at IS NULL)
                    AND NOT EXISTS (
                        SELECT FROM billing_activation AS a WHERE a.subscription_id = s.id AND a.state <> 'started')
            ) AS looked_at
            WHERE coalesce(usage_due_at, 'infinity') > now
        ), whole AS (
            SELECT DISTINCT ON (seen.id) seen.*, v.plan_id, v.ends_at <= now AND (
                    v.is_termination OR (
                        SELECT (a.change ->> 'ends_at')::timestamptz <= now
                        FROM billing_amendment AS a
                        WHERE a.subscription_id = seen.id AND jsonb_exists(a.change, 'ends_at')
                        ORDER BY a.sequence DESC
                        LIMIT 1
                    ) IS TRUE
                ) AS is_over,
                CASE WHEN v.ends_at <= now THEN v.ends_at - interval '1 microsecond' ELSE now END AS at
            FROM seen JOIN billing_itemversion AS v
                ON v.subscription_id = seen.id AND v.superseded_at IS NULL AND v.price_id IS NULL AND v.starts_at <= seen.now
            ORDER BY seen.id, v.starts_at DESC
        ), said AS (
            SELECT whole.id, whole.time_zone, budget, budget ->> 'credit_type' AS credit_type, budget ->> 'budget' AS name,
                least({MAX_AMOUNT}, floor((budget ->> 'limit')::numeric * CASE
                    WHEN budget ->> 'per_quantity_of' IS NULL THEN 1
                    ELSE (
                        SELECT coalesce(sum(v.quantity), 0)
                        FROM billing_itemversion AS v JOIN billing_price AS p ON p.id = v.price_id
                        WHERE v.subscription_id = whole.id AND v.superseded_at IS NULL AND p.key = budget ->> 'per_quantity_of'
                            AND tstzrange(v.starts_at, v.ends_at) @> whole.at)
                END)) AS most
            FROM whole
            JOIN billing_plan AS plan ON plan.id = whole.plan_id
            CROSS JOIN LATERAL jsonb_array_elements(plan.budgets) AS budget
            WHERE is_over IS NOT TRUE
        ), named AS (
            SELECT DISTINCT seen.id, seen.ref, seen.holder_id,
                budget ->> 'credit_type' AS credit_type, budget ->> 'budget' AS name
            FROM seen
            JOIN billing_itemversion AS v ON v.subscription_id = seen.id
            JOIN billing_plan AS plan ON plan.id = v.plan_id
            CROSS JOIN LATERAL jsonb_array_elements(plan.budgets) AS budget
        ), stands AS (
            SELECT named.*, last.actor, last.reference, present.budget
            FROM named
            LEFT JOIN LATERAL (
                SELECT e.actor, e.reference
                FROM ledger_entry AS e
                WHERE e.holder_id = named.holder_id AND e.credit_type = named.credit_type AND e.kind = 'adjust'
                    AND e.counterpart IS NOT NULL AND e.counterpart ->> 'budget' = named.name
                ORDER BY e.sequence DESC
                LIMIT 1
            ) AS last ON true
            LEFT JOIN LATERAL (
                SELECT each.value AS budget
                FROM (
                    SELECT e.budgets
                    FROM ledger_entry AS e
                    WHERE e.holder_id = named.holder_id AND e.credit_type = named.credit_type
                    ORDER BY e.sequence DESC
                    LIMIT 1
                ) AS newest
                CROSS JOIN LATERAL json_array_elements(newest.budgets) AS each
                WHERE each.value ->> 0 = named.name
            ) AS present ON true
        )
        SELECT format('subscription %s: budget %s of %s in %s: the plan says %s, the account has %s', stands.ref, name,
            stands.holder_id, credit_type, coalesce(said.most::text, 'nothing'), coalesce(stands.budget ->> 1, 'none'))
        FROM stands LEFT JOIN said USING (id, credit_type, name)
        WHERE CASE
            WHEN stands.actor <> 'billing' THEN false
            WHEN said.id IS NULL THEN stands.reference = stands.ref AND stands.budget IS NOT NULL
            ELSE stands.budget IS NULL OR stands.reference IS DISTINCT FROM stands.ref OR ARRAY[
                    stands.budget ->> 1, stands.budget ->> 2, stands.budget ->> 3, stands.budget ->> 4, stands.budget ->> 5,
                    stands.budget ->> 6, stands.budget ->> 7, stands.budget ->> 8, stands.budget ->> 10
                ] IS DISTINCT FROM ARRAY[
                    said.most::text, said.budget ->> 'window', said.budget ->> 'hours', said.time_zone, said.budget ->> 'by',
                    said.budget ->> 'label', said.budget ->> 'subject',
                    CASE said.budget ->> 'mode' WHEN 'hard' THEN '1' WHEN 'soft' THEN '0' END, said.budget ->> 'parent'
                ]
        END
    """,
}
