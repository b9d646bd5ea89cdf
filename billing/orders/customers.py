"""Customers: who pays, on which terms, and whose credits pay first."""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any

from billing.errors import AlreadyExists
from billing.models import Customer
from billing.models.columns import first_of
from billing.rating.limits import MAX_GRACE_DAYS, MAX_MONEY, MAX_TERMS_DAYS, SMALLEST_MONEY
from billing.rating.tax import VatStatus
from billing.rating.values import Currency, Ref, Zone
from ledger.database.lock_names import CUSTOMER
from ledger.database.locks import advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid
from ledger.records import Nested, Record, UseCase
from ledger.values import Choice, CreditType, Holder, Integer, Metadata, Number, Text

# Source: EN 16931 BR-CO-9, and the longest numbers in use.
VAT_ID = re.compile(r"[A-Z]{2}[0-9A-Z+*]{2,13}")


@dataclass(frozen=True, kw_only=True)
class NewCredits(Record):
    """Which credits of the holder pay."""

    credit_type: Annotated[str, CreditType()] = "credits"
    unit_value: Annotated[
        Decimal, Number("Money that one credit pays, in major units; above 0.", least=SMALLEST_MONEY, most=MAX_MONEY)
    ]


@dataclass(frozen=True, kw_only=True)
class NewCustomer(Record):
    """Who pays."""

    ref: Annotated[str, Ref("Your name for the customer.")]
    name: Annotated[str, Text("As printed on the invoice.", most=200, least=1)]
    currency: Annotated[str, Currency()]
    time_zone: Annotated[str, Zone("For dates on documents.")] = "UTC"
    language: Annotated[str, Text("BCP 47.", most=16, least=2)] = "en"
    address: Annotated[dict[str, Any], Metadata("As printed on the invoice.")] = field(default_factory=dict)
    vat_id: Annotated[str, Text("VAT identification number; needed for reverse charge.", most=32)] = ""
    vat_status: Annotated[
        str,
        Choice(
            VatStatus,
            "What is standard-rated is charged without tax under reverse charge (category AE) and to the exempt (E).",
        ),
    ] = VatStatus.TAXABLE.value
    terms_days: Annotated[int, Integer("Days from issue to due date.", least=0, most=MAX_TERMS_DAYS)] = 30
    grace_days: Annotated[
        int, Integer("Days for which an invoice stays a draft; each run rates it again.", least=0, most=MAX_GRACE_DAYS)
    ] = 0
    holder_id: Annotated[str | None, Holder("Whose credits pay first.", null=True)] = None
    credits: Annotated[NewCredits | None, Nested(NewCredits, "Which of them, and what one is worth.", null=True)] = None

    def check_whole(self) -> None:
        _ensure_vat_status(self.vat_status, self.vat_id)
        if self.credits is not None and not self.holder_id:
            raise Invalid(pointer="/credits", rule="needs-holder", detail="a customer who pays with credits needs a holder_id")


@dataclass(frozen=True, kw_only=True)
class CustomerChange(Record):
    """The changes, from the next document on. Other fields stay.

    They are what the next documents print; no past bill depends on them.
    """

    ref: Annotated[str, Ref()]

    name: Annotated[str | None, Text("As printed on the invoice.", most=200, least=1)] = None
    language: Annotated[str | None, Text("BCP 47.", most=16, least=2)] = None
    address: Annotated[dict[str, Any] | None, Metadata("As printed on the invoice; replaces the whole address.")] = None
    vat_id: Annotated[str | None, Text("VAT identification number; needed for reverse charge.", most=32)] = None
    vat_status: Annotated[str | None, Choice(VatStatus, "See the creation.")] = None
    terms_days: Annotated[int | None, Integer("Days from issue to due date.", least=0, most=MAX_TERMS_DAYS)] = None
    grace_days: Annotated[int | None, Integer("Days for which an invoice stays a draft.", least=0, most=MAX_GRACE_DAYS)] = None


def _create(asked: NewCustomer) -> Customer:
    """Write a customer, or raise and write nothing.

    Raises:
        AlreadyExists: there is a customer of this ref.
        Invalid: credits without a holder or without worth, an unknown VAT status, or reverse charge without a VAT id.
    """
    with own_or_joined(), advisory_lock(CUSTOMER(asked.ref)):
        if Customer.objects.filter(ref=asked.ref).exists():
            raise AlreadyExists(resource="customer", ref=asked.ref)
        return Customer.objects.create(
            ref=asked.ref,
            name=asked.name,
            currency=asked.currency,
            time_zone=asked.time_zone,
            language=asked.language,
            address=asked.address,
            vat_id=asked.vat_id,
            vat_status=asked.vat_status,
            terms_days=asked.terms_days,
            grace_days=asked.grace_days,
            holder_id=asked.holder_id or "",
            credit_type=asked.credits.credit_type if asked.credits else "",
            credit_unit_value=asked.credits.unit_value if asked.credits else None,
        )


create_customer = UseCase(NewCustomer, _create)


def _change(asked: CustomerChange) -> Customer:
    """Change what the next documents print of a customer, or raise and write nothing.

    Raises:
        NotFound: there is no such customer.
        Invalid: no change, an unknown VAT status, or reverse charge without a VAT id.
    """
    changes = {name: value for name, value in vars(asked).items() if name != "ref" and value is not None}
    ref = asked.ref
    if not changes:
        raise Invalid(pointer="", rule="required", detail="give at least one field to change")
    with own_or_joined(), advisory_lock(CUSTOMER(ref)):
        customer = customer_of(ref)
        for name, value in changes.items():
            setattr(customer, name, value)
        _ensure_vat_status(customer.vat_status, customer.vat_id)
        customer.save(update_fields=list(changes))
    return customer


change_customer = UseCase(CustomerChange, _change)


def _ensure_vat_status(vat_status: str, vat_id: str) -> None:
    if vat_status == VatStatus.REVERSE_CHARGE and VAT_ID.fullmatch(vat_id) is None:
        detail = "reverse charge needs a VAT id that begins with the two letters of its country"
        raise Invalid(pointer="/vat_id", rule="needed-for-reverse-charge", detail=detail)


def customer_of(ref: str) -> Customer:
    """The customer that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Customer.objects.filter(ref=ref), "customer", ref)
