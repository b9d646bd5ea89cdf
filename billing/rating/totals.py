"""From fee lines to the amount due: discounts, limits, tax, credit notes, prepaid credits, in that order. Pure.

1. Coupons: those limited to prices, then to plans, then general ones; each group in the order given. Each coupon reduces the rest
   of its lines, and its parts on the lines add up exactly.
2. Maximums: a discount of the amount above them after coupons; per price first, then per subscription.
3. Minimums: a line for the amount missing after discounts; per price first, then per subscription.
4. Credit lines that exceed the fees with their taxes: the amount below zero goes, with its tax, into a credit note.
5. Taxes, total, credit notes (those carried included), prepaid credits, amount due.

All amounts are in minor units of one currency. Only credit lines are below zero.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction

from billing.rating.money import minor_digits, round_half_up, spread
from billing.rating.tax_amounts import AppliedTax, Taxable, TaxLine, Treatment, taxes


@dataclass(frozen=True, slots=True)
class FeeLine:
    """A line of the invoice before discounts.

    Args:
        position: unique on the invoice.
        amount_minor: rounded; negative for a credit.
        price_key, plan: the values to which coupons can be limited.
        discountable: False if no coupon may reduce the line.
        taxes: the declared taxes that it bears; empty: the one of its category and rate.
    """

    position: int
    amount_minor: int
    tax_category: str
    tax_rate: Decimal
    price_key: str = ""
    plan: str = ""
    discountable: bool = True
    taxes: tuple[AppliedTax, ...] = ()


class Duration(StrEnum):
    """How long a coupon lasts. `billing.generator.difference.draft` counts the periods of a recurring coupon."""

    ONCE = "once"
    RECURRING = "recurring"
    FOREVER = "forever"


class CouponPer(StrEnum):
    """Whether a recurring coupon counts the periods of the customer or of the subscription."""

    SUBSCRIPTION = "subscription"
    CUSTOMER = "customer"


@dataclass(frozen=True, slots=True)
class CouponTerms:
    """A discount that the customer holds: an amount or a percentage.

    Args:
        amount_minor: of an amount: its worth on this invoice (of a coupon used `once`, the rest that is left).
        percent: for a percentage, 0 .. 100.
        prices, plans: the limits of the coupon; empty: not limited. With both, a line must match both.
        positions: the lines of the periods that the coupon covers; None: all.
    """

    code: str
    duration: Duration = Duration.FOREVER
    amount_minor: int | None = None
    percent: Decimal | None = None
    prices: frozenset[str] = frozenset()
    plans: frozenset[str] = frozenset()
    positions: frozenset[int] | None = None

    def __post_init__(self) -> None:
        if (self.amount_minor is None) == (self.percent is None):
            raise ValueError("a coupon is either an amount or a percentage")
        if self.amount_minor is not None and self.amount_minor < 0:
            raise ValueError("a coupon's amount is not negative")
        if self.percent is not None and not 0 <= self.percent <= 100:
            raise ValueError("a coupon's percentage is 0..100")

    @property
    def rank(self) -> int:
        """The order of coupons: 0 limited to prices, 1 to plans, 2 general."""
        return 0 if self.prices else 1 if self.plans else 2

    def is_for(self, price_key: str, plan: str) -> bool:
        """Return whether the limits of the coupon admit a price of a plan."""
        return (not self.prices or price_key in self.prices) and (not self.plans or plan in self.plans)

    def covers(self, line: FeeLine) -> bool:
        """Return whether the coupon may reduce the line."""
        return (
            line.discountable
            and line.amount_minor > 0
            and self.is_for(line.price_key, line.plan)
            and (self.positions is None or line.position in self.positions)
        )


@dataclass(frozen=True, slots=True)
class Limit:
    """A minimum and maximum per price, or per subscription and period, prorated already.

    Args:
        name: the name of its line of a minimum and of its discounts, such as "minimum/api-calls".
        positions: the lines that count; None for all.
        subscription_wide: applies after the limits of prices, and counts the lines that those added.
        tax_category, tax_rate: of the line that it adds.
    """

    name: str
    tax_category: str
    tax_rate: Decimal
    minimum_minor: int | None = None
    maximum_minor: int | None = None
    positions: frozenset[int] | None = None
    subscription_wide: bool = False

    def counts(self, position: int) -> bool:
        """Return whether the line counts towards this limit."""
        return self.positions is None or position in self.positions


@dataclass(frozen=True, slots=True)
class Discount:
    """The discount that a coupon or a maximum gave on one line; `amount_minor` is above 0."""

    source: str
    position: int
    amount_minor: int
    is_coupon: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class CouponEffect:
    """The effect of a coupon on this invoice.

    Args:
        applied_minor: the discount that it gave.
        rest_minor: the rest of an amount used `once`, for the next invoice; 0 for other coupons.
        used: the invoice has a fee that it covers.
        exhausted: a coupon used `once` has no rest for a later invoice.
    """

    code: str
    applied_minor: int
    rest_minor: int
    used: bool
    exhausted: bool


@dataclass(frozen=True, slots=True)
class MinimumFee:
    """The line that raises fees to a minimum; `amount_minor` is above 0."""

    name: str
    amount_minor: int
    tax_category: str
    tax_rate: Decimal


@dataclass(frozen=True, slots=True)
class CarriedCredit:
    """The amount below zero that is left of lines with the same taxes: it goes from the invoice into a credit note.

    Args:
        net_minor: a line of this amount raises their sum to 0.
        tax_minor: the taxes that the credit note gives back with it.
    """

    tax_category: str
    tax_rate: Decimal
    net_minor: int
    tax_minor: int
    taxes: tuple[AppliedTax, ...] = ()

    @property
    def total_minor(self) -> int:
        """The worth of the credit note."""
        return self.net_minor + self.tax_minor


@dataclass(frozen=True, slots=True)
class OpenCreditNote:
    """A credit note of the customer with a rest."""

    ref: str
    left_minor: int


@dataclass(frozen=True, slots=True)
class AppliedNote:
    """The amount that an invoice took from a credit note."""

    ref: str
    amount_minor: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The amounts of an invoice: subtotal − discount + tax = total; total − credit notes − prepaid = amount due.

    Args:
        subtotal_minor: fee lines, minimum fees and carried credits, before discounts.
        carried_left_minor: the part of `carried` that this invoice did not use up.
    """

    discounts: tuple[Discount, ...]
    coupons: tuple[CouponEffect, ...]
    minimum_fees: tuple[MinimumFee, ...]
    carried: tuple[CarriedCredit, ...]
    taxes: tuple[TaxLine, ...]
    subtotal_minor: int
    discount_minor: int
    tax_minor: int
    total_minor: int
    credit_notes: tuple[AppliedNote, ...]
    credit_notes_minor: int
    carried_left_minor: int
    prepaid_minor: int
    amount_due_minor: int

    def discount_of(self, position: int) -> int:
        """Return the sum of the discounts of a line."""
        return sum(d.amount_minor for d in self.discounts if d.position == position)

    def coupons_of(self, position: int) -> int:
        """Return the sum of the coupons' discounts on a line."""
        return sum(d.amount_minor for d in self.discounts if d.position == position and d.is_coupon)


