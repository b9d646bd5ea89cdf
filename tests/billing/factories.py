"""History for billing tests, made through the services, as an operator would make it."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.db import transaction

from billing.documents import transitions
from billing.metering import usage
from billing.models import Invoice, Subscription
from billing.orders import subscriptions
from billing.testing import CustomerFactory, PlanFactory, SubscriptionFactory, metered, recurring
from ledger.testing import unique

__all__ = [
    "JAN_1",
    "CustomerFactory",
    "PlanFactory",
    "SubscriptionFactory",
    "amend",
    "at",
    "metered",
    "recurring",
    "transition",
    "unique",
    "use",
]  # fmt: skip

JAN_1 = datetime(2026, 1, 1, tzinfo=UTC)


def amend(subscription: Subscription, effective_at: datetime, **wish: Any) -> None:
    """Order a change of the subscription from that time on."""
    subscriptions.amend_subscription(ref=subscription.ref, effective_at=effective_at, wish=subscriptions.Wish(**wish))


def use(
    subscription: Subscription, value: str, occurred_at: datetime, meter: str = "calls", **properties: Any
) -> usage.EventResult:
    """One usage event, whatever the present time is."""
    event = usage.NewEvent(
        unique("use"), subscription.ref, meter, value=Decimal(value), occurred_at=occurred_at, properties=properties
    )
    return usage.take_in([event], allow_future=True)[0]


def transition(invoice_id: int, kind: str) -> Invoice:
    """The invoice after a transition, which is recorded as the product records it."""
    with transaction.atomic():
        return transitions.apply_in(invoice_id=invoice_id, kind=kind, actor="test")


def at(month: int, day: int = 1, hour: int = 0, year: int = 2026) -> datetime:
    """An instant in UTC."""
    return datetime(year, month, day, hour, tzinfo=UTC)
