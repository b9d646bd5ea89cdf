"""What only one subscription of a holder has at a time: overage, budgets, entries that it bills; another order is refused."""

import json
from typing import Any

from billing.models import Customer, Subscription
from billing.rating.prices.overage import METER_PREFIX
from billing.rating.prices.price import Price, may_bill_the_same
from billing.rating.prices.reading import parse_price
from ledger.database.locks import holder_lock
from ledger.database.statements import fetch_rows
from ledger.errors import Invalid


def ensure_billed_once(subscription: Subscription) -> None:
    """Return, or raise if another subscription of the holder bills overage or entries, or has a budget, as this one does.

    Lock order: the caller has the subscription's lock; then the holder's, until the order has committed. So of two such orders at
    once, the second one sees the first.

    Raises:
        Invalid: another one bills them. HolderBusy: lock_timeout passed.
    """
    holder_id = Customer.objects.values_list("holder_id", flat=True).get(pk=subscription.customer_id)
    if holder_id:
        with holder_lock(holder_id):
            _ensure_one_overage(subscription)
            _ensure_budgets_once(subscription)
            _ensure_entries_billed_once(subscription)


OTHER_OVERAGE = """
    SELECT other.ref, theirs.meter
    FROM billing_itemversion AS v
    JOIN billing_price AS mine ON mine.id = v.price_id AND starts_with(mine.meter, %(prefix)s)
    JOIN billing_customer AS c ON c.id = %(customer)s AND c.holder_id <> ''
    JOIN billing_customer AS sharing ON sharing.holder_id = c.holder_id
    JOIN billing_subscription AS other ON other.customer_id = sharing.id AND other.id <> v.subscription_id
    JOIN billing_itemversion AS w ON w.subscription_id = other.id AND w.superseded_at IS NULL
        AND w.starts_at < coalesce(v.ends_at, 'infinity') AND coalesce(w.ends_at, 'infinity') > v.starts_at
    JOIN billing_price AS theirs ON theirs.id = w.price_id AND theirs.meter = mine.meter
    WHERE v.subscription_id = %(subscription)s AND v.superseded_at IS NULL
        AND NOT EXISTS (
            SELECT FROM billing_activation AS a WHERE a.subscription_id = other.id AND a.state IN ('expired', 'canceled'))
    LIMIT 1
"""


def _ensure_one_overage(subscription: Subscription) -> None:
    values = {"subscription": subscription.pk, "customer": subscription.customer_id, "prefix": METER_PREFIX}
    for ref, meter in fetch_rows(lambda *row: row, OTHER_OVERAGE, values):
        detail = f"the holder has the overage of {ref} in {meter.removeprefix(METER_PREFIX)} at that time; an account has one"
        raise Invalid(pointer="/plan", rule="overage-taken", detail=detail)


OTHER_BUDGET = """
    SELECT other.ref, mine ->> 'budget'
    FROM billing_itemversion AS v
    JOIN billing_plan AS p ON p.id = v.plan_id
    CROSS JOIN LATERAL jsonb_array_elements(p.budgets) AS mine
    JOIN billing_customer AS c ON c.id = %(customer)s AND c.holder_id <> ''
    JOIN billing_customer AS sharing ON sharing.holder_id = c.holder_id
    JOIN billing_subscription AS other ON other.customer_id = sharing.id AND other.id <> v.subscription_id
    JOIN billing_itemversion AS w ON w.subscription_id = other.id AND w.superseded_at IS NULL AND w.price_id IS NULL
        AND w.starts_at < coalesce(v.ends_at, 'infinity') AND coalesce(w.ends_at, 'infinity') > v.starts_at
    JOIN billing_plan AS q ON q.id = w.plan_id
    CROSS JOIN LATERAL jsonb_array_elements(q.budgets) AS theirs
    WHERE v.subscription_id = %(subscription)s AND v.superseded_at IS NULL AND v.price_id IS NULL
        AND theirs -> 'budget' = mine -> 'budget' AND theirs -> 'credit_type' = mine -> 'credit_type'
        AND NOT EXISTS (
            SELECT FROM billing_activation AS a WHERE a.subscription_id = other.id AND a.state IN ('expired', 'canceled'))
    LIMIT 1
"""


def _ensure_budgets_once(subscription: Subscription) -> None:
    values = {"subscription": subscription.pk, "customer": subscription.customer_id}
    for ref, budget in fetch_rows(lambda *row: row, OTHER_BUDGET, values):
        detail = f"the holder has the budget {budget} of {ref} at that time; an account has one of a name"
        raise Invalid(pointer="/plan", rule="budget-taken", detail=detail)


# Prices of another subscription of the holder that bill the entries of the same rate at the same time. Entries do not name a
# subscription, so both would bill them.
OTHER_ENTRIES = """
    SELECT other.ref, mine.definition -> 'entries' ->> 'rate', mine.definition, theirs.definition
    FROM billing_itemversion AS v
    JOIN billing_price AS mine ON mine.id = v.price_id AND mine.definition ->> 'billed_by' = 'entries'
    JOIN billing_customer AS c ON c.id = %(customer)s AND c.holder_id <> ''
    JOIN billing_customer AS sharing ON sharing.holder_id = c.holder_id
    JOIN billing_subscription AS other ON other.customer_id = sharing.id AND other.id <> v.subscription_id
    JOIN billing_itemversion AS w ON w.subscription_id = other.id AND w.superseded_at IS NULL
        AND w.starts_at < coalesce(v.ends_at, 'infinity') AND coalesce(w.ends_at, 'infinity') > v.starts_at
    JOIN billing_price AS theirs ON theirs.id = w.price_id AND theirs.definition ->> 'billed_by' = 'entries'
        AND theirs.definition -> 'entries' ->> 'credit_type' = mine.definition -> 'entries' ->> 'credit_type'
        AND theirs.definition -> 'entries' ->> 'rate' = mine.definition -> 'entries' ->> 'rate'
    WHERE v.subscription_id = %(subscription)s AND v.superseded_at IS NULL
        AND NOT EXISTS (
            SELECT FROM billing_activation AS a WHERE a.subscription_id = other.id AND a.state IN ('expired', 'canceled'))
"""


def _ensure_entries_billed_once(subscription: Subscription) -> None:
    values = {"subscription": subscription.pk, "customer": subscription.customer_id}
    for ref, rate, mine, theirs in fetch_rows(lambda *row: row, OTHER_ENTRIES, values):
        if may_bill_the_same(_parse_definition(mine), _parse_definition(theirs)):
            detail = (
                f"{ref} bills the entries of the rate {rate} at that time; give the prices filters of the same label with "
                "different values, or the customer another holder"
            )
            raise Invalid(pointer="/plan", rule="entries-taken", detail=detail)


def _parse_definition(definition: Any) -> Price:
    return parse_price(json.loads(definition) if isinstance(definition, str) else definition)
