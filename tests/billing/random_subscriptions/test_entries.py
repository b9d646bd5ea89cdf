"""Random spends, partial spends, holds, captures and refunds of a rate, billed in time, in steps and late, beside a model.

The model keeps each use as a number of units and of credits, and shares no statement with the product. Whenever the runs come,
what a period has cost in the end is what its price makes of the model's uses, to the cent.
"""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Invoice, Subscription
from billing.rating.aggregation import Event
from billing.rating.prices.pricing import quote
from billing.rating.prices.reading import parse_price
from ledger import services
from ledger.errors import InsufficientCredits
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, metered, unique
from tests.billing.findings import findings_of
from tests.parts import spread

pytestmark = pytest.mark.django_db

START = datetime(2040, 1, 1, tzinfo=UTC)
MONTHS = [datetime(2040, month, 1, tzinfo=UTC) for month in (1, 2, 3, 4)]
END = datetime(2040, 6, 1, tzinfo=UTC)
PRICES: list[dict[str, Any]] = [
    {},
    {"free_units": "250.5"},
    {"model": "package", "unit_amount": "0.35", "package_size": 70},
    {"unit_amount": None, "model": "graduated", "tiers": [{"up_to": 300, "unit_amount": "0.03"}, {"unit_amount": "0.011"}]},
    {"unit_amount": None, "model": "volume", "tiers": [{"up_to": 300, "unit_amount": "0.03"}, {"unit_amount": "0.011"}]},
    {"unit_amount": None, "model": "percentage", "rate": "2.9", "fixed_amount": "0.10", "free_events": 2},
    {"group_by": ["team"], "free_units": 20},
    {"filters": {"team": ["a", "b"]}},
    {"conversion": {"divide_by": 7, "rounding": "up"}},
    {"maximum": "9.00"},
]


