"""VAT: the ids of businesses, the categories that bear no tax, and the status of a customer. Pure."""

from decimal import Decimal
from enum import StrEnum
from typing import Final

from stdnum.eu import vat as eu_vat
from stdnum.exceptions import InvalidChecksum, ValidationError

STANDARD: Final = "S"
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


class TaxBehavior(StrEnum):
    """Whether the amounts of a plan are without tax, or include it."""

    EXCLUSIVE = "exclusive"
    INCLUSIVE = "inclusive"


class VatStatus(StrEnum):
    """How invoices tax a customer."""

    TAXABLE = "taxable"
    REVERSE_CHARGE = "reverse_charge"
    EXEMPT = "exempt"


class LookupOutcome(StrEnum):
    """What VIES, the EU's service that knows all VAT ids, says about one."""

    VALID = "valid"
    INVALID = "invalid"
    UNAVAILABLE = "unavailable"


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

    The check is offline: whether the id was given to anybody, only the tax office knows (see `billing.tax_services`).

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


def relied_vat_id(vat_id: str, *, outcome: str, needs_confirmed: bool) -> str:
    """Return the VAT id on which reverse charge may rely; empty if it may not rely on this one.

    Args:
        outcome: of the newest lookup that was answered; empty: nobody has looked the id up.
        needs_confirmed: the seller relies on an id of the EU only if VIES says that it is valid. Other ids are not in VIES.
    """
    return "" if needs_confirmed and vat_country(vat_id) and outcome != LookupOutcome.VALID else vat_id


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
