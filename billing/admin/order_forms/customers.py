"""The forms that create and change a customer, give it a coupon and take a coupon away."""

from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.order_forms.fields import (
    CurrencyField,
    OrderForm,
    ZoneField,
    choice_field,
    credit_type_field,
    ref_field,
)
from billing.admin.order_forms.once import tried, written_once
from billing.admin.prose import amount, coupon_words
from billing.documents.printing.pages import address_lines
from billing.models import Coupon, Customer, CustomerCoupon
from billing.orders import coupons, customers
from billing.orders.customers import NewCredits
from billing.rating.limits import MAX_GRACE_DAYS, MAX_MONEY, MAX_TERMS_DAYS, SMALLEST_MONEY
from billing.rating.tax import VatStatus
from ledger.admin.forms.credit_amounts import CreditAmountsForm, CreditValueField
from ledger.admin.kit.cells import row_url
from ledger.admin.kit.idempotent_forms import Done, DryRun, FormSection, amount_field, operation_view, text_field
from ledger.admin.kit.pages import ReadOnlyAdmin
from ledger.units import unit_of

ADDRESS: Final = {"line1": "Street", "line2": "Second line", "postal_code": "Postal code", "city": "City", "country": "Country"}
VAT_WORDS: Final = {"taxable": "taxed as the prices say", "reverse_charge": "reverse charge", "exempt": "exempt from VAT"}
CHANGEABLE: Final = ("name", "language", "vat_id", "vat_status", "terms_days", "grace_days")


class CustomerChangeForm(OrderForm):
    """What documents say about a customer."""

    name = text_field(label="Name", required=True, most=200, help_text="As printed on the invoice.")
    line1 = text_field(label=ADDRESS["line1"], most=100)
    line2 = text_field(label=ADDRESS["line2"], most=100)
    postal_code = text_field(label=ADDRESS["postal_code"], most=16)
    city = text_field(label=ADDRESS["city"], most=60)
    country = text_field(label=ADDRESS["country"], most=60, help_text="Two letters, such as DE; e-invoices need it.")
    language = text_field(
        label="Language", required=True, most=16, initial="en", help_text="Of documents: English (en) or German (de)."
    )
    vat_id = text_field(label="VAT id", most=32, help_text="Needed for reverse charge; begins with its country.")
    vat_status = choice_field(
        label="VAT", choices=[(status.value, VAT_WORDS[status.value]) for status in VatStatus], initial="taxable"
    )
    terms_days = amount_field(label="Days to pay", initial=30, least=0, most=MAX_TERMS_DAYS, help_text="From the day of issue.")
    grace_days = amount_field(
        label="Days of grace",
        least=0,
        most=MAX_GRACE_DAYS,
        help_text="How long an invoice stays a draft and accepts late usage.",
    )

    beginning: tuple[str, ...] = ("name",)

    def sections(self) -> list[FormSection]:
        """Required fields first; addresses, taxes and terms folded."""
        return [
            FormSection([self[name] for name in self.beginning], [self[name] for name in ADDRESS], summary="Address"),
            FormSection([], [self["vat_id"], self["vat_status"]], summary="Tax"),
            FormSection([], [self[name] for name in self.terms], summary="Terms and language"),
            *self.further(),
            FormSection([self[name] for name in ("reason", "shown_in", "idempotency_key") if name in self.fields]),
        ]

    terms: tuple[str, ...] = ("terms_days", "grace_days", "language")

    def further(self) -> list[FormSection]:
        """More sections."""
        return []


