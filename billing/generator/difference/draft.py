"""From the lines of an invoice to its bill: discounts, minimum fees, taxes, total. Pure.

A recurring coupon counts periods of one subscription. Its first period is the first in which it lowers a whole line: a fee from
the period's start on, or usage if it lowers no fee. From then on it counts periods by the calendar, even if something changes
within them. A line belongs to the period in which it begins, whenever it is invoiced: lines after a change and of late usage get
the discount of their period and use up no other period.

Discounts and limits are computed per due instant, the oldest first, so a run that catches up on three periods gives the same
discounts as three runs. Tax is computed once for the whole document.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from billing.generator.difference.draft_lines import CHARGE, MAXIMUM, MINIMUM, DraftLine, bounded_difference
from billing.generator.difference.reconcile import UsageDue
from billing.generator.state.open_claims import Credit
from billing.rating.money import decimal_text
from billing.rating.periods import Period, Schedule
from billing.rating.tax_amounts import IncludedGroup, TaxLine, Treatment, rounding_of_included, without_tax
from billing.rating.tax_rules import TaxPolicy, TaxRules
from billing.rating.tax_sales import SaleLine, Taxed
from billing.rating.totals import CarriedCredit, CouponTerms, Duration, FeeLine, Limit, Totals, compute_totals


@dataclass(slots=True)
class CouponPeriods:
    """The periods of a coupon for a subscription.

    Args:
        most: the number of its periods.
        active_from: the start of the subscription's charges.
        given_at: when the customer got it, if it counts periods of the customer; None: it counts those of the subscription.
        counted: `[from, until)`, fixed by earlier invoices; None: this invoice fixes it if the coupon lowers a whole line of it.
        used_minor: its discounts so far, by the start of the period.
        is_for: whether an amount is for this subscription, in the period that begins at an instant.
    """

    most: int
    active_from: datetime
    given_at: datetime | None = None
    counted: tuple[datetime, datetime] | None = None
    used_minor: dict[datetime, int] = field(default_factory=dict)
    is_for: Callable[[datetime], bool] = lambda _: True

    def count_from(self, lines: Iterable[DraftLine]) -> None:
        """Fix the periods that count, by the lines that the coupon may lower; unless they are fixed."""
        if self.counted is not None:
            return
        whole = [(line, period) for line in lines if (period := self._whole_period(line)) is not None]
        fees = [one for one in whole if one[0].kind == "recurring"]
        if not whole:
            return
        line, first = min(fees or whole, key=lambda one: one[1].start)
        assert line.schedule is not None
        if self.given_at is not None:
            first = min(first, _begins_at_or_after(line.schedule, self.given_at), key=lambda period: period.start)
        after = line.schedule.period(first.index + self.most)
        self.counted = first.start, after.start

    def _whole_period(self, line: DraftLine) -> Period | None:
        period = line.period
        if (
            period is None
            or line.continues is not None
            or line.starts_at not in (period.start, max(period.start, self.active_from))
        ):
            return None
        return period

    def counts(self, line: DraftLine) -> bool:
        """Return whether the coupon lowers the line: its period counts, or had begun before the first counted period."""
        if self.counted is None:
            return True
        since, until = self.counted
        period = line.period
        if period is None:
            return (line.counted_at or line.due_at) < until
        return period.start < until and period.end >= since


@dataclass(frozen=True, slots=True)
class FreedDiscount:
    """A discount that a credit gave back: in the period that begins at `start` a coupon can give the amount again."""

    start: datetime
    due_at: datetime
    amount_minor: int


def freed_by(credit: Credit) -> list[FreedDiscount]:
    """Return the discounts that a credit gives back."""
    start = credit.claim.plan_schedule.period_at(credit.claim.start).start
    return [FreedDiscount(start, part.start, part.freed_minor) for part in credit.parts if part.freed_minor]


def _begins_at_or_after(schedule: Schedule, instant: datetime) -> Period:
    period = schedule.period_at(instant)
    return period if period.start == instant else schedule.period(period.index + 1)


def terms_by_period(coupon: CouponTerms, periods: CouponPeriods, lines: Sequence[DraftLine]) -> list[CouponTerms]:
    """Return a coupon's discount on lines of one due instant: a percentage at once, an amount once for each period."""
    counted = [line for line in lines if periods.counts(line)]
    if coupon.amount_minor is None:
        return [replace(coupon, positions=frozenset(line.position for line in counted))] if counted else []
    coupon_terms: list[CouponTerms] = []
    for start in sorted({start_of(line) for line in counted}):
        of_period = [line for line in counted if start_of(line) == start]
        left = coupon.amount_minor - periods.used_minor.get(start, 0)
        if left > 0 and periods.is_for(max(start, periods.active_from)):
            positions = frozenset(line.position for line in of_period)
            coupon_terms.append(replace(coupon, amount_minor=left, positions=positions))
    return coupon_terms


