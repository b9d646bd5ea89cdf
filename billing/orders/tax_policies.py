"""Reads what decides the taxes of a customer: the seller's rules, the buyer as documents keep it, and the declared taxes."""

import json
from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

from billing.models import Customer, Seller
from billing.models.personal import columns_on_documents
from billing.orders.vat_lookups import NEWEST_SQL
from billing.rating.tax_rules import DeclaredTax, Place, TaxPolicy, TaxRules
from billing.rating.tax_sales import Party
from billing.rating.vat import relied_vat_id, vat_status_of
from billing.tax_asking import answers_to
from ledger.database.statements import fetch_rows

BUYER: Final = columns_on_documents(Customer)
"""The columns of a customer that documents keep."""
DECLARED = """
    SELECT id, code, category, rate, country, subdivision, city, postal_codes, classes, is_compound, valid_from, valid_until
    FROM billing_tax WHERE country = ANY(%(countries)s) AND provider = '' ORDER BY id
"""


def policy_of(customer: Customer, buyer: Mapping[str, Any]) -> TaxPolicy:
    """Return what decides the taxes of a customer's lines now.

    Args:
        buyer: what the document keeps of the customer, as `buyer_of` returns it: its taxes follow from that.
    """
    seller = Seller.objects.filter(ref=customer.seller).order_by("-pk").values_list("details", flat=True).first()
    return policy_from(seller or {}, buyer, customer.time_zone)


def buyer_of(customer: Customer) -> dict[str, Any]:
    """Return what documents keep of a customer."""
    [lookup] = fetch_rows(lambda found: found, f"SELECT {NEWEST_SQL} FROM billing_customer AS c WHERE c.id = %s", [customer.pk])
    return buyer_from({name: getattr(customer, name) for name in BUYER}, None if lookup is None else json.loads(lookup))


def buyer_from(columns: dict[str, Any], lookup: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what documents keep of a customer: its columns, and the lookup of the VAT id, if there was one."""
    return columns if lookup is None else {**columns, "vat_lookup": lookup}


def policy_from(seller: Mapping[str, Any], buyer: Mapping[str, Any], time_zone: str) -> TaxPolicy:
    """Return what decides the taxes of a buyer's lines; the declared taxes are read only if the seller's rules need them.

    Args:
        seller: the details of the seller: `tax_rules`, the address, `vat_id` and `needs_confirmed_vat_id`.
        buyer: as `buyer_of` returns it.
    """
    rules = TaxRules(seller.get("tax_rules") or TaxRules.PRICE)
    vat_id = relied_vat_id(
        buyer["vat_id"],
        outcome=buyer.get("vat_lookup", {}).get("outcome", ""),
        needs_confirmed=bool(seller.get("needs_confirmed_vat_id")),
    )
    status = vat_status_of(buyer["vat_status"], vat_id)
    if rules == TaxRules.PRICE:
        return TaxPolicy(vat_status=status)
    home = Place.of_address(seller)
    place = Place.of_address(buyer["address"], country=home.country)
    if rules == TaxRules.PROVIDER:
        return TaxPolicy(
            rules=rules,
            vat_status=status,
            zone=ZoneInfo(time_zone),
            ask=answers_to,
            seller=_party(home, seller, seller.get("vat_id")),
            bill_to=_party(place, buyer["address"], vat_id),
        )
    return TaxPolicy(
        rules=rules,
        vat_status=status,
        vat_id=vat_id,
        seller_country=home.country,
        buyer=place,
        declared=tuple(fetch_rows(_declare_tax, DECLARED, {"countries": sorted({home.country, place.country})})),
        zone=ZoneInfo(time_zone),
    )


def _party(place: Place, address: Mapping[str, Any], vat_id: str | None) -> Party:
    return Party(*place, str(address.get("line1") or ""), str(address.get("line2") or ""), vat_id or "")


def _declare_tax(*row: Any) -> DeclaredTax:
    postal_codes, classes = (tuple(json.loads(each)) for each in row[7:9])
    known: tuple[Any, ...] = (*row[:7], postal_codes, classes, *row[9:])
    return DeclaredTax(*known)
