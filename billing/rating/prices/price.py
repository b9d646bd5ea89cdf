"""The fields of every price, and the decisions of its model: how a quantity is measured, rated and described. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from billing.rating.aggregation import (
    KEPT,
    Aggregation,
    Days,
    Event,
    EventCharge,
    Filters,
    Group,
    RatingInput,
    aggregate,
    both,
    daily_usage,
    group_of,
    grouped,
    matches,
    together,
)
from billing.rating.money import Exact, decimal_text
from billing.rating.periods import Interval, Timing
from billing.rating.prices.steps import Step, added_up
from billing.rating.prices.values import (
    BUCKET_AMOUNTS,
    FACTORS,
    KEY,
    KEY_RULE,
    BilledBy,
    Bucket,
    Conversion,
    CreditPrice,
    EntriesOfPrice,
    EventFilters,
    GroupKeys,
    IntervalOfPrice,
    Money,
    PriceNames,
    RatedEntries,
    Worded,
    human_name,
    name,
    one_of,
    property_name,
)
from billing.rating.prices.wording import Wording
from billing.rating.tax_rules import STANDARD_CLASS
from ledger.records import Record
from ledger.values import Boolean

# UNTDID 5305: zero rated, exempt, reverse charge, intra-community, export, outside the scope of tax.
UNTAXED_CATEGORIES = frozenset({"Z", "E", "AE", "K", "G", "O"})
TAX_CATEGORY = r"[A-Za-z][A-Za-z0-9_-]{0,31}"
TAX_CATEGORY_RULE = "a letter, then up to 31 letters, digits, _ and -"
TAX_CLASS = r"[a-z0-9_]{1,32}"
TAX_CLASS_RULE = "1 to 32 characters of a-z 0-9 _"

Misfit = tuple[str, str, str]
"""The field that does not fit the others, the rule's code, and the sentence."""


class PriceKind(StrEnum):
    """Recurring prices bill an agreed quantity; usage prices bill a measured one."""

    RECURRING = "recurring"
    USAGE = "usage"


class Proration(StrEnum):
    """How a part of a period is measured against the full period."""

    DAY = "day"
    SECOND = "second"
    NONE = "none"
    FIXED_30 = "fixed_30"


NOT_WITH_BUCKETS = frozenset({"free_units", "free_events", "free_amount", "conversion", "credits"})
"""What a price has for its whole quantity, which buckets divide."""
NOT_WITH_DAYS = frozenset({"bill_last_day", "conversion", "credits"})
"""What a price of daily levels cannot have."""
NOT_WITH_GROUPS = {
    "credits": "credits pay for the units of one quantity, and each group has its own",
    "flat_fee_at_zero": "a group exists only by its usage",
}
"""What a price that groups its usage cannot have, and why."""
NOT_WITH_ENTRIES = {
    "property": "an entry counts with the quantity of its rate",
    "credits": "its spends have taken the credits already",
}
"""What a price that is billed by entries cannot have, and why."""
GROWING = (Aggregation.COUNT, Aggregation.SUM, Aggregation.MAX, Aggregation.UNIQUE)
"""Aggregations in which an event adds to what was recorded before: such usage can be charged as it is recorded."""
USUAL_TIMING = {PriceKind.RECURRING: Timing.ADVANCE, PriceKind.USAGE: Timing.ARREARS}


