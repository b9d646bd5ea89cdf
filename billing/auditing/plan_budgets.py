"""The law of the budgets of plans: what stands on an account is what the plan and the quantities say. Orders and entries say so.

The plan at a time, the quantities then and the last setting of a budget are read by SQL of its own, which the generator does not
use. A budget whose last setting was somebody else's is theirs.
"""

from ledger.values import MAX_AMOUNT

# Those of which a run has looked at the last order: what begins, changes or ends since then needs no run.
BUDGET_LAWS = {
    "budgets of a plan differ from the account": f"""
        WITH seen AS MATERIALIZED (
            SELECT s.id, s.ref, s.time_zone, owner.holder_id,
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
        ), whole AS (
            SELECT DISTINCT ON (seen.id) seen.*, v.plan_id, v.ends_at <= now AND coalesce((
                    SELECT (a.change ->> 'ends_at')::timestamptz <= now
                    FROM billing_amendment AS a
                    WHERE a.subscription_id = seen.id AND jsonb_exists(a.change, 'ends_at')
                    ORDER BY a.sequence DESC
                    LIMIT 1
                ), v.is_termination) AS is_over,
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
            SELECT DISTINCT seen.id, seen.ref, seen.holder_id, (extract(epoch FROM seen.now) * 1000000)::bigint AS now_us,
                budget ->> 'credit_type' AS credit_type, budget ->> 'budget' AS name
            FROM seen
            JOIN billing_itemversion AS v ON v.subscription_id = seen.id
            JOIN billing_plan AS plan ON plan.id = v.plan_id
            CROSS JOIN LATERAL jsonb_array_elements(plan.budgets) AS budget
        ), account AS MATERIALIZED (
            SELECT DISTINCT holder_id, credit_type FROM named
        ), setting AS MATERIALIZED (
            SELECT DISTINCT ON (e.holder_id, e.credit_type, e.counterpart ->> 'budget')
                e.holder_id, e.credit_type, e.counterpart ->> 'budget' AS name, e.actor, e.reference
            FROM account
            JOIN ledger_entry AS e ON e.holder_id = account.holder_id AND e.credit_type = account.credit_type
            WHERE e.kind = 'adjust' AND e.counterpart IS NOT NULL AND e.counterpart ->> 'budget' IS NOT NULL
            ORDER BY e.holder_id, e.credit_type, e.counterpart ->> 'budget', e.sequence DESC
        ), newest AS MATERIALIZED (
            -- By the first entry of each account: on a cluster a LATERAL with LIMIT may refer to entries only.
            SELECT first.holder_id, first.credit_type, last.budgets
            FROM account
            JOIN ledger_entry AS first
                ON first.holder_id = account.holder_id AND first.credit_type = account.credit_type AND first.sequence = 1
            CROSS JOIN LATERAL (
                SELECT e.budgets
                FROM ledger_entry AS e
                WHERE e.holder_id = first.holder_id AND e.credit_type = first.credit_type
                ORDER BY e.sequence DESC
                LIMIT 1
            ) AS last
        ), present AS MATERIALIZED (
            SELECT holder_id, credit_type, json_array_elements(budgets) AS budget FROM newest
        ), version AS MATERIALIZED (
            SELECT * FROM present
            UNION ALL
            SELECT holder_id, credit_type, json_array_elements(budget -> 10 -> 'later') FROM present
        ), stands AS (
            SELECT named.*, setting.actor, setting.reference, version.budget, version.budget -> 10 AS instants
            FROM named
            LEFT JOIN setting USING (holder_id, credit_type, name)
            LEFT JOIN version
                ON version.holder_id = named.holder_id AND version.credit_type = named.credit_type
                AND version.budget ->> 0 = named.name
                AND coalesce((version.budget -> 10 ->> 'from')::bigint <= named.now_us, true)
                AND coalesce((version.budget -> 10 ->> 'until')::bigint > named.now_us, true)
        )
        SELECT format('subscription %s: budget %s of %s in %s: the plan says %s, the account has %s', stands.ref, name,
            stands.holder_id, credit_type, coalesce(said.most::text, 'nothing'), coalesce(stands.budget ->> 1, 'none'))
        FROM stands LEFT JOIN said USING (id, credit_type, name)
        WHERE CASE
            WHEN stands.actor <> 'billing' THEN false
            -- One that has not begun may have set what follows the budget of another one.
            WHEN said.id IS NULL THEN stands.reference = stands.ref AND stands.budget IS NOT NULL
                AND EXISTS (SELECT FROM whole WHERE whole.id = stands.id)
            ELSE stands.budget IS NULL OR ARRAY[
                    stands.budget ->> 1, stands.budget ->> 2, stands.budget ->> 3, stands.budget ->> 4, stands.budget ->> 5,
                    stands.budget ->> 6, stands.budget ->> 7, stands.budget ->> 8,
                    CASE json_typeof(instants) WHEN 'object' THEN instants ->> 'parent' ELSE stands.budget ->> 10 END
                ] IS DISTINCT FROM ARRAY[
                    said.most::text, said.budget ->> 'window', said.budget ->> 'hours', said.time_zone, said.budget ->> 'by',
                    said.budget ->> 'label', said.budget ->> 'subject',
                    CASE said.budget ->> 'mode' WHEN 'hard' THEN '1' WHEN 'soft' THEN '0' END, said.budget ->> 'parent'
                ]
        END
    """,
}
