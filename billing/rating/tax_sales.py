"""Who finds taxes: one interface, of the declared taxes (`rules.TaxPolicy`) and of providers (`billing.tax_asking`). Pure.

A provider is asked for the taxes of a sale: lines of one day, a seller, a buyer. Its rates are kept, and its amounts compared:
the taxes of a document are each computed once for all lines that bear them (EN 16931 BR-CO-17), and not per line.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, Final, NamedTuple

from billing.rating.money import decimal_text
from billing.rating.tax_amounts import AppliedTax, Treatment, without_tax
from billing.rating.vat import CATEGORY_OF, NOTES, STANDARD, VatStatus

MOST_OFF_MINOR: Final = 1
"""How far a provider's amount may be from rate × net amount, in minor units: a line is rounded by its rules, not by ours."""
MAX_RATE_DECIMALS: Final = 4
MAX_TAXES: Final = 20
"""On one line."""
NOT_TAXED: Final = "O"
CATEGORIES: Final = {STANDARD, "Z", NOT_TAXED}
"""Of a tax that a provider finds: VAT, VAT of 0, or a tax that is not VAT."""
CODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
NAME: Final = re.compile(r"[^\x00-\x1f\x7f]{1,60}")
REFERENCE: Final = re.compile(r"[\x21-\x7e]{0,200}")


class Party(NamedTuple):
    """The seller or the buyer of a sale, as far as taxes depend on it; each part but the country may be empty."""

    country: str = ""
    subdivision: str = ""
    city: str = ""
    postal_code: str = ""
    line1: str = ""
    line2: str = ""
    vat_id: str = ""


class SaleLine(NamedTuple):
    """A line of a sale.

    Args:
        amount_minor: after discounts, 0 or more; of a credit, what it gives back.
        includes_tax: the amount includes the taxes.
        category, rate: as the price says.
        tax_class: of what is sold.
    """

    amount_minor: int
    includes_tax: bool
    category: str
    rate: Decimal
    tax_class: str


class Sale(NamedTuple):
    """What taxes are asked of. Two equal sales have the same taxes, so it is what an answer is kept for.

    Args:
        day: the last day of the period of the lines.
        vat_status: how the buyer is taxed.
    """

    currency: str
    day: date
    seller: Party
    buyer: Party
    vat_status: VatStatus
    lines: tuple[SaleLine, ...]


class FoundTax(NamedTuple):
    """A tax on a line.

    Args:
        code: the name of the tax, the same on each line and document that bears it.
        name: as documents print it.
        rate: percent of the net amount.
        category: S, or O for a tax that is not VAT.
        amount_minor: of the line, by the provider's rules; None: nothing to compare.
        country, subdivision: where it is due; ISO 3166.
        is_compound: computed on the net amount and the other taxes; only of declared taxes.
        tax_id: the recorded version; None: not recorded yet.
    """

    code: str
    name: str
    rate: Decimal
    category: str = STANDARD
    amount_minor: int | None = None
    country: str = ""
    subdivision: str = ""
    is_compound: bool = False
    tax_id: int | None = None

    @property
    def applied(self) -> AppliedTax:
        """The tax as a line bears it."""
        return AppliedTax(self.category, self.rate, self.code, self.tax_id, self.is_compound)


class Taxed(NamedTuple):
    """How a line is taxed, and the rate of the tax that an amount with tax includes, in percent."""

    treatment: Treatment
    included_rate: Decimal


class LineTaxes(NamedTuple):
    """The taxes of a line.

    Args:
        taxes: empty: no tax but that of category and rate.
        category: without taxes: why not, O (not taxed), E (exempt), Z, AE (reverse charge) or G (export).
        rate: without taxes: that of the price.
        included_rate: of an amount with tax, in percent; None: what its taxes add.
        provider, reference: who found them, and what the provider calls its answer; empty: declared taxes.
    """

    taxes: tuple[FoundTax, ...] = ()
    category: str = NOT_TAXED
    rate: Decimal = Decimal(0)
    included_rate: Decimal | None = None
    provider: str = ""
    reference: str = ""

    @classmethod
    def of(cls, taxed: Taxed) -> "LineTaxes":
        """Return how a line is taxed as an answer."""
        found = tuple(FoundTax(one.code, "", one.rate, one.category, None, "", "", one.is_compound, one.tax_id)
                      for one in taxed.treatment.taxes)  # fmt: skip
        return cls(found, *taxed.treatment[:2], taxed.included_rate)

    @property
    def taxed(self) -> Taxed:
        """How the line is taxed."""
        taxes = [one.applied for one in self.taxes]
        treatment = Treatment.under(taxes) if taxes else Treatment(self.category, self.rate)
        return Taxed(treatment, treatment.rate if self.included_rate is None else self.included_rate)

    def as_dict(self, day: date) -> dict[str, Any]:
        """Return a provider's answer as its line stores it."""
        return {
            "provider": self.provider, "reference": self.reference, "day": day.isoformat(),
            "category": self.taxed.treatment.category,
            "taxes": [
                {"code": one.code, "rate": decimal_text(one.rate), "amount_minor": one.amount_minor} for one in self.taxes
            ],
        }  # fmt: skip


