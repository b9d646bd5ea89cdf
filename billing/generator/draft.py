"""From the lines of an invoice to its bill: discounts, minimum fees, taxes, total. Pure.

Discounts and limits are computed per due instant, oldest first, so a run that catches up on three periods takes off the same as
three runs would have done. Tax is computed once for the whole document.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from billing.generator.draft_lines import MINIMUM, DraftLine, bounded_difference
from billing.rating.tax import TaxLine, VatStatus, category_for
from billing.rating.totals import CarriedCredit, CouponTerms, FeeLine, Limit, Totals, compute_totals

CARRIED = "carried"


@dataclass(frozen=True, slots=True)
class CouponDiscount:
    """The sum that a coupon took off the document, and the number of its periods that this used up."""

    code: str
    amount_minor: int
    periods: int


@dataclass(frozen=True, slots=True)
class Bill:
    """The numbers of a document."""

    lines: tuple[DraftLine, ...]
    taxes: tuple[TaxLine, ...]
    coupons: tuple[CouponDiscount, ...]
    carried: tuple[CarriedCredit, ...]
    subtotal_minor: int
    discount_minor: int
    tax_minor: int
    total_minor: int


def make_bill(
    lines: Sequence[DraftLine],
    coupons: Sequence[CouponTerms],
    periods_left: Mapping[str, int | None],
    bound: Callable[[], Sequence[DraftLine]] = tuple,
    vat_status: VatStatus = VatStatus.TAXABLE,
) -> Bill:
    """Apply discounts per due instant, then minimums and maximums of the subscription, then compute taxes and total.

    Args:
        bound: makes the lines that raise or lower a period to its bounds, once the lines have their discounts.
        vat_status: of the customer, which may change the tax category of the lines.
        coupons: the customer's coupons in the order in which the customer got them.
        periods_left: for how many more due instants each coupon can be used. None: no limit.
    """
    ordered = sorted(lines, key=lambda line: line.due_at)
    for position, line in enumerate(ordered, 1):
        line.position = position
        _tax_for(vat_status, line)
    taken, minimum_lines = _discount_by_instant(ordered, list(coupons), dict(periods_left))
    everything = [*ordered, *minimum_lines]
    for line in bound():
        line.position = len(everything) + 1
        _tax_for(vat_status, line)
        everything.append(line)
    totals = compute_totals([FeeLine(line.position, line.net_minor, line.tax_category, line.tax_rate) for line in everything])
    for carried in totals.carried:
        everything.append(_carried_line(carried, len(everything) + 1, everything[-1].due_at))
    discount = sum(line.discount_minor for line in everything)
    return Bill(
        lines=tuple(everything),
        taxes=totals.taxes,
        coupons=tuple(taken),
        carried=totals.carried,
        subtotal_minor=totals.subtotal_minor + discount,
        discount_minor=discount,
        tax_minor=totals.tax_minor,
        total_minor=totals.total_minor,
    )


def _tax_for(vat_status: VatStatus, line: DraftLine) -> None:
    line.tax_category, line.tax_rate = category_for(vat_status, line.tax_category, line.tax_rate)


def _discount_by_instant(
    ordered: Sequence[DraftLine], coupons: list[CouponTerms], periods_left: dict[str, int | None]
) -> tuple[list[CouponDiscount], list[DraftLine]]:
    taken: dict[str, CouponDiscount] = {}
    minimum_lines: list[DraftLine] = []
    for due_at in sorted({line.due_at for line in ordered}):
        group = [line for line in ordered if line.due_at == due_at]
        usable = [coupon for coupon in coupons if periods_left.get(coupon.code) != 0]
        totals = compute_totals([_fee(line) for line in group], coupons=usable, limits=_limits(group))
        for line in group:
            _discount(line, totals)
        for fee in totals.minimum_fees:
            line = next(line for line in group if line.limit is not None and line.limit.name == fee.name)
            line.minimum_minor = fee.amount_minor
            minimum_lines.append(_minimum_line(line, len(ordered) + len(minimum_lines) + 1))
        for use in totals.coupons:
            if use.used:
                known = taken.get(use.code, CouponDiscount(use.code, 0, 0))
                taken[use.code] = CouponDiscount(use.code, known.amount_minor + use.applied_minor, known.periods + 1)
                left = periods_left.get(use.code)
                periods_left[use.code] = None if left is None else left - 1
        coupons = [_rest_of(coupon, {use.code: use.rest_minor for use in totals.coupons}) for coupon in coupons]
    return list(taken.values()), minimum_lines


def _discount(line: DraftLine, totals: Totals) -> None:
    """Set the discount of a line. Late usage is limited to what its price's bounds leave of it after coupons."""
    line.discount_minor = totals.discount_of(line.position)
    if not line.discountable:
        return
    coupons = totals.coupons_of(line.position)
    line.after_coupons_minor = line.amount_minor - coupons
    if line.late is not None:
        line.amount_minor = bounded_difference(line.late, line.limit, line.after_coupons_minor) + coupons


def _rest_of(coupon: CouponTerms, rests: Mapping[str, int]) -> CouponTerms:
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
        if line.limit is not None and line.late is None
    ]


def _minimum_line(of: DraftLine, position: int) -> DraftLine:
    """The line that raises another to the minimum of its price."""
    return DraftLine(
        kind=MINIMUM,
        description=f"Minimum: {of.price_key}",
        amount_minor=of.minimum_minor,
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
    )


def _carried_line(carried: CarriedCredit, position: int, due_at: datetime) -> DraftLine:
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
    )
