"""From what is to be billed to the lines of an invoice: amounts, discounts, true-ups, taxes. Pure.

Discounts and limits are worked out per instant at which something became due, oldest first, so that a run that catches up on
three periods takes the same off as three runs would have. Tax is worked out once for the whole document.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.generator.reconcile import Counted, Credit, RecurringCharge, UnusedPart, UsageDue
from billing.rating.aggregation import Usage
from billing.rating.money import decimal_text, to_minor
from billing.rating.periods import Timing
from billing.rating.prepaid_units import NOTHING_COVERED, Coverage, Spent, units_of
from billing.rating.pricing import Price, PriceModel, Rating, quote, rate_uncovered
from billing.rating.proration import share
from billing.rating.tax import TaxLine, VatStatus, category_for
from billing.rating.totals import Carried, Coupon, FeeLine, Limit, Totals, settle

MINIMUM = "minimum"
MAXIMUM = "maximum"
CARRIED = "carried"


@dataclass(slots=True)
class DraftLine:
    """A line before it is stored; `source` is what it bills, for the claims."""

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
    source: object = None
    limit: Limit | None = None
    after_coupons_minor: int = 0

    @property
    def net_minor(self) -> int:
        """What is left of the line after its discounts."""
        return self.amount_minor - self.discount_minor


@dataclass(frozen=True, slots=True)
class Moved:
    """What a line moves in the ledger: credits spent on units, or given back with them (then both are below zero).

    Args:
        entries: the sequences of the spends or refunds.
    """

    holder_id: str
    credit_type: str
    units: Fraction
    credits: int
    entries: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As a line's `rating` says it."""
        return {
            "units": decimal_text(self.units),
            "credits": self.credits,
            "credit_type": self.credit_type,
            "holder_id": self.holder_id,
            "entries": list(self.entries),
        }


@dataclass(frozen=True, slots=True)
class RatedUsage:
    """A usage period measured and rated; `rating` is what it adds to what was billed before, coupons and bounds apart.

    Args:
        gross_minor: what all of the period comes to, coupons and bounds apart.
        coverage, spends: what of the whole period is paid in credits, and on which spends that stands.
        moved: what this run spent or gave back of them; None where the price takes no credits.
    """

    due: UsageDue
    usage: Usage
    rating: Rating
    gross_minor: int
    coverage: Coverage = NOTHING_COVERED
    spends: tuple[Spent, ...] = ()
    moved: Moved | None = None


@dataclass(frozen=True, slots=True)
class OneOff:
    """A one-off charge that was not billed yet."""

    id: int
    amount_minor: int
    description: str
    tax_category: str
    tax_rate: Decimal
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class CouponTaken:
    """What a coupon took off the document in all, and how many periods of it that used up."""

    code: str
    amount_minor: int
    periods: int


@dataclass(frozen=True, slots=True)
class Bill:
    """The whole document in figures."""

    lines: tuple[DraftLine, ...]
    taxes: tuple[TaxLine, ...]
    coupons: tuple[CouponTaken, ...]
    carried: tuple[Carried, ...]
    subtotal_minor: int
    discount_minor: int
    tax_minor: int
    total_minor: int


def credit_lines(credit: Credit, moved: Moved | None = None) -> list[DraftLine]:
    """A claim's unused parts given back, with the credits that covered it; none for what nothing is given back for."""
    return [_credit_line(credit, part, moved) for part in credit.parts if part.amount_minor or moved]


def _credit_line(credit: Credit, part: UnusedPart, moved: Moved | None) -> DraftLine:
    price = credit.claim.price
    rating: dict[str, Any] = {"credits": {"invoice": credit.claim.invoice_id, "line": credit.claim.line_position}}
    if moved is not None:
        rating["covered"] = moved.as_dict()
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
        source=credit,
    )


def recurring_line(charge: RecurringCharge) -> DraftLine:
    """A stretch of a recurring price."""
    span, part = charge.counted, charge.part
    rating = charge.rating.as_dict()
    rating["share"] = {"used": charge.share.used, "of": charge.share.of}
    return DraftLine(
        kind="recurring",
        description=span.price.key,
        amount_minor=charge.amount_minor,
        quantity=span.quantity,
        tax_category=span.price.tax_category,
        tax_rate=span.price.tax_rate,
        due_at=part.start if span.price.timing == Timing.ADVANCE else part.end,
        item_id=span.item_id,
        price_id=span.price_id,
        price_key=span.price.key,
        plan_code=span.plan_code,
        starts_at=part.start,
        ends_at=part.end,
        unit_amount=_unit_amount(span.price),
        rating=rating,
        source=charge,
        limit=_limit(span, charge.share.fraction, f"{span.item_id}/{part.start.isoformat()}"),
    )


