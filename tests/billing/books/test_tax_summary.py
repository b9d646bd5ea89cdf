"""The taxes of a month, by seller, country, category and rate, after credit notes; a month that is over does not change."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
import time_machine

from billing.books.tax_summary import tax_summary
from billing.documents import credit_notes
from billing.documents.credit_notes import CreditLine
from billing.documents.sellers import record_seller
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from tests.billing.documents.issued import SELLER, add_seller, invoice_up_to, subscribed
from tests.billing.factories import recurring, transition

pytestmark = pytest.mark.django_db


def this_month() -> date:
    """The month in which the tests issue documents."""
    return datetime.now(UTC).date()


def summed(month: date, **filters: str) -> list[tuple[str, str, str, str, int, int]]:
    """The rows of a month: seller, country, category, rate, net and tax."""
    return [
        (row.seller, row.country, row.category, f"{row.rate.normalize():f}", row.base_minor, row.tax_minor)
        for row in tax_summary(month, **filters)
    ]


def invoice(rate: str = "19", amount: str = "100.00", *, country: str = "BE", **customer: str):
    """An invoice for a customer in a country."""
    address = {"line1": "1", "city": "X", "country": country} if country else {}
    return invoice_up_to(
        subscribed(recurring("seats", amount, tax_rate=rate), address=address, **customer),
        as_of=datetime(2026, 10, 2, tzinfo=UTC),
    )


def test_taxes_are_summed_by_seller_country_category_and_rate_less_credit_notes():
    add_seller()
    record_seller({**SELLER, "ref": "us", "invoice_prefix": "US", "credit_note_prefix": "USC"}, actor="test")
    first = invoice()
    invoice(amount="0.50")
    invoice("7", "10.00")
    invoice(country="")
    invoice(country="FR", vat_status="reverse_charge")
    invoice(country="US", seller="us")
    credit_notes.issue_in(
        invoice_id=first.pk, lines=[CreditLine(position=1, amount_minor=4_000)], reason="Too much", actor="test"
    )
    assert summed(this_month()) == [
        ("default", "BE", "S", "7", 1_000, 70),
        ("default", "BE", "S", "19", 6_050, 1_150),
        ("default", "DE", "S", "19", 10_000, 1_900),
        ("default", "FR", "AE", "0", 10_000, 0),
        ("us", "US", "S", "19", 10_000, 1_900),
    ]
    assert summed(this_month(), seller="us") == [("us", "US", "S", "19", 10_000, 1_900)]
    assert summed(date(2020, 1, 1)) == []


def test_a_draft_does_not_count_and_a_voided_invoice_comes_to_nothing_in_its_month():
    add_seller()
    invoice_up_to(subscribed(recurring("seats", "31.00", tax_rate="19")), finalize=False)
    assert summed(this_month()) == []
    paid = invoice()
    credit_notes.issue_in(invoice_id=paid.pk, lines=[CreditLine(position=1, amount_minor=4_000)], reason="Too much", actor="test")
    transition(paid.pk, "void")
    assert summed(this_month()) == []


def test_voiding_lowers_the_month_of_the_voiding_and_not_the_month_that_is_over():
    add_seller()
    with time_machine.travel(datetime(2026, 10, 2, 12, tzinfo=UTC), tick=False):
        earlier = invoice()
    issued = earlier.issue_date
    assert issued is not None
    before = summed(issued)
    with time_machine.travel(datetime(2027, 3, 31, 23, tzinfo=UTC), tick=False):
        transition(earlier.pk, "void")
    assert summed(issued) == before == [("default", "BE", "S", "19", 10_000, 1_900)]
    # 23:00 UTC is the first of April in Berlin, the customer's zone.
    assert summed(date(2027, 3, 1)) == []
    assert summed(date(2027, 4, 1)) == [("default", "BE", "S", "19", -10_000, -1_900)]


def test_what_an_invoice_carries_into_a_credit_note_lowers_the_tax():
    add_seller()
    subscription = subscribed(recurring("seats", "31.00", tax_rate="20"))
    invoice_up_to(subscription, as_of=datetime(2026, 10, 2, tzinfo=UTC))
    assert summed(this_month()) == [("default", "BE", "S", "20", 3_100, 620)]
    subscriptions.amend_subscription(
        ref=subscription.ref, effective_at=datetime(2026, 10, 11, tzinfo=UTC),
        wish=Wish(sets_end=True, ends_at=datetime(2026, 10, 11, tzinfo=UTC)),
    )  # fmt: skip
    last = invoice_up_to(subscription, as_of=datetime(2026, 10, 12, tzinfo=UTC))
    carried = last.lines.get(kind="carried")
    [row] = tax_summary(this_month())
    assert (row.base_minor, row.tax_minor) == (3_100 - carried.amount_minor, 620 - int(carried.rating["tax_minor"]))
    assert row.tax_minor == round(row.base_minor * Decimal("0.2"))


def test_the_call_shows_a_month_and_refuses_what_is_none(api):
    add_seller()
    invoice()
    month = f"{this_month():%Y-%m}"
    row = {"seller": "default", "currency": "EUR", "country": "BE", "category": "S", "rate": "19", "base_minor": 10_000,
           "tax_minor": 1_900}  # fmt: skip
    assert api.get(f"/v1/tax-summary?month={month}").json() == {"month": month, "rows": [row]}
    assert api.get(f"/v1/tax-summary?month={month}&seller=us").json()["rows"] == []
    for query in ("", "?month=2026-13", "?month=2026-1", "?month="):
        assert api.get(f"/v1/tax-summary{query}").json()["errors"][0]["pointer"] == "/month"
    assert api.get(f"/v1/tax-summary?month={month}&seler=us").status_code == 400
