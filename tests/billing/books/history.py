"""Three months of a company that sells credits and subscriptions in two currencies, for the tests of a month's figures."""

from datetime import UTC, date, datetime, timedelta
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest
import time_machine

from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine
from billing.documents.sellers import current_seller
from billing.models import CreditNoteUse, CreditPayment, Invoice, InvoicePayment, Item, ItemVersion, Price, Subscription
from billing.rating.periods import Interval, IntervalUnit
from ledger.errors import Refused
from ledger.months import month_after, starts
from ledger.totals.closing import close_months
from ledger.totals.counting import count_entries
from tests.billing.documents.issued import MONTHLY, add_seller, invoice_up_to, subscribed
from tests.billing.factories import recurring, transition
from tests.ledger.totals.test_costs import write_history
from tests.ledger.totals.test_totals import ONE, THREE, TWO, TYPE, use_case

BEFORE, LAST, NOW = THREE, TWO, month_after(ONE)
"""Two months of which the second is over in every zone whatever day it is today, and the present one."""


def noon(month: date, day: int) -> datetime:
    """Noon of a day in UTC."""
    return datetime(month.year, month.month, day, 12, tzinfo=UTC)


def sell(
    when: datetime, amount: str, *, currency: str = "EUR", country: str = "BE", interval: Interval = MONTHLY, **customer: Any
) -> Invoice:
    """An invoice that was issued then."""
    address = {"line1": "1", "city": "X", "country": country}
    with time_machine.travel(when, tick=False):
        price = recurring("seats", amount, tax_rate="19")
        return invoice_up_to(
            subscribed(price, currency=currency, interval=interval, address=address, **customer),
            as_of=datetime(2026, 10, 2, tzinfo=UTC),
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
    for name, (quantity, begins, ends) in {
        "old": (1, noon(BEFORE, 3), None),
        "paid": (2, noon(BEFORE, 3), noon(LAST, 5)),
        "late": (3, noon(LAST, 3), None),
        "dollars": (1, noon(LAST, 3), None),
    }.items():
        subscription = Subscription.objects.get(pk=made[name].subscription_id)
        subscribe_in_the_past(subscription, quantity, begins, ends)
    count_entries()
    close_months()
    return made


def write_more(at_noon_of: Any) -> None:
    """Before `write_months`: a second seller, a plan by the year, promotions, a debt, held credits, credits for an invoice."""
    add_seller()
    add_seller(ref="us", invoice_prefix="US", credit_note_prefix="USC")
    sell(noon(LAST, 7), "15.00", currency="USD", country="US", seller="us")
    by_year = sell(noon(LAST, 8), "1200.00", interval=Interval(IntervalUnit.YEAR), currency="JPY")
    at_noon_of(BEFORE, 4)
    later = starts(month_after(NOW))
    use_case("grant", "eve", "e1", amount=90, source="promotional", expires_at=later)
    use_case("grant", "eve", "e2", amount=300, expires_at=later, paid_minor=900, currency="USD")
    use_case("set_overdraft", "fay", "f1", limit=50)
    use_case("spend", "fay", "f2", amount=35)
    at_noon_of(LAST, 9)
    use_case("hold", "eve", "e3", amount=20, expires_at=starts(LAST) + timedelta(days=38))
    with pytest.raises(Refused):
        use_case("spend", "fay", "f3", amount=5_000)
    paid = use_case("spend", "eve", f"invoice/{by_year.pk}/pay", amount=40, actor="billing")
    CreditPayment.objects.create(
        invoice_id=by_year.pk, holder_id="eve", credit_type=TYPE, credits=40, amount_minor=40, spend_sequence=paid.sequence
    )
    use_case("spend", "eve", "invoice/999999999/pay", amount=5, actor="billing")
    use_case("grant", "gus", "g1", amount=8, expires_at=starts(month_after(LAST)) - timedelta(hours=1))


def write_late_entries(at_noon_of: Any) -> None:
    """After `write_months`: entries with a time in a closed month."""
    at_noon_of(LAST, 26)
    use_case("grant", "late", "l1", amount=9, paid_minor=900, currency="EUR")
    use_case("spend", "late", "l2", amount=2)
    count_entries()


__all__ = ["BEFORE", "LAST", "NOW", "credit", "noon", "sell", "settle", "write_late_entries", "write_months", "write_more"]
