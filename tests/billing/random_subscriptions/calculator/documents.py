"""Invoices in numbers: lines, coupons, tax by category, credit notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tests.billing.random_subscriptions.calculator.exact import half_up, split, to_minor
from tests.billing.random_subscriptions.calculator.prices import within

if TYPE_CHECKING:
    from tests.billing.random_subscriptions.calculator.subscriptions import Billed


@dataclass(eq=False)
class Line:
    """A line of a document.

    Args:
        coupons: False where no coupon may lower it.
        least, most: the price's minimum and maximum, prorated.
        earlier: what late usage continues.
        minimum: what the price's minimum adds to it, on a line of its kind.
        units, of: which share of a full period it charges.
    """

    currency: str
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
    least: int | None = None
    most: int | None = None
    earlier: list[Billed] = field(default_factory=list)
    units: int = 0
    of: int = 1
    discount: int = 0
    minimum: int = 0
    after_coupons: int = 0
    document: Document | None = None

    @property
    def net(self) -> int:
        """After its discounts."""
        return self.amount - self.discount

    def compared(self) -> tuple[Any, ...]:
        """What has to be the same on the invoice."""
        return (self.kind, self.key, self.start, self.end, self.quantity, self.amount, self.discount, self.category, self.rate)


@dataclass(eq=False)
class Document:
    """An invoice."""

    currency: str
    lines: list[Line]
    own_note: int = 0
    """What was carried from it into a credit note."""
    state: str = "draft"
    notes: int = 0
    credits: int = 0
    """What credit notes and prepaid credits paid, in minor units."""
    spent: int = 0
    """Prepaid credits."""
    coupon_uses: list[tuple[Coupon, int]] = field(default_factory=list)
    note_uses: list[tuple[Note, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for line in self.lines:
            line.document = self
        self.taxes = tax_rows(self.lines)
        self.subtotal = sum(line.amount for line in self.lines)
        self.discount = sum(line.discount for line in self.lines)
        self.tax = sum(tax for *_, tax in self.taxes)
        self.total = self.subtotal - self.discount + self.tax

    @property
    def due(self) -> int:
        """What is left to pay."""
        return self.total - self.notes - self.credits

    @property
    def is_nothing(self) -> bool:
        """It has a number, and nobody had to pay it."""
        return self.state == "paid" and self.total == 0


@dataclass(eq=False)
class Note:
    """A credit note with something left on it."""

    document: Document
    left: int


@dataclass(eq=False)
class Coupon:
    """A discount that a customer holds; `taken` and `used` are what it took off and how often, so far."""

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

    @property
    def rank(self) -> int:
        """Limited to prices, to plans, general."""
        return 0 if self.prices else 1 if self.plans else 2

    @property
    def is_used_up(self) -> bool:
        if self.duration == "recurring":
            return self.used >= (self.periods or 0)
        if self.duration == "once" and self.kind == "percentage":
            return self.used > 0
        return self.duration == "once" and self.taken >= to_minor(self.value, self.currency)

    def covers(self, line: Line) -> bool:
        of_price, of_plan = not self.prices or line.key in self.prices, not self.plans or line.plan in self.plans
        return line.coupons and line.amount > 0 and of_price and of_plan

    def redeem(self, lines: list[Line]) -> int | None:
        """Lower the lines, and return by how much; None where the coupon was not used."""
        covered = [line for line in lines if self.covers(line)]
        left = [max(line.net, 0) for line in covered]
        if self.is_used_up or not sum(left):
            return None
        if self.kind == "percentage":
            worth = half_up(sum(left) * self.value / 100)
        else:
            worth = to_minor(self.value, self.currency) - (self.taken if self.duration == "once" else 0)
        worth = min(worth, sum(left))
        for line, part in zip(covered, split(worth, left), strict=True):
            line.discount += part
        self.taken += worth
        self.used += 1
        return worth


@dataclass
class Customer:
    """Whose coupons lower an invoice, and whose credits pay it."""

    currency: str
    coupons: list[Coupon] = field(default_factory=list)
    credits: int = 0
    unit_value: Fraction | None = None


def redeem_coupons(coupons: Iterable[Coupon], lines: list[Line]) -> list[tuple[Coupon, int]]:
    """Lower lines that became due at one instant; returns what each coupon took off."""
    held = [coupon for coupon in coupons if coupon.currency in ("", lines[0].currency)]
    taken = [(coupon, coupon.redeem(lines)) for coupon in sorted(held, key=lambda coupon: coupon.rank)]
    return [(coupon, amount) for coupon, amount in taken if amount is not None]


def bound_by_prices(lines: list[Line]) -> list[Line]:
    """Lower lines to the maximum of their price after coupons, and return the lines that lift them to its minimum."""
    lifting = []
    for line in lines:
        line.after_coupons = line.net
        if line.earlier:
            # Late usage: the limits are of the period with all of its lines.
            so_far = sum(billed.after_coupons for billed in line.earlier) + line.net
            line.amount += within(so_far, line.least, line.most) - sum(billed.left for billed in line.earlier) - line.net
            continue
        if line.most is not None and line.net > line.most:
            line.discount += line.net - line.most
        if line.least is not None and line.net < line.least:
            missing = line.least - line.net
            lifting.append(replace(line, kind="minimum", amount=missing, discount=0, quantity=Fraction(1)))
            line.minimum = missing
    return lifting


def tax_rows(lines: list[Line]) -> list[tuple[str, Fraction, int, int]]:
    """Category, rate, base and tax of each rate in the lines, each rounded once."""
    bases: dict[tuple[str, Fraction], int] = {}
    for line in lines:
        bases[line.category, line.rate] = bases.get((line.category, line.rate), 0) + line.net
    return [(category, rate, base, half_up(base * rate / 100)) for (category, rate), base in sorted(bases.items())]