@dataclass(frozen=True, kw_only=True)
class Price(Record, ABC):
    """One price of a plan. Each model is a class with its own fields, and is registered in `MODELS`.

    `reading.parse_price` makes and checks prices; the constructor checks nothing.
    """

    model: ClassVar[str]
    title: ClassVar[str]
    counts_money: ClassVar[bool] = False
    """True if the units are money in usage events; each event may cost a fee or be free."""

    key: Annotated[str, name(KEY, KEY_RULE, "The name of the price within the plan.")]
    kind: Annotated[PriceKind, one_of(PriceKind, "Whether the price is for an agreed quantity or for usage that a meter counts.")]
    timing: Annotated[Timing, one_of(Timing, "When it is billed: usage in arrears, or in advance as it is recorded.")] = field(
        default_factory=lambda: Timing.ARREARS
    )
    interval: Annotated[
        Interval | None,
        IntervalOfPrice("How often it is billed, if more often than its plan: an interval that divides the plan's."),
    ] = None
    minimum: Annotated[Decimal | None, Money("The least amount per period, before tax unless amounts include it.")] = None
    maximum: Annotated[Decimal | None, Money("The most per period, before tax unless amounts include it.")] = None
    meter: Annotated[str | None, name(KEY, KEY_RULE, "Usage prices only: the meter that events name.")] = None
    aggregation: Annotated[Aggregation | None, one_of(Aggregation, "Usage prices only: how events become a quantity.")] = None
    billed_by: Annotated[
        BilledBy | None,
        one_of(
            BilledBy,
            "Usage prices only: `events` (default), the usage events of the meter; `entries`, the spends and captures of the "
            "customer's holder by a rate. Then events of the meter are refused with `billed-by-entries`.",
        ),
    ] = None
    entries: Annotated[
        RatedEntries | None,
        EntriesOfPrice("Usage prices billed by entries only: the rate whose quantities are the usage of a period."),
    ] = None
    property: Annotated[str | None, property_name("Usage prices only: the property that replaces an event's value.")] = None
    filters: Annotated[
        Filters, EventFilters("Usage prices only: the properties that an event must have, each with its allowed value or values.")
    ] = field(default_factory=tuple)
    group_by: Annotated[
        tuple[str, ...],
        GroupKeys("Usage prices only: each combination of these properties' values is rated and has a line by itself."),
    ] = ()
    proration: Annotated[
        Proration,
        one_of(
            Proration,
            "How a price charges a part of a period. With `none`, a period is charged once, when its billing begins: more units "
            "within it are free until the next period, and fewer give nothing back.",
        ),
    ] = Proration.DAY
    bill_last_day: Annotated[
        bool, Worded(Boolean("Whether the day on which a subscription ends is charged."), "type", "must be true or false")
    ] = False
    tax_category: Annotated[str, name(TAX_CATEGORY, TAX_CATEGORY_RULE, "UNTDID 5305.", most=32)] = "S"
    tax_rate: Annotated[Decimal, Money("Percent, 0 to 100.")] = Decimal(0)
    tax_class: Annotated[
        str, name(TAX_CLASS, TAX_CLASS_RULE, "What is sold, for sellers whose rules find the taxes of category S.", most=32)
    ] = STANDARD_CLASS
    name: Annotated[str | None, human_name("What documents call it, after the plan's name; by default, the key in words.")] = None
    names: Annotated[tuple[tuple[str, str], ...], PriceNames("The name in languages in which it differs, by their codes.")] = ()

    # Of a bucket's price, the filters of the buckets before it: their events are not its own. Not a field of the contract.
    excluded: tuple[Filters, ...] = ()

    # Empty unless the model declares the attribute with its type.
    buckets: tuple[Bucket, ...] = ()
    conversion: Conversion | None = None
    credits: CreditPrice | None = None
    free_events: int | None = None
    free_amount: Decimal | None = None

    def __init_subclass__(cls, model: str = "", title: str = "") -> None:
        """Register a model.

        Args:
            model: its name in the REST contract; a class that models share has none.
            title: the words from which operators choose it.
        """
        cls.model, cls.title = model, title
        if model:
            MODELS[model] = cls

    def __post_init__(self) -> None:
        pass

    def is_due_at_start(self) -> bool:
        """Whether a period is due at its start; usage in advance is due as it is recorded, and to the end of the period."""
        return self.kind == PriceKind.RECURRING and self.timing == Timing.ADVANCE

    def is_billed_by_entries(self) -> bool:
        """Whether the ledger's entries are its usage, and not usage events."""
        return self.billed_by == BilledBy.ENTRIES

    def is_due_as_recorded(self) -> bool:
        """Whether each run charges the usage of a running period so far."""
        return self.kind == PriceKind.USAGE and self.timing == Timing.ADVANCE

    @classmethod
    def misfits(cls, taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
        """Yield what does not fit together.

        Args:
            taken: the fields that could be read.
            given: the names of all fields in the input.
        """
        if taken["kind"] == PriceKind.USAGE:
            yield from _misfits_of_usage(taken, given)
            yield from _misfits_of_entries(taken, given)
        if "buckets" in given:
            for name in NOT_WITH_BUCKETS & set(given):
                yield name, "not-with-buckets", f"a price with `buckets` has no `{name}`"
        if "group_by" in given:
            yield from _misfits_of_groups(taken)
        minimum, maximum = taken.get("minimum"), taken.get("maximum")
        if minimum is not None and maximum is not None and minimum > maximum:
            yield "maximum", "below-minimum", "the maximum is below the minimum"
        rate, category = taken.get("tax_rate", Decimal(0)), taken.get("tax_category", "S")
        if rate > 100:
            yield "tax_rate", "too-large", "a tax rate is 0..100 percent"
        if category in UNTAXED_CATEGORIES and rate:
            yield "tax_rate", "rate-not-for-category", f"category {category} needs a rate of 0"

    # Rating ------------------------------------------------------------------------------------------

    @abstractmethod
    def steps(self, usage: RatingInput) -> list[Step]:
        """Return the cost of the usage of one full period, step by step, without minimum and maximum."""

    def amount_on_line(self) -> Decimal | None:
        """The price of each unit, as a line of an invoice shows it; None if the price has no such price, or several."""
        return None if self.buckets else vars(self).get("unit_amount")

    def usage_of(
        self,
        events: Sequence[Event],
        *,
        period: tuple[datetime, datetime] | None = None,
        days: Days | None = None,
        held_before: Decimal = Decimal(0),
    ) -> RatingInput:
        """Return the usage that the price measures: its events, filtered and aggregated.

        Args:
            period: `[start, end)` of the full period, for `weighted_sum`.
            days: the days that count, for `daily_level`.
            held_before: the level that holds when the period starts, for these two.

        Raises:
            ValueError: the price has no aggregation, `weighted_sum` has no period, or `daily_level` no days.
        """
        if self.aggregation is None:
            raise ValueError(f"price {self.key!r} has no aggregation")
        if self.group_by:
            by_group: dict[Group, list[Event]] = {}
            for event in (event for event in events if matches(self.filters, event.properties)):
                by_group.setdefault(group_of(event, self.group_by), []).append(event)
            alone = replace(self, group_by=())
            return grouped({group: alone.usage_of(of_group) for group, of_group in by_group.items()})
        if self.buckets:
            known: dict[str, Any] = {"period": period, "days": days, "held_before": held_before}
            return together([price.usage_of(events, **known) for _, price in self.apart()])
        events = self.of_bucket(events)
        if self.aggregation == Aggregation.DAILY_LEVEL:
            if days is None:
                raise ValueError("daily_level needs the days that count")
            return daily_usage(events, days, property_name=self.property, filters=self.filters, held_before=held_before)
        quantity = aggregate(
            self.aggregation,
            events,
            property_name=self.property,
            filters=self.filters,
            period=period,
            held_before=held_before,
        )
        return self.converted(RatingInput(quantity, len(events)))

    def apart(self) -> list[tuple[str | None, "Price"]]:
        """Return the price of each bucket, by its key, and last that of the other events; without buckets, only the price."""
        earlier: tuple[Filters, ...] = ()
        found: list[tuple[str | None, Price]] = []
        for bucket in self.buckets:
            filters = both(self.filters, bucket.filters)
            amount = {name: value for name in BUCKET_AMOUNTS if (value := getattr(bucket, name)) is not None}
            found.append((bucket.key, replace(self, buckets=(), filters=filters, excluded=earlier, **amount)))
            earlier += (bucket.filters,)
        return [*found, (None, replace(self, buckets=(), excluded=earlier) if earlier else self)]

    def named(self, group: Group) -> dict[str, str | None]:
        """Return the values of a group of usage by their properties."""
        return dict(zip(self.group_by, group, strict=True))

    def of_bucket(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that no earlier bucket takes."""
        return [event for event in events if not any(matches(filters, event.properties) for filters in self.excluded)]

    def all_steps(self, usage: RatingInput) -> list[Step]:
        """Return the cost of the usage step by step, bucket after bucket; steps without cost only if there are no others.

        The usage is that of one group, or of a price that does not group; without usage there is no group, and no cost.
        """
        if self.group_by and not usage.quantity and not usage.events:
            return []
        if usage.levels:
            return added_up(step.of_share(share) for level, share in usage.levels for step in self.steps(RatingInput(level)))
        if not usage.parts:
            return self.steps(usage)
        by_bucket = zip(self.apart(), usage.parts, strict=True)
        steps = [replace(step, bucket=key) for (key, price), part in by_bucket for step in price.all_steps(part)]
        return [step for step in steps if step.units or step.flat_amount] or steps[-1:]

    def event_charge(self) -> EventCharge | None:
        """What each event costs, if a minimum or maximum per event bounds it."""
        return None

    def usage_of_amount(self, amount: Exact) -> RatingInput:
        """Return a bare quantity, in units of the price, as usage; below zero it counts as zero."""
        return RatingInput(max(Fraction(amount), Fraction(0)))

    def converted(self, usage: RatingInput) -> RatingInput:
        """Return measured usage in units of the price."""
        if self.conversion is None:
            return usage
        return replace(usage, quantity=self.conversion.of(usage.quantity), measured=usage.quantity)

    def conversion_facts(self, usage: RatingInput) -> dict[str, Any]:
        """Return the conversion of the usage as a rating shows it; empty if the price converts nothing."""
        if self.conversion is None or usage.measured is None:
            return {}
        numbers = {"measured": usage.measured, "quantity": usage.quantity}
        numbers |= {name: getattr(self.conversion, name) for name in FACTORS}
        texts = {name: None if each is None else decimal_text(each) for name, each in numbers.items()}
        return {"conversion": texts | {"rounding": self.conversion.rounding.value}}

    def entries_facts(self) -> dict[str, Any]:
        """Return the rate whose entries are the usage, as a rating shows it; empty if events are."""
        if self.entries is None:
            return {}
        named = {"credit_type": self.entries.credit_type, "rate": self.entries.rate, "component": self.entries.component}
        return {"entries": named}

    @staticmethod
    def by_rate_facts(usage: RatingInput) -> dict[str, Any]:
        """Return by which rates an overage was used, as a rating shows it; empty if by none."""
        if not any(rate for rate, _ in usage.by_rate):
            return {}
        return {"by_rate": [{"rate": rate, "credits": credits_} for rate, credits_ in usage.by_rate]}

    # Units that credits pay for, of a model that declares `credits` ----------------------------------

    def free_quantity(self) -> Fraction | None:
        """The quantity up to which units are free; None: all units are free."""
        return Fraction(0)

    def units_in(self, quantity: Fraction) -> Fraction:
        """Return the number of units to pay for in a quantity beyond the free units."""
        return quantity

    def quantity_of(self, units: Fraction) -> Fraction:
        """Return the largest quantity with this number of units."""
        return units

    # What people read --------------------------------------------------------------------------------

    def costs(self, say: Wording) -> str:
        """Return the cost of a unit in each bucket and of other events, in words."""
        words = []
        for bucket, (_, price) in zip(self.buckets, self.apart(), strict=False):
            passing = " and ".join(f"{name} is {' or '.join(values)}" for name, values in bucket.filters)
            words.append(f"{price.cost(say)} in {bucket.key}, where {passing}")
        return "; ".join([*words, f"otherwise {self.cost(say)}" if words else self.cost(say)])

    @abstractmethod
    def cost(self, say: Wording) -> str:
        """Return the cost of a unit, or of the whole, in words: "0.02 EUR per unit of calls"."""

    def free(self, say: Wording) -> list[str]:
        """Return the free units in words: "the first 100 free"."""
        return []


MODELS: dict[str, type[Price]] = {}
"""The models of prices by name, in the order of their declaration."""


def may_bill_the_same(one: Price, other: Price) -> bool:
    """Return whether an entry can be usage of both prices, which are billed by entries of the same rate.

    It cannot if they bill different components, or if their filters want different values of a label.
    """
    assert one.entries is not None
    assert other.entries is not None
    components = {one.entries.component, other.entries.component}
    wanted = dict(other.filters)
    apart = any(not {*values} & {*wanted.get(label, values)} for label, values in one.filters)
    return not apart and (None in components or len(components) == 1)


def _misfits_of_usage(taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
    if taken.get("timing") == Timing.ADVANCE:
        if taken.get("aggregation") not in (None, *GROWING):
            growing = ", ".join(f"`{each}`" for each in GROWING)
            yield "timing", "not-as-recorded", f"only {growing} can be charged as usage is recorded"
        if "credits" in given:
            yield "credits", "not-as-recorded", "units that credits pay for are charged when the period is over"
    if "meter" not in given:
        yield "meter", "required", "a usage price needs a meter"
    if "aggregation" not in given:
        yield "aggregation", "meter-without-aggregation", "a meter needs an aggregation"
    if taken.get("aggregation") == Aggregation.DAILY_LEVEL:
        for name in (name for name in NOT_WITH_DAYS if taken.get(name)):
            yield name, "not-with-daily-level", f"a price of daily levels has no `{name}`"
        if taken.get("proration", Proration.DAY) != Proration.DAY:
            yield "proration", "not-with-daily-level", "daily levels are prorated by days"
    if "group_by" in given and taken.get("aggregation") in KEPT:
        yield "group_by", "not-with-levels", "levels hold until the next one, so the levels of all groups would never end"
    if taken.get("aggregation") == Aggregation.COUNT and "property" in taken:
        yield "property", "not-used", "a price of the aggregation `count` has no `property`"


def _misfits_of_entries(taken: Mapping[str, Any], given: Collection[str]) -> Iterator[Misfit]:
    if taken.get("billed_by") != BilledBy.ENTRIES:
        if "entries" in given:
            yield "entries", "not-used", "only a price that is billed by entries has `entries`"
        return
    if "entries" not in given:
        yield "entries", "required", "a price that is billed by entries needs `entries`, with the rate"
    if taken.get("aggregation", Aggregation.SUM) != Aggregation.SUM:
        yield "aggregation", "not-by-entries", "the usage of entries is the sum of their quantities"
    for field_name, why in NOT_WITH_ENTRIES.items():
        if field_name in given:
            yield field_name, "not-by-entries", f"a price that is billed by entries has no `{field_name}`: {why}"


def _misfits_of_groups(taken: Mapping[str, Any]) -> Iterator[Misfit]:
    for field_name, why in NOT_WITH_GROUPS.items():
        if taken.get(field_name):
            yield field_name, "not-with-groups", f"a price with `group_by` has no `{field_name}`: {why}"
