"""The taxes on amounts: each tax is computed on its rounded base and rounded once, never per line. Pure.

A line bears the one tax that its price names, or the declared taxes that `rules` found for it. A compound tax is computed on the
net amount and all other taxes of the line.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, Self

from billing.rating.money import decimal_text, round_half_up


class AppliedTax(NamedTuple):
    """A declared tax on a line.

    Args:
        category: e.g. S, O (UNTDID 5305).
        rate: percent.
        code: its name; empty: the tax of the price's own category and rate.
        tax_id: the declared version; None: the price's own.
        is_compound: computed on the net amount and the other taxes.
    """

    category: str
    rate: Decimal
    code: str = ""
    tax_id: int | None = None
    is_compound: bool = False

    @property
    def group(self) -> tuple[str, Decimal, str]:
        """The row of a document in which it is rounded."""
        return self.category, self.rate, self.code

    def as_dict(self) -> dict[str, Any]:
        """Return the tax as a line stores it."""
        return {
            "tax_id": self.tax_id, "code": self.code, "category": self.category, "rate": decimal_text(self.rate),
            "is_compound": self.is_compound,
        }  # fmt: skip

    @classmethod
    def of_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Return a tax that a line stores."""
        return cls(**{**stored, "rate": Decimal(stored["rate"])})


class Treatment(NamedTuple):
    """How a line is taxed.

    Args:
        category, rate: of the taxes together: the category of the first one, and what they add to a net amount, in percent.
        taxes: the declared ones; empty: the one of category and rate.
    """

    category: str
    rate: Decimal
    taxes: tuple[AppliedTax, ...] = ()

    @classmethod
    def under(cls, taxes: Sequence[AppliedTax]) -> Self:
        """Return the treatment of a line that bears some declared taxes."""
        simple = sum((tax.rate for tax in taxes if not tax.is_compound), Decimal(0))
        compound = sum((tax.rate for tax in taxes if tax.is_compound), Decimal(0))
        return cls(taxes[0].category, simple + compound + compound * simple / 100, tuple(taxes))

    @property
    def all_taxes(self) -> tuple[AppliedTax, ...]:
        """The declared taxes, or that of the price."""
        return self.taxes or (AppliedTax(self.category, self.rate),)

    def bases(self, net_minor: int) -> Iterator[tuple[AppliedTax, int]]:
        """Yield each tax with its base of a net amount."""
        others = sum(tax_minor(net_minor, tax.rate) for tax in self.all_taxes if not tax.is_compound)
        for tax in self.all_taxes:
            yield tax, net_minor + others if tax.is_compound else net_minor

    def tax_minor(self, net_minor: int) -> int:
        """Return all taxes of a net amount, each rounded once."""
        return sum(tax_minor(base, tax.rate) for tax, base in self.bases(net_minor))


def applied_taxes(stored: Iterable[Mapping[str, Any]]) -> tuple[AppliedTax, ...]:
    """Return the declared taxes that a line stores."""
    return tuple(AppliedTax.of_dict(tax) for tax in stored)


@dataclass(frozen=True, slots=True)
class Taxable:
    """A net amount in a tax category.

    Args:
        category: e.g. S, Z, E, AE (UNTDID 5305).
        rate: percent.
        amount_minor: net amount after discounts; negative for a credit.
        taxes: the declared taxes that it bears.
    """

    category: str
    rate: Decimal
    amount_minor: int
    taxes: tuple[AppliedTax, ...] = ()

    @property
    def treatment(self) -> Treatment:
        """How it is taxed."""
        return Treatment(self.category, self.rate, self.taxes)


@dataclass(frozen=True, slots=True)
class TaxLine:
    """One tax at one rate on one document, in minor units; without a code, that of prices' own category and rate."""

    category: str
    rate: Decimal
    base_minor: int
    tax_minor: int
    code: str = ""
    tax_id: int | None = None


def tax_minor(base_minor: int, rate: Decimal) -> int:
    """Return base × rate percent, rounded half up once; a negative base gives the mirror image.

    Source: EN 16931 BR-CO-17.
    """
    return round_half_up(base_minor * Fraction(rate) / 100)


def without_tax(amounts_minor: Sequence[int], rate: Decimal) -> list[int]:
    """Return the net amounts of amounts that include a tax. Together they are the sum / (1 + rate), rounded half up once.

    Each sum of the first amounts is rounded, so a net amount has the sign of its amount, or is 0.
    """
    factor = 1 + Fraction(rate) / 100
    so_far, nets = 0, []
    for amount in amounts_minor:
        nets.append(round_half_up((so_far + amount) / factor) - round_half_up(so_far / factor))
        so_far += amount
    return nets


@dataclass(frozen=True, slots=True)
class IncludedGroup:
    """The lines of a document with one treatment.

    Args:
        with_tax_minor, net_minor: of the lines that include the tax.
        other_minor: the net amount of the other lines.
    """

    treatment: Treatment
    with_tax_minor: int = 0
    net_minor: int = 0
    other_minor: int = 0


def rounding_of_included(groups: Sequence[IncludedGroup]) -> int:
    """Return what the rounding of lines has to add, so that prices that include tax cost what they say.

    Not every amount is a net amount plus its rounded tax: 9.99 at 19 % is 8.39 and 1.59, and 0.01 beside.

    Args:
        groups: those that are rounded together, because they may bear the same tax.

    Returns:
        A unit or none, for one tax without other lines; never more off than the groups charge.
    """

    def charged(nets: Sequence[int]) -> int:
        rows = taxes(Taxable(*group.treatment[:2], net, group.treatment.taxes) for group, net in zip(groups, nets, strict=True))
        return sum(nets) + sum(row.tax_minor for row in rows)

    others = [group.other_minor for group in groups]
    is_charged = charged([group.net_minor + group.other_minor for group in groups])
    return max(sum(group.with_tax_minor for group in groups) + charged(others) - is_charged, -is_charged)


def taxes(amounts: Iterable[Taxable]) -> tuple[TaxLine, ...]:
    """Return one tax line per tax and rate, ordered by category and rate; also for a base of 0 and a rate of 0.

    The base is the sum of lines that are rounded already, so it is whole minor units; that of a compound tax contains the other
    taxes of its lines, rounded for all lines with the same taxes.
    """
    nets: dict[Treatment, int] = {}
    for amount in amounts:
        nets[amount.treatment] = nets.get(amount.treatment, 0) + amount.amount_minor
    rows: dict[tuple[str, Decimal, str], TaxLine] = {}
    for treatment, net in nets.items():
        for tax, base in treatment.bases(net):
            row = rows.get(tax.group, TaxLine(tax.category, tax.rate, 0, 0, tax.code))
            ids = [tax_id for tax_id in (row.tax_id, tax.tax_id) if tax_id is not None]
            whole = row.base_minor + base
            rows[tax.group] = TaxLine(tax.category, tax.rate, whole, tax_minor(whole, tax.rate), tax.code, max(ids, default=None))
    return tuple(row for _, row in sorted(rows.items()))
