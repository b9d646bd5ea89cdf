"""Customers: who pays, on which terms, and whose credits pay first."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypedDict, Unpack

from billing.errors import AlreadyExists
from billing.models import Customer
from billing.models.lookups import first_of
from billing.rating.limits import MAX_MONEY, SMALLEST_MONEY
from billing.rating.tax import VatStatus
from ledger.database.lock_names import CUSTOMER
from ledger.database.locks import advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid

# Source: EN 16931 BR-CO-9, and the longest numbers in use.
VAT_ID = re.compile(r"[A-Z]{2}[0-9A-Z+*]{2,13}")


@dataclass(frozen=True, slots=True)
class CreditTerms:
    """The credits of the holder that pay, and the worth of one of them.

    Args:
        unit_value: money per credit, in major units of the customer's currency; above 0.
    """

    credit_type: str
    unit_value: Decimal


class CustomerChanges(TypedDict, total=False):
    """The changeable fields of a customer: what the next documents print. No past bill depends on them."""

    name: str
    language: str
    address: dict[str, Any]
    vat_id: str
    vat_status: str
    terms_days: int
    grace_days: int


def create_customer(
    *,
    ref: str,
    name: str,
    currency: str,
    time_zone: str = "UTC",
    language: str = "en",
    address: dict[str, Any] | None = None,
    vat_id: str = "",
    vat_status: str = VatStatus.TAXABLE,
    terms_days: int = 30,
    grace_days: int = 0,
    holder_id: str = "",
    credits: CreditTerms | None = None,  # noqa: A002  what the API calls it
) -> Customer:
    """Write a customer, or raise and write nothing.

    Args:
        vat_status: taxable, reverse_charge (only with a VAT id, country first) or exempt.
        terms_days: from issue to due date.
        grace_days: how long an invoice stays a draft that takes late usage, before a run finalises it.

    Raises:
        AlreadyExists: there is a customer of this ref.
        Invalid: credits without a holder or without worth, an unknown VAT status, or reverse charge without a VAT id.
    """
    _ensure_vat_status(vat_status, vat_id)
    if credits is not None and not holder_id:
        raise Invalid(pointer="/credits", rule="needs-holder", detail="a customer who pays with credits needs a holder_id")
    if credits is not None and not SMALLEST_MONEY <= credits.unit_value <= MAX_MONEY:
        raise Invalid(pointer="/credits/unit_value", rule="out-of-range", detail=f"must be above 0 and at most {MAX_MONEY}")
    with own_or_joined(), advisory_lock(CUSTOMER(ref)):
        if Customer.objects.filter(ref=ref).exists():
            raise AlreadyExists(resource="customer", ref=ref)
        return Customer.objects.create(
            ref=ref,
            name=name,
            currency=currency,
            time_zone=time_zone,
            language=language,
            address=address or {},
            vat_id=vat_id,
            vat_status=vat_status,
            terms_days=terms_days,
            grace_days=grace_days,
            holder_id=holder_id,
            credit_type=credits.credit_type if credits else "",
            credit_unit_value=credits.unit_value if credits else None,
        )


def change_customer(*, ref: str, **changes: Unpack[CustomerChanges]) -> Customer:
    """Change what the next documents print of a customer, or raise and write nothing.

    Raises:
        NotFound: there is no such customer.
        Invalid: no change, an unknown VAT status, or reverse charge without a VAT id.
    """
    if not changes:
        raise Invalid(pointer="", rule="required", detail="give at least one field to change")
    with own_or_joined(), advisory_lock(CUSTOMER(ref)):
        customer = customer_of(ref)
        for name, value in changes.items():
            setattr(customer, name, value)
        _ensure_vat_status(customer.vat_status, customer.vat_id)
        customer.save(update_fields=list(changes))
    return customer


def _ensure_vat_status(vat_status: str, vat_id: str) -> None:
    if vat_status not in list(VatStatus):
        raise Invalid(pointer="/vat_status", rule="not-one-of", detail=f"must be one of {', '.join(VatStatus)}")
    if vat_status == VatStatus.REVERSE_CHARGE and VAT_ID.fullmatch(vat_id) is None:
        detail = "reverse charge needs a VAT id that begins with the two letters of its country"
        raise Invalid(pointer="/vat_id", rule="needed-for-reverse-charge", detail=detail)


def customer_of(ref: str) -> Customer:
    """The customer that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Customer.objects.filter(ref=ref), "customer", ref)