@dataclass
class Used:
    """A use as the model knows it: of `units` that cost `asked` credits, the part that was taken and is not refunded."""

    at: datetime
    team: str
    units: Decimal
    asked: int
    taken: int
    sequences: list[int] = field(default_factory=list)
    refunded: int = 0

    def event(self, number: int) -> Event | None:
        kept = self.taken - self.refunded
        if not kept and self.asked:
            return None
        units = Fraction(self.units) * Fraction(kept, self.asked) if self.asked else Fraction(self.units)
        # Half a unit of the last decimal goes up.
        rounded = Decimal((units * 2 * 10**12 + 1) // 2)
        return Event(rounded.scaleb(-12), self.at, {"team": self.team}, number)


class Life:
    """What one history does to several holders, each of which is invoiced at other times."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rate = unique("rate").lower()
        services.publish_rate(
            code=self.rate,
            components={"input": {"price": 1, "per": 90}, "output": {"price": 2, "per": self.random.choice([1, 3])}},
        )
        price = metered(unit_amount="0.02", billed_by="entries", entries={"rate": self.rate, "component": "output"})
        price |= self.random.choice(PRICES)
        self.price = {name: value for name, value in price.items() if value is not None}
        self.uses: list[Used] = []
        plan = PlanFactory(prices=[self.price]).code
        self.holders = [unique("holder") for _ in range(3)]
        purse = self.random.choice([3000, 10_000_000])
        for holder in self.holders:
            for now in (START - timedelta(days=3000), START):
                services.set_clock(holder_id=holder, now=now, idempotency_key=f"clock-{now}")
            services.grant(holder_id=holder, amount=purse, idempotency_key="all")
        self.subscriptions: list[Subscription] = [
            SubscriptionFactory(customer=CustomerFactory(holder_id=holder).ref, plan=plan, started_at=START)
            for holder in self.holders
        ]
        in_time = [(month, 0) for month in MONTHS[1:]]
        in_steps = [(START + timedelta(days=self.random.uniform(0, 95)), 1) for _ in range(6)]
        self.runs = sorted(in_time + in_steps)

    def live(self) -> None:
        for at in sorted(START + timedelta(days=self.random.uniform(0, 91)) for _ in range(22)):
            self._run_until(at)
            for holder in self.holders:
                services.set_clock(holder_id=holder, now=at, idempotency_key=f"clock-{at}")
            self.random.choice([self._spend, self._spend, self._capture, self._refund])(at)
        self._run_until(END)

    def _run_until(self, at: datetime) -> None:
        while self.runs and self.runs[0][0] <= at:
            as_of, place = self.runs.pop(0)
            services.set_clock(holder_id=self.holders[place], now=as_of, idempotency_key=f"clock-{as_of}")
            generate_in(ref=self.subscriptions[place].ref, options=Options(as_of=as_of))

    def _each(self, act: Any) -> list[Any]:
        key = unique("key")
        return [act(holder_id=holder, idempotency_key=key) for holder in self.holders]

    def _spend(self, at: datetime) -> None:
        team, units = self.random.choice("abc"), self._units()
        try:
            spent = self._each(
                lambda **named: services.spend(
                    rate=self.rate, quantities={"output": units, "input": 5}, partial=True, metadata={"team": team}, **named
                )
            )
        except InsufficientCredits:
            return
        self.uses.append(Used(at, team, units, spent[0].requested, -spent[0].amount, [one.sequence for one in spent]))

    def _capture(self, at: datetime) -> None:
        team, units, more = self.random.choice("abc"), self._units(), self._units()
        expires_at = at + timedelta(days=1)
        try:
            held = self._each(
                lambda **named: services.hold(
                    rate=self.rate, quantities={"output": units}, metadata={"team": team}, expires_at=expires_at, **named
                )
            )
        except InsufficientCredits:
            return
        by_amount = self.random.random() < 0.5
        amount = self.random.randint(1, max(-held[0].amount, 1))
        what: dict[str, Any] = {"amount": amount} if by_amount else {"quantities": {"output": min(units, more)}}
        key = unique("key")
        captured = [
            services.capture(holder_id=holder, hold=one.sequence, idempotency_key=key, **what)
            for holder, one in zip(self.holders, held, strict=True)
        ]
        taken = sum(part for _, part in captured[0].drawn)
        asked = -held[0].amount if by_amount else taken
        self.uses.append(
            Used(at, team, units if by_amount else min(units, more), asked, taken, [one.sequence for one in captured])
        )

    def _refund(self, _: datetime) -> None:
        open_uses = [use for use in self.uses if use.taken > use.refunded]
        if not open_uses:
            return
        use = self.random.choice(open_uses)
        amount = self.random.choice([use.taken - use.refunded, self.random.randint(1, use.taken - use.refunded)])
        key = unique("key")
        for holder, sequence in zip(self.holders, use.sequences, strict=True):
            services.refund(holder_id=holder, spend=sequence, amount=amount, idempotency_key=key)
        use.refunded += amount

    def _units(self) -> Decimal:
        return self.random.choice([Decimal(self.random.randint(1, 300)), Decimal(self.random.randint(1, 30_000)).scaleb(-2)])

    def expected(self) -> list[int]:
        """What each month costs in the end."""
        price = parse_price(self.price)
        amounts = []
        for start, end in pairwise(MONTHS):
            events = [use.event(number) for number, use in enumerate(self.uses) if start <= use.at < end]
            amounts.append(quote(price, price.usage_of([event for event in events if event is not None]), "EUR").amount_minor)
        return amounts

    def billed(self, subscription: Subscription) -> list[int]:
        by_month = dict.fromkeys(MONTHS[:-1], 0)
        for invoice in Invoice.objects.filter(subscription=subscription.pk):
            for line in invoice.lines.all():
                if line.starts_at is not None:
                    by_month[line.starts_at] += line.amount_minor - line.discount_minor
        return list(by_month.values())


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.mark.parametrize("seed", spread(range(100), test=[1], check=[0]))
def test_the_invoice_is_the_sum_of_the_entries_whenever_the_runs_come(seed: int) -> None:
    life = Life(seed)
    life.live()
    for holder, subscription in zip(life.holders, life.subscriptions, strict=True):
        services.set_clock(holder_id=holder, now=END, idempotency_key="end")
        generate_in(ref=subscription.ref, options=Options(as_of=END))
    assert [life.billed(subscription) for subscription in life.subscriptions] == [life.expected()] * 3, f"seed {seed}"
    assert findings_of("entries", "entry", "usage") == [], f"seed {seed}"
