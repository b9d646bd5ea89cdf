"""What was used and what it costs, by a price as the REST contract writes it."""

from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from tests.billing.random_subscriptions.calculator.exact import INSTANT, ONE_DAY, Time, half_up, local_day, number, to_minor

Price = dict[str, Any]
PERCENTAGES = ("percentage", "graduated_percentage")
NOTHING = Fraction(0)


@dataclass(frozen=True, eq=False)
class Plan:
    """A version of a plan."""

    code: str
    currency: str
    unit: str
    count: int
    prices: tuple[Price, ...]
    minimum: str | None = None
    maximum: str | None = None
    version: int = 1
    threshold: str | None = None
    includes_tax: bool = False
    allowance: dict[str, Any] | None = None
    overage: dict[str, Any] | None = None
    """Its price is among the others, under the key `overage`."""
    budget: dict[str, Any] | None = None
    """Of the whole account: `limit`, `window`, `per_quantity_of`."""

    def price(self, key: str) -> Price | None:
        """The price of a key, if there is one."""
        return next((price for price in self.prices if price["key"] == key), None)

    def every(self, key: str) -> tuple[str, int]:
        """How long a period of a key is: the plan's, or the price's."""
        of = self.allowance if key == "allowance" else self.price(key)
        own = (of or {}).get("interval")
        return (own["unit"], own.get("count", 1)) if own else (self.unit, self.count)


def negotiated(plan: Plan, key: str, override: dict[str, Any] | None) -> Plan:
    """The plan with the price of one key as a subscription pays it; the plan itself where nothing else was negotiated."""
    price = plan.price(key)
    if override is None or price is None:
        return plan
    amounts = override.get("prices", {}).get(key) if override["plan"] == plan.code else None
    if amounts is not None:
        paid = {**price, **amounts}
    elif override.get("percent_off") is not None:
        paid = {name: _less(value, override["percent_off"]) if name in CHARGED else value for name, value in price.items()}
    else:
        return plan
    return replace(plan, prices=tuple(paid if one is price else one for one in plan.prices))


CHARGED = ("unit_amount", "flat_amount", "rate", "fixed_amount", "event_minimum", "event_maximum", "tiers", "buckets")
"""What a percentage off makes smaller, in a price and in its tiers."""


def _less(value: Any, percent: str) -> Any:
    if isinstance(value, list):
        return [{name: _less(one, percent) if name in CHARGED else one for name, one in tier.items()} for tier in value]
    left = number(value) * (100 - number(percent)) / 100
    return None if value is None else str(Fraction(half_up(left * 10**12), 10**12))


@dataclass(frozen=True)
class Event:
    """Something that was used."""

    meter: str
    value: Fraction
    occurred_at: datetime
    properties: dict[str, str]


@dataclass(frozen=True)
class Used:
    """What was used in a stretch: the quantity, and for percentages how many events and what of them was free."""

    quantity: Fraction
    events: int = 0
    free: Fraction = NOTHING
    free_events: int = 0
    bounded: Fraction = NOTHING
    """What the bounds per event add to, or take off, percentage and fees."""
    measured: Fraction = NOTHING
    """The quantity before it was converted."""
    by_bucket: tuple["Used", ...] = ()
    """What each bucket of the price took, and last what no bucket took."""
    by_group: tuple[tuple[tuple[str | None, ...], "Used"], ...] = ()
    """What each group used, in the order in which the lines come."""
    levels: tuple[tuple[Fraction, Fraction], ...] = ()
    """Levels that are kept, each with the share of the period for which it was."""


def is_due_at_start(price: Price) -> bool:
    """True for a price in advance; the others are due at the end."""
    return bool(price.get("timing", "advance") == "advance")


def limits(terms: Price, share: Fraction, currency: str) -> tuple[int | None, int | None]:
    """Minimum and maximum for a share of a period, in minor units; None without one."""
    least, most = (terms.get(name) for name in ("minimum", "maximum"))
    return (
        None if least is None else to_minor(number(least) * share, currency),
        None if most is None else to_minor(number(most) * share, currency),
    )


def within(amount: int, least: int | None, most: int | None) -> int:
    """As much of an amount as a minimum and a maximum allow."""
    if most is not None:
        amount = min(amount, most)
    return amount if least is None else max(amount, least)


# Usage -----------------------------------------------------------------------------------------------


