"""The seller: name, address, VAT id, bank account, logo and words, as documents print them.

Append-only: a change is a new version. Finalising an invoice records the current version, so the
document always shows the same details.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

from billing.documents.printing.brand import Colour, Logo
from billing.models import Seller
from billing.orders.customers import ADDRESS_LINES
from billing.rating.names import Names
from billing.rating.values import OneLine
from ledger.errors import Invalid
from ledger.records import Record, shape_of
from ledger.values import InvalidValue

MAX_TERMS_CHARACTERS: Final = 500
MAX_FOOTER_CHARACTERS: Final = 240
ADDRESS_MOST: Final = {name: line.most for name, line in ADDRESS_LINES.items()}


class Iban(OneLine):
    """An IBAN without spaces."""

    def __init__(self, text: str = "", **options: Any) -> None:
        rule = "an IBAN without spaces"
        super().__init__(text, most=34, pattern="(?:[A-Z]{2}[0-9]{2}[0-9A-Z]{11,30})?", rule=rule, **options)

    def read(self, value: Any) -> str:
        iban = super().read(value)
        if iban and not is_iban(iban):
            raise InvalidValue("wrong-check-digits", "This has wrong check digits.")
        return iban


@dataclass(frozen=True, kw_only=True)
class NewSeller(Record):
    """The seller on documents from now on."""

    # A transfer takes a name of at most 70 characters.
    name: Annotated[str, OneLine("As printed; the holder of the account too.", most=70, least=1)]
    line1: Annotated[str, OneLine("Street.", most=ADDRESS_MOST["line1"], least=1)]
    line2: Annotated[str, OneLine("Second line.", most=ADDRESS_MOST["line2"])] = ""
    postal_code: Annotated[str, OneLine("Postal code.", most=ADDRESS_MOST["postal_code"])] = ""
    city: Annotated[str, OneLine("City.", most=ADDRESS_MOST["city"], least=1)]
    country: Annotated[str, OneLine("ISO 3166.", most=2, least=2, pattern="[A-Z]{2}", rule="two capital letters (ISO 3166)")]
    vat_id: Annotated[
        str, OneLine("VAT id; begins with its country.", most=32, pattern="(?:[A-Z]{2}[0-9A-Z+*]{2,30})?",
                     rule="a VAT id that begins with its country, without spaces"),
    ] = ""  # fmt: skip
    tax_number: Annotated[str, OneLine("Tax number.", most=32)] = ""
    register: Annotated[str, OneLine("Company register and number.", most=100)] = ""
    email: Annotated[str, OneLine("For questions about documents.", most=100)] = ""
    phone: Annotated[str, OneLine("For questions about documents.", most=40)] = ""
    website: Annotated[str, OneLine("Website.", most=100)] = ""
    iban: Annotated[str, Iban("The account to pay to.")] = ""
    bic: Annotated[
        str, OneLine("The bank's code.", most=11, pattern="(?:[A-Z]{6}[A-Z0-9]{2}(?:[A-Z0-9]{3})?)?",
                     rule="8 or 11 capital letters and digits"),
    ] = ""  # fmt: skip
    bank: Annotated[str, OneLine("The bank's name.", most=70)] = ""
    logo: Annotated[
        str,
        Logo("An SVG of shapes or a PNG, at most 2,000 × 2,000 pixels and 40,000 bytes, in base64. Replaces the name."),
    ] = ""
    accent_color: Annotated[
        str, Colour("As #rrggbb, of rules; and of the printed name, if its contrast with white is 4.5 or more.")
    ] = ""
    footer: Annotated[
        dict[str, str], Names("A line at the end of each page, by language of documents.", most=MAX_FOOTER_CHARACTERS)
    ] = field(default_factory=dict)
    payment_terms: Annotated[
        dict[str, str], Names("Below the sentence that asks for the payment, by language.", most=MAX_TERMS_CHARACTERS)
    ] = field(default_factory=dict)

    def details(self) -> dict[str, Any]:
        """Return what the seller has, in the form of a row."""
        return {name: value for name, value in vars(self).items() if value not in ("", {})}


def record_seller(details: Mapping[str, Any], *, actor: str) -> Seller:
    """Record the seller of all documents from now on, or raise and write nothing. The current details again change nothing.

    Args:
        details: by the fields of `NewSeller`.

    Raises:
        Invalid: a name is unknown or missing, or a value breaks the rule of its field.
    """
    errors: list[Any] = []
    taken = shape_of(NewSeller).take(dict(details), "", errors)
    for pointer, rule, detail in errors:
        raise Invalid(pointer=pointer, rule=rule, detail=detail)
    clean = shape_of(NewSeller).make(taken).details()
    current = current_seller()
    if current is not None and current.details == clean:
        return current
    return Seller.objects.create(details=clean, recorded_by=actor)


def current_seller() -> Seller | None:
    """Return the current seller; None before one is recorded."""
    return Seller.objects.order_by("-pk").first()


def seller_of(seller_id: int | None) -> Seller | None:
    """Return the seller of a document: the version that it names, or the first one if it was issued before any was recorded."""
    return Seller.objects.order_by("pk").first() if seller_id is None else Seller.objects.get(pk=seller_id)


def is_iban(iban: str) -> bool:
    """Return whether the check digits are right. Source: ISO 13616, ISO 7064 MOD 97-10."""
    return int("".join(str(int(character, 36)) for character in iban[4:] + iban[:4])) % 97 == 1