@dataclass(frozen=True, slots=True)
class CreditsUsed:
    """Prepaid credits that pay for an amount: whole units and their worth in money."""

    units: int
    amount_minor: int


CARRIED_REF = "carried"
"""The reference of an invoice's own carried credit among the credit notes that it used."""


def compute_totals(
    lines: Sequence[FeeLine],
    *,
    coupons: Sequence[CouponTerms] = (),
    limits: Sequence[Limit] = (),
    credit_notes: Sequence[OpenCreditNote] = (),
    prepaid_minor: int = 0,
) -> Totals:
    """Compute all amounts of an invoice from its fee lines.

    Args:
        coupons: in the order in which they apply within their group.
        limits: those of prices apply before those of the subscription; otherwise in the order given.
        credit_notes: the oldest first.
        prepaid_minor: the most that prepaid credits may pay (see `credits_for`).
    """
    fees = _Fees(lines)
    ordered_limits = sorted(limits, key=lambda limit: limit.subscription_wide)
    discounts: list[Discount] = []
    uses: dict[int, CouponEffect] = {}
    for index in sorted(range(len(coupons)), key=lambda index: coupons[index].rank):
        taken, uses[index] = fees.redeem(coupons[index])
        discounts += taken
    discounts += [discount for limit in ordered_limits for discount in fees.cap(limit)]
    minimum_fees = _minimum_fees(fees, ordered_limits)
    carried = _carried_credits(fees, minimum_fees)
    tax_lines = taxes(_taxables(fees, minimum_fees, carried))
    subtotal = sum(line.amount_minor for line in lines)
    subtotal += sum(t.amount_minor for t in minimum_fees) + sum(c.net_minor for c in carried)
    discount = sum(d.amount_minor for d in discounts)
    tax = sum(line.tax_minor for line in tax_lines)
    total = subtotal - discount + tax
    own = sum(c.total_minor for c in carried)
    applied = apply_credit_notes(total, [OpenCreditNote(CARRIED_REF, own), *credit_notes])
    noted = sum(a.amount_minor for a in applied)
    prepaid = min(max(prepaid_minor, 0), total - noted)
    return Totals(
        discounts=tuple(discounts),
        coupons=tuple(uses[index] for index in range(len(coupons))),
        minimum_fees=tuple(minimum_fees),
        carried=tuple(carried),
        taxes=tax_lines,
        subtotal_minor=subtotal,
        discount_minor=discount,
        tax_minor=tax,
        total_minor=total,
        credit_notes=applied,
        credit_notes_minor=noted,
        carried_left_minor=own - sum(a.amount_minor for a in applied if a.ref == CARRIED_REF),
        prepaid_minor=prepaid,
        amount_due_minor=total - noted - prepaid,
    )


def apply_credit_notes(total_minor: int, credit_notes: Iterable[OpenCreditNote]) -> tuple[AppliedNote, ...]:
    """Return the amounts to take from the credit notes, in order, until the total is paid."""
    left, applied = total_minor, []
    for note in credit_notes:
        amount = min(left, note.left_minor)
        if amount > 0:
            applied.append(AppliedNote(note.ref, amount))
            left -= amount
    return tuple(applied)


