"""The rules of a credit note on request: its lines, the tax per category, and the settlement of its amount. Pure.

Each tax is computed on the sum credited of its lines so far, not per note. So all notes together have the tax of a single note,
and the note that credits the last cent of the base credits the last cent of the tax. The rounding of cash payments
is computed in the same way.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from billing.rating.money import round_half_up, round_to_step
from billing.rating.tax_amounts import AppliedTax, TaxLine, Treatment


@dataclass(frozen=True, slots=True)
class LineRest:
    """A line of the invoice and its rest.

    Args:
        net_minor: the amount after its discounts, before tax; negative for a credit.
        left_minor: the net amount less the amount credited of it.
        item_id: the item that the line charges or credits.
        taxes: the declared taxes that it bears.
    """

    position: int
    description: str
    category: str
    rate: Decimal
    net_minor: int
    left_minor: int
    item_id: int | None = None
    taxes: tuple[AppliedTax, ...] = ()

    @property
    def treatment(self) -> Treatment:
        """How it is taxed."""
        return Treatment(self.category, self.rate, self.taxes)


@dataclass(frozen=True, slots=True)
class TaxRest:
    """A tax on the invoice, and what notes have credited so far of the lines that bear it.

    Args:
        base_minor: that of a compound tax contains the other taxes.
        credited_minor: net amounts.
        net_minor: of the lines that bear it; None: the base.
    """

    category: str
    rate: Decimal
    base_minor: int
    tax_minor: int
    credited_minor: int = 0
    code: str = ""
    tax_id: int | None = None
    net_minor: int | None = None

    def of(self, amount_minor: int, credited_minor: int) -> int:
        """Return the share of an amount of the tax that these net amounts have, rounded half up once."""
        whole = self.base_minor if self.net_minor is None else self.net_minor
        return round_half_up(Fraction(amount_minor * credited_minor, whole))


@dataclass(frozen=True, slots=True)
class CreditedLine:
    """The amount that a note credits of a line with a charge: above 0."""

    position: int
    description: str
    category: str
    rate: Decimal
    amount_minor: int
    taxes: tuple[AppliedTax, ...] = ()


@dataclass(frozen=True, slots=True)
class CreditNoteAmounts:
    """The amounts of a credit note."""

    lines: tuple[CreditedLine, ...]
    taxes: tuple[TaxLine, ...]
    rounding_minor: int = 0

    @property
    def subtotal_minor(self) -> int:
        """Before tax."""
        return sum(line.amount_minor for line in self.lines)

    @property
    def tax_minor(self) -> int:
        """The tax of the note."""
        return sum(tax.tax_minor for tax in self.taxes)

    @property
    def total_minor(self) -> int:
        """The worth of the note."""
        return self.subtotal_minor + self.tax_minor + self.rounding_minor


@dataclass(frozen=True, slots=True)
class CashRounding:
    """The rounding of an invoice, which its notes take back.

    Args:
        step_minor: the step of cash payments of its seller; 1: none.
        rounding_minor: what it added to the amount due, that of prices which include tax with it.
        in_money_minor: what was due in money at the issue, before the rounding.
        credited_minor: what notes have credited so far, with tax and without rounding.
    """

    step_minor: int = 1
    rounding_minor: int = 0
    in_money_minor: int = 0
    credited_minor: int = 0

    def of(self, with_tax_minor: int) -> int:
        """Return the rounding of the next note: of everything credited so far, less that of the earlier notes."""
        return self._until(self.credited_minor + with_tax_minor) - self._until(self.credited_minor)

    def _until(self, credited_minor: int) -> int:
        """Money is credited first, in whole steps; credits and earlier notes that paid the rest are not rounded."""
        if not credited_minor:
            return 0
        if credited_minor >= self.in_money_minor:
            return max(self.rounding_minor, -credited_minor)
        due_minor = self.in_money_minor + self.rounding_minor
        return min(round_to_step(credited_minor, self.step_minor), due_minor) - credited_minor


@dataclass(frozen=True, slots=True)
class NoteSettlement:
    """The settlement of a note; the three amounts of money add up to its worth.

    Args:
        lowers_due_minor: the part that lowers the amount due of the invoice.
        credits, credits_minor: the prepaid credits that go back to the holder, and the part of the payment that they were.
        left_minor: the part that pays for the next invoices.
    """

    lowers_due_minor: int
    credits: int
    credits_minor: int
    left_minor: int


def creditable(lines: Iterable[LineRest]) -> dict[int, int]:
    """Return the amount that can still be credited of each line with a charge, in minor units before tax, by position.

    A line is not credited beyond the rest of the lines with its taxes: for tax, a charge and the credit beside it are one amount.
    """
    known = list(lines)
    rests = _rests(known)
    return {line.position: min(max(line.left_minor, 0), max(rests[line.treatment], 0)) for line in known if line.net_minor > 0}


def whole_rest(lines: Sequence[LineRest], taxes: Sequence[TaxRest]) -> CreditNoteAmounts:
    """Return the whole rest of the invoice, its charges less its credits; without lines if it has no rest."""
    left = _less_credits(lines)
    taken = [
        CreditedLine(line.position, line.description, line.category, line.rate, left[line.position], line.taxes)
        for line in lines
        if left[line.position]
    ]
    return CreditNoteAmounts(tuple(taken), _taxes(taken, taxes))


def parts(lines: Sequence[LineRest], taxes: Sequence[TaxRest], requested: Mapping[int, int]) -> CreditNoteAmounts | None:
    """Return a note of these amounts, in minor units before tax; None if they exceed the rest.

    Args:
        requested: the amounts by position; each position is a line of the invoice, each amount above 0.
    """
    left, rests = creditable(lines), _rests(lines)
    chosen = [line for line in lines if line.position in requested]
    taken = [
        CreditedLine(line.position, line.description, line.category, line.rate, requested[line.position], line.taxes)
        for line in chosen
    ]
    requested_of: Counter[Treatment] = Counter()
    for line in chosen:
        requested_of[line.treatment] += requested[line.position]
    if any(one.amount_minor > left.get(one.position, 0) for one in taken):
        return None
    if any(amount > rests[group] for group, amount in requested_of.items()):
        return None
    return CreditNoteAmounts(tuple(taken), _taxes(taken, taxes))


def given_back(
    total_minor: int, *, due_minor: int, paid_minor: int, credits_left: int, credits_left_minor: int
) -> NoteSettlement:
    """Return the settlement of a note: it reverses the payment of the invoice.

    Args:
        due_minor: the amount due of the invoice; 0 if it is paid.
        paid_minor: the part that was paid in money and is not credited yet.
        credits_left, credits_left_minor: the prepaid credits that paid for it and are not given back yet, and their worth.

    Returns:
        The note first lowers the amount due. Then it credits the part paid in money, for the next invoices. Then whole credits go
        back, rounded down; the last credit goes back with the last cent that it paid. The remainder also pays for the next
        invoices.
    """
    lowers = min(total_minor, due_minor)
    money = min(total_minor - lowers, paid_minor)
    back_minor = min(total_minor - lowers - money, credits_left_minor)
    count = back_minor * credits_left // credits_left_minor if back_minor else 0
    worth = -(-count * credits_left_minor // credits_left) if count else 0
    return NoteSettlement(lowers, count, worth, total_minor - lowers - worth)


def _less_credits(lines: Sequence[LineRest]) -> dict[int, int]:
    """Return the rest of each charge, by position, less the credits beside it.

    A credit lowers the later charges of its item, because these bill the time that it gave back. The rest of the credit lowers
    the other charges with its taxes, from the first one on.
    """
    left = {line.position: max(line.left_minor, 0) for line in lines}
    of_items: Counter[tuple[Treatment, int | None]] = Counter()
    for line in lines:
        item = (line.treatment, line.item_id)
        of_items[item] += max(-line.left_minor, 0)
        lowered = min(of_items[item], left[line.position])
        of_items[item] -= lowered
        left[line.position] -= lowered
    of_treatments: Counter[Treatment] = Counter()
    for (treatment, _), amount in of_items.items():
        of_treatments[treatment] += amount
    for line in lines:
        lowered = min(of_treatments[line.treatment], left[line.position])
        of_treatments[line.treatment] -= lowered
        left[line.position] -= lowered
    return left


def _rests(lines: Iterable[LineRest]) -> dict[Treatment, int]:
    rests: dict[Treatment, int] = {}
    for line in lines:
        rests[line.treatment] = rests.get(line.treatment, 0) + line.left_minor
    return rests


def _taxes(taken: Sequence[CreditedLine], taxes: Sequence[TaxRest]) -> tuple[TaxLine, ...]:
    nets = nets_of_taxes((Treatment(line.category, line.rate, line.taxes), line.amount_minor) for line in taken)
    return tuple(
        _credited_tax(tax, net)
        for tax in sorted(taxes, key=lambda one: (one.category, one.rate, one.code))
        if (net := nets.get((tax.category, tax.rate, tax.code), 0))
    )


def _credited_tax(tax: TaxRest, net_minor: int) -> TaxLine:
    until = tax.credited_minor + net_minor
    base, credited = (tax.of(whole, until) - tax.of(whole, tax.credited_minor) for whole in (tax.base_minor, tax.tax_minor))
    return TaxLine(tax.category, tax.rate, base, credited, tax.code, tax.tax_id)


def nets_of_taxes(amounts: Iterable[tuple[Treatment, int]]) -> dict[tuple[str, Decimal, str], int]:
    """Return the net amounts that bear each tax, by its category, rate and code."""
    nets: dict[tuple[str, Decimal, str], int] = {}
    for treatment, net_minor in amounts:
        for tax in treatment.all_taxes:
            nets[tax.group] = nets.get(tax.group, 0) + net_minor
    return nets
