"""The credits of a holder, lot by lot: what a spend takes, what is overage, and what comes back.

It decides as the ledger has to, from what was ordered and from its own lots. It knows no entries: what was used on overage stands
in `Use`, each with the instant at which it was used, and is usage of the subscription as events are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from math import floor
from typing import Any

from tests.billing.random_subscriptions.calculator.exact import FOREVER, INSTANT, Time, to_minor
from tests.billing.random_subscriptions.calculator.orders import Order, Stretch
from tests.billing.random_subscriptions.calculator.prices import Event, Plan, Price, cost_of, is_due_at_start

METER = "overage:credits"
REFUND_DAYS = 30
"""For how long credits of an expired lot can be spent once they have come back."""


@dataclass(eq=False)
class Lot:
    """Credits that were granted; those of plans and gifts are spent before those that were bought, if both expire together."""

    number: int
    left: int
    expires_at: datetime
    is_bought: bool
    rolls_over: bool = False

    @property
    def place(self) -> tuple[datetime, bool, int]:
        """In which order lots are spent."""
        return self.expires_at, self.is_bought, self.number


@dataclass(eq=False)
class Use:
    """Credits that a decision used on overage, with what of them holds still set aside; `amount` falls when some come back."""

    at: datetime
    amount: int
    held: int = 0


Part = tuple[Lot | Use, int]
"""Credits of a lot, or of a use of overage."""


@dataclass(eq=False)
class Budget:
    """The budget of the plan: what was used in each day, week or month, by its first day. Another window begins with nothing."""

    window: str
    limit: int
    used: dict[date, int] = field(default_factory=dict)

    def first_day(self, day: date) -> date:
        """The first day of the window of a day."""
        if self.window == "month":
            return day.replace(day=1)
        return day - timedelta(days=day.weekday() if self.window == "week" else 0)


@dataclass(eq=False)
class Hold:
    """Credits that are set aside until an instant; they count in a budget from the day on which they were."""

    parts: list[Part]
    expires_at: datetime
    budget: Budget | None = None
    first_day: date | None = None


@dataclass(eq=False)
class Spend:
    """What a spend or a capture took, in that order, and how much of it was refunded."""

    parts: list[Part]
    refunded: int = 0

    @property
    def left(self) -> int:
        return sum(amount for _, amount in self.parts) - self.refunded


@dataclass(frozen=True)
class AllowanceSpan:
    """A stretch of time in which a plan granted a number of credits a period, and kept at most `cap` of earlier ones.

    Without a cap they expire with their period.
    """

    plan: Plan
    amount: Fraction
    cap: int | None
    anchor: datetime
    start: datetime
    end: datetime

    def has_terms_of(self, other: AllowanceSpan) -> bool:
        return (self.amount, self.cap, self.anchor, *_way(self.plan)) == (
            other.amount,
            other.cap,
            other.anchor,
            *_way(other.plan),
        )


@dataclass(frozen=True)
class AllowancePart:
    """The part of a span inside one full period."""

    span: AllowanceSpan
    stretch: Stretch

    @property
    def terms(self) -> tuple[Any, ...]:
        return self.span.amount, self.span.cap, self.stretch.full

    def begins(self, parts: list[AllowancePart]) -> bool:
        """Whether no other part comes before it in its full period."""
        start = self.stretch.start
        return not any(one.stretch.start < start and one.stretch.end > self.stretch.full[0] for one in parts)

    def until(self, order: Order, instant: datetime) -> int:
        """Whole credits from the start of the part up to an instant of it."""
        if instant <= self.stretch.start:
            return 0
        stretch = Stretch(
            self.stretch.plan, self.stretch.quantity, self.stretch.anchor, self.stretch.start, instant, self.stretch.full,
            self.stretch.whole, self.stretch.is_first, self.stretch.is_last and instant == self.stretch.end,
        )  # fmt: skip
        units, of = order.share(_fee(self.span.plan), stretch)
        return floor(self.span.amount * Fraction(units, of))


@dataclass(eq=False)
class Granted:
    """An allowance that was granted for a stretch of time."""

    start: datetime
    end: datetime
    amount: int
    terms: tuple[Any, ...]
    lot: Lot | None


@dataclass(frozen=True)
class Terms:
    """The overage on the account."""

    limit: int | None
    plan: Plan
    anchor: datetime
    ends_at: datetime


@dataclass
class Account:
    """The credits of the holder of an order.

    Attributes:
        terms: of the overage, as they were set last; None before.
        counter: when the period of the overage ends, and what counts in it.
        uses: all that was ever used on overage.
        budget: of the plan; None if it has none.
    """

    order: Order
    now: datetime
    lots: list[Lot] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    allowances: list[Granted] = field(default_factory=list)
    terms: Terms | None = None
    counter: tuple[datetime, list[Use]] | None = None
    uses: list[Use] = field(default_factory=list)
    budget: Budget | None = None
    followed_at: datetime | None = None
    """When the terms of overage and budget were last set."""

    # What can be spent -------------------------------------------------------------------------------

    @property
    def available(self) -> int:
        return sum(lot.left for lot in self.lots)

    @property
    def limit(self) -> int | None:
        """How many credits of overage a period has; 0 without terms, None for any number."""
        return 0 if self.terms is None or self.terms.ends_at <= self.now else self.terms.limit

    @property
    def used(self) -> int:
        """What is used of the overage in the present period."""
        return sum(use.amount for use in self._counted())

    def left(self, wanted: int) -> int:
        """How many of the wanted credits the overage still has."""
        return wanted if self.limit is None else max(min(wanted, self.limit - self.used), 0)

    def room(self, wanted: int) -> int:
        """How many of the wanted credits the budget still has room for."""
        if self.budget is None:
            return wanted
        return max(min(wanted, self.budget.limit - self.used_of_budget), 0)

    @property
    def used_of_budget(self) -> int:
        """What is used of the budget in its present window."""
        return 0 if self.budget is None else self.budget.used.get(self.budget.first_day(self._today), 0)

    @property
    def _today(self) -> date:
        return self.now.astimezone(self.order.zone).date()

    def _count_in_budget(self, amount: int) -> None:
        if self.budget is not None:
            self.budget.used[self.budget.first_day(self._today)] = self.used_of_budget + amount

    def _counted(self) -> list[Use]:
        return [] if self.counter is None or self.now >= self.counter[0] else self.counter[1]

    # The clock and orders ----------------------------------------------------------------------------

    def move(self, now: datetime) -> None:
        """Go on to an instant, from one at which an allowance begins or is cut to the next: the account knows them all."""
        for edge in sorted({edge for edge in self._edges(now) if self.now < edge < now}):
            self._expire(edge)
            self.look()
        self._expire(now)
        self.look()

    def _edges(self, now: datetime) -> list[datetime]:
        return [edge for part in self._parts(now) for edge in (part.stretch.start, part.stretch.end)]

    def _expire(self, now: datetime) -> None:
        """Let what has expired be gone."""
        for hold in [hold for hold in self.holds if hold.expires_at <= now]:
            self.now = max(self.now, hold.expires_at)
            self.release(hold)
        self.now = now
        for lot in self.lots:
            lot.left = 0 if lot.expires_at <= now else lot.left

    def look(self) -> None:
        """Give back of allowances what is beyond its part, and grant what is missing."""
        parts = [part for part in self._parts() if part.stretch.start <= self.now]
        for granted in sorted(self.allowances, key=lambda one: one.start):
            same = [one for one in parts if one.stretch.start <= granted.start < one.stretch.end and one.terms == granted.terms]
            if not same:
                self._cut(granted, granted.start, 0)
            elif (end := same[0].stretch.end) < granted.end and end <= self.now:
                part = same[0]
                kept = part.until(self.order, end) - part.until(self.order, granted.start)
                self._cut(granted, end, min(granted.amount, kept))
        self.grant_parts(parts)

    def grant_parts(self, parts: list[AllowancePart]) -> None:
        """Grant what parts of periods have not been granted."""
        for part in parts:
            start = part.stretch.start
            known = [one for one in self.allowances if start <= one.start < part.stretch.end and one.terms == part.terms]
            start = max([start, *(one.end for one in known)])
            if start >= part.stretch.end:
                continue
            amount = part.until(self.order, part.stretch.end) - part.until(self.order, start)
            cap = part.span.cap
            if cap is not None and start == part.stretch.start and part.begins(parts):
                self._roll_over(cap)
            expires_at = part.stretch.full[1] if cap is None else FOREVER
            lot = None
            if amount and expires_at > self.now:
                lot = self.grant(amount, expires_at, is_bought=False)
                lot.rolls_over = cap is not None
            self.allowances.append(Granted(start, part.stretch.end, amount, part.terms, lot))

    def _roll_over(self, cap: int) -> None:
        """Take back what is unspent beyond a cap, the oldest first; what holds set aside counts, and stays."""
        own = [lot for lot in self.lots if lot.rolls_over]
        held = sum(part for hold in self.holds for of, part in hold.parts if isinstance(of, Lot) and of.rolls_over)
        excess = sum(lot.left for lot in own) + held - cap
        for lot in own:
            back = max(min(lot.left, excess), 0)
            lot.left -= back
            excess -= back

    def needs_run(self, now: datetime) -> bool:
        """Whether overage or a budget begins, changes or ends by then, which the account does not know without a run."""
        if self.followed_at is None:
            return True
        if any(plan.budget for plan in _plans(self.order)):
            changes = {*self.order._changes(), *self.order._ends()}
            if any(self.followed_at < change <= now for change in changes):
                return True
        seats = [(plan.overage or {}).get("per_quantity_of") for plan in _plans(self.order)]
        spans = [span for key in ("overage", *filter(None, seats)) for span in self.order.spans(key)]
        return any(self.followed_at < edge <= now for span in spans for edge in (span.start, span.end))

    def follow(self) -> None:
        """Set the terms of the overage and the budget of the plan that counts now, or end them."""
        self.followed_at = self.now
        self._follow_budget()
        span = next((one for one in self.order.spans("overage") if one.start <= self.now < one.end), None)
        if span is None:
            if self.terms is not None and self.terms.ends_at > self.now:
                self.terms = Terms(self.terms.limit, self.terms.plan, self.terms.anchor, self.now)
            return
        assert span.plan.overage is not None
        price = span.plan.price("overage")
        assert price is not None
        limit, money = span.plan.overage.get("limit_credits"), span.plan.overage.get("limit_minor")
        if (key := span.plan.overage.get("per_quantity_of")) is not None:
            units = [one.quantity for one in self.order.spans(key) if one.start <= self.now < one.end]
            limit, money = (None if each is None else floor(each * sum(units, Fraction(0))) for each in (limit, money))
        if money is not None:
            limit = affordable(price, money, span.plan.currency)
        follows = any(one.start == span.end for one in self.order.spans("overage"))
        self.terms = Terms(limit, span.plan, span.anchor, FOREVER if follows else span.end)
        self._count()

    def _follow_budget(self) -> None:
        """Set the budget of the plan, which holds in a pause too, or end it with the subscription."""
        begun = [state for state in self.order.states() if state.start <= self.now]
        terms = begun[-1].plan.budget if begun and not self.order._is_ended(self.now) else None
        if terms is None:
            self.budget = None
            return
        key = terms["per_quantity_of"]
        limit = floor(terms["limit"] * (1 if key is None else begun[-1].quantities.get(key, Fraction(1))))
        if self.budget is None or self.budget.window != terms["window"]:
            self.budget = Budget(terms["window"], limit)
        self.budget.limit = limit

    def _count(self) -> None:
        """Begin to count again where the period of the terms is another one."""
        assert self.terms is not None
        _, until = next(self.order.periods(self.terms.plan, self.terms.anchor, self.now))
        if self.counter is None or self.counter[0] != until or self.now >= self.counter[0]:
            self.counter = until, []

    # What is done ------------------------------------------------------------------------------------

    def grant(self, amount: int, expires_at: datetime = FOREVER, *, is_bought: bool = True) -> Lot:
        lot = Lot(len(self.lots), amount, expires_at, is_bought)
        self.lots.append(lot)
        return lot

    def spend(self, amount: int, *, partial: bool = False) -> Spend | None:
        """Take credits, lots first; None: it is refused, and nothing is taken."""
        if partial:
            amount = min(self.room(amount), self.available + self.left(amount)) or amount
        parts = self._take(amount)
        return None if parts is None else Spend(parts)

    def hold(self, amount: int, expires_at: datetime) -> Hold | None:
        """Set credits aside; None: it is refused."""
        parts = self._take(amount)
        if parts is None:
            return None
        for of, part in parts:
            if isinstance(of, Use):
                of.held += part
        first_day = None if self.budget is None else self.budget.first_day(self._today)
        self.holds.append(Hold(parts, expires_at, self.budget, first_day))
        return self.holds[-1]

    def capture(self, hold: Hold, amount: int) -> Spend | None:
        """Spend what is held, and more if it is there; None: it is refused. The rest is released."""
        held = sum(part for _, part in hold.parts)
        more = max(amount - held, 0)
        if more > min(self.available + self.left(more), self.room(more)):
            return None
        taken: list[Part] = []
        rest: list[Part] = []
        for of, part in hold.parts:
            share = min(part, amount - sum(one for _, one in taken))
            taken += [(of, share)] if share else []
            rest += [(of, part - share)] if share < part else []
            if isinstance(of, Use):
                of.held -= share
        hold.parts = rest
        self.release(hold)
        return Spend(taken + (self._take(amount - held) or [] if amount > held else []))

    def release(self, hold: Hold) -> None:
        self.holds.remove(hold)
        if self.budget is not None and self.budget is hold.budget and self.budget.first_day(self._today) == hold.first_day:
            self._count_in_budget(-sum(part for _, part in hold.parts))
        for of, part in hold.parts:
            if isinstance(of, Use):
                of.held -= part
                of.amount -= part
            elif of.expires_at > self.now:
                of.left += part

    def refund(self, spend: Spend, amount: int) -> None:
        """Give credits back, what was taken last first; those of an expired lot are a new one for a while."""
        skip, spend.refunded = spend.refunded, spend.refunded + amount
        for of, part in reversed(spend.parts):
            skipped = min(skip, part)
            skip -= skipped
            back = min(amount, part - skipped)
            amount -= back
            if isinstance(of, Use):
                of.amount -= back
            elif back and of.expires_at <= self.now:
                self.grant(back, self.now + timedelta(days=REFUND_DAYS), is_bought=of.is_bought)
            else:
                of.left += back

    def _take(self, amount: int) -> list[Part] | None:
        missing = max(amount - self.available, 0)
        if missing > self.left(missing) or amount > self.room(amount):
            return None
        self._count_in_budget(amount)
        parts: list[Part] = []
        wanted = amount
        for lot in sorted(self.lots, key=lambda one: one.place):
            part = min(lot.left, wanted)
            wanted -= part
            lot.left -= part
            parts += [(lot, part)] if part else []
        if wanted:
            self._count()
            assert self.counter is not None
            use = Use(self.now, wanted)
            self.uses.append(use)
            self.counter[1].append(use)
            parts.append((use, wanted))
        return parts

    @property
    def events(self) -> list[Event]:
        """What was used on overage, as usage of the order."""
        net = [(use.at, use.amount - use.held) for use in self.uses]
        return [Event(METER, Fraction(amount), at, {}) for at, amount in net if amount]

    # Allowances --------------------------------------------------------------------------------------

    def _parts(self, until: datetime | None = None) -> list[AllowancePart]:
        return list(_parts(self.order, self.now if until is None else until))

    def _cut(self, granted: Granted, end: datetime, amount: int) -> None:
        """An allowance is for less time: what it keeps, and the rest goes back as far as it is unspent."""
        if granted.lot is not None:
            granted.lot.left -= min(granted.lot.left, granted.amount - amount)
        granted.end, granted.amount = end, amount
        if end <= granted.start:
            self.allowances.remove(granted)


def affordable(price: Price, most: int, currency: str) -> int | None:
    """How many credits cost no more than an amount, one after the other; None: any number of them does."""
    if to_minor(cost_of(price, Fraction(10**12)), currency) <= most:
        return None
    count = 0
    while to_minor(cost_of(price, Fraction(count + 1)), currency) <= most:
        count += 1
    return count


def _plans(order: Order) -> list[Plan]:
    return [state.plan for state in order.states()]


def _fee(plan: Plan) -> Price:
    """How a part of a period counts: as the plan's fees do, or by days if they differ."""
    ways = {
        (price.get("proration", "day"), bool(price.get("bill_last_day"))) for price in plan.prices if price["kind"] == "recurring"
    }
    way, last = ways.pop() if len(ways) == 1 else ("day", False)
    return {"key": "allowance", "proration": way, "bill_last_day": last}


