"""Two customers with the same random orders, usage and runs, one with consolidated invoices: the same lines, other documents."""

import random
from collections import defaultdict
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from billing.auditing import consistency
from billing.models import Customer, Invoice, Line
from billing.orders import coupons
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use
from tests.billing.factories import transition as moved
from tests.parts import spread

pytestmark = pytest.mark.django_db


class Pair:
    """The same subscriptions of a customer with invoices of their own, and of one with consolidated invoices."""

    def __init__(self, seed: int) -> None:
        pick = self.pick = random.Random(seed)
        self.customers = [CustomerFactory(consolidated_invoicing=shared) for shared in (False, True)]
        prices = [recurring(unit_amount="31.00", tax_rate="20"), metered(unit_amount="0.37", tax_rate="7")]
        plans = [PlanFactory(prices=prices, tax_behavior=how).code for how in ("exclusive", "inclusive", "exclusive")]
        starts = [at(1, pick.choice((1, 1, 15))) for _ in plans]
        self.subscriptions = [
            [
                SubscriptionFactory(customer=one.ref, plan=plan, started_at=start)
                for plan, start in zip(plans, starts, strict=True)
            ]
            for one in self.customers
        ]
        if pick.random() < 0.6:
            coupon = coupons.create_coupon(
                code=unique("C"), kind="percentage", value=Decimal(pick.choice((10, 33))), duration="recurring", periods=2
            )
            for one in self.customers:
                coupons.give_coupon(customer_id=one.pk, customer_ref=one.ref, customer_currency="EUR", code=coupon.code)

    def live(self, now: datetime) -> None:
        """Something happens to one of the subscriptions."""
        index, kind, part = self.pick.randrange(3), self.pick.randrange(5), self.pick.randrange(1, 20)
        for subscriptions in self.subscriptions:
            one = subscriptions[index]
            if kind == 0:
                amend(one, now - timedelta(days=part), quantities={"base": Decimal(part % 3 + 1)})
            elif kind == 1 and part < 4:
                amend(one, now, sets_end=True, ends_at=now + timedelta(days=part))
            else:
                use(one, str(part), now - timedelta(days=part))

    def run(self, now: datetime) -> None:
        """Both are billed by the same run; sometimes one subscription comes first."""
        first = self.pick.randrange(4)
        if first < 3:
            self._run(
                now, *(word for subscriptions in self.subscriptions for word in ("--subscription", subscriptions[first].ref))
            )
        self._run(now)

    @staticmethod
    def _run(now: datetime, *options: str) -> None:
        call_command(
            "generate_invoices", "--as-of", now.isoformat(), "--no-progress", *options, stdout=StringIO(), stderr=StringIO()
        )

    def lines(self, which: int) -> list[Any]:
        """All lines as priced, of documents that are not void, without carried credit."""
        places = {one.pk: place for place, one in enumerate(self.subscriptions[which])}
        found = (
            Line.objects.filter(invoice__customer_id=self.customers[which].pk)
            .exclude(invoice__state="void")
            .exclude(kind="carried")
        )
        return sorted(
            (
                places[line.subscription_id or line.invoice.subscription_id],
                line.kind,
                str(line.starts_at),
                str(line.ends_at),
                priced(line),
            )
            for line in found.select_related("invoice")
        )


def priced(line: Line) -> int:
    """The amount after discounts, with the tax that its price includes."""
    amounts = line.rating.get("included_tax") or {"amount_minor": line.amount_minor, "discount_minor": line.discount_minor}
    return amounts["amount_minor"] - amounts["discount_minor"]


def expected_total(invoice: Invoice) -> int:
    """What a document comes to by its lines: each category's tax on the sum, without what is carried."""
    bases: dict[Any, Decimal] = defaultdict(Decimal)
    for line in Line.objects.filter(invoice_id=invoice.pk):
        bases[line.tax_rate] += line.amount_minor - line.discount_minor
    return sum(int(base + (base * rate / 100).quantize(Decimal(1), ROUND_HALF_UP)) for rate, base in bases.items())


def documents(customer: Customer) -> list[Invoice]:
    """The customer's documents that stand."""
    return list(Invoice.objects.filter(customer_id=customer.pk).exclude(state="void").order_by("id"))


def lived(seed: int) -> Pair:
    """The pair after five months."""
    pair = Pair(seed)
    for month in range(1, 6):
        for day in (1, 15):
            now = at(month, day)
            for _ in range(pair.pick.randrange(3)):
                if month > 1:
                    pair.live(now)
            pair.run(now)
    return pair


@pytest.mark.parametrize("seed", spread(range(1, 40), test=[2], check=[1]))
def test_the_choice_of_documents_changes_no_line(seed: int) -> None:
    pair = lived(seed)
    assert pair.lines(0) == pair.lines(1)
    shared = documents(pair.customers[1])
    assert any(invoice.subscription_id is None for invoice in shared)
    for invoice in shared:
        assert invoice.total_minor == expected_total(invoice)
    assert len({invoice.as_of.date() for invoice in shared}) == len(shared)
    assert consistency.check() == []


def test_voided_from_the_last_to_the_first_everything_is_billed_again() -> None:
    pair = lived(2)
    for customer in pair.customers:
        for invoice in reversed(documents(customer)):
            invoice.refresh_from_db()
            if invoice.state == "open":
                moved(invoice.pk, "void")
    pair.run(at(5, 15))
    assert sum(line[-1] for line in pair.lines(0)) == sum(line[-1] for line in pair.lines(1))
    assert consistency.check() == []
