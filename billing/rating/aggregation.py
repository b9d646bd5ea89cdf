"""From usage events to a quantity. This is the reference: the SQL of `billing.metering.measuring` must compute the same.

Each function takes the events of one meter and one period `[start, end)`, in any order. Where the order matters, it sorts them by
`(occurred_at, sequence)`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

MICROSECOND = timedelta(microseconds=1)
NUMBER_PATTERN = r"^[+-]?([0-9]{1,200}(\.[0-9]{0,200})?|\.[0-9]{1,200})([eE][+-]?[0-9]{1,3})?$"
"""The form of a number in a property. PostgreSQL's `~` gives the pattern the same meaning.

A longer text is no number: Python does not read integers of more than 4,300 digits.
"""

_NUMBER = re.compile(NUMBER_PATTERN, re.ASCII)


class Aggregation(StrEnum):
    """How a price makes a quantity of a meter's events."""

    COUNT = "count"
    SUM = "sum"
    MAX = "max"
    LAST = "last"
    UNIQUE = "unique"
    WEIGHTED_SUM = "weighted_sum"
    DAILY_LEVEL = "daily_level"


KEPT = frozenset({Aggregation.WEIGHTED_SUM, Aggregation.DAILY_LEVEL})
"""Aggregations whose values are levels: each holds until the next one, also in later periods."""


Filters = tuple[tuple[str, tuple[str, ...]], ...]
"""For each property its allowed values. An event passes if all properties have one; without properties every event passes."""

Group = tuple[str | None, ...]
"""The text of each property by which a price groups usage; None: the event has no such property, or no scalar in it."""

MAX_GROUP_KEYS = 5
MAX_GROUP_CHARACTERS = 200
"""The characters of a text that tell groups apart: a longer text counts to the group of its first ones."""


@dataclass(frozen=True, slots=True)
class Event:
    """One usage event, with the values that a price reads.

    Args:
        value: what the meter counted, in its own unit.
        occurred_at: an aware instant.
        properties: flat JSON object.
        sequence: the order of events at one instant (insertion order).
    """

    value: Decimal
    occurred_at: datetime
    properties: Mapping[str, Any] = field(default_factory=dict)
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class RatingInput:
    """The input of a rating: a quantity and, for percentages, the number of events and the free part.

    Args:
        quantity: the aggregate; a price rates one below zero as zero.
        events: the number of events in it; each event that is not free costs the fixed fee.
        free_quantity: the part of `quantity` inside the free allowance of a percentage price.
        free_events: the events inside that allowance.
        raised, lowered: the money that the minimum and maximum per event add to and take off the events of a percentage price.
        measured: the aggregate in the unit of the meter, if the price converts it; `quantity` is then the converted one.
        parts: of a price with buckets, the usage of each bucket and, last, of the others; the usage is their sum.
        levels: of `daily_level`, each level of a day with its share of the days of the full period, the lowest first. Each is
            rated by itself; the quantity is their average.
        groups: of a price that groups its usage, the usage of each group, in the order of `in_order`. Each is rated and rounded
            by itself; the usage is their sum.
        by_rate: of an overage, how much of it was used by which rate of the ledger, the most first; None: by no rate. It is only
            shown, and no part of what a claim stores.
    """

    quantity: Fraction
    events: int = 0
    free_quantity: Fraction = Fraction(0)
    free_events: int = 0
    raised: Fraction = Fraction(0)
    lowered: Fraction = Fraction(0)
    measured: Fraction | None = None
    parts: tuple["RatingInput", ...] = ()
    levels: tuple[tuple[Fraction, Fraction], ...] = ()
    groups: tuple[tuple[Group, "RatingInput"], ...] = ()
    by_rate: tuple[tuple[str | None, int], ...] = field(default=(), compare=False)

    def as_stored(self) -> dict[str, Any]:
        """Return the exact data that a claim stores; `stored_usage` reads it."""
        stored: dict[str, Any] = {
            "quantity": str(self.quantity),
            "events": self.events,
            "free_quantity": str(self.free_quantity),
            "free_events": self.free_events,
        }
        further = {"raised": self.raised or None, "lowered": self.lowered or None, "measured": self.measured}
        stored |= {name: str(value) for name, value in further.items() if value is not None}
        stored |= {"levels": [[str(level), str(share)] for level, share in self.levels]} if self.levels else {}
        stored |= {"groups": [[list(group), usage.as_stored()] for group, usage in self.groups]} if self.groups else {}
        return stored | ({"parts": [part.as_stored() for part in self.parts]} if self.parts else {})


def stored_usage(known: Mapping[str, Any]) -> RatingInput:
    """Return the usage of the data that a claim stores."""
    measured = known.get("measured")
    return RatingInput(
        Fraction(known["quantity"]),
        known["events"],
        Fraction(known["free_quantity"]),
        known["free_events"],
        Fraction(known.get("raised", 0)),
        Fraction(known.get("lowered", 0)),
        None if measured is None else Fraction(measured),
        tuple(map(stored_usage, known.get("parts", ()))),
        tuple((Fraction(level), Fraction(share)) for level, share in known.get("levels", ())),
        tuple((tuple(group), stored_usage(usage)) for group, usage in known.get("groups", ())),
    )


