"""For the tests of a project with billing: plans, customers and subscriptions. Needs the extra `[testing]`."""

from datetime import UTC, datetime
from typing import Any

import factory

from billing.models import Customer, Plan, Subscription
from billing.orders import customers, plans, subscriptions
from billing.rating.periods import Interval, IntervalUnit
from ledger.testing import unique


def recurring(key: str = "base", unit_amount: str = "10.00", **fields: Any) -> dict[str, Any]:
    """A flat recurring price in advance."""
    return {"key": key, "kind": "recurring", "timing": "advance", "model": "flat", "unit_amount": unit_amount} | fields


def metered(key: str = "calls", unit_amount: str = "0.02", **fields: Any) -> dict[str, Any]:
    """A usage price per unit."""
    return {
        "key": key, "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": unit_amount,
        "meter": key, "aggregation": "sum",
    } | fields  # fmt: skip


class PlanFactory(factory.Factory):
    """A monthly plan in EUR: 10.00 in advance and 0.02 per call, 20 percent tax."""

    class Meta:
        model = Plan

    code = factory.LazyFunction(lambda: unique("plan"))
    name = "Basic"
    currency = "EUR"
    interval = Interval(IntervalUnit.MONTH)
    prices = factory.LazyFunction(lambda: [recurring(tax_rate="20"), metered(tax_rate="20")])

    @classmethod
    def _create(cls, model_class: type[Plan], *args: Any, **kwargs: Any) -> Plan:
        return plans.create_plan(**kwargs)


class CustomerFactory(factory.Factory):
    """A customer in EUR without credits."""

    class Meta:
        model = Customer

    ref = factory.LazyFunction(lambda: unique("CUST"))
    name = "Ada Lovelace"
    currency = "EUR"

    @classmethod
    def _create(cls, model_class: type[Customer], *args: Any, **kwargs: Any) -> Customer:
        return customers.create_customer(**kwargs)


class SubscriptionFactory(factory.Factory):
    """A subscription from 1 January 2026 in UTC."""

    class Meta:
        model = Subscription

    ref = factory.LazyFunction(lambda: unique("SUB"))
    customer = factory.LazyFunction(lambda: CustomerFactory().ref)
    plan = factory.LazyFunction(lambda: PlanFactory().code)
    started_at = datetime(2026, 1, 1, tzinfo=UTC)

    @classmethod
    def _create(cls, model_class: type[Subscription], *args: Any, **kwargs: Any) -> Subscription:
        return subscriptions.create_subscription(**kwargs)
