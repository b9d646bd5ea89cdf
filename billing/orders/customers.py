"""Customers: who pays, on which terms, and whose credits pay first."""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Any, Final

from billing.errors import AlreadyExists
from billing.models import DEFAULT_SELLER, Customer, Seller
from billing.models.columns import first_of
from billing.nouns import GoesOut, noun_fields
from billing.orders import vat_lookups
from billing.orders.vat_lookups import VatAnswer
from billing.rating.limits import MAX_GRACE_DAYS, MAX_HOLD_DAYS, MAX_MONEY, MAX_TERMS_DAYS, SMALLEST_MONEY
from billing.rating.values import Currency, ElectronicAddress, Email, OneLine, Ref, VatId
from billing.rating.vat import VatStatus
from ledger.database.lock_names import CUSTOMER, CUSTOMER_ACCOUNT
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Nested, Record, UseCase, check
from ledger.values import Boolean, Choice, CreditType, Holder, Integer, Metadata, Number, Text, Zone

# Source: EN 16931 BR-CO-9, and the longest numbers in use.
VAT_ID = re.compile(r"[A-Z]{2}[0-9A-Z+*]{2,13}")

DEFAULT_TERMS_DAYS: Final = 30
"""Of a seller that names no other."""

ADDRESS_LINES: Final = {
    "line1": Text(most=100),
    "line2": Text(most=100),
    "postal_code": Text(most=16),
    "city": Text(most=60),
    "subdivision": Text(most=10),
    "country": Text(most=60),
}
"""The lines of an address with what forms accept. An address may have further members, which documents print too."""


VAT_WORDS: Final = {
    "taxable": "taxed as the seller and the prices say",
    "reverse_charge": "reverse charge",
    "exempt": "exempt from VAT",
}
E_INVOICE_WORDS: Final = {
    "en16931": "EN 16931 (CII)",
    "xrechnung": "XRechnung (CII)",
    "peppol": "Peppol BIS Billing 3 (UBL)",
}
CONSOLIDATION_WORDS: Final = {True: "one for all subscriptions of a day", False: "one for each subscription"}


class EInvoiceFormat(StrEnum):
    """The form of a customer's e-invoices."""

    EN16931 = "en16931"
    XRECHNUNG = "xrechnung"
    PEPPOL = "peppol"


@dataclass(frozen=True, kw_only=True)
class NewCredits(Record):
    """The kind of the holder's credits that pay, and their worth."""

    credit_type: Annotated[str, CreditType()] = "credits"
    unit_value: Annotated[
        Decimal, Number("The worth of one credit, in major units; above 0.", least=SMALLEST_MONEY, most=MAX_MONEY)
    ]