@dataclass(frozen=True, slots=True)
class Days:
    """The days `[first, end)` of a part of a period in the billing zone, of the number of days of the full period."""

    first: date
    end: date
    of: int
    zone: ZoneInfo


def usage_of_levels(days_by_level: Iterable[tuple[Fraction, int]], of: int, events: int) -> RatingInput:
    """Return the usage of levels of days.

    Args:
        days_by_level: each level once, with its number of days.
        of: the days of the full period.
    """
    levels = tuple(sorted((level, Fraction(days, of)) for level, days in days_by_level if days))
    return RatingInput(sum((level * share for level, share in levels), Fraction(0)), events, levels=levels)


def daily_usage(
    events: Iterable[Event],
    days: Days,
    *,
    property_name: str | None = None,
    filters: Filters = (),
    held_before: Decimal = Decimal(0),
) -> RatingInput:
    """Return the levels of the days: a day has the last level that was reported up to its end.

    Args:
        held_before: the level before the first day.
    """
    numbered = [(e, n) for e in ordered(events, filters) if (n := event_number(e, property_name)) is not None]
    last_of_day = {e.occurred_at.astimezone(days.zone).date(): Fraction(n) for e, n in numbered}
    level, days_by_level, inside = Fraction(held_before), dict[Fraction, int](), 0
    for number in range((days.end - days.first).days):
        day = days.first + timedelta(days=number)
        inside += day in last_of_day
        level = last_of_day.get(day, level)
        days_by_level[level] = days_by_level.get(level, 0) + 1
    return usage_of_levels(days_by_level.items(), days.of, inside)


def together(parts: Sequence[RatingInput]) -> RatingInput:
    """Return the usage of all buckets of a price as one; of a price without buckets, its usage."""
    if len(parts) == 1:
        return parts[0]
    return RatingInput(
        sum((part.quantity for part in parts), Fraction(0)), sum(part.events for part in parts), parts=tuple(parts)
    )


def grouped(by_group: Mapping[Group, RatingInput]) -> RatingInput:
    """Return the usage of all groups of a price as one; a group without counted events does not exist."""
    groups = tuple((group, by_group[group]) for group in in_order(by_group) if by_group[group].events)
    of_groups = [usage for _, usage in groups]
    return RatingInput(sum((one.quantity for one in of_groups), Fraction(0)), sum(one.events for one in of_groups), groups=groups)


def in_order(groups: Iterable[Group]) -> list[Group]:
    """Return groups in the order of lines: by the texts of their properties, without a property first."""
    return sorted(groups, key=lambda group: [(text is not None, text or "") for text in group])


def group_of(event: Event, group_by: Sequence[str]) -> Group:
    """Return the group of an event."""
    texts = (property_text(event.properties.get(name)) for name in group_by)
    return tuple(None if text is None else text[:MAX_GROUP_CHARACTERS] for text in texts)


@dataclass(frozen=True, slots=True)
class EventCharge:
    """What an event of a percentage price costs: a rate and a fee, within bounds per event.

    Args:
        rate: money per unit of money: 0.029 for 2.9 percent.
        minimum, maximum: of the charge of an event that pays for an amount above zero; None: not bounded.
    """

    rate: Fraction
    fixed_amount: Fraction
    minimum: Fraction | None
    maximum: Fraction | None

    def correction(self, amount: Fraction) -> Fraction:
        """Return what the bounds add to the charge of an event that pays for this amount; below zero what they take off."""
        if amount <= 0:
            return Fraction(0)
        charge = bounded = self.rate * amount + self.fixed_amount
        if self.maximum is not None:
            bounded = min(bounded, self.maximum)
        if self.minimum is not None:
            bounded = max(bounded, self.minimum)
        return bounded - charge


def matches(filters: Filters, properties: Mapping[str, Any]) -> bool:
    """Return whether each filtered property has one of the allowed values, compared as JSON text (`->>`)."""
    return all(name in properties and property_text(properties[name]) in allowed for name, allowed in filters)


def both(first: Filters, second: Filters) -> Filters:
    """Return the filters that let through what both let through."""
    allowed = dict(first)
    for name, values in second:
        allowed[name] = tuple(value for value in allowed.get(name, values) if value in values)
    return tuple(sorted(allowed.items()))


def ordered(events: Iterable[Event], filters: Filters = ()) -> list[Event]:
    """Return the events that pass the filters, the oldest first; at one instant in the order of `sequence`."""
    return sorted((e for e in events if matches(filters, e.properties)), key=lambda e: (e.occurred_at, e.sequence))


def property_text(value: Any) -> str | None:
    """Return a JSON scalar as PostgreSQL's `->>` writes it; None for null, objects and lists, which match no value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None or isinstance(value, Mapping | list | tuple):
        return None
    return str(value)


def event_number(event: Event, property_name: str | None) -> Decimal | None:
    """Return the event's value, or the number in a property; None if the property is absent or is not a number."""
    if property_name is None:
        return event.value
    text = property_text(event.properties.get(property_name))
    # fullmatch, because `$` also matches before a final newline.
    return Decimal(text) if text is not None and _NUMBER.fullmatch(text) else None


