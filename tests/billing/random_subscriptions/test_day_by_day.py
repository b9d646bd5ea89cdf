"""24 months of random subscriptions, audited by a slow calculator that knows nothing of claims: it walks day by day."""

import random
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from django.db.models import F, Sum

from billing.auditing import consistency
from billing.errors import InvalidTransition
from billing.generator.options import Options, Scope
from billing.generator.run.generate import generate_in
from billing.models import Claim, Invoice, Line, Subscription
from billing.orders import subscriptions
from billing.orders.subscriptions import Wish
from tests.billing.factories import JAN_1, PlanFactory, SubscriptionFactory, metered, recurring, transition, use
from tests.parts import spread

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)
DAYS = 730
FEES = {"small": Fraction(1000), "large": Fraction(4350)}
"""What each plan costs a month, in cents."""
CALL_MINOR = Fraction(2)


@dataclass
class History:
    """What a subscription ordered and used, as the slow calculator reads it: changes in the order in which they were ordered."""

    subscription: Subscription
    timing: str
    changes: list[tuple[int, str, object]] = field(default_factory=list)
    ends: list[tuple[int, int | None]] = field(default_factory=list)
    """From which day on the end was to be which, in the order in which it was ordered."""
    uses: list[tuple[int, int]] = field(default_factory=list)

    def day(self, day: int) -> tuple[str, int] | None:
        """The plan and quantity of a day; None when it is not active."""
        if self.has_ended(day):
            return None
        state: dict[str, object] = {"plan": "small", "quantity": 1, "paused": False}
        so_far = sorted((change for change in self.changes if change[0] <= day), key=lambda change: change[0])
        state |= {name: value for _, name, value in so_far}
        return None if state["paused"] else (str(state["plan"]), int(str(state["quantity"])))

    def has_ended(self, day: int) -> bool:
        """The newest order that speaks of a day decides: it speaks of all days from its own on, and of those after its end."""
        speaking = [end for on, end in reversed(self.ends) if day >= on or (end is not None and day >= end)]
        return bool(speaking) and speaking[0] is not None and day >= speaking[0]


def month_of(instant: datetime) -> tuple[datetime, datetime]:
    """The first day of a month, and of the next."""
    start = instant.replace(day=1)
    return start, (start + 32 * DAY).replace(day=1)


def owed_until(history: History, as_of: datetime) -> Fraction:
    """What must have been billed by `as_of`, exact: a day's share of the fee for each active day, and the usage."""
    total, day = Fraction(0), JAN_1
    last = month_of(as_of)[1] if history.timing == "advance" else month_of(as_of)[0]
    number = 0
    while day < last:
        start, end = month_of(day)
        state = history.day(number)
        if state is not None:
            total += FEES[state[0]] * state[1] / (end - start).days
        day, number = day + DAY, number + 1
    billed_to = (month_of(as_of)[0] - JAN_1).days
    return total + sum(CALL_MINOR * calls for on, calls in history.uses if on < billed_to and history.day(on) is not None)


def random_history(seed: int) -> tuple[History, datetime]:
    """A subscription of two years with changes, late usage, downtime and voids, billed to the end; and that end."""
    chance = random.Random(seed)
    timing = chance.choice(["advance", "arrears"])
    codes = {
        name: PlanFactory(prices=[recurring(unit_amount=str(Decimal(int(fee)) / 100), timing=timing), metered()]).code
        for name, fee in FEES.items()
    }
    history = History(SubscriptionFactory(plan=codes["small"]), timing)
    ref = history.subscription.ref
    today = 0
    while today < DAYS:
        now = JAN_1 + today * DAY
        for _ in range(chance.randrange(3)):
            # Never older than what late usage is looked for in.
            on = max(today - chance.randrange(20), 0)
            history.uses.append((on, calls := chance.randrange(1, 60)))
            use(history.subscription, str(calls), JAN_1 + on * DAY + timedelta(hours=5))
        if chance.random() < 0.3:
            amend(history, chance, codes, max(today + chance.randrange(-40, 20), 0))
        if chance.random() < 0.7:
            only = chance.choice([None, None, None, Scope.USAGE, Scope.RECURRING])
            generate_in(ref=ref, options=Options(as_of=now, only=only))
        if chance.random() < 0.1:
            void_the_last(ref)
        today += chance.randrange(1, 25)
    as_of = JAN_1 + DAYS * DAY
    generate_in(ref=ref, options=Options(as_of=as_of, late_lookback=100))
    return history, as_of


def amend(history: History, chance: random.Random, codes: dict[str, str], on: int) -> None:
    """Order a random change from that day on."""
    name = chance.choice(["plan", "quantity", "paused", "end"])
    if name == "plan":
        value: object = chance.choice(["small", "large"])
        wish = Wish(plan=codes[str(value)])
    elif name == "quantity":
        value = chance.randrange(1, 5)
        wish = Wish(quantities={"base": Decimal(value)})
    elif name == "paused":
        value = chance.random() < 0.5
        wish = Wish(paused=value)
    else:
        ends_on = None if chance.random() < 0.7 else max(on + chance.choice([0, 0, 30, -10]), 1)
        history.ends.append((on, ends_on))
        wish = Wish(sets_end=True, ends_at=None if ends_on is None else JAN_1 + ends_on * DAY)
    if name != "end":
        history.changes.append((on, name, value))
    subscriptions.amend_subscription(ref=history.subscription.ref, effective_at=JAN_1 + on * DAY, wish=wish)


def void_the_last(ref: str) -> None:
    """Void the newest invoice, unless it is paid or void already."""
    last = Invoice.objects.filter(subscription_ref=ref).order_by("-id").first()
    if last is not None:
        try:
            transition(last.pk, "void")
        except InvalidTransition:
            assert last.state in ("paid", "void")


@pytest.mark.parametrize("seed", spread(range(40), test=[2], check=[1]))
def test_the_claims_equal_the_invoiced_lines_and_the_amount_owed_by_the_calculator(seed: int) -> None:
    history, as_of = random_history(seed)
    ref = history.subscription.ref
    claims = Claim.objects.filter(subscription=history.subscription.pk, released_at=None)
    lines = Line.objects.filter(invoice__subscription_ref=ref).exclude(invoice__state="void").exclude(kind="carried")

    # The lines of invoices that are not void add up to the claims that are held: to the cent.
    on_invoices = lines.aggregate(net=Sum(F("amount_minor") - F("discount_minor")))["net"] or 0
    claimed = claims.aggregate(net=Sum("amount_minor"))["net"] or 0
    assert on_invoices == claimed

    # The claims add up to what was owed, but for half a cent of rounding per line.
    assert abs(claimed - owed_until(history, as_of)) <= Fraction(lines.count() + 1, 2), seed
    assert [one for one in consistency.check() if ref in one["what"]] == []

    # Nothing is left to do.
    assert generate_in(ref=ref, options=Options(as_of=as_of, late_lookback=100)).invoices == []
