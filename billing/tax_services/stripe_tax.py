"""Stripe Tax, by the official package of Stripe: its calculations, which change nothing there.

Stripe computes at most 31 days ahead and back. Another day is asked for as the nearest one, so that a year in advance has the
taxes that are known today. Source: Stripe API, Create a Tax Calculation.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, ClassVar, Final

import stripe

from billing.errors import TaxesRefused, TaxesUnavailable
from billing.rating.tax_rules import STANDARD_CLASS
from billing.rating.tax_sales import FoundTax, LineTaxes, Party, Sale, SaleLine, TaxProvider
from billing.rating.vat import STANDARD, VatStatus, vat_country
from billing.stripe_client import connect
from billing.stripe_units import minor_of, units_of

TIMEOUT_S: Final = 10
MOST_LINES: Final = 100
"""In one calculation."""
MOST_DAYS: Final = 30
MAX_CODE: Final = 64
MAX_NAME: Final = 60
OVERRIDES: Final = {VatStatus.EXEMPT: "customer_exempt", VatStatus.REVERSE_CHARGE: "reverse_charge"}
VAT: Final = "vat"
"""The type of Stripe's taxes that is VAT; each other one, such as gst or sales_tax, has category O."""
ID_TYPES: Final = {"GB": "gb_vat", "CH": "ch_vat", "NO": "no_vat", "IS": "is_vat", "XI": "eu_vat"}
UNTAXED: Final = {
    "reverse_charge": "AE", "zero_rated": "Z", "customer_exempt": "E", "product_exempt": "E", "product_exempt_holiday": "E",
}  # fmt: skip
"""The categories of lines without a tax by Stripe's reason; any other reason: not taxed."""


class StripeTax(TaxProvider):
    """Taxes by Stripe Tax, with the registrations of the account."""

    name: ClassVar[str] = "stripe"

    def __init__(self, *, api_key: str, tax_codes: Mapping[str, str] | None = None, api_base: str = "") -> None:
        """Make the client; no request is sent.

        Args:
            tax_codes: Stripe's tax code of each tax class. The class `standard` may be left out: then the account's code applies.
        """
        self._tax_codes = dict(tax_codes or {})
        self._client, self._http = connect(api_key, api_base=api_base, timeout_s=TIMEOUT_S)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def taxes_of(self, sale: Sale) -> Sequence[LineTaxes]:
        line_taxes: list[LineTaxes] = []
        for first in range(0, len(sale.lines), MOST_LINES):
            line_taxes += self._calculate_taxes(sale, sale.lines[first : first + MOST_LINES])
        return line_taxes

    def _calculate_taxes(self, sale: Sale, lines: Sequence[SaleLine]) -> list[LineTaxes]:
        parameters: Any = {
            "currency": sale.currency.lower(),
            "customer_details": _customer(sale),
            "line_items": [self._item(sale, line, str(position)) for position, line in enumerate(lines)],
            "tax_date": _instant_of(sale.day),
        }
        calculation = _ask(lambda: self._client.v1.tax.calculations.create(parameters))
        reference = str(calculation["id"])
        page: Any = {"limit": MOST_LINES, "expand": ["data.tax_breakdown"]}
        rows = _ask(lambda: self._client.v1.tax.calculations.line_items.list(reference, page))["data"]
        by_position = {row["reference"]: row for row in rows}
        return [_taxes(by_position[str(position)], sale.currency, reference) for position in range(len(lines))]

    def _item(self, sale: Sale, line: SaleLine, reference: str) -> dict[str, Any]:
        code = self._tax_codes.get(line.tax_class)
        if code is None and line.tax_class != STANDARD_CLASS:
            raise TaxesRefused(why=f"settings.TAX_PROVIDER has no tax code for the tax class {line.tax_class}.")
        try:
            amount = units_of(line.amount_minor, sale.currency)
        except ValueError as error:
            raise TaxesRefused(why=str(error)) from error
        return {
            "amount": amount,
            "reference": reference,
            "tax_behavior": "inclusive" if line.includes_tax else "exclusive",
            **({"tax_code": code} if code else {}),
        }