def used(price: Price, events: list[Event], time: Time, full: Time, zone: ZoneInfo) -> Used:
    """What was used in a stretch of a full period, as the price sees it."""
    if price.get("group_by"):
        return _grouped(price, events, time, full, zone)
    if price.get("buckets"):
        by_bucket = tuple(used(alone, events, time, full, zone) for alone in _alone(price))
        quantity, count = sum((one.quantity for one in by_bucket), NOTHING), sum(one.events for one in by_bucket)
        return Used(quantity, count, by_bucket=by_bucket)
    counted = sorted((event for event in events if _counts(price, event)), key=lambda event: event.occurred_at)
    if price["aggregation"] == "daily_level":
        return _kept(counted, time, full, zone)
    inside = [event for event in counted if time[0] <= event.occurred_at < time[1]]
    values = [event.value for event in inside]
    if price["model"] in PERCENTAGES:
        return _free_part(price, values)
    match price["aggregation"]:
        case "count":
            quantity = Fraction(len(inside))
        case "sum":
            quantity = sum(values, NOTHING)
        case "max":
            quantity = max(values, default=NOTHING)
        case "last":
            quantity = values[-1] if values else NOTHING
        case "unique":
            quantity = Fraction(len({event.properties[price["property"]] for event in inside}))
        case _:
            quantity = _weighted(counted, time) / ((full[1] - full[0]) // INSTANT)
    return Used(_converted(price, quantity), len(inside), measured=quantity)


def _grouped(price: Price, events: list[Event], time: Time, full: Time, zone: ZoneInfo) -> Used:
    """What each group used: the events with the same texts, or without any."""
    alone = {name: value for name, value in price.items() if name != "group_by"}
    groups: dict[tuple[str | None, ...], list[Event]] = {}
    for event in events:
        groups.setdefault(tuple(event.properties.get(name) for name in price["group_by"]), []).append(event)
    found = [(group, used(alone, those, time, full, zone)) for group, those in groups.items()]
    there = [one for one in found if one[1].events]
    there.sort(key=lambda one: [text or "" for text in one[0]])
    return Used(sum((one.quantity for _, one in there), NOTHING), sum(one.events for _, one in there), by_group=tuple(there))


def minor_of_groups(price: Price, used: Used | None, currency: str) -> dict[tuple[str | None, ...], int]:
    """What each group costs, rounded by itself."""
    return {group: to_minor(cost_of_usage(price, one), currency) for group, one in (used.by_group if used else ())}


def minor_of_usage(price: Price, used: Used, currency: str) -> int:
    """What the usage of a period costs, as its lines round it."""
    if price.get("group_by"):
        return sum(minor_of_groups(price, used, currency).values())
    return to_minor(cost_of_usage(price, used), currency)


def _converted(price: Price, quantity: Fraction) -> Fraction:
    """A quantity in the unit of the price."""
    how = price.get("conversion")
    if how is None:
        return quantity
    quantity = quantity / number(how["divide_by"]) if "divide_by" in how else quantity * number(how["multiply_by"])
    places = 10 ** int(how.get("decimals", 0))
    match how.get("rounding", "none"):
        case "up":
            return Fraction(-(-(quantity * places) // 1), places)
        case "down":
            return Fraction(quantity * places // 1, places)
        case "half_up":
            return Fraction(half_up(quantity * places), places)
    return quantity


def _alone(price: Price) -> list[Price]:
    """A price for each bucket, and one for what no bucket takes: `takes` and `leaves` say which events are whose."""
    rest, found, leaves = {name: value for name, value in price.items() if name != "buckets"}, [], []
    for bucket in price["buckets"]:
        amounts = {name: bucket[name] for name in ("unit_amount", "rate") if name in bucket}
        found.append(rest | amounts | {"takes": bucket["filters"], "leaves": list(leaves)})
        leaves.append(bucket["filters"])
    return [*found, rest | {"leaves": leaves}]


def _counts(price: Price, event: Event) -> bool:
    """True where the meter and the filters of the price let the event pass, and no earlier bucket takes it."""
    if event.meter != price["meter"] or any(_passes(filters, event) for filters in price.get("leaves", [])):
        return False
    return _passes(price.get("filters", {}), event) and _passes(price.get("takes", {}), event)


def _passes(filters: dict[str, list[str]], event: Event) -> bool:
    return all(event.properties.get(name) in passing for name, passing in filters.items())


def _kept(counted: list[Event], time: Time, full: Time, zone: ZoneInfo) -> Used:
    """The level of each day, day by day; the day on which the stretch ends belongs to the next."""
    first, last = local_day(time[0], zone), local_day(time[1], zone)
    of = max((local_day(full[1], zone) - local_day(full[0], zone)).days, 1)
    levels: dict[Fraction, Fraction] = {}
    reported: set[Any] = set()
    day = first
    while day < last:
        before = [event for event in counted if local_day(event.occurred_at, zone) <= day]
        level = before[-1].value if before else NOTHING
        levels[level] = levels.get(level, NOTHING) + Fraction(1, of)
        reported |= {day} if before and local_day(before[-1].occurred_at, zone) == day else set()
        day += ONE_DAY
    quantity = sum((level * share for level, share in levels.items()), NOTHING)
    return Used(quantity, len(reported), levels=tuple(sorted(levels.items())))


def _weighted(counted: list[Event], time: Time) -> Fraction:
    """Each level times the microseconds for which it held; the level at the start is the last before it."""
    before = [event.value for event in counted if event.occurred_at < time[0]]
    levels = [(time[0], before[-1] if before else NOTHING)]
    levels += [(event.occurred_at, event.value) for event in counted if time[0] <= event.occurred_at < time[1]]
    levels.append((time[1], NOTHING))
    return sum((level * ((until - since) // INSTANT) for (since, level), (until, _) in pairwise(levels)), NOTHING)


def _free_part(price: Price, values: list[Fraction]) -> Used:
    """What of a percentage price is free: events and money, until either is exceeded."""
    total, count = sum(values, NOTHING), len(values)
    events, amount = price.get("free_events"), price.get("free_amount")
    if events is None and amount is None:
        return Used(total, count, bounded=sum((_bounded(price, value) for value in values), NOTHING))
    running = NOTHING
    for position, value in enumerate(values):
        rest = sum((_bounded(price, later) for later in values[position + 1 :]), NOTHING)
        if events is not None and position >= int(events):
            return Used(total, count, running, position, _bounded(price, value) + rest)
        if amount is not None and running + value > number(amount):
            pays = running + value - number(amount)
            return Used(total, count, number(amount), position, _bounded(price, pays) + rest)
        running += value
    return Used(total, count, running, count)


def _bounded(price: Price, pays: Fraction) -> Fraction:
    """What the bounds of an event change if it pays for that much."""
    if pays <= 0:
        return NOTHING
    cost = pays * number(price.get("rate")) / 100 + number(price.get("fixed_amount"))
    least, most = price.get("event_minimum"), price.get("event_maximum")
    if least is not None and cost < number(least):
        return number(least) - cost
    return number(most) - cost if most is not None and cost > number(most) else NOTHING


# Cost ------------------------------------------------------------------------------------------------


def cost_of_usage(price: Price, used: Used) -> Fraction:
    """What the usage of a period costs, exact."""
    if used.by_bucket:
        return sum((cost_of_usage(alone, one) for alone, one in zip(_alone(price), used.by_bucket, strict=True)), NOTHING)
    if used.levels:
        return sum((cost_of(price, level) * share for level, share in used.levels), NOTHING)
    if price["model"] != "percentage":
        return cost_of(price, used.quantity)
    total = max(used.quantity, NOTHING)
    paying = total - min(max(used.free, NOTHING), total)
    fees = max(used.events - used.free_events, 0) * number(price.get("fixed_amount"))
    return paying * number(price["rate"]) / 100 + fees + used.bounded


def cost_of(price: Price, quantity: Fraction) -> Fraction:
    """What a quantity costs for a full period, exact."""
    quantity = max(quantity, NOTHING)
    model, each = price["model"], number(price.get("unit_amount"))
    paying = max(quantity - number(price.get("free_units")), NOTHING)
    match model:
        case "flat":
            return each * (quantity if price["kind"] == "recurring" else 1)
        case "unit":
            return paying * each
        case "package":
            return -(-paying // number(price["package_size"])) * each
        case "volume":
            tier = next(tier for tier in price["tiers"] if tier.get("up_to") is None or quantity <= number(tier["up_to"]))
            return _units_of_tier(tier, quantity) * number(tier.get("unit_amount")) + number(tier.get("flat_amount"))
    if not quantity and price.get("flat_fee_at_zero"):
        return number(price["tiers"][0].get("flat_amount"))
    owed, below = NOTHING, NOTHING
    for tier in price["tiers"]:
        if quantity > below:
            top = quantity if tier.get("up_to") is None else min(quantity, number(tier["up_to"]))
            per_unit = number(tier["rate"]) / 100 if model == "graduated_percentage" else number(tier.get("unit_amount"))
            owed += _units_of_tier(tier, top - below) * per_unit + number(tier.get("flat_amount"))
            below = top
    return owed


def _units_of_tier(tier: dict[str, Any], quantity: Fraction) -> Fraction:
    """The units, or the started packages, that a tier charges."""
    size = tier.get("package_size")
    return quantity if size is None else Fraction(-(-quantity // number(size)))
