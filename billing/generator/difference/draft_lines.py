"""The lines of an invoice before storage, by kind. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.generator.difference.reconcile import RecurringCharge, UsageDue
from billing.generator.state.open_claims import Credit, OneOffCharge, UnusedPart
from billing.generator.state.spans import ItemSpan
from billing.orders.item_versions import UnusedTime
from billing.orders.overrides import amounts_of
from billing.rating.aggregation import Group, RatingInput, in_order
from billing.rating.money import decimal_text, to_minor
from billing.rating.periods import Period, Schedule, Timing
from billing.rating.prices.prepaid_units import NOTHING_COVERED, Coverage, CreditSpend, units_of
from billing.rating.prices.price import Price
from billing.rating.prices.pricing import NOTHING_RATED, Rating, in_all, quote, rate, rate_groups, rate_uncovered
from billing.rating.prices.wording import group_words
from billing.rating.proration import share
from billing.rating.tax_amounts import AppliedTax, Treatment, without_tax
from billing.rating.tax_rules import STANDARD_CLASS
from billing.rating.tax_sales import Taxed
from billing.rating.totals import Limit

MINIMUM = "minimum"

MAXIMUM = "maximum"

CHARGE = "charge"

MAX_DESCRIPTION_CHARACTERS = 500


@dataclass(slots=True)
class DraftLine:
    """A line before storage.

    Args:
        continues: of late usage, and of a running period that was billed before, the period that it continues.
        schedule: of its plan: the period in which the line begins decides whether a recurring coupon lowers it.
        counted_at: the instant at which a one-off charge counts, if it names one.
        minimum_minor: the amount that the price's minimum adds on a separate line.
        group: of a price that groups its usage, the group that it bills.
        beside: of a line that keeps late usage of groups within the bounds of their price, the lines of the groups.
        tax_class: of what it sells, for the seller's rules.
        taxed: how it is taxed: as what it credits or continues; else `draft.make_bill` sets it under the seller's rules.
        taxes: the declared taxes that it bears; empty: the one of its category and rate.
        included_rate: the rate of the tax that the amounts include; None: they are without tax.
        without_tax_minor: the amount after discounts without that tax; `draft.total_bill` sets it.
        subscription_id: on a consolidated invoice.
    """

    kind: str
    description: str
    amount_minor: int
    quantity: Decimal
    tax_category: str
    tax_rate: Decimal
    due_at: datetime
    item_id: int | None = None
    price_id: int | None = None
    price_key: str = ""
    plan_code: str = ""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    unit_amount: Decimal | None = None
    rating: dict[str, Any] = field(default_factory=dict)
    discountable: bool = True
    discount_minor: int = 0
    position: int = 0
    invoice_id: int | None = None
    limit: Limit | None = None
    continues: UsageDue | None = None
    schedule: Schedule | None = None
    counted_at: datetime | None = None
    minimum_minor: int = 0
    after_coupons_minor: int = 0
    tax_class: str = STANDARD_CLASS
    taxed: Taxed | None = None
    taxes: tuple[AppliedTax, ...] = ()
    included_rate: Decimal | None = None
    without_tax_minor: int = 0
    group: Group | None = None
    beside: Sequence["DraftLine"] = ()
    subscription_id: int | None = None

    @property
    def treatment(self) -> Treatment:
        """How it is taxed."""
        return Treatment(self.tax_category, self.tax_rate, self.taxes)

    @property
    def net_minor(self) -> int:
        """The amount after discounts, as priced: with the tax that it includes."""
        return self.amount_minor - self.discount_minor

    @property
    def taxable_minor(self) -> int:
        """The amount after discounts, without tax."""
        return self.net_minor if self.included_rate is None else self.without_tax_minor

    @property
    def taxable_discount_minor(self) -> int:
        """The discounts, without tax."""
        if self.included_rate is None:
            return self.discount_minor
        return without_tax([self.discount_minor], self.included_rate)[0]

    @property
    def period(self) -> Period | None:
        """The full period in which it begins; None if it belongs to no period."""
        instant = self.starts_at or self.counted_at
        return None if self.schedule is None or instant is None else self.schedule.period_at(instant)


@dataclass(frozen=True, slots=True)
class CreditChange:
    """The change of a line in the ledger: credits spent on units, or given back with them (then both are below zero).

    Args:
        entries: the sequences of the spends or refunds.
    """

    holder_id: str
    credit_type: str
    units: Fraction
    credits: int
    entries: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the change as the `rating` of a line shows it."""
        return {
            "units": decimal_text(self.units),
            "credits": self.credits,
            "credit_type": self.credit_type,
            "holder_id": self.holder_id,
            "entries": list(self.entries),
        }