def aggregate(
    aggregation: Aggregation,
    events: Iterable[Event],
    *,
    property_name: str | None = None,
    filters: Filters = (),
    period: tuple[datetime, datetime] | None = None,
    held_before: Decimal = Decimal(0),
) -> Fraction:
    """Return the quantity of a period; zero without events (but see `weighted_sum`).

    - `count`: the number of events that match; `sum`, `max`: of their values; `last`: the latest value by `occurred_at`.
    - `unique`: the number of distinct values of the property; without a property, of the event's value.
    - `weighted_sum`: each value holds until the next event or the period's end, weighted by its share of the period's
      seconds; `held_before` is the value that holds from the start to the first event.

    Args:
        period: `[start, end)` of the full period, needed for `weighted_sum` only.

    Raises:
        ValueError: `weighted_sum` without a period.
    """
    chosen = ordered(events, filters)
    if aggregation == Aggregation.COUNT:
        return Fraction(len(chosen))
    if aggregation == Aggregation.UNIQUE:
        return Fraction(len(_distinct(chosen, property_name)))
    numbered = [(e, n) for e in chosen if (n := event_number(e, property_name)) is not None]
    if aggregation == Aggregation.WEIGHTED_SUM:
        if period is None:
            raise ValueError("weighted_sum needs the period that it is weighted by")
        return _weight_time(numbered, *period, held_before)
    values = [Fraction(n) for _, n in numbered]
    if aggregation == Aggregation.SUM:
        return sum(values, Fraction(0))
    if not values:
        return Fraction(0)
    return max(values) if aggregation == Aggregation.MAX else values[-1]


def percentage_usage(
    events: Iterable[Event],
    *,
    free_events: int | None = None,
    free_amount: Decimal | None = None,
    property_name: str | None = None,
    filters: Filters = (),
    charge: EventCharge | None = None,
) -> RatingInput:
    """Return the sum of a percentage price with its free part: events are free until either allowance is exceeded.

    The event that exceeds the free amount is free up to that amount and pays its fixed fee. The event that exceeds the free
    count, and every later event, pays in full. Without an allowance every event pays.

    Args:
        free_events, free_amount: the allowances; None: not limited by this measure.
        charge: of a price with bounds per event. The event that exceeds the free amount is bounded for the rest that it pays.
    """
    chosen = ordered(events, filters)
    numbers = [Fraction(n) for e in chosen if (n := event_number(e, property_name)) is not None]
    total = sum(numbers, Fraction(0))
    free_quantity, free_count = Fraction(0), 0
    if free_events is not None or free_amount is not None:
        free_quantity, free_count = _free_part(numbers, free_events, free_amount)
    usage = RatingInput(total, len(numbers), free_quantity, free_count)
    return usage if charge is None else bounded_usage(usage, _paying(numbers, usage), charge)


def bounded_usage(usage: RatingInput, paying: Iterable[Fraction], charge: EventCharge) -> RatingInput:
    """Return usage with the money that bounds per event add and take off.

    Args:
        paying: the amounts that its events pay for.
    """
    corrections = [charge.correction(amount) for amount in paying]
    raised = sum((one for one in corrections if one > 0), Fraction(0))
    return replace(usage, raised=raised, lowered=raised - sum(corrections, Fraction(0)))


def _paying(numbers: Sequence[Fraction], usage: RatingInput) -> Iterator[Fraction]:
    """Yield the amount that each event pays for: the first one beyond the allowance pays for the rest of its amount."""
    partly_free = usage.free_quantity - sum(numbers[: usage.free_events], Fraction(0))
    for number in numbers[usage.free_events :]:
        yield number - partly_free
        partly_free = Fraction(0)


def _free_part(numbers: Sequence[Fraction], free_events: int | None, free_amount: Decimal | None) -> tuple[Fraction, int]:
    running = Fraction(0)
    for count, number in enumerate(numbers):
        if free_events is not None and count >= free_events:
            return running, count
        if free_amount is not None and running + number > Fraction(free_amount):
            return Fraction(free_amount), count
        running += number
    return running, len(numbers)


def _distinct(events: Sequence[Event], property_name: str | None) -> set[Any]:
    if property_name is None:
        return {e.value for e in events}
    texts = (property_text(e.properties.get(property_name)) for e in events)
    return {text for text in texts if text is not None}


def _weight_time(numbered: Sequence[tuple[Event, Decimal]], start: datetime, end: datetime, held_before: Decimal) -> Fraction:
    held, since, weighted = Fraction(held_before), start, Fraction(0)
    for event, number in numbered:
        at = min(max(event.occurred_at, start), end)
        weighted += held * ((at - since) // MICROSECOND)
        held, since = Fraction(number), at
    weighted += held * ((end - since) // MICROSECOND)
    return weighted / ((end - start) // MICROSECOND)
