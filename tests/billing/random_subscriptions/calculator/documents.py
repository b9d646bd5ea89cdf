"""Invoices in numbers: lines, coupons, tax by category, credit notes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from tests.billing.random_subscriptions.calculator.exact import half_up, split, to_minor
from tests.billing.random_subscriptions.calculator.prices import within

if TYPE_CHECKING:
    from tests.billing.random_subscriptions.calculator.consolidated import Part
    from tests.billing.random_subscriptions.calculator.subscriptions import Billed, Subscription


UTC_ZONE = ZoneInfo("UTC")


@dataclass(frozen=True, order=True)
class Tax:
    """A tax that the seller declares for the place of the customer, in `[since, until)`."""

    category: str
    rate: Fraction
    code: str
    is_compound: bool = False
    classes: tuple[str, ...] = ("standard",)
    since: date = date.min
    until: date = date.max


@dataclass(eq=False)
class Line:
    """A line of a document.

    Args:
        coupons: False where no coupon may lower it.
        least, most: the price's minimum and maximum, prorated.
        earlier: what late usage continues.
        minimum: what the price's minimum adds to it, on a line of its kind.
        period: the full period of its price that it begins in.
        instant: of a one-off charge, when it counts.
        units, of: which share of a full period it charges.
        refunds: of a credit, it is for time after an end that pays unused time out.
        tax_class, taxes: what it sells, and the declared taxes that it bears.
        follows: what it gives back or continues, and is taxed as.
        whose: of a consolidated invoice, the subscription that it bills.
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
    period: tuple[datetime, datetime] | None = None
    instant: datetime | None = None
    document: Document | None = None
    refunds: bool = False
    of_group: bool = False
    """It bills one group of the usage of a price, which alone has no bounds."""
    beside: list[Line] = field(default_factory=list)
    """Of what keeps groups of usage within the bounds of their price, the lines of the groups."""
    includes_tax: bool = False
    """Its amounts include the tax of its rate."""
    tax_class: str = "standard"
    taxes: tuple[Tax, ...] = ()
    follows: Line | None = None
    whose: Subscription | None = None
    taxed: int | None = None
    """After its discounts and without tax; None: its amounts are without tax."""

    @property
    def gives_back(self) -> Document | None:
        """Of a credit, the document whose line it gives back."""
        return self.follows.document if self.follows is not None and self.kind == "credit" else None

    @property
    def net(self) -> int:
        """After its discounts, as priced."""
        return self.amount - self.discount

    @property
    def base(self) -> int:
        """What is taxed of it."""
        return self.net if self.taxed is None else self.taxed

    @property
    def lowered(self) -> int:
        """Its discounts without tax."""
        return half_up(self.discount / (1 + self.rate / 100)) if self.includes_tax else self.discount

    def compared(self) -> tuple[Any, ...]:
        """What has to be the same on the invoice."""
        amounts = self.base + self.lowered, self.lowered
        codes = "+".join(tax.code for tax in self.taxes)
        return (self.kind, self.key, self.start, self.end, self.quantity, *amounts, self.category, self.rate, codes)


@dataclass(eq=False)
class Document:
    """An invoice, or a draft.

    Args:
        of: the subscriptions that it bills.
        as_of, only: up to when, and which kind of charges; empty for all.
        paid: the money that came for it while its subscription waits for its payment.
    """

    currency: str
    lines: list[Line]
    own_note: int = 0
    """What was carried from it into a credit note."""
    state: str = "draft"
    notes: int = 0
    credits: int = 0
    """What credit notes and prepaid credits paid, in minor units."""
    rounding: int = 0
    """What the seller's smallest coin adds to what is due."""
    spent: int = 0
    """Prepaid credits."""
    coupon_uses: list[CouponUse] = field(default_factory=list)
    note_uses: list[tuple[Note, int]] = field(default_factory=list)
    refunded: int = 0
    """What is paid out of what it gives back."""
    of: list[Subscription] = field(default_factory=list)
    as_of: datetime | None = None
    only: str = ""
    paid: int = 0

    def __post_init__(self) -> None:
        for line in self.lines:
            line.document = self
        self.taxes = tax_rows(self.lines)
        self.subtotal = sum(line.base + line.lowered for line in self.lines)
        self.discount = sum(line.lowered for line in self.lines)
        self.rounding = cost_beyond(self.lines)
        self.tax = sum(tax for *_, tax in self.taxes)
        self.total = self.subtotal - self.discount + self.tax

    @property
    def due(self) -> int:
        """What is left to pay."""
        return self.total - self.notes - self.credits + self.rounding

    @property
    def money_share(self) -> Fraction:
        """The share of its charges that money paid: directly, or by what it gives back of documents that money paid."""
        given = self._given_back([line for line in self.lines if line.kind == "credit"])
        charges = self.total + sum(worth for _, worth in given)
        if self.state != "paid" or charges <= 0:
            return Fraction(0)
        return (self.due - self.rounding + sum((of.money_share * worth for of, worth in given), Fraction(0))) / charges

    @property
    def refundable(self) -> int:
        """What an end of the subscription pays out of it, if it gives back no less in all."""
        given = self._given_back([line for line in self.lines if line.refunds])
        return sum(int(of.money_share * worth) for of, worth in given)

    def _given_back(self, lines: list[Line]) -> list[tuple[Document, int]]:
        """What lines give back of each document, with tax."""
        documents = [line.gives_back for line in lines if line.gives_back is not None]
        return [
            (one, -sum(base + tax for *_, base, tax in groups([line for line in lines if line.gives_back is one])))
            for one in dict.fromkeys(documents)
        ]

    @property
    def is_nothing(self) -> bool:
        """It has a number, and nobody had to pay it."""
        return self.state == "paid" and self.total == 0