@dataclass(frozen=True, slots=True)
class RatedUsage:
    """A measured and rated usage period; `rating` is the amount beyond earlier lines, without coupons and bounds.

    Args:
        gross_minor: the amount of the whole period, without coupons and bounds.
        coverage, spends: the units of the whole period that credits pay for, and the spends for them.
        credit_change: the credits that this run spent or gave back; None if the price takes no credits.
        groups: of a price that groups its usage, the amount of each group beyond earlier lines.
    """

    due: UsageDue
    usage: RatingInput
    rating: Rating
    gross_minor: int
    coverage: Coverage = NOTHING_COVERED
    spends: tuple[CreditSpend, ...] = ()
    credit_change: CreditChange | None = None
    groups: Mapping[Group, Rating] = field(default_factory=dict)


RefundedTimes = Sequence[tuple[datetime, datetime | None]]
"""The times, from an end that refunds unused time on, in which the subscription is not active."""


def credit_lines(credit: Credit, change: CreditChange | None = None, refunded: RefundedTimes = ()) -> list[DraftLine]:
    """Return the lines that give back the unused parts of a claim, with the credits that covered it."""
    return [_credit_line(credit, part, change, refunded) for part in credit.parts if part.amount_minor or change]


def _credit_line(credit: Credit, part: UnusedPart, change: CreditChange | None, refunded: RefundedTimes) -> DraftLine:
    price = credit.claim.price
    rating: dict[str, Any] = {"credits": {"invoice": credit.claim.invoice_id, "line": credit.claim.line_position}}
    if any(start <= part.start and (end is None or part.start < end) for start, end in refunded):
        rating["unused_time"] = UnusedTime.REFUND.value
    if change is not None:
        rating["covered"] = change.as_dict()
    return DraftLine(
        kind="credit",
        description=f"Unused: {price.key}",
        amount_minor=-part.amount_minor,
        quantity=credit.claim.quantity,
        tax_category=price.tax_category,
        tax_rate=price.tax_rate,
        due_at=part.start,
        item_id=credit.claim.item_id,
        price_id=credit.claim.price_id,
        price_key=price.key,
        starts_at=part.start,
        ends_at=part.end,
        discountable=False,
        rating=rating,
        tax_class=price.tax_class,
        taxed=credit.claim.taxed,
    )


def recurring_line(charge: RecurringCharge) -> DraftLine:
    """Return the line of a stretch of a recurring price."""
    span, part = charge.span, charge.part
    rating = charge.rating.as_dict()
    rating["share"] = {"used": charge.share.used, "of": charge.share.of}
    return _price_line(
        span,
        part,
        kind="recurring",
        amount_minor=charge.amount_minor,
        quantity=span.quantity,
        due_at=part.start if span.price.timing == Timing.ADVANCE else part.end,
        rating=rating,
        limit=_limit(span, charge.share.fraction, f"{span.item_id}/{part.start.isoformat()}"),
    )


def _price_line(span: ItemSpan, part: Period, *, rating: dict[str, Any], **facts: Any) -> DraftLine:
    """Return a line of a price for a part of a period; of a negotiated price, with the amounts of the plan's own price."""
    if span.list_price is not None:
        rating["list_price"] = amounts_of(span.list_price)
    return DraftLine(
        rating=rating,
        description=span.price.key,
        tax_category=span.price.tax_category,
        tax_rate=span.price.tax_rate,
        tax_class=span.price.tax_class,
        item_id=span.item_id,
        price_id=span.price_id,
        price_key=span.price.key,
        plan_code=span.plan_code,
        starts_at=part.start,
        ends_at=part.end,
        unit_amount=span.price.amount_on_line(),
        schedule=span.plan_schedule,
        **facts,
    )


