"""Months of a subscription whose calls are paid in credits first, beside a model that looks at every call by itself.

The model shares no line with the product: a period is a list of calls, each paid in credits or in money, in the order in which
they were billed. Usage comes, comes late and is taken back; credits are bought and spent elsewhere; drafts are made, finalised
and deleted, invoices voided. Every invoice, the balance, the claims and the ledger have to agree after every step.
"""

import random
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from django.db import connection

from billing.documents import invoices
from billing.models import Claim, Invoice
from ledger import reads, services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, unique, use
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.parts import spread

pytestmark = pytest.mark.django_db

CREDITS, MONEY = "credits", "money"
MONTHS = 6


@dataclass
class Month:
    """The calls of a month as they were billed, lowest first; what they came to, and the events."""

    calls: list[str] = field(default_factory=list)
    billed_minor: int = 0
    used: int = 0
    is_billed: bool = False
    is_short: bool = False

    def in_credits(self) -> int:
        return self.calls.count(CREDITS)


@dataclass
class Model:
    """A holder and his months, call by call."""

    per_call: Fraction
    free: int
    available: int = 0
    months: list[Month] = field(default_factory=lambda: [Month() for _ in range(MONTHS)])

    def price(self, calls: int) -> int:
        """Credits for the calls of a month."""
        return ceil(self.per_call * calls)

    def bill(self, up_to: int) -> dict[int, int]:
        """Bill the months up to one, and the late usage of all that are billed; returns the money of each line."""
        lines: dict[int, int] = {}
        # What becomes due now comes after what became due at the end of its month.
        for n in sorted(range(up_to), key=lambda n: self.months[n].is_billed):
            month = self.months[n]
            is_late = month.is_billed and max(month.used, 0) != len(month.calls)
            if not month.is_billed or is_late or month.is_short:
                lines[n] = self.rate(month)
                month.is_billed, month.is_short = True, False
        return lines

    def rate(self, month: Month) -> int:
        while len(month.calls) > max(month.used, 0):
            before = self.price(month.in_credits())
            month.calls.pop()
            self.available += before - self.price(month.in_credits())
        while len(month.calls) < max(month.used, 0):
            if len(month.calls) < self.free:
                month.calls.append("free")
                continue
            more = self.price(month.in_credits() + 1) - self.price(month.in_credits())
            month.calls.append(CREDITS if more <= self.available else MONEY)
            self.available -= more if month.calls[-1] == CREDITS else 0
        due_minor = 2 * month.calls.count(MONEY)
        line, month.billed_minor = due_minor - month.billed_minor, due_minor
        return line

    def undo(self, before: list[Month]) -> None:
        """Put the months back: give back what was spent since, spend again what was given back, as far as it is there."""
        changes = [
            self.price(was.in_credits()) - self.price(month.in_credits()) for month, was in zip(self.months, before, strict=True)
        ]
        self.available += sum(-more for more in changes if more < 0)
        for month, was, more in zip(self.months, before, changes, strict=True):
            month.calls, month.billed_minor, month.is_billed = list(was.calls), was.billed_minor, was.is_billed
            month.is_short = was.is_short
            if more > 0:
                self.spend_again(month, self.price(was.in_credits()) - more + self.available, more)

    def spend_again(self, month: Month, purse: int, more: int) -> None:
        had = self.price(month.in_credits())
        while self.price(month.in_credits()) > purse:
            last = len(month.calls) - 1 - month.calls[::-1].index(CREDITS)
            month.calls[last] = MONEY
            month.is_short = True
        self.available -= more - (had - self.price(month.in_credits()))