def document_of(currency: str, lines: list[Line], **more: Any) -> Document:
    """Make a document of lines after their discounts: what credits exceed charges by, category by category, is carried."""
    carried = 0
    take_tax_out(lines)
    for category, rate, taxes, _, base, tax in groups(lines):
        if base < 0:
            lines.append(Line(currency, "carried", "", -base, Fraction(1), category, rate, lines[-1].due, taxes=taxes))
            carried += -base - tax
    return Document(currency, lines, own_note=carried, **more)


@dataclass(eq=False)
class Note:
    """Credit of a customer: of a document, or money that came without one; `refunded` is what was paid out of it."""

    document: Document | None
    currency: str
    left: int
    refunded: int = 0


@dataclass(eq=False)
class CouponUse:
    """What a coupon took off together; of a recurring one, for whom, in which period, and which of its periods count."""

    coupon: Coupon
    taken: int
    whose: int = 0
    period: datetime | None = None
    counted: tuple[datetime, datetime] | None = None


@dataclass(eq=False)
class Coupon:
    """A discount that a customer holds; `uses` is what it took off so far, `only` the one subscription that uses it."""

    code: str
    kind: str
    value: Fraction
    currency: str
    duration: str
    periods: int | None
    prices: tuple[str, ...] = ()
    plans: tuple[str, ...] = ()
    only: Subscription | None = None
    uses: list[CouponUse] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """Limited to prices, to plans, general."""
        return 0 if self.prices else 1 if self.plans else 2

    @property
    def taken(self) -> int:
        """In all."""
        return sum(use.taken for use in self.uses)

    @property
    def is_used_up(self) -> bool:
        if self.duration == "once" and self.kind == "percentage":
            return bool(self.uses)
        return self.duration == "once" and self.taken >= to_minor(self.value, self.currency)

    def covers(self, line: Line) -> bool:
        of_price, of_plan = not self.prices or line.key in self.prices, not self.plans or line.plan in self.plans
        return line.coupons and line.amount > 0 and of_price and of_plan

    # Recurring ---------------------------------------------------------------------------------------

    def counted(self, whose: int) -> tuple[datetime, datetime] | None:
        """From when until when its periods count, once that is known."""
        return min((use.counted for use in self.uses if use.whose == whose and use.counted), default=None)

    def count(self, lines: list[Line], begins: datetime, after: Any) -> tuple[datetime, datetime] | None:
        """Its periods from the first of which it lowers a whole fee on, or whole usage where there is no such fee."""
        whole = [
            line for line in lines
            if self.covers(line) and line.kind in ("recurring", "usage") and line.period is not None and not line.earlier
            and line.start in (line.period[0], max(line.period[0], begins))
        ]  # fmt: skip
        whole = [line for line in whole if line.kind == "recurring"] or whole
        if not whole or self.duration != "recurring":
            return None
        first = min(whole, key=lambda line: line.period)
        return first.period[0], after(first, self.periods)

    def lowers(self, line: Line, counted: tuple[datetime, datetime] | None) -> bool:
        """A line of a period that counts, or of the one that ran before."""
        if not self.covers(line):
            return False
        if counted is None:
            return True
        if line.period is None:
            return (line.instant or line.due) < counted[1]
        return line.period[0] < counted[1] and line.period[1] >= counted[0]

    # Taking off --------------------------------------------------------------------------------------

    def redeem(self, lines: list[Line], whose: int, counted: tuple[datetime, datetime] | None) -> list[CouponUse]:
        """Lower lines that became due together."""
        if self.duration != "recurring":
            worth = to_minor(self.value, self.currency) - self.taken * (self.duration == "once") if self.kind == "amount" else 0
            return [] if self.is_used_up else self._take([line for line in lines if self.covers(line)], worth, CouponUse(self, 0))
        lowered = [line for line in lines if self.lowers(line, counted)]
        if self.kind == "percentage":
            return self._take(lowered, 0, CouponUse(self, 0, whose, None, counted))
        made = []
        for start in sorted({_start(line) for line in lowered}):
            # More is used than there is where an invoice was voided that had made a part free.
            worth = max(to_minor(self.value, self.currency) - self.in_period(whose, start), 0)
            use = CouponUse(self, 0, whose, start, counted)
            made += self._take([line for line in lowered if _start(line) == start], worth, use) if worth else []
        return made

    def in_period(self, whose: int, start: datetime) -> int:
        """What it took off in a period, less what credits gave back."""
        return sum(use.taken for use in self.uses if use.whose == whose and use.period == start)

    def _take(self, lines: list[Line], worth: int, use: CouponUse) -> list[CouponUse]:
        left = [max(line.net, 0) for line in lines]
        if not sum(left):
            return []
        if self.kind == "percentage":
            worth = half_up(sum(left) * self.value / 100)
        use.taken = min(worth, sum(left))
        for line, part in zip(lines, split(use.taken, left), strict=True):
            line.discount += part
        self.uses.append(use)
        return [use]