def rate_usage(due: UsageDue, usage: RatingInput, coverage: Coverage = NOTHING_COVERED) -> RatedUsage:
    """Return the rating of a measured period's uncovered units, less what earlier claims have billed."""
    span = due.span
    if span.price.group_by:
        return _rated_groups(due, usage)
    covered = coverage.stretches
    whole = rate_uncovered(span.price, usage, covered, span.currency)
    if not due.continued:
        return RatedUsage(due, usage, whole, whole.amount_minor, coverage)
    rest = whole
    if len(due.continued) == 1:
        first = due.continued[0]
        unbounded = replace(span.price, minimum=None, maximum=None)
        covered_first = first.short_of or first.coverage.stretches
        rest = quote(unbounded, usage, span.currency, first.usage, covered=covered, covered_first=covered_first)
    billed = sum(claim.gross_minor for claim in due.continued)
    return RatedUsage(due, usage, replace(rest, amount_minor=whole.amount_minor - billed), whole.amount_minor, coverage)


def _rated_groups(due: UsageDue, usage: RatingInput) -> RatedUsage:
    price, currency = due.span.price, due.span.currency
    whole = rate(price, usage, currency)
    billed = [claim.usage for claim in due.continued if claim.usage is not None]
    groups = rate_groups(price, usage, currency, billed[0] if len(billed) == 1 else None)
    for one in billed if len(billed) > 1 else ():
        for group, rating in rate_groups(price, one, currency).items():
            known = groups.get(group, NOTHING_RATED)
            groups[group] = replace(known, amount_minor=known.amount_minor - rating.amount_minor)
    rest = {group: groups[group] for group in in_order(groups)}
    return RatedUsage(due, usage, in_all(rest.values()), whole.amount_minor, groups=rest)


def credit_change_between(
    price: Price, before: Coverage, after: Coverage, holder_id: str, entries: tuple[int, ...]
) -> CreditChange:
    """Return the credits that a run spends or gives back when the coverage of a price changes. The price takes credits."""
    assert price.credits is not None
    units = units_of(price, after) - units_of(price, before)
    return CreditChange(holder_id, price.credits.credit_type, units, after.credits - before.credits, entries)


def usage_lines(rated: RatedUsage, as_of: datetime) -> list[DraftLine]:
    """Return the lines of a usage period: one of each group of a price that groups its usage, else one; none without amounts."""
    due, continues = rated.due, bool(rated.due.continued)
    if not rated.groups:
        line = _usage_line(rated, as_of)
        return [] if line is None else [line]
    limit = _usage_limit(due)
    if limit is not None and continues and not owed_minor(rated):
        return []
    quantities, nothing = dict(rated.usage.groups), RatingInput(Fraction(0))
    lines = [
        _line_of_group(due, as_of, group, rating, quantities.get(group, nothing))
        for group, rating in rated.groups.items()
        if rating.amount_minor or not continues
    ]
    if limit is not None and continues:
        lines.append(_line_of_bounds(due, limit, lines, as_of))
    elif limit is not None:
        lines = [replace(line, limit=limit) for line in lines]
    return lines


def _taxed_before(due: UsageDue) -> Taxed | None:
    """Return how what a period continues was taxed: late usage belongs to that supply."""
    return due.continued[-1].taxed if due.continued else None


def _line_of_group(due: UsageDue, as_of: datetime, group: Group, rating: Rating, usage: RatingInput) -> DraftLine:
    named = due.span.price.named(group)
    line = _price_line(
        due.span,
        due.part,
        kind="late_usage" if due.is_late else "usage",
        amount_minor=rating.amount_minor,
        quantity=Decimal(decimal_text(usage.quantity)),
        due_at=as_of if due.is_late else due.part.end,
        rating=rating.as_dict() | due.span.price.conversion_facts(usage) | due.span.price.entries_facts() | {"group": named},
        continues=due if due.continued else None,
        taxed=_taxed_before(due),
        after_coupons_minor=rating.amount_minor,
        group=group,
    )
    return replace(line, description=f"{line.description}: {group_words(named)}"[:MAX_DESCRIPTION_CHARACTERS])


def _line_of_bounds(due: UsageDue, limit: Limit, lines: Sequence[DraftLine], as_of: datetime) -> DraftLine:
    """Return the line that keeps a continued period within the bounds of its price; `draft` sets its amount, after coupons."""
    line = _price_line(
        due.span, due.part, kind=MINIMUM, amount_minor=0, quantity=Decimal(1), due_at=as_of if due.is_late else due.part.end,
        rating={}, continues=due, taxed=_taxed_before(due), limit=limit, beside=tuple(lines),
    )  # fmt: skip
    return replace(line, rating={}, unit_amount=None)