def _customer(sale: Sale) -> dict[str, Any]:
    buyer = sale.buyer
    address = {
        "country": buyer.country, "state": buyer.subdivision, "city": buyer.city, "postal_code": buyer.postal_code,
        "line1": buyer.line1, "line2": buyer.line2,
    }  # fmt: skip
    kind = _id_type(buyer)
    return {
        "address": {name: text for name, text in address.items() if text},
        "address_source": "billing",
        "taxability_override": OVERRIDES.get(sale.vat_status, "none"),
        **({"tax_ids": [{"type": kind, "value": buyer.vat_id}]} if kind else {}),
    }


def _id_type(buyer: Party) -> str:
    """Return Stripe's type of a VAT id; empty for one that Stripe is not told."""
    if vat_country(buyer.vat_id):
        return "eu_vat"
    return ID_TYPES.get(buyer.vat_id[:2].upper(), "")


def _instant_of(day: date) -> int:
    """Return the noon of a day, or of the nearest day for which Stripe computes."""
    today = datetime.now(UTC).date()
    nearest = min(max(day, today - timedelta(days=MOST_DAYS)), today + timedelta(days=MOST_DAYS))
    return int(datetime.combine(nearest, time(12), UTC).timestamp())


def _taxes(row: Mapping[str, Any], currency: str, reference: str) -> LineTaxes:
    breakdown = row.get("tax_breakdown") or []
    net = row["amount"] - (row["amount_tax"] if row["tax_behavior"] == "inclusive" else 0)
    due = [one for one in breakdown if _is_due(one, net, units_of(1, currency))]
    untaxed = next((UNTAXED[one["taxability_reason"]] for one in breakdown if one["taxability_reason"] in UNTAXED), "O")
    return LineTaxes(taxes=tuple(_tax(one, currency) for one in due), category=untaxed, reference=reference)


def _is_due(one: Mapping[str, Any], net: int, unit: int) -> bool:
    """Return whether a tax is due on a line.

    Raises:
        TaxesRefused: it is due on a part of the line, or it is no percentage.
    """
    rate, base = _rate(one), one["taxable_amount"]
    if not rate:
        if one["amount"]:
            raise TaxesRefused(why=f"{_name(one)} is no percentage.")
        return False
    if abs(base - net) <= unit:
        return True
    if base or one["amount"]:
        raise TaxesRefused(why=f"{_name(one)} is due on a part of a line only ({one['taxability_reason']}).")
    return False


def _rate(one: Mapping[str, Any]) -> Decimal:
    return Decimal((one.get("tax_rate_details") or {}).get("percentage_decimal") or 0)


def _tax(one: Mapping[str, Any], currency: str) -> FoundTax:
    place, details = one["jurisdiction"], one["tax_rate_details"]
    return FoundTax(
        code=_code(one),
        name=_name(one),
        rate=_rate(one),
        category=STANDARD if details["tax_type"] == VAT else "O",
        amount_minor=minor_of(one["amount"], currency),
        country=place["country"],
        subdivision=place.get("state") or "",
    )


def _name(one: Mapping[str, Any]) -> str:
    """Return what documents print: the tax, and of a tax of a part of a country also the part."""
    place, details = one["jurisdiction"], one.get("tax_rate_details") or {}
    words = [*([] if place["level"] == "country" else [place["display_name"]]), details.get("display_name") or "Tax"]
    return " ".join(" ".join(words).split())[:MAX_NAME]


def _code(one: Mapping[str, Any]) -> str:
    """Return the name of a tax: Stripe has none, so it is made of the place and the type."""
    place = one["jurisdiction"]
    kind = one["tax_rate_details"]["tax_type"]
    parts = ["stripe", place["country"], place.get("state") or "", place["level"], place["display_name"], kind]
    whole = re.sub("[^a-z0-9]+", "-", " ".join(parts).lower()).strip("-")
    if len(whole) <= MAX_CODE and whole.isascii():
        return whole
    return f"{whole[: MAX_CODE - 9]}-{hashlib.sha256(whole.encode()).hexdigest()[:8]}"


def _ask(send: Callable[[], Any]) -> Any:
    """Send a request and return its response as plain JSON; or raise what `TaxProvider.taxes_of` raises."""
    try:
        response = send()
    except stripe.InvalidRequestError as error:
        raise TaxesRefused(why=str(error.user_message or error)[:500]) from error
    except stripe.StripeError as error:
        # Also a wrong key, which may be mended.
        raise TaxesUnavailable(why=f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]) from error
    return response.to_dict()