class TaxProvider(ABC):
    """Who finds the taxes of sales."""

    name: ClassVar[str]
    """Kept with each answer."""

    @abstractmethod
    def taxes_of(self, sale: Sale) -> Sequence[LineTaxes]:
        """Return the taxes of each line, in the order of the lines. It writes nothing, so that it can be asked again.

        Raises:
            TaxesUnavailable: it does not answer, or not now.
            TaxesRefused: it has no answer to this sale, such as for an address that it does not know.
        """


class NotUsable(ValueError):
    """A provider's answer that cannot be used: the rule, and what does not fit."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")


def ensure_usable(sale: Sale, found: Sequence[LineTaxes]) -> None:
    """Return if an answer fits what was asked: a line for each, taxes by their codes, and amounts of rate × net amount.

    Raises:
        NotUsable: something does not fit.
    """
    if not isinstance(found, Sequence) or any(not isinstance(one, LineTaxes) for one in found):
        raise NotUsable("not-an-answer", "it is no sequence of LineTaxes")
    if len(found) != len(sale.lines):
        raise NotUsable("other-lines", f"{len(sale.lines)} lines were asked for, and it has {len(found)}")
    for position, (line, answer) in enumerate(zip(sale.lines, found, strict=True), 1):
        if REFERENCE.fullmatch(answer.reference) is None:
            raise NotUsable("reference", f"line {position}: at most 200 visible characters of ASCII")
        if not answer.taxes:
            _ensure_untaxed(sale, answer, position)
        if len(answer.taxes) > MAX_TAXES or len({one.code for one in answer.taxes}) != len(answer.taxes):
            raise NotUsable("taxes", f"line {position}: at most {MAX_TAXES} taxes, each once")
        for one in answer.taxes:
            _ensure_tax(one, position)
        _ensure_amounts(line, answer, position)


def _ensure_untaxed(sale: Sale, answer: LineTaxes, position: int) -> None:
    if answer.category not in {*NOTES, "Z"} or answer.rate:
        raise NotUsable("category", f"line {position}: without a tax it has a category without one, not {answer.category}")
    if answer.category == CATEGORY_OF[VatStatus.REVERSE_CHARGE] and not sale.buyer.vat_id:
        raise NotUsable("category", f"line {position}: reverse charge needs the VAT id of the buyer")


def _ensure_tax(one: FoundTax, position: int) -> None:
    if not isinstance(one.rate, Decimal) or not one.rate.is_finite() or not 0 <= one.rate <= 100:
        raise NotUsable("rate", f"line {position}: a rate is a decimal of 0 to 100, not {one.rate}")
    if round(one.rate, MAX_RATE_DECIMALS) != one.rate:
        raise NotUsable("rate", f"line {position}: a rate has at most {MAX_RATE_DECIMALS} decimals, not {one.rate}")
    if CODE.fullmatch(one.code) is None or NAME.fullmatch(one.name) is None or one.category not in CATEGORIES or one.is_compound:
        raise NotUsable("tax", f"line {position}: {one.code!r}, {one.name!r}, {one.category!r} is no tax")
    if (one.category == "Z") != (one.category != NOT_TAXED and not one.rate):
        raise NotUsable("category", f"line {position}: VAT of 0 has category Z, and only that")
    if len(one.country) not in (0, 2) or len(one.subdivision) > 3:
        raise NotUsable("place", f"line {position}: {one.country!r}, {one.subdivision!r} is no place of ISO 3166")


def _ensure_amounts(line: SaleLine, answer: LineTaxes, position: int) -> None:
    net = line.amount_minor
    if line.includes_tax:
        [net] = without_tax([net], answer.taxed.included_rate)
    for one in answer.taxes:
        if one.amount_minor is not None and abs(one.amount_minor - Fraction(net) * Fraction(one.rate) / 100) > MOST_OFF_MINOR:
            what = f"{one.code} of {decimal_text(one.rate)} % is {one.amount_minor} on {net}"
            raise NotUsable("amount-differs", f"line {position}: {what}")


def in_order(found: LineTaxes) -> LineTaxes:
    """Return the taxes in the order in which a line has them: a category that is not VAT's comes last."""
    return found._replace(taxes=tuple(sorted(found.taxes, key=lambda one: (one.category == NOT_TAXED, one.code))))
