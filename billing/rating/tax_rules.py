"""Which taxes a line bears: by the seller's rules, the buyer's address and VAT id, the class of what is sold, and a day. Pure.

The last day of a line's period decides which rate applies, because a service that is supplied over a time is supplied at its end.
Source: Directive 2006/112/EC, Articles 44 and 196 (reverse charge), 58 and 59c (consumers), 64 (continuous supplies).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from decimal import Decimal
from enum import StrEnum
from typing import Any, ClassVar, Final, NamedTuple

from billing.rating.tax_amounts import AppliedTax, Treatment
from billing.rating.tax_sales import LineTaxes, Party, Sale, SaleLine, Taxed, TaxProvider
from billing.rating.vat import CATEGORY_OF, EU, STANDARD, VatStatus, category_for, vat_country

STANDARD_CLASS: Final = "standard"
"""The tax class of what names no other."""
NOT_TAXED: Final = Treatment("O", Decimal(0))
MICROSECOND: Final = timedelta(microseconds=1)
ALIASES: Final = {"EL": "GR"}
SUBDIVISIONS: Final = ("subdivision", "state", "province")
"""The members of an address that may name the subdivision."""


class TaxRules(StrEnum):
    """How a seller finds the taxes of a line of category S."""

    PRICE = "price"
    REGION = "region"
    EU_ORIGIN = "eu_origin"
    EU_OSS = "eu_oss"
    PROVIDER = "provider"


class TaxNotDeclared(Exception):
    """The seller's rules tax a sale in a country in which no tax is declared for its class and day."""

    def __init__(self, *, country: str, tax_class: str, day: date) -> None:
        super().__init__(f"no tax for {tax_class} in {country} on {day}")
        self.facts: dict[str, str] = {"country": country, "tax_class": tax_class, "day": day.isoformat()}


class Place(NamedTuple):
    """What of an address decides about taxes; each part may be empty."""

    country: str = ""
    subdivision: str = ""
    city: str = ""
    postal_code: str = ""

    @classmethod
    def of_address(cls, address: Mapping[str, Any], *, country: str = "") -> "Place":
        """Return the place of an address.

        Args:
            country: of an address without one.
        """
        code = str(address.get("country") or country).upper()
        code = ALIASES.get(code, code)
        subdivision = next((str(address[name]) for name in SUBDIVISIONS if address.get(name)), "").upper()
        return cls(
            code, subdivision.removeprefix(f"{code}-"), str(address.get("city") or ""), str(address.get("postal_code") or "")
        )


@dataclass(frozen=True, slots=True)
class DeclaredTax:
    """A version of a tax.

    Args:
        subdivision, city, postal_codes: where in the country; empty: everywhere. A postal code begins with one of those given.
        classes: the tax classes that bear it.
        valid_from, valid_until: `[from, until)`; until the next version if it has no end.
    """

    id: int
    code: str
    category: str
    rate: Decimal
    country: str
    subdivision: str = ""
    city: str = ""
    postal_codes: tuple[str, ...] = ()
    classes: tuple[str, ...] = (STANDARD_CLASS,)
    is_compound: bool = False
    valid_from: date = date.min
    valid_until: date | None = None

    def is_at(self, place: Place) -> bool:
        """Return whether the tax is due at a place."""
        code = place.postal_code.replace(" ", "").upper()
        return (
            self.country == place.country
            and self.subdivision in ("", place.subdivision)
            and (not self.city or self.city.casefold() == place.city.strip().casefold())
            and (not self.postal_codes or code.startswith(tuple(one.replace(" ", "") for one in self.postal_codes)))
        )


NOBODY: Final = Party()
Ask = Callable[[Sequence[Sale]], Sequence[Sequence[LineTaxes]]]
"""Returns the answers of the seller's provider to some sales."""