def _start(line: Line) -> datetime:
    return line.period[0] if line.period else line.due


def make_free(coupons: Iterable[Coupon], freed: Iterable[tuple[datetime, int]], whose: int) -> list[CouponUse]:
    """Where a discount made a credit smaller, amounts can be taken off again in that period, the first coupon's first."""
    made = []
    for start, left in freed:
        for coupon in coupons:
            if coupon.duration == "recurring" and coupon.kind == "amount":
                free = min(left, coupon.in_period(whose, start))
                left -= free
                if free:
                    made.append(CouponUse(coupon, -free, whose, start))
                    coupon.uses.append(made[-1])
    return made


@dataclass
class Customer:
    """Whose coupons lower an invoice, and whose credit and credits pay it, whichever subscription it is of."""

    currency: str
    coupons: list[Coupon] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    documents: list[Document] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    zone: ZoneInfo = UTC_ZONE
    waiting: list[Part] = field(default_factory=list)
    """The drafts that wait for a consolidated invoice."""
    credits: int = 0
    unit_value: Fraction | None = None
    coins: dict[str, int] = field(default_factory=dict)
    """The smallest coin of the seller by currency."""
    taxes: list[Tax] | None = None
    """The taxes that the seller declares; None: lines bear the rates of their prices."""

    def balance(self, currency: str) -> int:
        """What is left of all credit in a currency."""
        return sum(note.left for note in self.notes if note.currency == currency)

    def refund(self, currency: str, amount: int) -> None:
        """Credit is paid out, the oldest first."""
        for note in self.notes:
            part = min(note.left, amount) if note.currency == currency else 0
            note.left, note.refunded, amount = note.left - part, note.refunded + part, amount - part
        assert not amount


def redeem_coupons(
    coupons: Iterable[Coupon],
    lines: list[Line],
    whose: int,
    counted: dict[str, tuple[datetime, datetime] | None],
    freed: Iterable[tuple[datetime, int]],
) -> list[CouponUse]:
    """Lower lines that became due at one instant; returns what each coupon took off.

    Args:
        freed: by how much discounts made credits smaller, with the start of their period.
    """
    held = [coupon for coupon in coupons if coupon.currency in ("", lines[0].currency)]
    free = make_free(held, freed, whose)
    in_order = sorted(held, key=lambda coupon: coupon.rank)
    return free + [use for coupon in in_order for use in coupon.redeem(lines, whose, counted[coupon.code])]


def bound_by_prices(lines: list[Line]) -> list[Line]:
    """Lower lines to the maximum of their price after coupons, and return the lines that lift them to its minimum."""
    lifting = []
    for line in lines:
        line.after_coupons = line.net
    for line in lines:
        if line.kind == "bounds":
            # From then on the line has another kind.
            lifting += _bound_groups(line)
            continue
        if line.of_group:
            continue
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