def credits_for(due_minor: int, *, available_units: int, unit_value: Decimal, currency: str) -> CreditsUsed:
    """Return the most whole credits that can pay for an amount without exceeding it, and their worth.

    Args:
        due_minor: the amount owed after tax and credit notes; for 0 or less no credits are used.
        available_units: the credits that the holder can spend.
        unit_value: money per credit in major units, above 0.

    Returns:
        The units, and their worth in whole minor units, rounded down, so that credits cover all booked money. The units are only
        as many as this worth takes: of 57 credits worth a tenth of a cent each, 50 pay 5 cents.
    """
    if unit_value <= 0:
        raise ValueError("a credit is worth more than nothing")
    if due_minor <= 0 or available_units <= 0:
        return CreditsUsed(0, 0)
    unit_minor = Fraction(unit_value) * 10 ** minor_digits(currency)
    amount_minor = int(min(due_minor // unit_minor, available_units) * unit_minor)
    return CreditsUsed(math.ceil(amount_minor / unit_minor), amount_minor)


class _Fees:
    """The fee lines with the rest of each while coupons and maximums reduce them."""

    def __init__(self, lines: Sequence[FeeLine]) -> None:
        self.lines = {line.position: line for line in lines}
        if len(self.lines) != len(lines):
            raise ValueError("two lines have the same position")
        self.left = {line.position: line.amount_minor for line in lines}

    def cap(self, limit: Limit) -> list[Discount]:
        """Reduce the counted lines by the amount by which they exceed a maximum."""
        if limit.maximum_minor is None:
            return []
        counted = [position for position in self.lines if limit.counts(position)]
        excess = sum(self.left[position] for position in counted) - limit.maximum_minor
        return self._take(limit.name, counted, excess)

    def redeem(self, coupon: CouponTerms) -> tuple[list[Discount], CouponEffect]:
        """Reduce the rest of the lines that a coupon covers."""
        covered = [position for position, line in self.lines.items() if coupon.covers(line)]
        open_minor = sum(max(self.left[position], 0) for position in covered)
        if coupon.percent is not None:
            worth = round_half_up(open_minor * Fraction(coupon.percent) / 100)
        else:
            worth = coupon.amount_minor or 0
        discounts = [replace(taken, is_coupon=True) for taken in self._take(coupon.code, covered, worth)]
        applied = sum(discount.amount_minor for discount in discounts)
        once = coupon.duration == Duration.ONCE
        rest = worth - applied if once and coupon.percent is None else 0
        used = open_minor > 0
        exhausted = once and rest == 0 and (used or coupon.amount_minor == 0)
        return discounts, CouponEffect(coupon.code, applied, rest, used, exhausted)

    def _take(self, source: str, positions: Sequence[int], amount_minor: int) -> list[Discount]:
        """Spread an amount over the rest of the lines, up to that rest."""
        weights = [max(self.left[position], 0) for position in positions]
        parts = spread(min(max(amount_minor, 0), sum(weights)), weights)
        taken = [Discount(source, position, part) for position, part in zip(positions, parts, strict=True) if part]
        for discount in taken:
            self.left[discount.position] -= discount.amount_minor
        return taken


def _minimum_fees(fees: _Fees, limits: Iterable[Limit]) -> list[MinimumFee]:
    minimum_fees: list[MinimumFee] = []
    for limit in limits:
        if limit.minimum_minor is None:
            continue
        reached = sum(left for position, left in fees.left.items() if limit.counts(position))
        if limit.subscription_wide:
            # Lines that a price's own minimum added count towards the subscription's minimum.
            reached += sum(minimum_fee.amount_minor for minimum_fee in minimum_fees)
        if reached < limit.minimum_minor:
            missing = limit.minimum_minor - reached
            minimum_fees.append(MinimumFee(limit.name, missing, limit.tax_category, limit.tax_rate))
    return minimum_fees


def _carried_credits(fees: _Fees, minimum_fees: Iterable[MinimumFee]) -> list[CarriedCredit]:
    nets: dict[Treatment, int] = {}
    for one in _taxables(fees, minimum_fees, ()):
        nets[one.treatment] = nets.get(one.treatment, 0) + one.amount_minor
    return [
        CarriedCredit(treatment.category, treatment.rate, -net, treatment.tax_minor(-net), treatment.taxes)
        for treatment, net in sorted(nets.items())
        if net < 0
    ]


def _taxables(fees: _Fees, minimum_fees: Iterable[MinimumFee], carried: Iterable[CarriedCredit]) -> list[Taxable]:
    return [
        *(Taxable(line.tax_category, line.tax_rate, fees.left[position], line.taxes) for position, line in fees.lines.items()),
        *(Taxable(t.tax_category, t.tax_rate, t.amount_minor) for t in minimum_fees),
        *(Taxable(c.tax_category, c.tax_rate, c.net_minor, c.taxes) for c in carried),
    ]
