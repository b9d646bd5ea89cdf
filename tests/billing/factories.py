"""History for billing tests, made through the services, as an operator would make it."""

import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import factory
from django.db import transaction

from billing.documents import transitions
from billing.metering import usage
from billing.models import Customer, Invoice, Plan, Subscription
from billing.orders import customers, plans, subscriptions
from billing.rating.periods import Interval, IntervalUnit

JAN_1 = datetime(2026, 1, 1, tzinfo=UTC)


def unique(prefix: str) -> str:
    """A name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


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
    started_at = JAN_1

    @classmethod
    def _create(cls, model_class: type[Subscription], *args: Any, **kwargs: Any) -> Subscription:
        return subscriptions.create_subscription(**kwargs)


def amend(subscription: Subscription, effective_at: datetime, **wish: Any) -> None:
    """Order a change of the subscription from that time on."""
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=effective_at, wish=subscriptions.Wish(**wish))


def use(
    subscription: Subscription, value: str, occurred_at: datetime, meter: str = "calls", **properties: Any
) -> usage.EventResult:
    """One usage event."""
    event = usage.NewEvent(unique("use"), subscription.ref, meter, Decimal(value), occurred_at, properties)
    return usage.take_in([event])[0]


def transition(invoice_id: int, kind: str) -> Invoice:
    """The invoice after a transition, which is recorded as the product records it."""
    with transaction.atomic():
        return transitions.apply_in(invoice_id=invoice_id, kind=kind, actor="test")


def at(month: int, day: int = 1, hour: int = 0, year: int = 2026) -> datetime:
    """An instant in UTC."""
    return datetime(year, month, day, hour, tzinfo=UTC)
