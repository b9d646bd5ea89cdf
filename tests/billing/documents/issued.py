"""A seller, a buyer and invoices to be printed."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from billing.documents.sellers import record_seller
from billing.generator.run import generate
from billing.generator.run.generate import Options
from billing.models import Invoice, Subscription
from billing.orders import plans, subscriptions
from billing.rating.periods import Interval, IntervalUnit
from tests.billing.factories import CustomerFactory, recurring, unique, use

SELLER = {
    "name": "Nimbus Computing GmbH", "line1": "Lindenstraße 7", "postal_code": "10969", "city": "Berlin", "country": "DE",
    "vat_id": "DE987654328", "register": "HRB 12345, Amtsgericht Charlottenburg", "email": "billing@nimbus.example",
    "phone": "+49 30 1234567", "website": "nimbus.example", "iban": "DE89370400440532013000", "bic": "COBADEFFXXX",
    "bank": "Commerzbank",
}  # fmt: skip
BUYER_ADDRESS = {
    "line1": "Rue de la Loi 16",
    "line2": "Accounts Payable",
    "postal_code": "1000",
    "city": "Bruxelles",
    "country": "BE",
}


def add_seller(**more: str) -> None:
    """Record who invoices."""
    record_seller({**SELLER, **more}, actor="test")


def metered_free(key: str = "calls", **fields: Any) -> dict[str, Any]:
    """A usage price of 0.00002 after a million free units."""
    return {
        "key": key, "kind": "usage", "timing": "arrears", "model": "unit", "unit_amount": "0.00002", "free_units": "1000000",
        "meter": key, "aggregation": "sum", "tax_rate": "19",
    } | fields  # fmt: skip


def tiered(key: str = "storage", **fields: Any) -> dict[str, Any]:
    """A usage price in two tiers."""
    return {
        "key": key, "kind": "usage", "timing": "arrears", "model": "graduated", "meter": key, "aggregation": "sum",
        "tax_rate": "19",
        "tiers": [{"up_to": "1000", "unit_amount": "0.10"}, {"up_to": None, "unit_amount": "0.05", "flat_amount": "5"}],
    } | fields  # fmt: skip


MONTHLY: Final = Interval(IntervalUnit.MONTH)


def subscribed(
    *prices: dict[str, Any],
    currency: str = "EUR",
    quantities: dict[str, Decimal] | None = None,
    interval: Interval = MONTHLY,
    **customer: Any,
) -> Subscription:
    """A subscription from 1 October 2026 in Berlin."""
    plan = plans.create_plan(code=unique("plan"), name="Team", currency=currency, interval=interval, prices=list(prices))
    details = {
        "name": "Umbrella Analytics SA",
        "address": BUYER_ADDRESS,
        "vat_id": "BE0123456749",
    } | customer
    return subscriptions.create_subscription(
        ref=unique("SUB"),
        customer=CustomerFactory(currency=currency, time_zone="Europe/Berlin", **details).ref,
        plan=plan.code,
        started_at=datetime(2026, 9, 30, 22, tzinfo=UTC),
        quantities=quantities or {},
        time_zone="Europe/Berlin",
    )


def invoice_up_to(
    subscription: Subscription, *, as_of: datetime = datetime(2026, 11, 1, 12, tzinfo=UTC), finalize: bool = True
) -> Invoice:
    """Its invoice up to then."""
    generate.generate(ref=subscription.ref, options=Options(as_of=as_of, finalize=finalize))
    return Invoice.objects.filter(subscription_id=subscription.pk).latest("pk")


def usual_invoice(**customer: Any) -> Invoice:
    """Seats in advance, calls with a free million, storage in tiers."""
    subscription = subscribed(
        recurring("seats", "31.00", model="unit", tax_rate="19"),
        metered_free(),
        tiered(),
        quantities={"seats": Decimal(12)},
        **customer,
    )
    use(subscription, "5390000", datetime(2026, 10, 5, tzinfo=UTC))
    use(subscription, "11000", datetime(2026, 10, 6, tzinfo=UTC), meter="storage")
    return invoice_up_to(subscription)