def _way(plan: Plan) -> tuple[Any, ...]:
    fee = _fee(plan)
    return (*plan.every("allowance"), fee["proration"], fee["bill_last_day"])


def _spans(order: Order) -> list[AllowanceSpan]:
    """When a plan granted credits, and how many a period; as long as they can be."""
    changes = [*order._changes(), FOREVER]
    found: list[AllowanceSpan] = []
    for state in order.states():
        terms = state.plan.allowance
        if terms is None:
            continue
        end = next(change for change in changes if change > state.start)
        if order._is_skipped(end):
            ahead = [price for price in state.plan.prices if price["kind"] == "recurring" and is_due_at_start(price)]
            end = max([end, *(next(order.periods(state.plan, state.anchor, end - INSTANT, price["key"]))[1] for price in ahead)])
        start = state.start if terms.get("in_trial") else max(state.start, order.begins)
        key = terms.get("per_quantity_of")
        units = Fraction(1) if key is None else state.quantities.get(key, Fraction(1))
        amount = Fraction(terms["amount"]) * units
        cap = None if terms.get("rollover_cap") is None else floor(terms["rollover_cap"] * units)
        span = AllowanceSpan(state.plan, amount, cap, state.anchor, start, end)
        if not amount or start >= end:
            continue
        if found and found[-1].end > start:
            start = found[-1].end
        if start >= end:
            continue
        span = AllowanceSpan(state.plan, amount, cap, state.anchor, start, end)
        if found and found[-1].end == start and found[-1].has_terms_of(span):
            before = found.pop()
            span = AllowanceSpan(before.plan, amount, cap, state.anchor, before.start, end)
        found.append(span)
    return found


def _parts(order: Order, until: datetime) -> Iterator[AllowancePart]:
    """The spans cut at every boundary, those that start by an instant."""
    earlier: list[tuple[AllowanceSpan, Time]] = []
    ends = order._ends()
    for span in _spans(order):
        for full in order.periods(span.plan, span.anchor, span.start, "allowance"):
            start, end = max(span.start, full[0]), min(span.end, full[1])
            if start > until or start >= end:
                break
            is_first = not any(full == other and span.anchor == before.anchor for before, other in earlier)
            earlier.append((span, full))
            whole = next(order.periods(span.plan, span.anchor, start))
            is_last = end == span.end and end in ends
            yield AllowancePart(span, Stretch(span.plan, span.amount, span.anchor, start, end, full, whole, is_first, is_last))


def on_overage(parts: list[Part]) -> int:
    """How many credits of the parts are of overage."""
    return sum(amount for of, amount in parts if isinstance(of, Use))


def cost_in_minor(price: Price, credits_used: int, currency: str) -> int:
    """What a number of credits costs, in minor units."""
    return to_minor(cost_of(price, Fraction(credits_used)), currency)