@dataclass(frozen=True, kw_only=True)
class NewCustomer(Record):
    """Who pays."""

    ref: Annotated[
        str,
        Ref("Your name for the customer."),
        GoesOut(
            label="Reference",
            help="Your name for the customer, such as CUST-7.",
            column="Customer",
            example="CUST-7",
            is_fixed=True,
        ),
    ]
    name: Annotated[
        str,
        Text("As printed on the invoice.", most=200, least=1),
        GoesOut(help="As printed on the invoice.", example="Ada Lovelace"),
    ]
    currency: Annotated[str, Currency(), GoesOut(help="It never changes.", example="EUR", is_fixed=True)]
    time_zone: Annotated[
        str,
        Zone("For dates on documents."),
        GoesOut(help="Zone of dates on documents, such as Europe/Berlin.", example="Europe/Berlin", is_fixed=True),
    ] = "UTC"
    language: Annotated[
        str, Text("BCP 47.", most=16, least=2), GoesOut(help="Language of documents: English (en) or German (de).", example="en")
    ] = "en"
    address: Annotated[
        dict[str, Any],
        Metadata("As printed on the invoice."),
        GoesOut(column=None, example={"line1": "12 Main St", "city": "Berlin"}),
    ] = field(default_factory=dict)
    email: Annotated[
        str,
        Email("Where documents are mailed to, if the seller mails them; empty for nowhere."),
        GoesOut(
            label="E-mail",
            help="Invoices are sent here, if the seller sends them by mail.",
            column=None,
            example="ada@example.com",
        ),
    ] = ""
    vat_id: Annotated[
        str,
        VatId("VAT identification number; needed for reverse charge. Ids of the EU are checked offline."),
        GoesOut(
            label="VAT id",
            help="Needed for reverse charge; begins with its country.",
            column="VAT id",
            example="DE123456788",
            on_documents={"en": "Your {buyer_id}", "de": "Ihre {buyer_id}"},
        ),
    ] = ""
    vat_status: Annotated[
        str,
        Choice(
            VatStatus,
            "Under reverse charge (category AE) and for exempt customers (E), standard-rated prices are charged without tax.",
        ),
        GoesOut(label="VAT", words=VAT_WORDS, column="VAT status", example="taxable"),
    ] = VatStatus.TAXABLE.value
    e_invoice_format: Annotated[
        str,
        Choice(
            EInvoiceFormat,
            "The form of e-invoices: en16931 (CII), xrechnung (CII) or peppol (Peppol BIS Billing 3, UBL). The PDF has Factur-X.",
        ),
        GoesOut(label="E-invoices", words=E_INVOICE_WORDS, is_needed=False, column=None, example="en16931"),
    ] = EInvoiceFormat.EN16931.value
    buyer_reference: Annotated[
        str,
        OneLine("BT-10 of e-invoices, such as a Leitweg-ID; by default the customer's `ref`.", most=100),
        GoesOut(
            label="Buyer reference",
            help="On e-invoices: the Leitweg-ID of a public buyer, or what the customer wants to read there.",
            column=None,
            example="04011000-12345-34",
            e_invoice_term="BT-10",
        ),
    ] = ""
    electronic_address: Annotated[
        str,
        ElectronicAddress("BT-49 of e-invoices: the code of a scheme (EAS), a colon and the address, such as 0204:991-01234-56."),
        GoesOut(
            label="Electronic address",
            help="On e-invoices: the code of its scheme, a colon and the address, such as 0204:991-01234-56.",
            column=None,
            example="0204:991-01234-56",
        ),
    ] = ""
    terms_days: Annotated[
        int | None,
        Integer("Days from the issue to the due date; by default those of the seller.", least=0, most=MAX_TERMS_DAYS, null=True),
        GoesOut(
            label="Days to pay",
            help="From the day of issue; empty: those that the seller gives its new customers.",
            column="Terms (days)",
            example=14,
        ),
    ] = None
    grace_days: Annotated[
        int,
        Integer("Days for which an invoice stays a draft, which each run rates again.", least=0, most=MAX_GRACE_DAYS),
        GoesOut(
            label="Days of grace",
            help="How long an invoice stays a draft and accepts late usage.",
            column="Grace (days)",
            example=3,
        ),
    ] = 0
    seller: Annotated[
        str,
        Ref("The seller on the customer's documents, by its ref."),
        GoesOut(
            help="Who invoices: the ref of a seller; empty: default.",
            is_needed=False,
            column=None,
            example=DEFAULT_SELLER,
            sentence="Documents name the seller {}.",
        ),
    ] = DEFAULT_SELLER
    hold_days: Annotated[
        int,
        Integer("Invoice this number of days later than due.", least=0, most=MAX_HOLD_DAYS),
        GoesOut(
            label="Invoice delay (days)",
            help="How long after a due date its invoice is made.",
            is_needed=False,
            column="Held back (days)",
            example=0,
        ),
    ] = 0
    consolidated_invoicing: Annotated[
        bool,
        Boolean("One invoice for all subscriptions that are invoiced on the same day, in one currency; or one for each."),
        GoesOut(label="Invoices", words=CONSOLIDATION_WORDS, is_needed=False, column="One invoice a day", example=False),
    ] = False
    holder_id: Annotated[
        str | None,
        Holder("The holder whose credits pay first.", null=True),
        GoesOut(label="Holder", help="The holder whose credits pay first. It never changes.", column="Holder", is_fixed=True),
    ] = None
    credits: Annotated[
        NewCredits | None,
        Nested(NewCredits, "Which of the holder's credits pay, and the worth of one credit.", null=True),
        GoesOut(column=None, is_fixed=True),
    ] = None

    def check_whole(self) -> None:
        _ensure_vat_status(self.vat_status, self.vat_id)
        if self.credits is not None and not self.holder_id:
            raise Invalid(pointer="/credits", rule="needs-holder", detail="a customer who pays with credits needs a holder_id")


@dataclass(frozen=True, kw_only=True)
class CustomerChange(Record):
    """Change a customer from the next document on. Other fields stay.

    Only later documents print the changes; no past bill depends on them. With `merges_address`, null removes a member of the
    address, and members that the request does not name stay.
    """

    ref: Annotated[str, Ref()]
    merges_address: bool = False

    name: Annotated[str | None, Text("As printed on the invoice.", most=200, least=1)] = None
    language: Annotated[str | None, Text("BCP 47.", most=16, least=2)] = None
    address: Annotated[
        dict[str, Any] | None, Metadata("As printed on the invoice; replaces the whole address, except in a merge patch.")
    ] = None
    email: Annotated[str | None, Email("Where documents are mailed to; empty for nowhere.")] = None
    vat_id: Annotated[str | None, VatId("VAT identification number, as for a new customer.")] = None
    vat_status: Annotated[str | None, Choice(VatStatus, "As for a new customer.")] = None
    e_invoice_format: Annotated[str | None, Choice(EInvoiceFormat, "As for a new customer, from the next document on.")] = None
    buyer_reference: Annotated[str | None, OneLine("BT-10 of e-invoices; empty: the customer's `ref`.", most=100)] = None
    electronic_address: Annotated[str | None, ElectronicAddress("BT-49 of e-invoices; empty: none.")] = None
    terms_days: Annotated[int | None, Integer("Days from issue to due date.", least=0, most=MAX_TERMS_DAYS)] = None
    grace_days: Annotated[int | None, Integer("Days for which an invoice stays a draft.", least=0, most=MAX_GRACE_DAYS)] = None
    seller: Annotated[str | None, Ref("The seller on the customer's later documents, by its ref.")] = None
    hold_days: Annotated[int | None, Integer("Invoice this number of days later than due.", least=0, most=MAX_HOLD_DAYS)] = None
    consolidated_invoicing: Annotated[bool | None, Boolean("As for a new customer, from the next run on.")] = None