class CustomerForm(CustomerChangeForm, CreditAmountsForm):
    """A new customer; the fields that billing depends on never change."""

    ref = ref_field(label="Reference", help_text="Your name for the customer, such as CUST-7.")
    currency = CurrencyField(label="Currency", help_text="ISO 4217, such as EUR. It never changes.")
    time_zone = ZoneField(label="Time zone", initial="UTC", help_text="Of dates on documents, such as Europe/Berlin.")
    holder_id = ref_field(label="Holder", required=False, help_text="Whose credits pay first. It never changes.")
    credit_type = credit_type_field(initial="credits")
    unit_value = CreditValueField(
        label="Value of one credit",
        least=SMALLEST_MONEY,
        most=MAX_MONEY,
        required=False,
        help_text="Money in the customer's currency, in major units; empty: credits pay no invoice.",
    )

    beginning = ("ref", "name", "currency")
    terms = ("time_zone", "terms_days", "grace_days", "language")

    def further(self) -> list[FormSection]:
        """Whose credits pay."""
        return [
            FormSection([], [self[name] for name in ("holder_id", "credit_type", "unit_value")], summary="Payment with credits")
        ]

    def field_of(self, pointer: str) -> str | None:
        """Credits are three fields here."""
        return super().field_of({"/credits": "/unit_value", "/credits/unit_value": "/unit_value"}.get(pointer, pointer))


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new customer, then the row that it would write, then write it."""
    return operation_view(
        model_admin,
        request,
        form_class=CustomerForm,
        operation=_create,
        dry_run=_dry_run_creation,
        title="New customer",
        button="Create the customer",
        explanation="A customer pays invoices. Subscriptions, invoices and coupons belong to a customer.",
        back=reverse("admin:billing_customer_changelist"),
    )


def change_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer) -> HttpResponse:
    """Show the form of a customer's changes, then the differences, then change the customer."""
    address = customer.address or {}
    return operation_view(
        model_admin,
        request,
        form_class=CustomerChangeForm,
        operation=partial(_change, customer),
        dry_run=partial(_dry_run_change, customer),
        initial={name: getattr(customer, name) for name in CHANGEABLE} | {name: address.get(name, "") for name in ADDRESS},
        title=f"Change {customer.ref}",
        button="Change the customer",
        explanation="The change appears from the next document on; finalised documents stay as they are.",
        back=row_url(Customer, customer.pk),
    )


def _fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    """The service's arguments, from the form's fields."""
    fields: dict[str, Any] = {name: asked.get(name, "") for name in CHANGEABLE}
    fields["address"] = {name: asked[name] for name in ADDRESS if asked.get(name)}
    return fields


def _new_fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    unit_value = asked.get("unit_value")
    terms = NewCredits(credit_type=asked.get("credit_type", "credits"), unit_value=unit_value) if unit_value is not None else None
    named = {name: asked[name] for name in ("ref", "currency", "time_zone")}
    return _fields(asked) | named | {"holder_id": asked.get("holder_id"), "credits": terms}


def _create(*, idempotency_key: str, actor: str, **asked: Any) -> Done:
    fields = _new_fields(asked)
    pk, replayed = written_once(
        "customers", idempotency_key=idempotency_key, asked=asked, act=lambda: customers.create_customer(**fields).pk
    )
    # Without the name: the staff log keeps this sentence for good, and a customer can be erased.
    return Done(f"Customer {fields['ref']}", f"it pays in {fields['currency']}", row_url(Customer, pk), replayed)


def _dry_run_creation(*, idempotency_key: str, actor: str, **asked: Any) -> DryRun:
    customer = tried(lambda: customers.create_customer(**_new_fields(asked)))
    return DryRun(sentences=customer_sentences(customer))


def customer_sentences(customer: Customer) -> list[str]:
    """A customer's currency and terms, and what documents say, in sentences."""
    days = "at once" if not customer.terms_days else f"within {customer.terms_days} day{'' if customer.terms_days == 1 else 's'}"
    sentences = [f"{customer.name} ({customer.ref}) is invoiced in {customer.currency} and pays {days}."]
    address = address_words(customer.address)
    sentences.append(f"Documents say {address}." if address else "Documents have no address.")
    vat_id = f", VAT id {customer.vat_id}" if customer.vat_id else ""
    sentences.append(f"Tax: {VAT_WORDS.get(customer.vat_status, customer.vat_status)}{vat_id}.")
    if customer.grace_days:
        plural = "" if customer.grace_days == 1 else "s"
        sentences.append(f"Invoices stay drafts for {customer.grace_days} day{plural} and accept late usage until then.")
    sentences.append(f"Dates are in {customer.time_zone}.")
    if customer.credit_unit_value is not None:
        unit = unit_of(customer.credit_type)
        value = amount(Decimal(customer.credit_unit_value).scaleb(unit.scale), customer.currency)
        sentences.append(f"{customer.holder_id}'s {unit.unit} pay first, {value} for 1 {unit.singular}.")
    elif customer.holder_id:
        sentences.append(f"The holder is {customer.holder_id}, whose credits pay usage that is priced in credits.")
    return sentences


def address_words(address: Mapping[str, Any] | None) -> str:
    """An address in a line."""
    return ", ".join(address_lines(address or {}, country=str((address or {}).get("country", ""))))