def rate_usage(due: UsageDue, usage: Usage, coverage: Coverage = NOTHING_COVERED) -> RatedUsage:
    """Rate what of a measured period no credits cover, less what earlier claims of it came to."""
    span = due.counted
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


def moved_by(price: Price, before: Coverage, after: Coverage, holder_id: str, entries: tuple[int, ...]) -> Moved:
    """What a run moves when the coverage of a price, which takes credits, changes."""
    assert price.credits is not None
    units = units_of(price, after) - units_of(price, before)
    return Moved(holder_id, price.credits.credit_type, units, after.credits - before.credits, entries)


def usage_line(rated: RatedUsage, as_of: datetime) -> DraftLine | None:
    """A usage period, or None when nothing was used and nothing is owed."""
    span, part = rated.due.counted, rated.due.part
    late = bool(rated.due.continued)
    rating = rated.rating.as_dict()
    if rated.moved is not None:
        rating["covered"] = rated.moved.as_dict()
    moves_credits = rated.moved is not None and (rated.moved.units or rated.moved.credits)
    limit, amount = _usage_limit(rated.due), rated.rating.amount_minor
    owes = (
        bool(_bounded_difference(rated.due, limit, amount))
        if late
        else bool(amount or rated.usage.quantity or rated.usage.events)
    )
    has_minimum = limit is not None and limit.minimum_minor is not None and not late
    if not owes and not moves_credits and not has_minimum:
        return None
    return DraftLine(
        kind="late_usage" if late else "usage",
        description=span.price.key,
        amount_minor=amount if owes or not late else 0,
        quantity=Decimal(decimal_text(rated.usage.quantity)),
        tax_category=span.price.tax_category,
        tax_rate=span.price.tax_rate,
        due_at=as_of if late else part.end,
        item_id=span.item_id,
        price_id=span.price_id,
        price_key=span.price.key,
        plan_code=span.plan_code,
        starts_at=part.start,
        ends_at=part.end,
        unit_amount=_unit_amount(span.price),
        rating=rating,
        source=rated,
        limit=limit,
        # What the bounds leave nothing of takes no coupon either.
        discountable=owes or not late,
        after_coupons_minor=amount,
    )


def _bounded_difference(due: UsageDue, limit: Limit | None, more_minor: int) -> int:
    """What is owed for a period beyond what was billed of it, when what coupons left of it grows by `more_minor`.

    The price's minimum and maximum count for the whole period, however many lines it is billed on.
    """
    total = sum(claim.after_coupons_minor for claim in due.continued) + more_minor
    if limit is not None and limit.maximum_minor is not None:
        total = min(total, limit.maximum_minor)
    if limit is not None and limit.minimum_minor is not None:
        total = max(total, limit.minimum_minor)
    return total - sum(claim.net_minor for claim in due.continued)


def one_off_line(charge: OneOff) -> DraftLine:
    """A one-off charge."""
    return DraftLine(
        kind="charge",
        description=charge.description,
        amount_minor=charge.amount_minor,
        quantity=Decimal(1),
        tax_category=charge.tax_category,
        tax_rate=charge.tax_rate,
        due_at=charge.recorded_at,
        source=charge,
    )


def make_bill(
    lines: Sequence[DraftLine],
    coupons: Sequence[Coupon],
    periods_left: Mapping[str, int | None],
    bound: Callable[[Sequence[DraftLine]], Sequence[DraftLine]] = lambda lines: (),
    vat_status: VatStatus = VatStatus.TAXABLE,
) -> Bill:
    """Discounts per due instant, then minimums and maximums of the subscription, then taxes and total of the whole.

    Args:
        bound: from the lines with their discounts to those that lift or lower a period to its bounds.
        vat_status: of the customer, which may change the tax category of the lines.
        coupons: those that the customer holds, in the order in which they were given.
        periods_left: how many more due instants each may be used for; None is no limit.
    """
    ordered = sorted(lines, key=lambda line: line.due_at)
    for position, line in enumerate(ordered, 1):
        line.position = position
        _tax_for(vat_status, line)
    taken, trued_up = _settle_groups(ordered, list(coupons), dict(periods_left))
    everything = [*ordered, *trued_up]
    for line in bound(everything):
        line.position = len(everything) + 1
        _tax_for(vat_status, line)
        everything.append(line)
    figures = settle([FeeLine(line.position, line.net_minor, line.tax_category, line.tax_rate) for line in everything])
    for carried in figures.carried:
        everything.append(_carried_line(carried, len(everything) + 1, everything[-1].due_at))
    discount = sum(line.discount_minor for line in everything)
    return Bill(
        lines=tuple(everything),
        taxes=figures.taxes,
        coupons=tuple(taken),
        carried=figures.carried,
        subtotal_minor=figures.subtotal_minor + discount,
        discount_minor=discount,
        tax_minor=figures.tax_minor,
        total_minor=figures.total_minor,
    )