def _usage_line(rated: RatedUsage, as_of: datetime) -> DraftLine | None:
    span, part = rated.due.span, rated.due.part
    late, continues = rated.due.is_late, bool(rated.due.continued)
    rating = rated.rating.as_dict() | span.price.conversion_facts(rated.usage) | span.price.entries_facts()
    if not continues:
        rating |= span.price.by_rate_facts(rated.usage)
    if rated.credit_change is not None:
        rating["covered"] = rated.credit_change.as_dict()
    moves_credits = rated.credit_change is not None and (rated.credit_change.units or rated.credit_change.credits)
    limit, amount = _usage_limit(rated.due), rated.rating.amount_minor
    owes = bool(owed_minor(rated)) if continues else bool(amount or rated.usage.quantity or rated.usage.events)
    has_minimum = limit is not None and limit.minimum_minor is not None and not continues
    if not owes and not moves_credits and not has_minimum:
        return None
    return _price_line(
        span,
        part,
        kind="late_usage" if late else "usage",
        amount_minor=amount if owes or not continues else 0,
        quantity=Decimal(decimal_text(rated.usage.quantity)),
        due_at=as_of if late else part.end,
        rating=rating,
        continues=rated.due if continues else None,
        taxed=_taxed_before(rated.due),
        limit=limit,
        # Coupons do not lower a line whose amount the bounds reduce to 0.
        discountable=owes or not continues,
        after_coupons_minor=amount,
    )


def owed_minor(rated: RatedUsage) -> int:
    """Return the amount owed for a period beyond earlier lines, before coupons, within the bounds of its price."""
    return bounded_difference(rated.due, _usage_limit(rated.due), rated.rating.amount_minor)


def bounded_difference(due: UsageDue, limit: Limit | None, more_minor: int) -> int:
    """Return the amount owed for a period beyond earlier lines if its amount after coupons grows by `more_minor`.

    The price's minimum and maximum count for the whole period, over all its lines.
    """
    total = sum(claim.after_coupons_minor for claim in due.continued) + more_minor
    if limit is not None and limit.maximum_minor is not None:
        total = min(total, limit.maximum_minor)
    if limit is not None and limit.minimum_minor is not None:
        total = max(total, limit.minimum_minor)
    return total - sum(claim.net_minor for claim in due.continued)


def one_off_line(charge: OneOffCharge, spans: Sequence[ItemSpan], as_of: datetime) -> DraftLine:
    """Return the line of a one-off charge.

    Args:
        spans: of the subscription's prices; they decide to which period it belongs.
    """
    counted_at = min(charge.recorded_at, as_of)
    there = [span for span in spans if span.start <= counted_at and (span.end is None or counted_at < span.end)]
    return DraftLine(
        kind=CHARGE,
        description=charge.description,
        amount_minor=charge.amount_minor,
        quantity=Decimal(1),
        tax_category=charge.tax_category,
        tax_rate=charge.tax_rate,
        tax_class=charge.tax_class,
        due_at=charge.recorded_at,
        schedule=next((span.plan_schedule for span in there), None),
        counted_at=counted_at,
    )


def _limit(span: ItemSpan, fraction: Fraction, name: str) -> Limit | None:
    """Return the price's minimum and maximum for a part of a period."""
    price = span.price
    if price.minimum is None and price.maximum is None:
        return None
    return Limit(
        name=name,
        tax_category=price.tax_category,
        tax_rate=price.tax_rate,
        minimum_minor=None if price.minimum is None else to_minor(Fraction(price.minimum) * fraction, span.currency),
        maximum_minor=None if price.maximum is None else to_minor(Fraction(price.maximum) * fraction, span.currency),
    )


def _usage_limit(due: UsageDue) -> Limit | None:
    limit = _limit(due.span, _fraction(due), f"{due.span.item_id}/{due.part.start.isoformat()}")
    # The minimum is owed once the period is over.
    return limit if limit is None or due.whole is None else replace(limit, minimum_minor=None)


def _fraction(due: UsageDue) -> Fraction:
    price, part = due.span.price, due.whole or due.part
    known = share(due.span.schedule, part, price.proration, terminated=due.terminated, bill_last_day=price.bill_last_day)
    return known.fraction
