"""A second opinion on invoices, slow and plain: days counted one by one, exact fractions, everything looked at every time.

Written from the billing conventions alone. It shares no line with the product: no claims table, no cursor, no SQL, no look-up of
where a period lies. It is fed what a subscription was ordered, amended and used, and says what each run has to put on a document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

MONTHS = {"month": 1, "quarter": 3, "half_year": 6, "year": 12}
DAYS = {"day": 1, "week": 7}
DECIMALS = {"EUR": 2, "USD": 2, "JPY": 0, "BHD": 3}
ONE_DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)
PERCENTAGES = ("percentage", "graduated_percentage")


# Money -----------------------------------------------------------------------------------------------


def half_up(exact: Fraction) -> int:
    """The nearest whole number; a half away from zero."""
    sign = -1 if exact < 0 else 1
    whole = abs(exact) // 1
    return int(sign * (whole + (1 if abs(exact) - whole >= Fraction(1, 2) else 0)))


def to_minor(exact: Fraction, currency: str) -> int:
    """Major units, rounded once to minor ones."""
    for _ in range(DECIMALS[currency]):
        exact *= 10
    return half_up(exact)


def number(text: Any) -> Fraction:
    """A number of a plan; zero where it has none."""
    return Fraction(0) if text is None else Fraction(str(text))


def split(amount: int, weights: list[int]) -> list[int]:
    """Give a cent at a time to the part furthest below its share, the first of equals."""
    total = sum(weights)
    parts = [int(Fraction(amount * weight, total)) if total else 0 for weight in weights]
    behind = sorted(range(len(weights)), key=lambda i: (parts[i] - Fraction(amount * weights[i], total), i)) if total else []
    for i in behind[: amount - sum(parts)]:
        parts[i] += 1
    return parts


# Time ------------------------------------------------------------------------------------------------


@lru_cache(maxsize=100_000)
def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """What the clock on the wall means: the first of two, and forward by the gap where there is none."""
    offsets = {zone.utcoffset((local + days).replace(tzinfo=zone)) for days in (-ONE_DAY, ONE_DAY)}
    meant = sorted((local - (offset or timedelta())).replace(tzinfo=UTC) for offset in offsets)
    shown = [one for one in meant if one.astimezone(zone).replace(tzinfo=None) == local]
    if shown:
        return shown[0]
    before = zone.utcoffset((local - ONE_DAY).replace(tzinfo=zone)) or timedelta()
    return (local - before).replace(tzinfo=UTC)


@lru_cache(maxsize=100_000)
def boundary(anchor: datetime, zone: ZoneInfo, unit: str, count: int, n: int) -> datetime:
    """Boundary n, counted from the anchor month by month or day by day."""
    step = 1 if n >= 0 else -1
    if unit in DAYS:
        local = anchor
        for _ in range(abs(n) * count * DAYS[unit]):
            local += step * ONE_DAY
        return instant_of(local, zone)
    year, month = anchor.year, anchor.month
    for _ in range(abs(n) * count * MONTHS[unit]):
        month += step
        if month in (0, 13):
            year, month = year + step, 12 if month == 0 else 1
    day = anchor.day
    while True:
        try:
            return instant_of(anchor.replace(year=year, month=month, day=day), zone)
        except ValueError:
            day -= 1


@lru_cache(maxsize=200_000)
def local_day(instant: datetime, zone: ZoneInfo) -> date:
    """The calendar day in the billing zone."""
    return instant.astimezone(zone).date()


# What was ordered ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """A version of a plan; prices as the REST contract writes them."""

    code: str
    currency: str
    unit: str
    count: int
    prices: tuple[dict[str, Any], ...]
    minimum: str | None = None
    maximum: str | None = None

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def price(self, key: str) -> dict[str, Any] | None:
        """The price of a key, if there is one."""
        return next((one for one in self.prices if one["key"] == key), None)


@dataclass(frozen=True)
class Amendment:
    """One wish; only what is given changes."""

    effective_at: datetime
    plan: Plan | None = None
    quantities: dict[str, Fraction] = field(default_factory=dict)
    sets_end: bool = False
    ends_at: datetime | None = None
    paused: bool | None = None


@dataclass(frozen=True)
class Stretch:
    """That a key counted at one price and quantity in `[start, end)`, inside one full period."""

    plan: Plan
    quantity: Fraction
    start: datetime
    end: datetime
    full_start: datetime
    full_end: datetime
    index: int
    is_first: bool
    """Nothing of the same full period lies before it."""
    is_last: bool
    """It ends because the subscription does."""


@dataclass(frozen=True)
class Event:
    """Something that was used."""

    meter: str
    value: Fraction
    occurred_at: datetime
    properties: dict[str, str]


# What was billed -------------------------------------------------------------------------------------


@dataclass(eq=False)
class Line:
    """A line of a document."""

    kind: str
    key: str
    amount: int
    quantity: Fraction
    category: str
    rate: Fraction
    due: datetime
    start: datetime | None = None
    end: datetime | None = None
    plan: str = ""
    coupons: bool = True
    discount: int = 0
    least: int | None = None
    most: int | None = None
    earlier: list[Billed] = field(default_factory=list)
    after_coupons: int = 0

    def within(self, amount: int) -> int:
        """As much of an amount as the price's limits allow."""
        if self.most is not None:
            amount = min(amount, self.most)
        return amount if self.least is None else max(amount, self.least)

    @property
    def net(self) -> int:
        """After its discounts."""
        return self.amount - self.discount

    def figures(self) -> tuple[Any, ...]:
        """What has to be the same on the invoice."""
        return (self.kind, self.key, self.start, self.end, self.quantity, self.amount, self.discount, self.category, self.rate)