def start_of(line: DraftLine) -> datetime:
    """Return the start of the line's period, or the due instant of a line without a period."""
    period = line.period
    return line.due_at if period is None else period.start


CARRIED = "carried"


@dataclass(slots=True)
class CouponDiscount:
    """The discount of a coupon on the document.

    periods: of a recurring coupon, by the start of the period: its discount, and the amount that credits freed for other lines.
    """

    code: str
    amount_minor: int = 0
    periods: dict[datetime, tuple[int, int]] = field(default_factory=dict)

    def add(self, start: datetime, taken_minor: int, returned_minor: int = 0) -> None:
        """Add a discount, or an amount that credits freed, to a period."""
        taken, returned = self.periods.get(start, (0, 0))
        self.periods[start] = taken + taken_minor, returned + returned_minor


@dataclass(frozen=True, slots=True)
class Bill:
    """The amounts of a document."""

    lines: tuple[DraftLine, ...]
    taxes: tuple[TaxLine, ...]
    coupons: tuple[CouponDiscount, ...]
    carried: tuple[CarriedCredit, ...]
    subtotal_minor: int
    discount_minor: int
    tax_minor: int
    total_minor: int
    rounding_minor: int = 0

    @property
    def payable_minor(self) -> int:
        """The total with the rounding of prices that include tax."""
        return self.total_minor + self.rounding_minor


def make_bill(
    lines: Sequence[DraftLine],
    coupons: Sequence[CouponTerms],
    periods: Mapping[str, CouponPeriods],
    bound: Callable[[], Sequence[DraftLine]] = tuple,
    policy: TaxPolicy = TaxPolicy(),  # noqa: B008 (it never changes)
    freed: Sequence[FreedDiscount] = (),
    *,
    includes_tax: bool = False,
    currency: str = "",
) -> Bill:
    """Compute discounts per due instant, then minimums and maximums of the subscription, then taxes and total.

    Args:
        currency: for a provider of taxes.
        bound: makes the lines that raise or lower a period to its bounds, from lines with their discounts.
        policy: decides the taxes of the lines.
        coupons: in the order in which the customer got them.
        periods: of the recurring coupons: they decide the lines that each lowers.
        freed: the discounts that credits give back.
        includes_tax: the amounts of the subscription's plan include tax; those of one-off charges do not.

    Raises:
        TaxNotDeclared: the policy finds no tax for a line that must bear one.
        TaxesToAsk: a provider has to be asked first.
    """
    ordered = sorted(lines, key=lambda line: line.due_at)
    for position, line in enumerate(ordered, 1):
        line.position = position
    for coupon in coupons:
        if coupon.code in periods:
            periods[coupon.code].count_from(line for line in ordered if coupon.covers(_fee(line)))
    taken, minimum_lines = _discount_by_instant(ordered, list(coupons), periods, freed)
    # A line of bounds whose bounds change nothing is no line.
    everything = [line for line in [*ordered, *minimum_lines] if line.amount_minor or line.kind not in (MINIMUM, MAXIMUM)]
    for position, line in enumerate(everything, 1):
        line.position = position
    for line in bound():
        line.position = len(everything) + 1
        everything.append(line)
    _find_taxes(policy, currency, everything, includes_tax=includes_tax)
    return total_bill(everything, taken)


def total_bill(lines: Sequence[DraftLine], coupons: Sequence[CouponDiscount] = ()) -> Bill:
    """Compute what a document owes by its lines after discounts: the tax that prices include, carried credits, taxes and total.

    Args:
        coupons: the discounts that the lines have already.
    """
    everything = list(lines)
    rounding = _take_tax_out(everything)
    totals = compute_totals(
        [FeeLine(line.position, line.taxable_minor, *line.treatment[:2], taxes=line.taxes) for line in everything]
    )
    for carried in totals.carried:
        everything.append(_carried_line(carried, len(everything) + 1, everything[-1].due_at))
    discount = sum(line.taxable_discount_minor for line in everything)
    return Bill(
        lines=tuple(everything),
        taxes=totals.taxes,
        coupons=tuple(coupons),
        carried=totals.carried,
        subtotal_minor=totals.subtotal_minor + discount,
        discount_minor=discount,
        tax_minor=totals.tax_minor,
        total_minor=totals.total_minor,
        rounding_minor=rounding,
    )


