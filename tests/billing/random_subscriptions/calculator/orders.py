"""What was ordered: in which stretches of time each key counted, at which plan and quantity, and how much of a period each is."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from fractions import Fraction
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from tests.billing.random_subscriptions.calculator.exact import (
    FOREVER,
    INSTANT,
    MONTHS,
    ONE_DAY,
    Time,
    boundary,
    local_day,
)
from tests.billing.random_subscriptions.calculator.prices import Plan, Price, is_due_at_start, negotiated


@dataclass(frozen=True)
class Amendment:
    """A change from an instant on; only what is given changes."""

    effective_at: datetime
    plan: Plan | None = None
    quantities: dict[str, Fraction] = field(default_factory=dict)
    sets_end: bool = False
    ends_at: datetime | None = None
    paused: bool | None = None
    charges_while_paused: bool = False
    unused: str = "credit"
    anchor_at: datetime | None = None
    sets_override: bool = False
    override: dict[str, Any] | None = None


@dataclass(frozen=True)
class Phase:
    """A part of the time at its own terms, for as many periods or until an instant; the last one has no length."""

    terms: Amendment
    periods: int = 0
    ends_at: datetime | None = None
    is_trial: bool = False


class State(NamedTuple):
    """What was ordered from an instant on."""

    start: datetime
    plan: Plan
    quantities: dict[str, Fraction]
    override: dict[str, Any] | None
    anchor: datetime
    counts_usage: bool


class Span(NamedTuple):
    """A stretch of time in which a key counted at one plan and quantity."""

    plan: Plan
    quantity: Fraction
    anchor: datetime
    start: datetime
    end: datetime


@dataclass(frozen=True)
class Stretch:
    """The part of a span inside one full period.

    Args:
        whole: the full period of the plan that it begins in; `full` is the price's.
        is_first: nothing of the same full period lies before it.
        is_last: it ends because the subscription does.
    """

    plan: Plan
    quantity: Fraction
    anchor: datetime
    start: datetime
    end: datetime
    full: Time
    whole: Time
    is_first: bool
    is_last: bool

    @property
    def time(self) -> Time:
        return self.start, self.end

    def has_terms_of(self, other: "Span | Stretch") -> bool:
        """True at the same plan and quantity, in the same periods."""
        return (self.plan, self.quantity, self.anchor) == (other.plan, other.quantity, other.anchor)

    def has_price_of(self, other: "Span | Stretch") -> bool:
        """True on the same plan, in the same periods."""
        return self.plan is other.plan and self.anchor == other.anchor


class Order:
    """What a subscription was ordered and amended to."""

    def __init__(
        self, *, plan: Plan, started_at: datetime, anchor_at: datetime, zone: ZoneInfo, quantities: dict[str, Fraction],
        trial_end: datetime | None = None, ends_at: datetime | None = None, override: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.zone = zone
        self.anchor = anchor_at.astimezone(zone).replace(tzinfo=None)
        self.begins = max(started_at, trial_end or started_at)
        self.amendments: list[Amendment] = []
        self.keys: list[str] = []
        self._negotiated: list[tuple[Plan, Plan]] = []
        order = Amendment(started_at, plan, quantities, ends_at is not None, ends_at)
        self.amend(replace(order, sets_override=override is not None, override=override))

    def amend(self, amendment: Amendment) -> None:
        """Record a change; keys that the plan brings come after those that are known."""
        self.amendments.append(amendment)
        self._learn_keys()

    def _learn_keys(self) -> None:
        known = {price["key"] for state in self.states() for price in state.plan.prices}
        self.keys += sorted(known - set(self.keys))

    def begin(self, phases: list[Phase]) -> None:
        """Phases from the start on, one after the other. The keys of all of them come with the order, by name."""
        order = self.amendments[0]
        start, plan = order.effective_at, order.plan
        for index, phase in enumerate(phases):
            terms = phase.terms
            plan = terms.plan or plan
            assert plan is not None
            if index:
                self.amendments.append(replace(terms, effective_at=start))
            else:
                other = {"override": terms.override, "sets_override": True} if terms.sets_override else {}
                self.amendments[0] = replace(order, plan=plan, quantities=order.quantities | terms.quantities, **other)
            if phase.periods:
                every = [end for (_, end), _ in zip(self.periods(plan, self.anchor, start), range(phase.periods), strict=False)]
                start = every[-1]
            start = phase.ends_at or start
            if phase.is_trial:
                self.begins = max(self.begins, start)
        self.keys = []
        self._learn_keys()

    def move(self, sold: list[Plan], to: Plan, instant: datetime) -> None:
        """From an instant on, all time on one of these plans is on another one; not of a subscription that is over by then."""
        start = max(instant, self.amendments[0].effective_at)
        if all(self._is_ended(known) for known in [start, *(known for known in self._changes() if known > start)]):
            return
        known = sorted(self.amendments, key=lambda known: known.effective_at)
        before = [amendment.plan for amendment in known if amendment.plan is not None and amendment.effective_at <= start]
        planned = {amendment.effective_at for amendment in known if amendment.plan in sold and amendment.effective_at > start}
        for at in [*([start] if before[-1] in sold else []), *sorted(planned)]:
            self.amend(Amendment(at, plan=to))

    def states(self) -> list[State]:
        """What was ordered from each instant at which something changed, where the subscription was active."""
        states = []
        for instant in self._changes():
            plan, quantities, paused = self.amendments[0].plan, dict[str, Fraction](), False
            override, anchor, charges = None, self.anchor, False
            for amendment in sorted(self.amendments, key=lambda known: known.effective_at):
                if amendment.anchor_at is not None and self._moves_at(amendment) <= instant:
                    anchor = amendment.anchor_at.astimezone(self.zone).replace(tzinfo=None)
                if amendment.effective_at <= instant:
                    plan = amendment.plan or plan
                    quantities |= amendment.quantities
                    if amendment.paused is not None:
                        paused, charges = amendment.paused, amendment.charges_while_paused
                    override = amendment.override if amendment.sets_override else override
            assert plan is not None
            if not (paused and not charges) and not self._is_ended(instant):
                states.append(State(instant, plan, quantities, override, anchor, not paused))
        return states

    def _moves_at(self, amendment: Amendment) -> datetime:
        """The first boundary of a moved billing day that is not before its amendment, by the plan when it was ordered."""
        assert amendment.anchor_at is not None
        anchor = amendment.anchor_at.astimezone(self.zone).replace(tzinfo=None)
        known = self.amendments[: self.amendments.index(amendment)]
        plans = [one for one in sorted(known, key=lambda one: one.effective_at) if one.plan is not None]
        before = [one for one in plans if one.effective_at <= amendment.effective_at] or plans[:1]
        assert before[-1].plan is not None
        start, end = next(self.periods(before[-1].plan, anchor, amendment.effective_at))
        return amendment.effective_at if start == amendment.effective_at else end

    def _changes(self) -> list[datetime]:
        moves = {self._moves_at(amendment) for amendment in self.amendments if amendment.anchor_at is not None}
        return sorted({amendment.effective_at for amendment in self.amendments} | moves | set(self._ends()))

    def _ends(self) -> list[datetime]:
        """The instants at which the subscription ceases to be active, though it was until then."""
        asked = {amendment.ends_at for amendment in self.amendments if amendment.sets_end and amendment.ends_at is not None}
        return [end for end in asked if self._is_ended(end) and not self._is_ended(end - INSTANT)]

    def _is_ended(self, instant: datetime) -> bool:
        """As the newest amendment about that instant has it: about all from its start on, and about all after its end."""
        for amendment in reversed(self.amendments):
            if amendment.sets_end and amendment.ends_at is not None and instant >= amendment.ends_at:
                return True
            if amendment.sets_end and instant >= amendment.effective_at:
                return False
        return False

    def spans(self, key: str) -> list[Span]:
        """The spans in which a key counted, as long as they can be; of the key "", in which any plan did."""
        changes = [*self._changes(), FOREVER]
        spans: list[Span] = []
        for start, plan, quantities, override, anchor, counts_usage in self.states():
            price = plan.price(key)
            if key and (price is None or (price["kind"] == "usage" and not counts_usage)):
                continue
            span = Span(
                self._paid(plan, key, override),
                quantities.get(key, Fraction(1)),
                anchor,
                start,
                next(change for change in changes if change > start),
            )
            if spans and spans[-1].end == start and spans[-1][:3] == span[:3]:
                span = spans.pop()._replace(end=span.end)
            spans.append(span)
        charged = [span._replace(start=max(span.start, self.begins)) for span in spans]
        charged = [span for span in charged if span.start < span.end]
        return [self._to_the_end_of_its_period(key, span, charged) for span in charged]

    def _to_the_end_of_its_period(self, key: str, span: Span, spans: list[Span]) -> Span:
        """A span that an end cuts off which leaves charged what is charged in advance: up to the end of that period."""
        price = span.plan.price(key)
        if price is None or price["kind"] == "usage" or not is_due_at_start(price) or not self._is_skipped(span.end):
            return span
        _, full_end = next(self.periods(span.plan, span.anchor, span.end - INSTANT, key))
        return span._replace(end=min([full_end, *(later.start for later in spans if later.start >= span.end)]))

    def _is_skipped(self, end: datetime) -> bool:
        """True for an end of the subscription that gives back nothing."""
        return end in self._ends() and self._unused_at(end) == "skip"

    def refunds(self, instant: datetime) -> bool:
        """True for a time after an end of the subscription that pays unused time out."""
        return self._is_ended(instant) and self._unused_at(max(end for end in self._ends() if end <= instant)) == "refund"

    def _unused_at(self, end: datetime) -> str:
        """What the newest amendment about an end does with unused time."""
        return next(
            one.unused for one in reversed(self.amendments) if one.sets_end and one.ends_at is not None and end >= one.ends_at
        )

    def _paid(self, plan: Plan, key: str, override: dict[str, Any] | None) -> Plan:
        """The plan with the negotiated price of a key: the same one wherever the price is the same."""
        paid = negotiated(plan, key, override)
        known = (one for root, one in self._negotiated if root is plan and one.price(key) == paid.price(key))
        if paid is plan or paid.price(key) == plan.price(key):
            return plan
        found = next(known, None)
        if found is None:
            self._negotiated.append((plan, paid))
        return found or paid

    def stretches(self, key: str, until: datetime) -> list[Stretch]:
        """The spans of a key cut at every boundary, those that start up to `until`."""
        found: list[Stretch] = []
        ends = self._ends()
        for span in self.spans(key):
            for full in self.periods(span.plan, span.anchor, span.start, key):
                start, end = max(span.start, full[0]), min(span.end, full[1])
                if start > until or start >= end:
                    break
                is_first = full not in [stretch.full for stretch in found]
                is_last = end == span.end and end in ends
                whole = next(self.periods(span.plan, span.anchor, start))
                found.append(Stretch(span.plan, span.quantity, span.anchor, start, end, full, whole, is_first, is_last))
        return found

    def periods(self, plan: Plan, anchor: datetime, instant: datetime, key: str = "") -> Iterator[Time]:
        """The full periods of a key in a plan, from an anchor on the clocks of the zone, from that of an instant on."""

        def edge(n: int) -> datetime:
            return boundary(anchor, self.zone, *plan.every(key), n)

        n = 0
        while edge(n) > instant:
            n -= 1
        while edge(n + 1) <= instant:
            n += 1
        while True:
            yield edge(n), edge(n + 1)
            n += 1

    def share(self, price: Price, stretch: Stretch) -> tuple[int, int]:
        """How many units of its full period a stretch is, and how many that has: days, microseconds, or the whole."""
        mode = price.get("proration", "day")
        if mode == "none":
            return int(stretch.is_first), 1
        if mode == "second":
            return (stretch.end - stretch.start) // INSTANT, (stretch.full[1] - stretch.full[0]) // INSTANT
        start, end, full_start, full_end = (local_day(instant, self.zone) for instant in (*stretch.time, *stretch.full))
        if stretch.is_last and price.get("bill_last_day") and local_day(stretch.end - INSTANT, self.zone) == end:
            end += ONE_DAY
        unit, count = stretch.plan.every(price.get("key", ""))
        if mode == "fixed_30" and unit in MONTHS:
            of = 30 * MONTHS[unit] * count
            reached = [of if day >= full_end else _days_360(stretch.anchor, full_start, day, of) for day in (start, end)]
            return reached[1] - reached[0], of
        days = [full_start + n * ONE_DAY for n in range((full_end - full_start).days)]
        return sum(start <= day < end for day in days), len(days)


def _days_360(anchor: datetime, full_start: date, day: date, of: int) -> int:
    """Every month has 30 days: the 31st is the 30th, and a boundary is on the anchor's day also where a month is short."""
    origin = 360 * full_start.year + 30 * full_start.month + min(anchor.day, 30)
    return min(max(360 * day.year + 30 * day.month + min(day.day, 30) - origin, 0), of)