def _changes(customer: Customer, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The differences. Parts of the address that the form does not know stay."""
    fields = _fields(asked)
    kept = {name: value for name, value in (customer.address or {}).items() if name not in ADDRESS}
    fields["address"] = {**fields["address"], **kept}
    return {name: value for name, value in fields.items() if getattr(customer, name) != value}


def _change(customer: Customer, *, idempotency_key: str, actor: str, **asked: Any) -> Done:
    changed = ", ".join(name.replace("_", " ") for name in _changes(customer, asked))

    def act() -> int:
        changes: Any = _changes(customers.customer_of(customer.ref), asked)
        return (customers.change_customer(ref=customer.ref, **changes) if changes else customer).pk

    pk, replayed = written_once(
        "customers", idempotency_key=idempotency_key, asked={"customer": customer.ref, **asked}, act=act, field=""
    )
    return Done(f"The change of {customer.ref}", changed or "nothing was different", row_url(Customer, pk), replayed)


def _dry_run_change(customer: Customer, *, idempotency_key: str, actor: str, **asked: Any) -> DryRun:
    changes: Any = _changes(customer, asked)
    if not changes:
        return DryRun(sentences=["The form changes nothing."])
    tried(lambda: customers.change_customer(ref=customer.ref, **changes))
    rows = [
        (name.replace("_", " ").capitalize(), _told(name, getattr(customer, name)), _told(name, value))
        for name, value in changes.items()
    ]
    return DryRun(sentences=[f"Documents say this about {customer.ref} from the next one on."], changes=rows)


def _told(name: str, value: Any) -> str:
    if name == "address":
        return address_words(value) or "none"
    return VAT_WORDS.get(value, str(value)) if name == "vat_status" else str(value) or "none"


# Coupons of a customer -------------------------------------------------------------------------------


class GiveCouponForm(OrderForm):
    """A coupon for a customer."""

    coupon = ref_field(label="Coupon", help_text="Its code.")
    field_order = ["coupon", "reason"]


class TakeCouponForm(OrderForm):
    """The form that takes a coupon away."""


def give_coupon_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer) -> HttpResponse:
    """Show the form that gives a coupon to this customer, then what it does, then give it."""
    return operation_view(
        model_admin,
        request,
        form_class=GiveCouponForm,
        operation=partial(_give, customer),
        dry_run=partial(_dry_run_giving, customer),
        title=f"Give a coupon to {customer.ref}",
        button="Give the coupon",
        explanation="Invoices use it from the next one on.",
        back=row_url(Customer, customer.pk),
    )


def take_coupon_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer, code: str) -> HttpResponse:
    """Show the form that takes a coupon away from this customer, then what that does, then take it."""
    return operation_view(
        model_admin,
        request,
        form_class=TakeCouponForm,
        operation=partial(_take, customer, code),
        dry_run=partial(_dry_run_taking, customer, code),
        title=f"Take coupon {code} away from {customer.ref}",
        button="Take it away",
        explanation="Later invoices do not use it. It cannot be given to this customer again.",
        back=row_url(Customer, customer.pk),
    )


def _given(customer: Customer, code: str) -> CustomerCoupon:
    return coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency=customer.currency, code=code)


def _give(customer: Customer, *, idempotency_key: str, actor: str, coupon: str, **asked: Any) -> Done:
    _, replayed = written_once(
        "customer-coupons",
        idempotency_key=idempotency_key,
        asked={"customer": customer.ref, "coupon": coupon, **asked},
        act=lambda: _given(customer, coupon).pk,
        field="/coupon",
    )
    return Done(f"Coupon {coupon}", f"{customer.ref} has it", row_url(Customer, customer.pk), replayed)


def _dry_run_giving(customer: Customer, *, idempotency_key: str, actor: str, coupon: str, **asked: Any) -> DryRun:
    given = tried(lambda: _given(customer, coupon), field="/coupon")
    words = coupon_words(Coupon.objects.get(pk=given.coupon_id))
    return DryRun(sentences=[f"Invoices of {customer.ref} get {words}, from the next one on."])


def _taken(customer: Customer, code: str) -> CustomerCoupon:
    return coupons.take_coupon_off(customer_id=customer.pk, customer_ref=customer.ref, code=code)


def _take(customer: Customer, code: str, *, idempotency_key: str, actor: str, **asked: Any) -> Done:
    _, replayed = written_once(
        "customer-coupons",
        idempotency_key=idempotency_key,
        asked={"customer": customer.ref, "taken": code, **asked},
        act=lambda: _taken(customer, code).pk,
        field="",
    )
    return Done(f"Taking coupon {code} away", f"{customer.ref} no longer has it", row_url(Customer, customer.pk), replayed)


def _dry_run_taking(customer: Customer, code: str, *, idempotency_key: str, actor: str, **asked: Any) -> DryRun:
    tried(lambda: _taken(customer, code), field="")
    return DryRun(sentences=[f"Later invoices of {customer.ref} do not use {code}. Earlier invoices keep its discount."])