@dataclass(eq=False)
class Billed:
    """A stretch that is on an invoice, and what of its line is left."""

    kind: str
    key: str
    plan: Plan
    quantity: Fraction
    start: datetime
    end: datetime
    left: int
    document: Document | None
    made_by: Document | None
    full_start: datetime | None = None
    full_end: datetime | None = None
    units: int = 0
    of: int = 1
    line_units: int = 0
    line_amount: int = 0
    line_discount: int = 0
    credited: int = 0
    usage: Used | None = None
    gross: int = 0
    after_coupons: int = 0
    freed_by: Document | None = None


@dataclass(eq=False)
class Document:
    """An invoice in figures."""

    currency: str
    lines: list[Line]
    taxes: list[tuple[str, Fraction, int, int]]
    subtotal: int
    discount: int
    tax: int
    total: int
    own_note: int = 0
    notes: int = 0
    credits: int = 0
    due: int = 0
    state: str = "draft"
    spent: int = 0
    coupon_uses: list[tuple[Coupon, int, int]] = field(default_factory=list)
    note_uses: list[tuple[Note, int]] = field(default_factory=list)

    @property
    def is_nothing(self) -> bool:
        """It has a number, and nobody had to pay it."""
        return self.state == "paid" and self.total == 0


@dataclass(eq=False)
class Note:
    """A credit note with something left on it."""

    document: Document
    currency: str
    left: int


@dataclass(eq=False)
class Coupon:
    """A discount in a customer's hands."""

    code: str
    kind: str
    value: Fraction
    currency: str
    duration: str
    periods: int | None
    prices: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    taken: int = 0
    used: int = 0


@dataclass
class Customer:
    """Whose coupons lower, and whose credits pay."""

    currency: str
    coupons: list[Coupon] = field(default_factory=list)
    credits: int = 0
    unit_value: Fraction | None = None


@dataclass(frozen=True)
class Used:
    """What a window came to: the quantity, and for percentages how many events and what of them was free."""

    quantity: Fraction
    events: int = 0
    free: Fraction = Fraction(0)
    free_events: int = 0


@dataclass(eq=False)
class OneOff:
    """A one-off charge, and the document that it is on."""

    amount: int
    rate: Fraction
    recorded_at: datetime
    document: Document | None = None