class Life:
    """One life from a seed: what is done to the product is done to the model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        per_call = self.random.choice(["1", "2.5", "0.3", "7"])
        free = self.random.choice([0, 0, 5])
        self.holder = unique("holder")
        fields = {"free_units": free} if free else {}
        plan = PlanFactory(prices=[metered(credits={"per_unit": per_call}, **fields)])
        self.subscription = SubscriptionFactory(customer=CustomerFactory(holder_id=self.holder).ref, plan=plan.code)
        self.model = Model(Fraction(per_call), free)
        self.month = 1
        self.undoable: list[tuple[int, list[Month]]] = []
        self.done: list[str] = []

    def step(self) -> None:
        what = self.random.choice(
            [self.use, self.use, self.use_late, self.buy, self.spend_elsewhere, self.run, self.run, self.take_back, self.squeeze]
        )
        self.done.append(what.__name__)
        what()
        assert reads.balance(self.holder).available == self.model.available
        in_claims = [
            spend[3]
            for claim in Claim.objects.filter(subscription=self.subscription.pk, released_at=None, snapshot__has_key="covered")
            for spend in claim.snapshot["covered"]["spends"]
        ]
        assert sum(in_claims) == sum(self.model.price(month.in_credits()) for month in self.model.months)
        assert findings_of("credits spent on usage") == []

    def use(self) -> None:
        self.in_month(self.month - 1, self.random.randint(1, 60))

    def use_late(self) -> None:
        n = self.random.randint(max(0, self.month - 3), self.month - 1)
        self.in_month(n, self.random.choice([self.random.randint(1, 30), -self.random.randint(1, 40)]))

    def in_month(self, n: int, value: int) -> None:
        use(self.subscription, str(value), at(n + 1, self.random.randint(1, 27)))
        self.model.months[n].used += value

    def buy(self) -> None:
        amount = self.random.randint(1, 120)
        services.grant(holder_id=self.holder, amount=amount, idempotency_key=unique("buy"))
        self.model.available += amount

    def spend_elsewhere(self) -> None:
        if self.model.available:
            amount = self.random.randint(1, self.model.available)
            services.spend(holder_id=self.holder, amount=amount, idempotency_key=unique("spend"))
            self.model.available -= amount

    def run(self) -> None:
        if self.random.random() < 0.6 and self.month < MONTHS:
            self.month += 1
        before = [Month(list(m.calls), m.billed_minor, m.used, m.is_billed, m.is_short) for m in self.model.months]
        as_of = at(self.month, self.random.randint(1, 27))
        finalize = self.random.random() < 0.5
        lines = self.model.bill(self.month - 1)
        dry = self.figures(bill(self.subscription, as_of, finalize=finalize, dry_run=True))
        made = bill(self.subscription, as_of, finalize=finalize)
        assert self.figures(made) == dry
        found = {
            datetime.fromisoformat(one["period"]["start"]).month - 1: one["amount_minor"]
            for d in made
            for one in d["lines"]
            if one["kind"] != "carried"
        }
        assert found == {n: minor for n, minor in lines.items() if n in found}
        assert all(n in found for n, minor in lines.items() if minor)
        if made:
            # What is without a line is on no invoice, and so stays as it is when that is taken back.
            was = [month if n in found else self.model.months[n] for n, month in enumerate(before)]
            self.undoable.append((made[0]["id"], was))

    def squeeze(self) -> None:
        """What was given back is spent elsewhere before the invoice that gave it back is taken back."""
        n = max(self.month - 2, 0)
        self.in_month(n, -self.random.randint(10, 60))
        self.run()
        self.spend_elsewhere()
        self.in_month(n, self.random.randint(0, 60))
        self.take_back()

    @staticmethod
    def figures(made: list[dict[str, Any]]) -> list[Any]:
        return [
            (one["kind"], one["amount_minor"], one["quantity"], one["rating"].get("covered", {}).get("credits"))
            for document in made
            for one in document["lines"]
        ]

    def take_back(self) -> None:
        """Delete or void the newest invoice; what is paid stays, and so does all that came before it."""
        if not self.undoable:
            return
        invoice_id, before = self.undoable[-1]
        invoice = Invoice.objects.get(pk=invoice_id)
        if invoice.state == "paid":
            self.undoable.clear()
            return
        (invoices.delete_draft if invoice.state == "draft" else invoices.void)(invoice_id)
        self.undoable.pop()
        self.model.undo(before)


@pytest.mark.parametrize("seed", spread(range(24), test=[11], check=[2, 15]))
def test_months_of_usage_in_credits_agree_with_a_model_of_every_call(seed: int) -> None:
    life = Life(seed)
    for _ in range(30):
        try:
            life.step()
        except AssertionError:
            print(f"seed {seed}: {life.done}, {life.model}")
            raise
    assert connection.in_atomic_block