def _tax_for(vat_status: VatStatus, line: DraftLine) -> None:
    line.tax_category, line.tax_rate = category_for(vat_status, line.tax_category, line.tax_rate)


def _settle_groups(
    ordered: Sequence[DraftLine], coupons: list[Coupon], periods_left: dict[str, int | None]
) -> tuple[list[CouponTaken], list[DraftLine]]:
    taken: dict[str, CouponTaken] = {}
    trued_up: list[DraftLine] = []
    for due_at in sorted({line.due_at for line in ordered}):
        group = [line for line in ordered if line.due_at == due_at]
        usable = [coupon for coupon in coupons if periods_left.get(coupon.code) != 0]
        figures = settle([_fee(line) for line in group], coupons=usable, limits=_limits(group))
        for line in group:
            _discount(line, figures)
        for up in figures.true_ups:
            trued_up.append(_true_up_line(up.name, up.amount_minor, group, len(ordered) + len(trued_up) + 1))
        for use in figures.coupons:
            if use.used:
                known = taken.get(use.code, CouponTaken(use.code, 0, 0))
                taken[use.code] = CouponTaken(use.code, known.amount_minor + use.applied_minor, known.periods + 1)
                left = periods_left.get(use.code)
                periods_left[use.code] = None if left is None else left - 1
        coupons = [_rest_of(coupon, {use.code: use.rest_minor for use in figures.coupons}) for coupon in coupons]
    return list(taken.values()), trued_up


def _discount(line: DraftLine, figures: Totals) -> None:
    """Note what was taken off a line; late usage is held to what its price's bounds leave of it after coupons."""
    line.discount_minor = figures.discount_of(line.position)
    if not line.discountable:
        return
    coupons = figures.coupons_of(line.position)
    line.after_coupons_minor = line.amount_minor - coupons
    if _is_late(line):
        assert isinstance(line.source, RatedUsage)
        line.amount_minor = _bounded_difference(line.source.due, line.limit, line.after_coupons_minor) + coupons


def _is_late(line: DraftLine) -> bool:
    return isinstance(line.source, RatedUsage) and bool(line.source.due.continued)


def _rest_of(coupon: Coupon, rests: Mapping[str, int]) -> Coupon:
    if coupon.amount_minor is None or coupon.duration != "once" or coupon.code not in rests:
        return coupon
    return replace(coupon, amount_minor=rests[coupon.code])


def _fee(line: DraftLine) -> FeeLine:
    return FeeLine(
        line.position, line.amount_minor, line.tax_category, line.tax_rate, line.price_key, line.plan_code, line.discountable
    )


def _limits(group: Sequence[DraftLine]) -> list[Limit]:
    return [
        replace(line.limit, positions=frozenset({line.position}))
        for line in group
        if line.limit is not None and not _is_late(line)
    ]


def _limit(span: Counted, fraction: Fraction, name: str) -> Limit | None:
    """The price's minimum and maximum for a part of a period."""
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
    return _limit(due.counted, _fraction(due), f"{due.counted.item_id}/{due.part.start.isoformat()}")


def _fraction(due: UsageDue) -> Fraction:
    price = due.counted.price
    part = share(due.counted.schedule, due.part, price.proration, terminated=due.terminated, bill_last_day=price.bill_last_day)
    return part.fraction


def _true_up_line(name: str, amount_minor: int, group: Sequence[DraftLine], position: int) -> DraftLine:
    of = next(line for line in group if line.limit is not None and line.limit.name == name)
    return DraftLine(
        kind=MINIMUM,
        description=f"Minimum: {of.price_key}",
        amount_minor=amount_minor,
        quantity=Decimal(1),
        tax_category=of.tax_category,
        tax_rate=of.tax_rate,
        due_at=of.due_at,
        item_id=of.item_id,
        price_id=of.price_id,
        price_key=of.price_key,
        plan_code=of.plan_code,
        starts_at=of.starts_at,
        ends_at=of.ends_at,
        position=position,
        source=of,
    )


def _carried_line(carried: Carried, position: int, due_at: datetime) -> DraftLine:
    return DraftLine(
        kind=CARRIED,
        description="Credit carried to later invoices",
        amount_minor=carried.net_minor,
        quantity=Decimal(1),
        tax_category=carried.tax_category,
        tax_rate=carried.tax_rate,
        due_at=due_at,
        position=position,
        rating={"tax_minor": carried.tax_minor},
        source=carried,
    )


def _unit_amount(price: Price) -> Decimal | None:
    return price.unit_amount if price.model in (PriceModel.FLAT, PriceModel.UNIT, PriceModel.PACKAGE) else None