def _take_tax_out(lines: Sequence[DraftLine]) -> int:
    """Set the amounts without tax of lines that include it; return what the rounding of the document adds."""
    included: dict[tuple[Treatment, Decimal], list[DraftLine]] = {}
    for line in lines:
        if line.included_rate is not None:
            included.setdefault((line.treatment, line.included_rate), []).append(line)
    for (_, included_rate), of_rate in included.items():
        nets = without_tax([line.net_minor for line in of_rate], included_rate)
        for line, net in zip(of_rate, nets, strict=True):
            line.without_tax_minor = net
            line.rating["included_tax"] = _included_amounts(line, included_rate)
    # Lines with declared taxes may have one of them in common: these are rounded together, every other category by itself.
    rounded: dict[Treatment | None, list[IncludedGroup]] = {}
    for treatment in dict.fromkeys(line.treatment for line in lines):
        group = _group([line for line in lines if line.treatment == treatment], treatment)
        # A credit that is carried has no rounding.
        if group.net_minor + group.other_minor >= 0:
            rounded.setdefault(None if treatment.taxes else treatment, []).append(group)
    return sum(rounding_of_included(groups) for groups in rounded.values() if any(group.with_tax_minor for group in groups))


def _group(lines: Sequence[DraftLine], treatment: Treatment) -> IncludedGroup:
    """Return the lines of a treatment. What a customer pays who owes the tax, or is exempt, is the net amount."""
    priced = [line for line in lines if line.included_rate == treatment.rate]
    net = sum(line.taxable_minor for line in priced)
    return IncludedGroup(treatment, sum(line.net_minor for line in priced), net, sum(line.taxable_minor for line in lines) - net)


def _included_amounts(line: DraftLine, rate: Decimal) -> dict[str, Any]:
    """Return the amounts of a line as priced, for its stored rating."""
    return {"rate": decimal_text(rate), "amount_minor": line.amount_minor, "discount_minor": line.discount_minor}


def _find_taxes(policy: TaxPolicy, currency: str, lines: Sequence[DraftLine], *, includes_tax: bool) -> None:
    """Set how each line is taxed: as what it credits or continues, else as the policy finds."""
    for line in lines:
        if line.taxed is not None:
            _tax(line, line.taxed, includes_tax=includes_tax)
    free = [line for line in lines if line.taxed is None]
    days = [policy.day_of(line.ends_at, line.counted_at or line.due_at) for line in free]
    sold = [
        SaleLine(abs(line.net_minor), includes_tax and line.kind != CHARGE, line.tax_category, line.tax_rate, line.tax_class)
        for line in free
    ]
    for line, day, answer in zip(free, days, policy.answers(currency, list(zip(days, sold, strict=True))), strict=True):
        _tax(line, answer.taxed, includes_tax=includes_tax)
        # What the price and the customer's status say is not kept: credits follow them.
        line.taxed = answer.taxed if policy.rules != TaxRules.PRICE else None
        if answer.provider:
            line.rating["tax_answer"] = answer.as_dict(day)


def _tax(line: DraftLine, taxed: Taxed, *, includes_tax: bool) -> None:
    if includes_tax and line.kind != CHARGE:
        line.included_rate = taxed.included_rate
    line.tax_category, line.tax_rate, line.taxes = taxed.treatment


def _discount_by_instant(
    ordered: Sequence[DraftLine],
    coupons: list[CouponTerms],
    periods: Mapping[str, CouponPeriods],
    freed: Sequence[FreedDiscount],
) -> tuple[list[CouponDiscount], list[DraftLine]]:
    taken: dict[str, CouponDiscount] = {}
    minimum_lines: list[DraftLine] = []
    for due_at in sorted({line.due_at for line in ordered}):
        group = [line for line in ordered if line.due_at == due_at]
        free = [one for one in freed if one.due_at <= due_at]
        freed = [one for one in freed if one.due_at > due_at]
        _make_free(free, [coupon for coupon in coupons if coupon.code in periods], periods, taken)
        usable = [terms for coupon in coupons for terms in _usable(coupon, periods, group, taken)]
        totals = compute_totals([_fee(line) for line in group], coupons=usable, limits=_limits(group))
        for line in group:
            _discount(line, totals)
        for fee in totals.minimum_fees:
            line = next(line for line in group if line.limit is not None and line.limit.name == fee.name)
            line.minimum_minor = fee.amount_minor
            minimum_lines.append(_minimum_line(line, len(ordered) + len(minimum_lines) + 1))
        for use in totals.coupons:
            if use.used:
                taken.setdefault(use.code, CouponDiscount(use.code)).amount_minor += use.applied_minor
        _count_by_period(group, totals, periods, taken)
        coupons = [_rest_of(coupon, {use.code: use.rest_minor for use in totals.coupons}) for coupon in coupons]
    return list(taken.values()), minimum_lines