class Subscription:
    """One subscription, from its order to its last invoice."""

    def __init__(
        self, *, customer: Customer, plan: Plan, started_at: datetime, anchor_at: datetime, zone: ZoneInfo,
        quantities: dict[str, Fraction], trial_end: datetime | None = None, ends_at: datetime | None = None,
    ) -> None:  # fmt: skip
        self.customer = customer
        self.zone = zone
        self.anchor = anchor_at.astimezone(zone).replace(tzinfo=None)
        self.begins = max(started_at, trial_end or started_at)
        self.amendments = [Amendment(started_at, plan, quantities, ends_at is not None, ends_at)]
        self.events: list[Event] = []
        self.one_offs: list[OneOff] = []
        self.billed: list[Billed] = []
        self.documents: list[Document] = []
        self.notes: list[Note] = []
        self.keys: list[str] = []
        self._learn_keys()

    # Intent ------------------------------------------------------------------------------------------

    def amend(self, amendment: Amendment) -> None:
        """Take a wish in."""
        self.amendments.append(amendment)
        self._learn_keys()

    def charge(self, amount: int, rate: Fraction) -> None:
        """A one-off charge for the next invoice. It is due now, by the clock of the machine, whatever time the simulation has."""
        self.one_offs.append(OneOff(amount, rate, datetime.now(UTC)))

    def _learn_keys(self) -> None:
        known = {price["key"] for _, plan, _ in self._states() for price in plan.prices}
        self.keys += sorted(known - set(self.keys))

    def _in_order(self) -> list[Amendment]:
        return sorted(self.amendments, key=lambda one: one.effective_at)

    def is_ended(self, instant: datetime) -> bool:
        """As the newest wish that speaks of that instant has it: of all from its own on, and of all after its end."""
        for one in reversed(self.amendments):
            if one.sets_end and one.ends_at is not None and instant >= one.ends_at:
                return True
            if one.sets_end and instant >= one.effective_at:
                return False
        return False

    def ends(self) -> list[datetime]:
        """The instants at which the subscription ceases to be active, though it was until then."""
        asked = {one.ends_at for one in self.amendments if one.sets_end and one.ends_at is not None}
        return sorted(one for one in asked if self.is_ended(one) and not self.is_ended(one - INSTANT))

    def _states(self) -> list[tuple[datetime, Plan, dict[str, Fraction]]]:
        """Every instant from which on something else counted, the pauses included; before trial and end are looked at."""
        found = []
        for instant in self._changes():
            plan, quantities, paused = self.amendments[0].plan, dict[str, Fraction](), False
            for one in self._in_order():
                if one.effective_at <= instant:
                    plan = one.plan or plan
                    quantities |= one.quantities
                    paused = paused if one.paused is None else one.paused
            assert plan is not None
            if not paused and not self.is_ended(instant):
                found.append((instant, plan, quantities))
        return found

    def _changes(self) -> list[datetime]:
        """Every instant at which something may be otherwise than before."""
        return sorted({one.effective_at for one in self.amendments}.union(self.ends()))

    def spans(self, key: str) -> list[tuple[Plan, Fraction, datetime, datetime | None]]:
        """In which stretches a key counted, at which plan and quantity; as long as they can be."""
        changes = self._changes()
        spans: list[tuple[Plan, Fraction, datetime, datetime | None]] = []
        for start, plan, quantities in self._states():
            stop = next((one for one in changes if one > start), None)
            if key and plan.price(key) is None:
                continue
            quantity = quantities.get(key, Fraction(1))
            if spans and spans[-1][:2] == (plan, quantity) and spans[-1][3] == start:
                spans[-1] = (plan, quantity, spans[-1][2], stop)
            else:
                spans.append((plan, quantity, start, stop))
        clipped = [(plan, quantity, max(start, self.begins), stop) for plan, quantity, start, stop in spans]
        return [one for one in clipped if one[3] is None or one[3] > one[2]]

    def stretches(self, key: str, until: datetime) -> list[Stretch]:
        """The spans of a key cut at every boundary, those that start up to `until`."""
        found: list[Stretch] = []
        ends = self.ends()
        for plan, quantity, start, stop in self.spans(key):
            for index, full_start, full_end in self._periods(plan, start):
                first, last = max(start, full_start), full_end if stop is None else min(full_end, stop)
                if first > until or first >= last:
                    break
                is_first = not any((one.full_start, one.full_end) == (full_start, full_end) for one in found)
                is_last = last == stop and stop in ends
                found.append(Stretch(plan, quantity, first, last, full_start, full_end, index, is_first, is_last))
        return found

    def _periods(self, plan: Plan, start: datetime) -> Iterator[tuple[int, datetime, datetime]]:
        n = 0
        while self._boundary(plan, n) > start:
            n -= 1
        while self._boundary(plan, n + 1) <= start:
            n += 1
        while True:
            yield n, self._boundary(plan, n), self._boundary(plan, n + 1)
            n += 1

    def _boundary(self, plan: Plan, n: int) -> datetime:
        return boundary(self.anchor, self.zone, plan.unit, plan.count, n)

    # Days --------------------------------------------------------------------------------------------

    def measured(self, price: dict[str, Any], plan: Plan, full: tuple[datetime, datetime], start: datetime, end: datetime, *,
                 last: bool) -> tuple[int, int]:  # fmt: skip
        """How much of a full period `[start, end)` is, in the units that the price is prorated by."""
        mode = price.get("proration", "day")
        bills_last_day = last and price.get("bill_last_day", False)
        if mode == "second":
            return (end - start) // INSTANT, (full[1] - full[0]) // INSTANT
        first_day, end_day = local_day(start, self.zone), local_day(end, self.zone)
        if bills_last_day and local_day(end - INSTANT, self.zone) == end_day:
            end_day += ONE_DAY
        if mode == "fixed_30" and plan.unit in MONTHS:
            return self._days_360(plan, full, first_day, end_day)
        used = of = 0
        day = local_day(full[0], self.zone)
        while day < local_day(full[1], self.zone):
            of += 1
            used += first_day <= day < end_day
            day += ONE_DAY
        return used, of

    def _days_360(self, plan: Plan, full: tuple[datetime, datetime], first_day: date, end_day: date) -> tuple[int, int]:
        """Every month has 30 days: the 31st is the 30th, and a boundary is on the anchor's day also where a month is short."""
        of = 30 * MONTHS[plan.unit] * plan.count
        begin = full[0].astimezone(self.zone)
        origin = 360 * begin.year + 30 * begin.month + min(self.anchor.day, 30)

        def reached(day: date) -> int:
            if day >= local_day(full[1], self.zone):
                return of
            return min(max(360 * day.year + 30 * day.month + min(day.day, 30) - origin, 0), of)

        return reached(end_day) - reached(first_day), of

    # Usage -------------------------------------------------------------------------------------------

    def used(self, price: dict[str, Any], one: Stretch) -> Used:
        """What was used in a stretch, as the price sees it."""
        chosen = [e for e in sorted(self.events, key=lambda e: e.occurred_at) if self._counts(price, e)]
        inside = [e for e in chosen if one.start <= e.occurred_at < one.end]
        values = [e.value for e in inside]
        if price["model"] in PERCENTAGES:
            return _free_part(price, values)
        how = price["aggregation"]
        if how == "count":
            return Used(Fraction(len(inside)), len(inside))
        if how == "sum":
            return Used(sum(values, Fraction(0)), len(inside))
        if how == "max":
            return Used(max(values, default=Fraction(0)), len(inside))
        if how == "last":
            return Used(values[-1] if values else Fraction(0), len(inside))
        if how == "unique":
            return Used(Fraction(len({e.properties[price["property"]] for e in inside})), len(inside))
        held = next((e.value for e in reversed(chosen) if e.occurred_at < one.start), Fraction(0))
        weighted, since = Fraction(0), one.start
        for event in inside:
            weighted += held * ((event.occurred_at - since) // INSTANT)
            held, since = event.value, event.occurred_at
        weighted += held * ((one.end - since) // INSTANT)
        return Used(weighted / ((one.full_end - one.full_start) // INSTANT), len(inside))

    def _counts(self, price: dict[str, Any], event: Event) -> bool:
        if event.meter != price["meter"]:
            return False
        return all(event.properties.get(name) in values for name, values in price.get("filters", {}).items())

    # A run -------------------------------------------------------------------------------------------

    def bill(self, as_of: datetime, *, only: str | None = None, finalize: bool = True, lookback: int = 2) -> list[Document]:
        """What a run has to put on document, one per currency; it counts as billed from here on."""
        work = _Work(self, as_of)
        if only != "usage":
            for key in self.keys:
                self._recurring(work, key)
        if only != "recurring":
            for key in self.keys:
                self._usage(work, key)
            self._look_back(work, lookback)
        if only != "usage":
            self._one_offs(work)
        documents = []
        bounded = {plan.currency for plan, *_ in self.spans("") if plan.minimum or plan.maximum}
        for currency in sorted(work.currencies() | bounded):
            document = self._document(work, currency, [line for c, line in work.lines if c == currency])
            if document is not None:
                documents.append(document)
        work.note_what_is_billed({document.currency: document for document in documents})
        self.documents += documents
        if finalize:
            for document in documents:
                self.finalize(document)
        return documents

    def live(self, kind: str, key: str) -> list[Billed]:
        """What is billed of a key, oldest first."""
        return sorted((b for b in self.billed if (b.kind, b.key) == (kind, key)), key=lambda b: b.start)

    def _recurring(self, work: _Work, key: str) -> None:
        billed = self.live("recurring", key)
        until = max([work.as_of, *(one.end for one in billed)])
        wanted = [s for s in self.stretches(key, until) if _price_of(s, key)["kind"] == "recurring"]
        for one in billed:
            self._give_back(work, one, wanted)
        for stretch in wanted:
            price = _price_of(stretch, key)
            if work.as_of >= (stretch.start if price.get("timing", "advance") == "advance" else stretch.end):
                self._charge(work, key, stretch, billed)

    def _give_back(self, work: _Work, one: Billed, wanted: list[Stretch]) -> None:
        """Give back what is not used, each stretch once it is not used, one after the other."""
        spans = self.spans(one.key)
        same = [(start, stop or one.end) for plan, quantity, start, stop in spans if (plan, quantity) == (one.plan, one.quantity)]
        changes = [instant for _, _, start, stop in spans for instant in (start, stop) if instant is not None]
        unused = _split_at(_without([(one.start, one.end)], same), changes)
        given, left = [], [one]
        for start, end in unused:
            if start <= work.as_of:
                of = next(rest for rest in left if rest.start <= start and end <= rest.end)
                back, rests = self._without_stretch(of, start, end, wanted)
                given.append((start, end, back))
                left = [rest for rest in left if rest is not of] + rests
        if given:
            work.give_back(one, given, sorted(left, key=lambda rest: rest.start))

    def _without_stretch(self, one: Billed, start: datetime, end: datetime, wanted: list[Stretch]) -> tuple[int, list[Billed]]:
        """What a stretch of what was billed is worth, and what is left without it."""
        price = one.plan.price(one.key)
        assert price is not None
        assert one.full_start is not None
        assert one.full_end is not None
        full = (one.full_start, one.full_end)
        stops = [s.end for s in wanted if s.is_last and (s.plan, s.quantity) == (one.plan, one.quantity)]
        kept = [
            (first, last, self.measured(price, one.plan, full, first, last, last=last in stops)[0])
            for first, last in _without([(one.start, one.end)], [(start, end)])
        ]
        if price.get("proration") == "none":
            # The whole stays charged as long as any of it is used.
            kept = [(first, last, 0 if position else one.units) for position, (first, last, _) in enumerate(kept)]
        total = sum(units for _, _, units in kept)
        back = self._worth(one, price, one.units - total)
        left = one.left - back
        parts = [left * units // max(total, 1) for _, _, units in kept]
        parts = [*parts[:-1], left - sum(parts[:-1])] if parts else []
        return back, [
            replace(one, start=first, end=last, units=units, left=part, credited=one.credited + back, freed_by=None)
            for (first, last, units), part in zip(kept, parts, strict=True)
        ]

    def _worth(self, one: Billed, price: dict[str, Any], unused: int) -> int:
        """What the unused units of a line are worth: their price less their discount, and never more than is left."""
        if unused <= 0:
            return 0
        left = max(one.left, 0)
        if unused >= one.units:
            return left
        currency = one.plan.currency
        discount = Fraction(one.line_discount, 10 ** DECIMALS[currency]) * Fraction(unused, one.line_units)
        worth = to_minor(cost_of(price, one.quantity) * Fraction(unused, one.of) - discount, currency)
        of_line = max(one.line_amount - one.line_discount - one.credited, 0)
        return min(max(worth, 0), of_line, left)

    def _charge(self, work: _Work, key: str, stretch: Stretch, billed: list[Billed]) -> None:
        price = _price_of(stretch, key)
        full = (stretch.full_start, stretch.full_end)
        same = [one for one in billed if (one.plan, one.quantity) == (stretch.plan, stretch.quantity)]
        before = sum(one.units for one in same if (one.full_start, one.full_end) == full)
        exact = cost_of(price, stretch.quantity)
        for start, end in _without([(stretch.start, stretch.end)], [(one.start, one.end) for one in same]):
            is_last = stretch.is_last and end == stretch.end
            units, of = self.measured(price, stretch.plan, full, start, end, last=is_last)
            if price.get("proration") == "none":
                units, of = int(stretch.is_first and start == stretch.start), 1
            amount = to_minor(exact * Fraction(before + units, of), stretch.plan.currency)
            amount -= to_minor(exact * Fraction(before, of), stretch.plan.currency)
            before += units
            piece = replace(stretch, start=start, end=end)
            work.charge(key, piece, amount, units, of)

    def _usage(self, work: _Work, key: str) -> None:
        billed = self.live("usage", key)
        work.last_billed[key] = self._full_periods(billed)
        until = max([work.as_of, *(one.end for one in billed)])
        kept: list[Billed] = []
        for stretch in self.stretches(key, until):
            price = _price_of(stretch, key)
            if price["kind"] != "usage":
                continue
            inside = [one for one in billed if one.plan is stretch.plan and stretch.start <= one.start and one.end <= stretch.end]
            kept += inside
            if [(one.start, one.end) for one in inside] == [(stretch.start, stretch.end)]:
                work.standing.append((key, stretch, inside[0]))
            elif work.as_of >= stretch.end:
                work.use(key, stretch, self.used(price, stretch), inside)
        for one in billed:
            if one not in kept and self._differs_by(one, work.as_of):
                work.give_back(one, [(one.start, one.end, max(one.left, 0))], [])

    def _differs_by(self, one: Billed, as_of: datetime) -> bool:
        """True once usage that was billed belongs to another price, or to none."""
        same = [(start, stop or one.end) for plan, _, start, stop in self.spans(one.key) if plan is one.plan]
        other = _without([(one.start, one.end)], same)
        return not other or other[0][0] <= as_of

    def _full_periods(self, billed: list[Billed]) -> list[tuple[datetime, datetime]]:
        """The full periods of which something is billed, in the order of the last that was billed of each."""
        found: list[tuple[datetime, datetime]] = []
        for one in billed:
            _, start, end = next(self._periods(one.plan, one.start))
            found = [full for full in found if full != (start, end)] + [(start, end)]
        return found

    def _look_back(self, work: _Work, lookback: int) -> None:
        """Late usage in the last billed periods of each price."""
        for key in self.keys:
            standing = sorted((s for s in work.standing if s[0] == key), key=lambda s: s[1].start)
            recent = work.last_billed.get(key, [])[-lookback:] if lookback else []
            for _, stretch, one in standing:
                if (stretch.full_start, stretch.full_end) in recent and self._still_looked_at(key, stretch, work.as_of):
                    used = self.used(_price_of(stretch, key), stretch)
                    if used != one.usage:
                        work.use(key, stretch, used, [one])

    def _still_looked_at(self, key: str, stretch: Stretch, as_of: datetime) -> bool:
        """Until two periods after that in which the price stopped counting, if it did."""
        plan, stop = stretch.plan, stretch.start
        for known_plan, _, start, end in self.spans(key):
            if start <= stop:
                if end is None:
                    return True
                if end > stop:
                    plan, stop = known_plan, end
        after = self._periods(plan, stop)
        for _ in range(2):
            next(after)
        return as_of < next(after)[2]

    def _one_offs(self, work: _Work) -> None:
        for one in self.one_offs:
            if one.document is None:
                line = Line("charge", "", one.amount, Fraction(1), "S", one.rate, one.recorded_at)
                work.one_off(one, line, self.customer.currency)

    # Document -------------------------------------------------------------------------------------------

    def _document(self, work: _Work, currency: str, lines: list[Line]) -> Document | None:
        lines = sorted(lines, key=lambda line: line.due)
        uses: dict[str, tuple[Coupon, int, int]] = {}
        lifted: list[Line] = []
        for due in sorted({line.due for line in lines}):
            lifted += self._discounts([line for line in lines if line.due == due], currency, uses)
        lines += lifted
        lines += self._bounds(work, currency, lines)
        if not lines:
            return None
        carried = 0
        for category, rate, base, tax in _tax_rows(lines):
            if base < 0:
                lines.append(Line("carried", "", -base, Fraction(1), category, rate, lines[-1].due))
                carried += -base - tax
        taxes = _tax_rows(lines)
        discount = sum(line.discount for line in lines)
        subtotal, tax = sum(line.amount for line in lines), sum(one[3] for one in taxes)
        total = subtotal - discount + tax
        document = Document(currency, lines, taxes, subtotal, discount, tax, total, own_note=carried, due=total)
        document.coupon_uses = list(uses.values())
        for coupon, taken, used in document.coupon_uses:
            coupon.taken += taken
            coupon.used += used
        return document

    def _bounds(self, work: _Work, currency: str, lines: list[Line]) -> list[Line]:
        """What lifts or lowers each period that is over to the minimum or maximum of its plan."""
        made: list[Line] = []
        over = [s for s in self.stretches("", work.as_of) if s.end <= work.as_of and s.plan.currency == currency]
        over = [s for s in over if s.plan.minimum is not None or s.plan.maximum is not None]
        standing = [one for one in self.live("bound", "") if one.plan.currency == currency]
        for one in standing:
            # A period that has another shape now is bounded again.
            if not any((s.start, s.end, s.plan) == (one.start, one.end, one.plan) for s in over):
                made += work.bound(Stretch(one.plan, one.quantity, one.start, one.end, one.start, one.end, 0, True, True), one, 0)
        for stretch in over:
            net = sum(
                money for c, start, money in work.billed_after(lines) if c == currency and stretch.start <= start < stretch.end
            )
            units, of = self.measured(
                {}, stretch.plan, (stretch.full_start, stretch.full_end), stretch.start, stretch.end, last=False
            )
            least, most = _bounds_of_price(
                {"minimum": stretch.plan.minimum, "maximum": stretch.plan.maximum}, Fraction(units, of), currency
            )
            wanted = 0
            if least is not None and net < least:
                wanted = least - net
            elif most is not None and net > most:
                wanted = most - net
            same = [b for b in standing if (b.start, b.end, b.plan) == (stretch.start, stretch.end, stretch.plan)]
            made += work.bound(stretch, same[0] if same else None, wanted)
        return made

    def _discounts(self, lines: list[Line], currency: str, uses: dict[str, tuple[Coupon, int, int]]) -> list[Line]:
        """Coupons, then maximums, then minimums of what became due at one instant; returns the true-up lines."""
        held = [one for one in self.customer.coupons if one.currency in ("", currency)]
        for coupon in sorted(held, key=lambda one: 0 if one.prices else 1 if one.plans else 2):
            _, taken, used = uses.get(coupon.code, (coupon, 0, 0))
            self._redeem(coupon, lines, currency, taken, used, uses)
        lifted = []
        for line in lines:
            line.after_coupons = line.net
            if line.earlier:
                # Late usage: the limits are of the period with all of its lines.
                so_far = sum(one.after_coupons for one in line.earlier) + line.net
                line.amount += line.within(so_far) - sum(one.left for one in line.earlier) - line.net
                continue
            if line.most is not None and line.net > line.most:
                line.discount += line.net - line.most
            if line.least is not None and line.net < line.least:
                up = replace(line, kind="minimum", amount=line.least - line.net, discount=0, quantity=Fraction(1))
                lifted.append(up)
        return lifted

    def _redeem(self, coupon: Coupon, lines: list[Line], currency: str, taken: int, used: int,
                uses: dict[str, tuple[Coupon, int, int]]) -> None:  # fmt: skip
        if coupon.duration == "recurring" and coupon.used + used >= (coupon.periods or 0):
            return
        if coupon.duration == "once" and coupon.kind == "percentage" and coupon.used + used:
            return
        covered = [line for line in lines if line.coupons and line.amount > 0]
        covered = [line for line in covered if not coupon.prices or line.key in coupon.prices]
        covered = [line for line in covered if not coupon.plans or line.plan in coupon.plans]
        weights = [max(line.net, 0) for line in covered]
        if not sum(weights):
            return
        if coupon.kind == "percentage":
            worth = half_up(sum(weights) * coupon.value / 100)
        else:
            worth = to_minor(coupon.value, currency) - (coupon.taken + taken if coupon.duration == "once" else 0)
        worth = min(worth, sum(weights))
        if worth <= 0 and coupon.duration == "once" and coupon.kind == "amount":
            return
        for line, part in zip(covered, split(worth, weights), strict=True):
            line.discount += part
        uses[coupon.code] = (coupon, taken + worth, used + 1)

    def finalize(self, document: Document) -> None:
        """Credit notes, the document's own first, then prepaid credits; what is left is due."""
        if document.own_note:
            self.notes.append(Note(document, document.currency, document.own_note))
        owed = document.total
        for note in sorted(self.notes, key=lambda one: one.document is not document):
            part = min(owed, note.left) if note.currency == document.currency else 0
            if part > 0:
                note.left -= part
                owed -= part
                document.note_uses.append((note, part))
        document.notes = document.total - owed
        value = self.customer.unit_value
        if value is not None and document.currency == self.customer.currency and owed > 0:
            unit = value * 10 ** DECIMALS[document.currency]
            units = min(int(owed / unit), self.customer.credits)
            document.credits = int(units * unit)
            # No more of them than that much money takes.
            while (units - 1) * unit >= document.credits:
                units -= 1
            document.spent = max(units, 0)
            self.customer.credits -= document.spent
        document.due = owed - document.credits
        document.state = "paid" if document.due == 0 else "open"

    # Back --------------------------------------------------------------------------------------------

    def why_not_void(self, document: Document) -> str | None:
        """Why an invoice cannot be voided, or None."""
        if document.state not in ("open", "uncollectible") and not document.is_nothing:
            return "state"
        return self._corrected(document)

    def _corrected(self, document: Document) -> str | None:
        """None as well where all that corrects it came to nothing, and so becomes void with it."""
        if any(not other.is_nothing or self._corrected(other) for other in self._corrections(document)):
            return "corrected"
        return None

    def _corrections(self, document: Document) -> list[Document]:
        """The invoices that stand and freed what this one billed, billed what it freed, or used its note; the newest first."""
        freeing = [one.freed_by for one in self._all if document in (one.document, one.made_by)]
        freed = [one for one in self._all if one.freed_by is document and document not in (one.document, one.made_by)]
        billing = [
            again.made_by or again.document
            for again in self.billed
            if again.document is not None and any(_same_time(again, one) for one in freed)
        ]
        using = [other for other in self.documents if any(note.document is document for note, _ in other.note_uses)]
        return [
            other
            for other in reversed(self.documents)
            if other is not document and other.state != "void" and (other in freeing or other in billing or other in using)
        ]

    def void(self, document: Document) -> None:
        """Release its periods, restore what it corrected, give back coupons, notes and credits."""
        for other in self._corrections(document):
            self.void(other)
        for one in list(self.billed):
            if document in (one.document, one.made_by):
                self.billed.remove(one)
                one.freed_by = document
        for one in list(self._all):
            if one.freed_by is document and document not in (one.document, one.made_by):
                again = replace(one, freed_by=None)
                self._add(again)
        for one_off in self.one_offs:
            if one_off.document is document:
                one_off.document = None
        for coupon, taken, used in document.coupon_uses:
            coupon.taken -= taken
            coupon.used -= used
        for note, part in document.note_uses:
            note.left += part
        self.notes = [note for note in self.notes if note.document is not document]
        self.customer.credits += document.spent
        document.note_uses, document.state = [], "void"

    @property
    def _all(self) -> list[Billed]:
        self.__dict__.setdefault("history", [])
        return self.__dict__["history"]

    def _add(self, one: Billed) -> None:
        self.billed.append(one)
        self._all.append(one)

    # Without a memory --------------------------------------------------------------------------------

    def owed_recurring(self, key: str, as_of: datetime) -> tuple[Fraction, int]:
        """What a key should have cost in all by now, from what is believed today alone, and in how many stretches."""
        owed, count = Fraction(0), 0
        for stretch in self.stretches(key, as_of):
            price = _price_of(stretch, key)
            due = stretch.start if price.get("timing", "advance") == "advance" else stretch.end
            if price["kind"] == "recurring" and due <= as_of:
                full = (stretch.full_start, stretch.full_end)
                units, of = self.measured(price, stretch.plan, full, stretch.start, stretch.end, last=stretch.is_last)
                if price.get("proration") == "none":
                    units, of = int(stretch.is_first), 1
                owed += cost_of(price, stretch.quantity) * Fraction(units, of) * 10 ** DECIMALS[stretch.plan.currency]
                count += 1
        return owed, count


class _Work:
    """What one run has found so far, and what it will note as billed."""

    def __init__(self, subscription: Subscription, as_of: datetime) -> None:
        self.of, self.as_of = subscription, as_of
        self.credits: list[tuple[str, Line]] = []
        self.charges: list[tuple[str, Line]] = []
        self.uses: list[tuple[str, Line]] = []
        self.others: list[tuple[str, Line]] = []
        self.standing: list[tuple[str, Stretch, Billed]] = []
        self.last_billed: dict[str, list[tuple[datetime, datetime]]] = {}
        self.notes: list[Any] = []
        self.freed: list[tuple[Billed, list[tuple[datetime, int]]]] = []
        self.made: list[tuple[str, datetime, int, Line | None]] = []

    @property
    def lines(self) -> list[tuple[str, Line]]:
        return [*self.credits, *self.charges, *self.uses, *self.others]

    def currencies(self) -> set[str]:
        return {currency for currency, _ in self.lines}

    def give_back(self, one: Billed, given: list[tuple[datetime, datetime, int]], rests: list[Billed]) -> None:
        price = one.plan.price(one.key)
        assert price is not None
        lines = [
            Line("credit", one.key, -amount, one.quantity, *_tax_of(price), start, start, end, coupons=False)
            for start, end, amount in given
            if amount
        ]
        self.credits += [(one.plan.currency, line) for line in lines]
        self.freed.append((one, [(rest.start, rest.left) for rest in rests]))

        def note(documents: dict[str, Document]) -> None:
            document = documents[one.plan.currency] if lines else None
            self._free(one, document)
            for rest in rests:
                rest.made_by = document
                self.of._add(rest)

        self.notes.append(note)

    def charge(self, key: str, piece: Stretch, amount: int, units: int, of: int) -> None:
        price = _price_of(piece, key)
        line = None
        if units:
            due = piece.start if price.get("timing", "advance") == "advance" else piece.end
            line = Line("recurring", key, amount, piece.quantity, *_tax_of(price), due, piece.start, piece.end, piece.plan.code)
            line.least, line.most = _bounds_of_price(price, Fraction(units, of), piece.plan.currency)
            self.charges.append((piece.plan.currency, line))
            self.made.append((piece.plan.currency, piece.start, 0, line))

        def note(documents: dict[str, Document]) -> None:
            document = documents[piece.plan.currency] if line else None
            discount = line.discount if line else 0
            self.of._add(Billed(
                "recurring", key, piece.plan, piece.quantity, piece.start, piece.end,
                amount - discount + _lifted_by(document, line),
                document, document, piece.full_start, piece.full_end, units, of, units, amount, discount,
            ))  # fmt: skip

        self.notes.append(note)

    def use(self, key: str, stretch: Stretch, used: Used, earlier: list[Billed]) -> None:
        price, currency = _price_of(stretch, key), stretch.plan.currency
        units, of = self.of.measured(price, stretch.plan, (stretch.full_start, stretch.full_end), stretch.start, stretch.end,
                                     last=stretch.is_last)  # fmt: skip
        if price.get("proration") == "none":
            units, of = int(stretch.is_first), 1
        least, most = _bounds_of_price(price, Fraction(units, of), currency)
        exact = cost_of_usage(price, used)
        gross = to_minor(exact, currency)
        more = gross - sum(one.gross for one in earlier)
        kind, due = ("late_usage", self.as_of) if earlier else ("usage", stretch.end)
        line: Line | None = Line(
            kind, key, more, used.quantity, *_tax_of(price), due, stretch.start, stretch.end, stretch.plan.code,
            least=least, most=most, earlier=earlier,
        )  # fmt: skip
        assert line is not None
        if earlier:
            so_far = sum(one.after_coupons for one in earlier) + more
            is_owed = line.within(so_far) != sum(one.left for one in earlier)
        else:
            is_owed = bool(gross or used.quantity or used.events or least is not None)
        if is_owed:
            self.uses.append((currency, line))
        else:
            line = None
        self.freed += [(one, []) for one in earlier]
        self.made.append((currency, stretch.start, sum(one.left for one in earlier), line))

        def note(documents: dict[str, Document]) -> None:
            document = documents[currency] if line else None
            for one in earlier:
                self._free(one, document)
            left = sum(one.left for one in earlier) + (line.net + _lifted_by(document, line) if line else 0)
            on = document if line else earlier[-1].document if earlier else None
            after = sum(one.after_coupons for one in earlier) + (line.after_coupons if line else more)
            self.of._add(Billed("usage", key, stretch.plan, used.quantity, stretch.start, stretch.end, left, on, document,
                                usage=used, gross=gross, after_coupons=after))  # fmt: skip

        self.notes.append(note)

    def bound(self, stretch: Stretch, before: Billed | None, wanted: int) -> list[Line]:
        """Bill the difference between what the bounds of a period come to and what they came to before."""
        was = before.left if before else 0
        if before is not None and wanted == was != 0:
            return []
        price = stretch.plan.prices[0]
        lines = [
            Line(kind, "", amount, Fraction(1), *_tax_of(price), stretch.end, stretch.start, stretch.end, stretch.plan.code,
                 coupons=False)
            for kind, amount in (
                ("minimum", max(wanted, 0) - max(was, 0)), ("maximum", min(wanted, 0) - min(was, 0)),
            )
            if amount
        ]  # fmt: skip

        def note(documents: dict[str, Document]) -> None:
            document = documents[stretch.plan.currency] if lines else None
            if before is not None:
                self._free(before, document)
            if wanted:
                one = Billed("bound", "", stretch.plan, Fraction(1), stretch.start, stretch.end, wanted, document, document)
                self.of._add(one)

        self.notes.append(note)
        return lines

    def one_off(self, one: OneOff, line: Line, currency: str) -> None:
        self.others.append((currency, line))

        def note(documents: dict[str, Document]) -> None:
            one.document = documents[currency]

        self.notes.append(note)

    def billed_after(self, lines: list[Line]) -> list[tuple[str, datetime, int]]:
        """Currency, start and money of all that will be billed when this run is over."""
        freed = {id(one) for one, _ in self.freed}
        after = [(b.plan.currency, b.start, b.left) for b in self.of.billed if b.kind != "bound" and id(b) not in freed]
        for one, kept in self.freed:
            after += [(one.plan.currency, start, left) for start, left in kept]
        for currency, start, before, line in self.made:
            up = sum(
                x.amount
                for x in lines
                if line and x.kind == "minimum" and (x.key, x.start, x.end) == (line.key, line.start, line.end)
            )
            after.append((currency, start, before + (line.net + up if line else 0)))
        return after

    def note_what_is_billed(self, documents: dict[str, Document]) -> None:
        for note in self.notes:
            note(documents)

    def _free(self, one: Billed, document: Document | None) -> None:
        self.of.billed.remove(one)
        one.freed_by = document


# Small things ----------------------------------------------------------------------------------------


def _price_of(stretch: Stretch, key: str) -> dict[str, Any]:
    """The price of that key in the plan of a stretch of time."""
    price = stretch.plan.price(key)
    assert price is not None
    return price


def _same_time(one: Billed, other: Billed) -> bool:
    """True for two that bill the same thing for times that overlap."""
    return (one.kind, one.key) == (other.kind, other.key) and one.start < other.end and other.start < one.end


def _tax_of(price: dict[str, Any]) -> tuple[str, Fraction]:
    """Category and rate of a price's tax."""
    return price.get("tax_category", "S"), number(price.get("tax_rate"))


def _lifted_by(document: Document | None, line: Line | None) -> int:
    """How much a minimum adds to a line."""
    if document is None or line is None:
        return 0
    same = (line.key, line.start, line.end)
    return sum(up.amount for up in document.lines if up.kind == "minimum" and (up.key, up.start, up.end) == same)


def _bounds_of_price(price: dict[str, Any], share: Fraction, currency: str) -> tuple[int | None, int | None]:
    """Minimum and maximum of a price for this share of a period, in minor units; None without one."""
    least, most = price.get("minimum"), price.get("maximum")
    return (
        None if least is None else to_minor(number(least) * share, currency),
        None if most is None else to_minor(number(most) * share, currency),
    )


def _split_at(stretches: list[tuple[datetime, datetime]], instants: Iterable[datetime]) -> list[tuple[datetime, datetime]]:
    """The stretches in pieces, with an edge at each instant that lies inside one."""
    for instant in sorted(set(instants)):
        stretches = [
            piece
            for start, end in stretches
            for piece in ([(start, instant), (instant, end)] if start < instant < end else [(start, end)])
        ]
    return stretches


def _without(
    wanted: list[tuple[datetime, datetime]], taken: Iterable[tuple[datetime, datetime]]
) -> list[tuple[datetime, datetime]]:
    """The stretches of time in `wanted`, without those in `taken`."""
    for taken_start, taken_end in sorted(taken):
        left = []
        for start, end in wanted:
            left += [(start, min(end, taken_start)), (max(start, taken_end), end)]
        wanted = [(start, end) for start, end in left if start < end]
    return wanted


def _tax_rows(lines: list[Line]) -> list[tuple[str, Fraction, int, int]]:
    """Category, rate, base and tax of each rate in the lines, each rounded once."""
    bases: dict[tuple[str, Fraction], int] = {}
    for line in lines:
        bases[line.category, line.rate] = bases.get((line.category, line.rate), 0) + line.net
    return [(category, rate, base, half_up(base * rate / 100)) for (category, rate), base in sorted(bases.items())]


def _free_part(price: dict[str, Any], values: list[Fraction]) -> Used:
    """What of a percentage price is free: events and money, until either is exceeded."""
    total, count = sum(values, Fraction(0)), len(values)
    events, amount = price.get("free_events"), price.get("free_amount")
    if events is None and amount is None:
        return Used(total, count)
    running = Fraction(0)
    for position, value in enumerate(values):
        if events is not None and position >= int(events):
            return Used(total, count, running, position)
        if amount is not None and running + value > number(amount):
            return Used(total, count, number(amount), position)
        running += value
    return Used(total, count, running, count)


def cost_of(price: dict[str, Any], quantity: Fraction) -> Fraction:
    """What a quantity costs, exact; a piece at a time."""
    quantity = max(quantity, Fraction(0))
    model, each = price["model"], number(price.get("unit_amount"))
    if model == "flat":
        return each * (quantity if price["kind"] == "recurring" else 1)
    paying = max(quantity - number(price.get("free_units")), Fraction(0))
    if model == "unit":
        return paying * each
    if model == "package":
        packages = 0
        while packages * number(price["package_size"]) < paying:
            packages += 1
        return packages * each
    if model == "volume":
        tier = next(one for one in price["tiers"] if one.get("up_to") is None or quantity <= number(one["up_to"]))
        return quantity * number(tier.get("unit_amount")) + number(tier.get("flat_amount"))
    owed, below = Fraction(0), Fraction(0)
    for tier in price["tiers"]:
        if quantity > below:
            top = quantity if tier.get("up_to") is None else min(quantity, number(tier["up_to"]))
            per_unit = number(tier["rate"]) / 100 if model == "graduated_percentage" else number(tier.get("unit_amount"))
            owed += (top - below) * per_unit + number(tier.get("flat_amount"))
            below = top
    return owed


def cost_of_usage(price: dict[str, Any], used: Used) -> Fraction:
    """What was used costs, exact."""
    if price["model"] != "percentage":
        return cost_of(price, used.quantity)
    total = max(used.quantity, Fraction(0))
    free = min(max(used.free, Fraction(0)), total)
    return (total - free) * number(price["rate"]) / 100 + max(used.events - used.free_events, 0) * number(
        price.get("fixed_amount")
    )