def _bound_groups(bounds: Line) -> list[Line]:
    """Keep the lines of groups within the bounds of their price; where some was billed before, the bounds get a line."""
    net = sum(line.net for line in bounds.beside)
    if bounds.earlier:
        before = sum(billed.after_coupons for billed in bounds.earlier)
        bounds.amount = within(before + net, bounds.least, bounds.most) - sum(billed.left for billed in bounds.earlier) - net
        is_over = bounds.most is not None and max(before, before + net) > bounds.most
        bounds.kind = ("maximum" if is_over else "minimum") if bounds.amount else "bounds"
        return []
    if bounds.most is not None and net > bounds.most:
        weights = [max(line.net, 0) for line in bounds.beside]
        for line, part in zip(bounds.beside, split(net - bounds.most, weights), strict=True):
            line.discount += part
    missing = 0 if bounds.least is None else max(bounds.least - net, 0)
    bounds.minimum = missing
    return [replace(bounds, kind="minimum", amount=missing, minimum=0, beside=[])] if missing else []


def find_taxes(lines: list[Line], declared: list[Tax] | None, zone: ZoneInfo) -> None:
    """Give each line of category S the declared taxes of its class on the last day of its period, or those of what it follows."""
    for line in lines:
        before = line.follows or (line.earlier[-1].line if line.earlier else None)
        if before is not None and declared is not None:
            line.category, line.rate, line.taxes = before.category, before.rate, before.taxes
        elif line.category == "S" and declared is not None:
            instant = (line.instant or line.due) if line.end is None else line.end - timedelta(microseconds=1)
            day = instant.astimezone(zone).date()
            line.taxes = tuple(tax for tax in declared if line.tax_class in tax.classes and tax.since <= day < tax.until)
            line.category = line.taxes[0].category if line.taxes else "O"
            simple = sum((tax.rate for tax in line.taxes if not tax.is_compound), Fraction(0))
            line.rate = simple + sum(tax.rate * (100 + simple) / 100 for tax in line.taxes if tax.is_compound)


def take_tax_out(lines: list[Line]) -> None:
    """Divide the amounts with tax of each rate by 1 + rate; what is rounded is each sum of the first of them."""
    for group in {(line.category, line.rate, line.taxes) for line in lines if line.includes_tax}:
        before = Fraction(0)
        for line in lines:
            if line.includes_tax and (line.category, line.rate, line.taxes) == group:
                after = before + Fraction(line.net * 100) / (100 + line.rate)
                line.taxed = half_up(after) - half_up(before)
                before = after


def cost_beyond(lines: list[Line]) -> int:
    """What prices with tax cost beyond net and tax: a category and rate costs its prices, and other amounts with their tax.

    Lines with declared taxes count together.
    """
    beyond = 0
    lines = [line for line in lines if line.kind != "carried"]
    charged = [line for *_, of_group, base, _ in groups(lines) if base >= 0 for line in of_group]
    for key in {(line.category, line.rate) if not line.taxes else None for line in charged if line.includes_tax}:
        together = [line for line in charged if (None if line.taxes else (line.category, line.rate)) == key]
        priced = sum(line.net for line in together if line.includes_tax)
        others = [line for line in together if not line.includes_tax]
        cost = priced + sum(line.net for line in others) + sum(row[-1] for row in tax_rows(others))
        beyond += max(cost, 0) - sum(line.base for line in together) - sum(row[-1] for row in tax_rows(together))
    return beyond


def groups(lines: list[Line]) -> list[tuple[str, Fraction, tuple[Tax, ...], list[Line], int, int]]:
    """The lines with the same taxes: category, rate, taxes, the lines, their base, and the taxes on it."""
    found: dict[tuple[str, Fraction, tuple[Tax, ...]], list[Line]] = {}
    for line in lines:
        found.setdefault((line.category, line.rate, line.taxes), []).append(line)
    return [
        (*key, found[key], sum(line.base for line in found[key]), sum(row[-1] for row in tax_rows(found[key])))
        for key in sorted(found)
    ]


def tax_rows(lines: list[Line]) -> list[tuple[str, Fraction, str, int, int]]:
    """Category, rate, code, base and tax of each tax on the lines, each rounded once. A tax on tax has the others in its base."""
    nets: dict[tuple[str, Fraction, tuple[Tax, ...]], int] = {}
    for line in lines:
        key = line.category, line.rate, line.taxes
        nets[key] = nets.get(key, 0) + line.base
    bases: dict[tuple[str, Fraction, str], int] = {}
    for (category, rate, taxes), net in nets.items():
        others = sum(half_up(net * tax.rate / 100) for tax in taxes if not tax.is_compound)
        for tax in taxes or (Tax(category, rate, ""),):
            row = tax.category, tax.rate, tax.code
            bases[row] = bases.get(row, 0) + net + (others if tax.is_compound else 0)
    return [(*row, base, half_up(base * row[1] / 100)) for row, base in sorted(bases.items())]