def _usable(
    coupon: CouponTerms, periods: Mapping[str, CouponPeriods], group: Sequence[DraftLine], taken: Mapping[str, CouponDiscount]
) -> list[CouponTerms]:
    """Return what a coupon can give on lines of one due instant."""
    if coupon.code in periods:
        return terms_by_period(coupon, periods[coupon.code], [line for line in group if coupon.covers(_fee(line))])
    is_used_up = coupon.duration == Duration.ONCE and coupon.percent is not None and coupon.code in taken
    return [] if is_used_up else [coupon]


def _make_free(
    freed: Sequence[FreedDiscount],
    coupons: Sequence[CouponTerms],
    periods: Mapping[str, CouponPeriods],
    taken: dict[str, CouponDiscount],
) -> None:
    """Let coupons give the amounts again by which credits were smaller: a change keeps the discount of its period."""
    for one in freed:
        left = one.amount_minor
        for coupon in coupons:
            used = periods[coupon.code].used_minor
            free = min(left, used.get(one.start, 0)) if coupon.amount_minor is not None else 0
            if free:
                left -= free
                used[one.start] -= free
                taken.setdefault(coupon.code, CouponDiscount(coupon.code)).add(one.start, 0, free)


def _count_by_period(
    group: Sequence[DraftLine], totals: Totals, periods: Mapping[str, CouponPeriods], taken: Mapping[str, CouponDiscount]
) -> None:
    starts = {line.position: start_of(line) for line in group}
    for one in totals.discounts:
        if one.is_coupon and one.source in periods:
            start = starts[one.position]
            taken[one.source].add(start, one.amount_minor)
            used = periods[one.source].used_minor
            used[start] = used.get(start, 0) + one.amount_minor


def _discount(line: DraftLine, totals: Totals) -> None:
    """Set the discount of a line. On late usage it is at most what the bounds of its price leave after coupons."""
    line.discount_minor = totals.discount_of(line.position)
    if not line.discountable:
        return
    coupons = totals.coupons_of(line.position)
    line.after_coupons_minor = line.amount_minor - coupons
    # The lines of groups keep their amounts; the line beside them keeps all of them within the bounds.
    if line.continues is not None and line.group is None:
        beside_minor = sum(other.after_coupons_minor for other in line.beside)
        billed_minor = bounded_difference(line.continues, line.limit, line.after_coupons_minor + beside_minor)
        line.amount_minor = billed_minor + coupons - beside_minor
        if line.kind in (MINIMUM, MAXIMUM):
            _name_bound(line, line.continues, beside_minor)


def _name_bound(line: DraftLine, due: UsageDue, more_minor: int) -> None:
    """Name the bound that a line of bounds keeps: the maximum if the period exceeds it or exceeded it, else the minimum."""
    assert line.limit is not None
    before_minor = sum(claim.after_coupons_minor for claim in due.continued)
    most = line.limit.maximum_minor
    line.kind = MAXIMUM if most is not None and max(before_minor, before_minor + more_minor) > most else MINIMUM
    line.description = f"{line.kind.capitalize()}: {line.price_key}"


def _rest_of(coupon: CouponTerms, rests: Mapping[str, int]) -> CouponTerms:
    if coupon.amount_minor is None or coupon.duration != "once" or coupon.code not in rests:
        return coupon
    return replace(coupon, amount_minor=rests[coupon.code])


def _fee(line: DraftLine) -> FeeLine:
    return FeeLine(
        line.position, line.amount_minor, line.tax_category, line.tax_rate, line.price_key, line.plan_code, line.discountable
    )


def _limits(group: Sequence[DraftLine]) -> list[Limit]:
    positions: dict[str, tuple[Limit, set[int]]] = {}
    for line in group:
        if line.limit is not None and line.continues is None:
            positions.setdefault(line.limit.name, (line.limit, set()))[1].add(line.position)
    return [replace(limit, positions=frozenset(of_limit)) for limit, of_limit in positions.values()]


def _minimum_line(of: DraftLine, position: int) -> DraftLine:
    """Return the line that raises another line to the minimum of its price."""
    return DraftLine(
        kind=MINIMUM,
        description=f"Minimum: {of.price_key}",
        amount_minor=of.minimum_minor,
        quantity=Decimal(1),
        tax_category=of.tax_category,
        tax_rate=of.tax_rate,
        tax_class=of.tax_class,
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
        taxes=carried.taxes,
        due_at=due_at,
        position=position,
        rating={"tax_minor": carried.tax_minor},
    )
