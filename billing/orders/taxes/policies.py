"""Reads what decides the taxes of a customer: the seller's rules, the customer's address and status, and the declared taxes."""

import json
from collections.abc import Mapping
from typing import Any
from zoneinfo import ZoneInfo

from billing.models import Customer, Seller
from billing.rating.tax import DeclaredTax, Place, TaxPolicy, TaxRules, vat_status_of
from ledger.database.statements import fetch_rows

DECLARED = """
    SELECT id, code, category, rate, country, subdivision, city, postal_codes, classes, is_compound, valid_from, valid_until
    FROM billing_tax WHERE country = ANY(%(countries)s) ORDER BY id
"""


def policy_of(customer: Customer) -> TaxPolicy:
    """Return what decides the taxes of a customer's lines now."""
    seller = Seller.objects.filter(ref=customer.seller).order_by("-pk").values_list("details", flat=True).first()
    buyer = {name: getattr(customer, name) for name in ("address", "vat_id", "vat_status")}
    return policy_from(seller or {}, buyer, customer.time_zone)


def policy_from(seller: Mapping[str, Any], buyer: Mapping[str, Any], time_zone: str) -> TaxPolicy:
    """Return what decides the taxes of a buyer's lines; the declared taxes are read only if the seller's rules need them.

    Args:
        seller: the details of the seller, `tax_rules` and `country` at least.
        buyer: `address`, `vat_id` and `vat_status` of the customer.
    """
    rules = TaxRules(seller.get("tax_rules") or TaxRules.PRICE)
    status = vat_status_of(buyer["vat_status"], buyer["vat_id"])
    if rules == TaxRules.PRICE:
        return TaxPolicy(vat_status=status)
    home = Place.of_address(seller)
    place = Place.of_address(buyer["address"], country=home.country)
    return TaxPolicy(
        rules=rules,
        vat_status=status,
        vat_id=buyer["vat_id"],
        seller_country=home.country,
        buyer=place,
        declared=tuple(fetch_rows(_declared, DECLARED, {"countries": sorted({home.country, place.country})})),
        zone=ZoneInfo(time_zone),
    )


def _declared(*row: Any) -> DeclaredTax:
    postal_codes, classes = (tuple(json.loads(each)) for each in row[7:9])
    known: tuple[Any, ...] = (*row[:7], postal_codes, classes, *row[9:])
    return DeclaredTax(*known)
