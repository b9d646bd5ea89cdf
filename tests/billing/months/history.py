"""Three months of a company that sells credits and subscriptions in two currencies, for the tests of a month's figures."""

from datetime import UTC, date, datetime
from functools import partial
from typing import Any
from unittest.mock import patch

import time_machine

from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine
from billing.documents.sellers import current_seller
from billing.models import CreditNoteUse, Invoice, InvoicePayment, Item, ItemVersion, Price, Subscription
from ledger.totals import close_months, count_entries
from ledger.totals.months import month_after
from tests.billing.documents.issued import add_seller, invoice_up_to, subscribed
from tests.billing.factories import recurring, transition
from tests.ledger.totals.test_costs import write_history
from tests.ledger.totals.test_totals import ONE, THREE, TWO

BEFORE, LAST, NOW = THREE, TWO, month_after(ONE)
"""Two months of which the second is over in every zone whatever day it is today, and the present one."""


def noon(month: date, day: int) -> datetime:
    """Noon of a day in UTC."""
    return datetime(month.year, month.month, day, 12, tzinfo=UTC)


def sell(when: datetime, amount: str, *, currency: str = "EUR", country: str = "BE", **customer: Any) -> Invoice:
    """An invoice that was issued then."""
    address = {"line1": "1", "city": "X", "country": country}
    with time_machine.travel(when, tick=False):
        price = recurring("seats", amount, tax_rate="19")
        return invoice_up_to(
            subscribed(price, currency=currency, address=address, **customer), as_of=datetime(2026, 10, 2, tzinfo=UTC)
        )


def settle(invoice: Invoice, kind: str, when: datetime) -> None:
    """Pay, void or give up an invoice at that time."""
    create = partial(InvoicePayment.objects.create, recorded_at=when)
    with time_machine.travel(when, tick=False), patch.object(InvoicePayment.objects, "create", create):
        transition(invoice.pk, kind)


def credit(invoice: Invoice, minor: int, when: datetime) -> None:
    """Credit a part of an invoice at that time."""
    with time_machine.travel(when, tick=False):
        credit_notes.issue_in(
            invoice_id=invoice.pk, lines=[CreditLine(position=1, amount_minor=minor)], reason="Too much", actor="test"
        )
    CreditNoteUse.objects.filter(invoice_id=invoice.pk).update(recorded_at=when)


def subscribe_in_the_past(subscription: Subscription, quantity: int, starts: datetime, ends: datetime | None = None) -> None:
    """A version as it was on record from its start on."""
    plan_id = ItemVersion.objects.filter(subscription_id=subscription.pk).values_list("plan_id", flat=True)[0]
    item, _ = Item.objects.get_or_create(subscription_id=subscription.pk, price_key="earlier")
    ItemVersion.objects.create(
        subscription=subscription, item=item, plan_id=plan_id, price=Price.objects.get(plan_id=plan_id), quantity=quantity,
        starts_at=starts, ends_at=ends, recorded_at=starts,
    )  # fmt: skip


def write_months(at_noon_of: Any) -> dict[str, Invoice]:
    """Credits, invoices and subscriptions of the last months; all months that are over are closed."""
    if current_seller() is None:
        add_seller()
    write_history(at_noon_of)
    made = {
        "old": sell(noon(BEFORE, 3), "100.00"),
        "paid": sell(noon(BEFORE, 4), "50.00"),
        "voided": sell(noon(BEFORE, 5), "20.00", country="FR"),
        "late": sell(noon(LAST, 3), "70.00", country="FR"),
        "dollars": sell(noon(LAST, 4), "30.00", currency="USD", country="US"),
        "given up": sell(noon(LAST, 5), "10.00"),
        "credited": sell(noon(LAST, 6), "200.00"),
    }
    settle(made["paid"], "pay", noon(LAST, 10))
    settle(made["voided"], "void", noon(LAST, 11))
    settle(made["given up"], "mark_uncollectible", noon(LAST, 20))
    credit(made["credited"], 4_000, noon(LAST, 21))
    for name, (quantity, starts, ends) in {
        "old": (1, noon(BEFORE, 3), None),
        "paid": (2, noon(BEFORE, 3), noon(LAST, 5)),
        "late": (3, noon(LAST, 3), None),
        "dollars": (1, noon(LAST, 3), None),
    }.items():
        subscription = Subscription.objects.get(pk=made[name].subscription_id)
        subscribe_in_the_past(subscription, quantity, starts, ends)
    count_entries()
    close_months()
    return made


__all__ = ["BEFORE", "LAST", "NOW", "credit", "noon", "sell", "settle", "write_months"]