@dataclass(frozen=True, slots=True)
class TaxPolicy(TaxProvider):
    """What decides the taxes of a customer's lines. By itself it finds declared taxes and those of prices.

    Args:
        ask: of a seller who has a provider find the taxes of category S.
        seller, bill_to: what a provider is told.
        vat_status: the one that applies (see `vat_status_of`).
        vat_id: the customer's, if reverse charge may rely on it.
        declared: all versions of the taxes in the countries of seller and buyer; read only if the rules need them.
        zone: the customer's, for days.
    """

    rules: TaxRules = TaxRules.PRICE
    vat_status: VatStatus = VatStatus.TAXABLE
    vat_id: str = ""
    seller_country: str = ""
    buyer: Place = field(default_factory=Place)
    declared: tuple[DeclaredTax, ...] = ()
    zone: tzinfo = UTC
    ask: Ask | None = None
    seller: Party = NOBODY
    bill_to: Party = NOBODY

    name: ClassVar[str] = "declared"

    def answers(self, currency: str, lines: Sequence[tuple[date, SaleLine]]) -> list[LineTaxes]:
        """Return the taxes of each line, in their order. A provider is asked for all lines at once, in a sale for each day.

        Args:
            lines: each with the day that decides (see `day_of`).

        Raises:
            TaxNotDeclared: as `taxed`.
            TaxesToAsk: the provider has to be asked, without a transaction; then it is all done again.
        """
        of_sales: dict[tuple[bool, date], list[int]] = {}
        for index, (day, line) in enumerate(lines):
            of_sales.setdefault((self.ask is not None and line.category == STANDARD, day), []).append(index)
        sales = {
            key: Sale(currency, key[1], self.seller, self.bill_to, self.vat_status, tuple(lines[index][1] for index in indexes))
            for key, indexes in of_sales.items()
        }
        asked = [sale for (is_asked, _), sale in sales.items() if is_asked]
        known = dict(zip(asked, self.ask(asked), strict=True)) if self.ask is not None and asked else {}
        line_taxes: dict[int, LineTaxes] = {}
        for key, sale in sales.items():
            answers = known[sale] if key[0] else self.taxes_of(sale)
            line_taxes |= zip(of_sales[key], answers, strict=True)
        return [line_taxes[index] for index in range(len(lines))]

    def taxes_of(self, sale: Sale) -> Sequence[LineTaxes]:
        """Return the taxes of each line by the declared taxes and prices. Raises: TaxNotDeclared, as `taxed`."""
        return [
            LineTaxes.of(self.taxed(line.category, line.rate, line.tax_class, sale.day, includes_tax=line.includes_tax))
            for line in sale.lines
        ]

    def taxed(self, category: str, rate: Decimal, tax_class: str, day: date, *, includes_tax: bool = True) -> Taxed:
        """Return how a line is taxed whose price names a category, a rate and a tax class.

        The rules decide about category S; every other category stays as the price says.

        Args:
            day: that decides which version of a tax applies (see `day_of`).
            includes_tax: the price includes the tax at home, which is taken out also where none is due.

        Raises:
            TaxNotDeclared: the sale is taxed in a country without a tax for the class and day, or the price includes one.
        """
        if category != STANDARD or self.rules == TaxRules.PRICE:
            return Taxed(Treatment(*category_for(self.vat_status, category, rate)), rate)
        home = Place(self.seller_country)
        if self.rules == TaxRules.REGION:
            due = self._at(self.buyer, tax_class, day) or NOT_TAXED
            return Taxed(self._with_status(due), due.rate)
        if self.buyer.country not in EU - {"XI"}:
            included = self._due_at(home, tax_class, day).rate if includes_tax else Decimal(0)
            return Taxed(self._with_status(NOT_TAXED), included)
        is_abroad = self.buyer.country != home.country
        place = self.buyer if not is_abroad or self.rules == TaxRules.EU_OSS else home
        due = self._due_at(place, tax_class, day)
        if is_abroad and vat_country(self.vat_id) not in ("", "XI", home.country):
            return Taxed(Treatment(CATEGORY_OF[VatStatus.REVERSE_CHARGE], Decimal(0)), due.rate)
        return Taxed(self._with_status(due), due.rate)

    def day_of(self, ends_at: datetime | None, otherwise: datetime) -> date:
        """Return the day that decides about the taxes of a line: the last of its period, or that of another instant."""
        return (otherwise if ends_at is None else ends_at - MICROSECOND).astimezone(self.zone).date()

    def _with_status(self, due: Treatment) -> Treatment:
        status = CATEGORY_OF.get(self.vat_status)
        return due if status is None else Treatment(status, Decimal(0))

    def _due_at(self, place: Place, tax_class: str, day: date) -> Treatment:
        due = self._at(place, tax_class, day)
        if due is None:
            raise TaxNotDeclared(country=place.country, tax_class=tax_class, day=day)
        return due

    def _at(self, place: Place, tax_class: str, day: date) -> Treatment | None:
        found = [
            AppliedTax(one.category, one.rate, one.code, one.id, one.is_compound)
            for one in versions_on(self.declared, day)
            if one.is_at(place) and tax_class in one.classes
        ]
        # What others are computed on comes first; a category that is not VAT's comes last.
        found.sort(key=lambda one: (one.category == NOT_TAXED.category, one.is_compound, one.code))
        return Treatment.under(found) if found else None


def versions_on(declared: Iterable[DeclaredTax], day: date) -> list[DeclaredTax]:
    """Return the version of each tax that applies on a day: the one that began last; of two, the one that was recorded last."""
    latest: dict[str, DeclaredTax] = {}
    for one in sorted(declared, key=lambda one: (one.valid_from, one.id)):
        if one.valid_from <= day:
            latest[one.code] = one
    return [one for one in latest.values() if one.valid_until is None or day < one.valid_until]