def look_up_before(request: NewCustomer | CustomerChange) -> VatAnswer | None:
    """Return what VIES says about the VAT id that the request would store; None if there is nothing to look up.

    Called before the transaction of the write; see Note [Look first, then write].
    """
    return vat_lookups.look_up_before(ref=request.ref, vat_id=request.vat_id, seller=request.seller)


def create(request: NewCustomer, lookup: VatAnswer | None = None) -> Customer:
    """Write a customer, or raise and write nothing.

    Args:
        lookup: of the VAT id; None: a command looks it up afterwards, if this deployment looks VAT ids up.

    Raises:
        AlreadyExists: a customer has this ref.
        Invalid: credits without a holder or without worth, an unknown VAT status or seller, reverse charge without a VAT id, or a
            VAT id that is invalid in VIES.
    """
    vat_lookups.ensure_not_invalid(lookup, request.vat_id)
    with locked_transaction(CUSTOMER(request.ref)):
        if Customer.objects.filter(ref=request.ref).exists():
            raise AlreadyExists(resource="customer", ref=request.ref)
        _ensure_seller(request.seller)
        columns = {each.name: getattr(request, each.name) for each in noun_fields(NewCustomer)}
        if request.terms_days is None:
            columns["terms_days"] = _terms_of(request.seller)
        columns["holder_id"] = request.holder_id or ""
        paying: NewCredits | None = columns.pop("credits")
        if paying is not None:
            columns |= {"credit_type": paying.credit_type, "credit_unit_value": paying.unit_value}
        customer = Customer.objects.create(**columns)
        if customer.vat_id:
            vat_lookups.keep_new(customer, lookup)
        return customer


create_customer = UseCase(NewCustomer, create)


def change(request: CustomerChange, lookup: VatAnswer | None = None) -> Customer:
    """Change a customer's data for the next documents, or raise and write nothing.

    Args:
        lookup: as of `create`. A VAT id that stays is not looked up, and never refused.

    Raises:
        NotFound: the customer does not exist.
        Invalid: nothing changes, the VAT status or seller is unknown, reverse charge has no VAT id, or the new VAT id is invalid.
    """
    changes = {
        name: value for name, value in vars(request).items() if name not in ("ref", "merges_address") and value is not None
    }
    ref = request.ref
    if not changes:
        raise Invalid(pointer="", rule="required", detail="give at least one field to change")
    with locked_transaction(CUSTOMER(ref)):
        customer = customer_of(ref)
        former_vat_id, former_seller = customer.vat_id, customer.seller
        if request.merges_address and request.address is not None:
            changes["address"] = check(Metadata(), _merge_patch(customer.address, request.address), "/address")
        for name, value in changes.items():
            setattr(customer, name, value)
        _ensure_vat_status(customer.vat_status, customer.vat_id)
        _ensure_seller(customer.seller)
        customer.save(update_fields=list(changes))
        if customer.vat_id != former_vat_id:
            vat_lookups.ensure_not_invalid(lookup, customer.vat_id)
            vat_lookups.keep_new(customer, lookup)
        elif customer.seller != former_seller:
            vat_lookups.ask_again(customer)
    return customer


def _merge_patch(value: Any, patch: Any) -> Any:
    """Return the value after the changes of a patch. Source: RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    found = {**value} if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            found.pop(name, None)
        else:
            found[name] = _merge_patch(found.get(name), change)
    return found


change_customer = UseCase(CustomerChange, change)


def account_key(customer_ref: str) -> str:
    """Return the name of the lock for a customer's coupons and credit; a transaction takes it after the subscription's lock."""
    return CUSTOMER_ACCOUNT(customer_ref)


def _ensure_vat_status(vat_status: str, vat_id: str) -> None:
    if vat_status == VatStatus.REVERSE_CHARGE and VAT_ID.fullmatch(vat_id) is None:
        detail = "reverse charge needs a VAT id that begins with the two letters of its country"
        raise Invalid(pointer="/vat_id", rule="needed-for-reverse-charge", detail=detail)


def _terms_of(seller: str) -> int:
    """Return how many days a seller gives its new customers to pay."""
    current = Seller.objects.filter(ref=seller).order_by("-pk").first()
    return DEFAULT_TERMS_DAYS if current is None else int(current.details.get("terms_days", DEFAULT_TERMS_DAYS))


def _ensure_seller(ref: str) -> None:
    # A seller is never deleted, so it needs no lock. Documents can wait for the default one.
    if ref != DEFAULT_SELLER and not Seller.objects.filter(ref=ref).exists():
        raise Invalid(pointer="/seller", rule="unknown-seller", detail=f"There is no seller {ref}.")


def customer_of(ref: str) -> Customer:
    """Return the customer that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Customer.objects.filter(ref=ref), "customer", ref)
