"""Taxes: a name, a rate, a region and the tax classes that bear it. Append-only: a change of rate is a version from a day on."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Final

from billing.models import Tax
from billing.models.columns import first_of
from billing.rating.names import Names
from billing.rating.prices.price import TAX_CATEGORY, TAX_CATEGORY_RULE, TAX_CLASS, TAX_CLASS_RULE, UNTAXED_CATEGORIES
from billing.rating.tax_rules import STANDARD_CLASS
from billing.rating.values import Country, OneLine, Ref
from billing.rating.vat import STANDARD
from ledger.database.lock_names import TAX
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record
from ledger.values import Boolean, Day, ListOf, Number, Text

MAX_NAME_CHARACTERS: Final = 60
MAX_POSTAL_CODES: Final = 2_000
MAX_CLASSES: Final = 50
DAYS: Final = (date(2000, 1, 1), date(2200, 12, 31))
RATE_DECIMALS: Final = 4
"""So that a tax on tax has a rate of at most 12 decimals."""
NOT_VAT: Final = "O"
"""The category of a tax that is not VAT, which may have a rate."""
BY_BUYER: Final = frozenset({"AE", "K"})
"""Categories that follow from the buyer, and not from a tax."""


class PostalCodes(ListOf):
    """How postal codes begin."""

    def __init__(self, text: str = "", **options: Any) -> None:
        code = Text(most=16, least=1, pattern="[A-Z0-9 -]{1,16}", rule="capital letters and digits")
        super().__init__(code, text, most=MAX_POSTAL_CODES, **options)


@dataclass(frozen=True, kw_only=True)
class NewTax(Record):
    """A tax, or the next version of it."""

    code: Annotated[str, Ref("Your name for the tax, such as ca-gst.")]
    name: Annotated[str, OneLine("As documents print it, such as GST.", most=MAX_NAME_CHARACTERS, least=1)]
    names: Annotated[
        dict[str, str], Names("The name in languages of documents in which it differs, by their codes.", most=MAX_NAME_CHARACTERS)
    ] = field(default_factory=dict)
    rate: Annotated[Decimal, Number("Percent, with at most 4 decimals.", least=0, most=100)]
    category: Annotated[
        str,
        Text(
            "Of EN 16931 (UNTDID 5305): S for VAT, Z or E for VAT of 0, O for a tax that is not VAT.", most=32, least=1,
            pattern=TAX_CATEGORY, rule=TAX_CATEGORY_RULE,
        ),
    ] = STANDARD  # fmt: skip
    country: Annotated[str, Country("Where it is due: ISO 3166.")]
    subdivision: Annotated[
        str,
        Text(
            "ISO 3166-2 without the country, such as QC; empty: the whole country.",
            most=3,
            pattern="[A-Z0-9]{0,3}",
            rule="up to 3 capital letters and digits",
        ),
    ] = ""
    city: Annotated[str, OneLine("A city of it; empty: all.", most=60)] = ""
    postal_codes: Annotated[list[str], PostalCodes("How a postal code begins there, such as those of a county; empty: all.")] = (
        field(default_factory=list)
    )
    classes: Annotated[
        list[str],
        ListOf(
            Text(most=32, least=1, pattern=TAX_CLASS, rule=TAX_CLASS_RULE),
            "The tax classes that bear it.",
            least=1,
            most=MAX_CLASSES,
        ),
    ] = field(default_factory=lambda: [STANDARD_CLASS])
    is_compound: Annotated[bool, Boolean("It is computed on the net amount and the other taxes of the line.")] = False
    valid_from: Annotated[date, Day("The first day of this version.")]
    valid_until: Annotated[date | None, Day("The first day without the tax; null: until the next version.", null=True)] = None

    def check_whole(self) -> None:
        if self.category in BY_BUYER:
            detail = f"{self.category} follows from the buyer: see vat_status of customers and tax_rules of sellers"
            raise Invalid(pointer="/category", rule="not-of-a-tax", detail=detail)
        if self.category in UNTAXED_CATEGORIES - {NOT_VAT} and self.rate:
            raise Invalid(pointer="/rate", rule="rate-not-for-category", detail=f"category {self.category} needs a rate of 0")
        if round(self.rate, RATE_DECIMALS) != self.rate:
            raise Invalid(pointer="/rate", rule="too-many-decimals", detail=f"at most {RATE_DECIMALS} decimals")
        for name, day in (("valid_from", self.valid_from), ("valid_until", self.valid_until or self.valid_from)):
            if not DAYS[0] <= day <= DAYS[1]:
                raise Invalid(pointer=f"/{name}", rule="out-of-range", detail="a day in the years 2000 to 2200")
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise Invalid(pointer="/valid_until", rule="after-start", detail="the last day comes after the first")


TERMS: Final = tuple(each.name for each in fields(NewTax) if each.name != "code")


def declare(tax: NewTax, *, actor: str) -> Tax:
    """Record a tax, or its next version, or raise and write nothing. The terms of the newest version again record nothing.

    The version that began last on the day that decides about a line applies to it; of two that began on one day, the newest.
    """
    terms: Mapping[str, Any] = {name: getattr(tax, name) for name in TERMS}
    with locked_transaction(TAX(tax.code)):
        newest = newest_of(tax.code)
        if newest is not None and all(getattr(newest, name) == value for name, value in terms.items()):
            return newest
        return Tax.objects.create(code=tax.code, recorded_by=actor, **terms)


def tax_of(code: str) -> Tax:
    """Return the newest version of a tax. Raises: NotFound."""
    return first_of(Tax.objects.filter(provider="", code=code).order_by("-pk"), "tax", code)


def newest_of(code: str) -> Tax | None:
    """Return the newest version of a tax; None before it is declared."""
    return Tax.objects.filter(provider="", code=code).order_by("-pk").first()
