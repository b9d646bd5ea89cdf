"""Tax per category and rate, on the rounded base, never per line; VAT ids, and the category that follows from the buyer. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Final

from stdnum.eu import vat as eu_vat
from stdnum.exceptions import InvalidChecksum, ValidationError

from billing.rating.money import round_half_up

STANDARD = "S"


class TaxBehavior(StrEnum):
    """Whether the amounts of a plan are without tax, or include it."""

    EXCLUSIVE = "exclusive"
    INCLUSIVE = "inclusive"


EU: Final = frozenset(state.upper() for state in eu_vat.MEMBER_STATES)
"""The member states by ISO 3166, and XI."""
NOTES = {
    "AE": "Reverse charge",
    "E": "Exempt from VAT",
    "G": "Export outside the EU",
    "K": "Intra-community supply",
    "O": "Not subject to VAT",
}
"""The reason why a category bears no tax, for the invoice. Source: EN 16931 BR-AE-10, BR-E-10, BR-G-10, BR-IC-10, BR-O-10."""


class VatStatus(StrEnum):
    """How invoices tax a customer."""

    TAXABLE = "taxable"
    REVERSE_CHARGE = "reverse_charge"
    EXEMPT = "exempt"


# VAT ids ---------------------------------------------------------------------------------------------


class VatIdWrong(ValueError):
    """A VAT id of the EU has a wrong form or wrong check digits."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(detail)
        self.rule = rule
        self.detail = detail


def vat_country(vat_id: str) -> str:
    """Return the member state of the EU, or XI for Northern Ireland, that gave a VAT id; empty for every other id."""
    prefix = vat_id.strip()[:2].upper()
    country = {"EL": "GR"}.get(prefix, prefix)
    return country if country in EU else ""


def checked_vat_id(vat_id: str) -> str:
    """Return a VAT id; one of the EU in capitals and without spaces, dots and hyphens.

    The check is offline: whether the id was given to anybody, only the tax office knows.

    Raises:
        VatIdWrong: an id of the EU has not the form of its country, or wrong check digits.
    """
    country = vat_country(vat_id)
    if not country:
        return vat_id
    try:
        found: str = eu_vat.validate(vat_id)
    except InvalidChecksum:
        raise VatIdWrong("wrong-check-digits", f"This VAT id of {country} has wrong check digits.") from None
    except ValidationError:
        raise VatIdWrong("wrong-form", f"This has not the form of a VAT id of {country}.") from None
    return "EL" + found[2:] if country == "GR" else found


def suggested_status(status: str, vat_id: str, seller_country: str) -> VatStatus | None:
    """Return the status that a customer probably needs and does not have; None if there is nothing to suggest.

    A service to a business in another member state is taxed there, and the customer owes the tax. Source: Directive 2006/112/EC,
    Articles 44 and 196. Northern Ireland counts as a member state for goods only.
    """
    country = vat_country(vat_id)
    seller = {"EL": "GR"}.get(seller_country, seller_country)
    is_abroad = country not in ("", "XI", seller) and seller in EU - {"XI"}
    return VatStatus.REVERSE_CHARGE if is_abroad and status == VatStatus.TAXABLE else None


CATEGORY_OF = {VatStatus.REVERSE_CHARGE: "AE", VatStatus.EXEMPT: "E"}


def vat_status_of(status: str, vat_id: str) -> VatStatus:
    """Return the status that applies: reverse charge needs a VAT id (EN 16931 BR-AE-3), and without it tax is charged."""
    if status == VatStatus.EXEMPT or (status == VatStatus.REVERSE_CHARGE and vat_id):
        return VatStatus(status)
    return VatStatus.TAXABLE


def category_for(status: VatStatus, category: str, rate: Decimal) -> tuple[str, Decimal]:
    """Return the category and rate for this customer: the status replaces the standard rate only; other categories stay."""
    if category != STANDARD or status not in CATEGORY_OF:
        return category, rate
    return CATEGORY_OF[status], Decimal(0)


@dataclass(frozen=True, slots=True)
class Taxable:
    """A net amount in a tax category.

    Args:
        category: e.g. S, Z, E, AE (UNTDID 5305).
        rate: percent.
        amount_minor: net amount after discounts; negative for a credit.
    """

    category: str
    rate: Decimal
    amount_minor: int


@dataclass(frozen=True, slots=True)
class TaxLine:
    """The tax of one category and rate on one document, in minor units."""

    category: str
    rate: Decimal
    base_minor: int
    tax_minor: int


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


def rounding_of_included(*, with_tax_minor: int, net_minor: int, other_minor: int, rate: Decimal) -> int:
    """Return what the rounding of a tax group has to add, so that prices that include tax cost what they say.

    Not every amount is a net amount plus its rounded tax: 9.99 at 19 % is 8.39 and 1.59, and 0.01 beside.

    Args:
        with_tax_minor, net_minor: of the lines that include the tax.
        other_minor: the net amount of the other lines of the group.

    Returns:
        A unit or none, for a group without other lines; never more off than the group charges.
    """
    base_minor = net_minor + other_minor
    charged = base_minor + tax_minor(base_minor, rate)
    return max(with_tax_minor + other_minor + tax_minor(other_minor, rate) - charged, -charged)


def taxes(amounts: Iterable[Taxable]) -> tuple[TaxLine, ...]:
    """Return one tax line per category and rate, ordered by both; also for a base of 0 and a rate of 0.

    The base is the sum of lines that are rounded already, so it is whole minor units.
    """
    bases: dict[tuple[str, Decimal], int] = {}
    for amount in amounts:
        group = (amount.category, amount.rate)
        bases[group] = bases.get(group, 0) + amount.amount_minor
    return tuple(TaxLine(category, rate, base, tax_minor(base, rate)) for (category, rate), base in sorted(bases.items()))
