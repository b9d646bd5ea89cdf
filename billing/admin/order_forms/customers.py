"""The forms that create and change a customer, give it a coupon and take a coupon away."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.order_forms.fields import OrderForm, shows_of
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import coupon_words, lookup_words
from billing.documents.printed_pages import address_lines
from billing.documents.sellers import current_seller
from billing.models import Coupon, Customer, CustomerCoupon, Subscription
from billing.nouns import changeable_fields, noun_fields
from billing.orders import coupons, customers
from billing.orders.coupons import NewGivenCoupon
from billing.orders.customers import VAT_WORDS, CustomerChange, NewCustomer
from billing.orders.vat_lookups import VatAnswer, is_looked_up, newest_of
from billing.rating.prices.wording import amount
from billing.rating.vat import suggested_status, vat_country
from ledger.staff.approvals import NoStake
from ledger.staff.credit_amounts import CreditAmountsForm, value_of_a_credit
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.form_fields import Display
from ledger.staff.kit.idempotent_forms import DryRun, FormSection, RecordT, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.units import unit_of

ADDRESS_LABELS: Final = {"line1": "Street", "line2": "Second line", "subdivision": "State or province"}
ADDRESS_HELP: Final = {
    "subdivision": "Its code, such as QC; taxes of a region need it.",
    "country": "Name, or two letters such as DE; e-invoices and taxes need it.",
}
ADDRESS: Final = {
    name: Display(label=ADDRESS_LABELS.get(name), at=f"/address/{name}", value=value, help=ADDRESS_HELP.get(name, ""))
    for name, value in customers.ADDRESS_LINES.items()
}
PRINTED: Final = {**shows_of(changeable_fields(NewCustomer)), **ADDRESS}
"""The data of a customer that documents print."""
TAX: Final = ("vat_id", "vat_status")
TERMS: Final = ("time_zone", "terms_days", "grace_days", "hold_days", "consolidated_invoicing", "language", "seller")
PAYING: Final = ("holder_id", "credit_type", "unit_value")


NO_MONEY: Final = NoStake("It moves no money: it says who pays.")


class CustomerFields(OrderForm, RequestForm[RecordT]):
    """The fields of a customer: required ones first; addresses, taxes and terms folded."""

    is_abstract = True
    beginning: tuple[str, ...] = ("name",)
    lookup: VatAnswer | None = None
    """What VIES said about the VAT id."""

    def sections(self) -> list[FormSection]:
        """Return the form in parts, without the parts that the form does not have."""
        paying = self.bound(*PAYING)
        placed = {*self.beginning, "email", *TAX, *TERMS, *PAYING}
        further = [each.name for each in noun_fields(NewCustomer) if each.is_plain and each.name not in placed]
        return [
            FormSection(self.bound(*self.beginning, "email"), self.bound(*ADDRESS), summary="Address"),
            FormSection([], self.bound(*TAX), summary="Tax"),
            FormSection([], self.bound(*TERMS, *further), summary="Terms and language"),
            *([FormSection([], paying, summary="Payment with credits")] if paying else []),
            FormSection(self.bound("reason", "shown_in", "idempotency_key")),
        ]


class CustomerChangeForm(CustomerFields[CustomerChange]):
    """A change of a customer's data on documents."""

    stake = NO_MONEY
    declared = CustomerChange
    shows = PRINTED

    def body(self) -> dict[str, Any]:
        """Return the JSON with the emptied fields."""
        defaults = {each.name: each.default for each in changeable_fields(NewCustomer)}
        emptied = {name: default for name, default in defaults.items() if default is not None}
        return emptied | super().body()


class CustomerForm(CustomerFields[NewCustomer], CreditAmountsForm[NewCustomer]):
    """A new customer; the fields that billing depends on never change."""

    stake = NO_MONEY
    declared = NewCustomer
    shows = {
        **shows_of(noun_fields(NewCustomer)),
        **ADDRESS,
        "unit_value": Display(
            label="Value of one credit",
            at="/credits/unit_value",
            make=value_of_a_credit,
            required=False,
            help="Empty: credits pay no invoice.",
        ),
        "credit_type": Display(at="/credits/credit_type", required=False),
    }
    beginning = ("ref", "name", "currency")


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new customer, then the row that it would write, then write it."""
    return OrderPage(
        form=CustomerForm,
        collection="customers",
        rows=Customer,
        before=_look_up,
        write=lambda form: customers.create(form.request, form.lookup),
        describe=lambda customer, form: DryRun(sentences=customer_sentences(customer)),
        # Without the name: the staff log keeps this sentence permanently, and a customer can be erased.
        done=lambda customer, form: (f"Customer {customer.ref}", f"it pays in {customer.currency}"),
        title="New customer",
        button="Create the customer",
        explanation="A customer pays invoices. Subscriptions, invoices and coupons belong to a customer.",
        back=reverse("admin:billing_customer_changelist"),
    ).view(model_admin, request)


def _look_up(form: Any) -> None:
    form.lookup = customers.look_up_before(form.request)


def customer_sentences(customer: Customer) -> list[str]:
    """Return a customer's currency, terms and data on documents, in sentences."""
    days = "at once" if not customer.terms_days else f"within {customer.terms_days} day{'' if customer.terms_days == 1 else 's'}"
    sentences = [f"{customer.name} ({customer.ref}) is invoiced in {customer.currency} and pays {days}."]
    address = address_words(customer.address)
    sentences.append(f"Documents say {address}." if address else "No billing address: invoices will be incomplete.")
    if customer.email:
        sentences.append(f"Documents are mailed to {customer.email}, if the seller mails them.")
    vat_id = f", VAT id {customer.vat_id}" if customer.vat_id else ""
    sentences.append(f"Tax: {VAT_WORDS.get(customer.vat_status, customer.vat_status)}{vat_id}.")
    sentences += vat_lookup_sentences(customer)
    if suggestion := vat_suggestion(customer):
        sentences.append(suggestion)
    if customer.grace_days:
        plural = "" if customer.grace_days == 1 else "s"
        sentences.append(f"Invoices stay drafts for {customer.grace_days} day{plural} and accept late usage until then.")
    if customer.hold_days:
        plural = "" if customer.hold_days == 1 else "s"
        sentences.append(f"Invoices are made {customer.hold_days} day{plural} after what they bill is due.")
    if customer.consolidated_invoicing:
        sentences.append("Subscriptions that are invoiced on the same day share one invoice.")
    sentences.append(f"Dates are in {customer.time_zone}.")
    for each in noun_fields(NewCustomer):
        value = getattr(customer, each.name, None)
        if each.out.sentence and value not in (None, each.default):
            sentences.append(each.out.sentence.format(value))
    if customer.credit_unit_value is not None:
        unit = unit_of(customer.credit_type)
        worth = amount(Decimal(customer.credit_unit_value).scaleb(unit.scale), customer.currency)
        sentences.append(f"{customer.holder_id}'s {unit.unit} pay first, {worth} for 1 {unit.singular}.")
    elif customer.holder_id:
        sentences.append(f"The holder is {customer.holder_id}, whose credits pay usage that is priced in credits.")
    return sentences


def vat_lookup_sentences(customer: Customer) -> list[str]:
    """Return what VIES said about the VAT id; nothing if this deployment never asked and does not ask."""
    newest = newest_of(customer)
    if newest is not None:
        return [lookup_words(newest)]
    return ["Nobody has asked VIES about the VAT id yet; the next run does."] if is_looked_up(customer.vat_id) else []


def vat_suggestion(customer: Customer) -> str:
    """Return that the customer probably owes the tax itself, in a sentence; empty if there is nothing to suggest."""
    seller = current_seller(customer.seller)
    country = str(seller.details["country"]) if seller else ""
    if suggested_status(customer.vat_status, customer.vat_id, country) is None:
        return ""
    return (
        f"Suggestion: reverse charge, because the VAT id is of another member state ({vat_country(customer.vat_id)}) than the "
        f"seller ({country})."
    )


def address_words(address: Mapping[str, Any] | None) -> str:
    """Return an address in a line."""
    return ", ".join(address_lines(address or {}, country=str((address or {}).get("country", ""))))


# The customer's changes ------------------------------------------------------------------------------


def change_view(model_admin: ReadOnlyAdmin, request: HttpRequest, customer: Customer) -> HttpResponse:
    """Show the form of a customer's changes, then the differences, then change the customer."""
    printed = {name: getattr(customer, name) for name in PRINTED if name not in ADDRESS}

    def write(form: CustomerChangeForm) -> dict[str, Any]:
        changes = _changes(customers.customer_of(customer.ref), form.request)
        if changes:
            customers.change(CustomerChange(ref=customer.ref, **changes), form.lookup)
        return changes

    return OrderPage(
        form=CustomerChangeForm,
        collection="customers",
        about=customer,
        pointer="",
        before=_look_up,
        write=write,
        describe=lambda changes, form: _describe_change(customer, changes),
        done=lambda _, form: (
            f"The change of {customer.ref}",
            ", ".join(name.replace("_", " ") for name in _changes(customer, form.request)) or "nothing was different",
        ),
        fixed={"ref": customer.ref},
        initial=printed | {name: (customer.address or {}).get(name, "") for name in ADDRESS},
        title=f"Change {customer.ref}",
        button="Change the customer",
        explanation="The change appears from the next document on; finalised documents stay as they are.",
        back=row_url(Customer, customer.pk),
    ).view(model_admin, request)


def _changes(customer: Customer, request: CustomerChange) -> dict[str, Any]:
    """Return the differences. Parts of the address that the form does not know stay."""
    kept = {name: value for name, value in (customer.address or {}).items() if name not in ADDRESS}
    new = {name: value for name, value in vars(request).items() if name != "ref"}
    new["address"] = {**new["address"], **kept}
    return {name: value for name, value in new.items() if getattr(customer, name) != value}


def _describe_change(customer: Customer, changes: Mapping[str, Any]) -> DryRun:
    if not changes:
        return DryRun(sentences=["The form changes nothing."])
    rows = [
        (name.replace("_", " ").capitalize(), _text(name, getattr(customer, name)), _text(name, value))
        for name, value in changes.items()
    ]
    for name, value in changes.items():
        setattr(customer, name, value)
    suggestion = vat_suggestion(customer)
    sentences = [f"Documents say this about {customer.ref} from the next one on.", *([suggestion] if suggestion else [])]
    sentences += vat_lookup_sentences(customer) if "vat_id" in changes else []
    return DryRun(sentences=sentences, changes=rows)


def _text(name: str, value: Any) -> str:
    if name == "address":
        return address_words(value) or "none"
    return VAT_WORDS.get(value, str(value)) if name == "vat_status" else str(value) or "none"


# Coupons of a customer or a subscription -------------------------------------------------------------


class GiveCouponForm(OrderForm, RequestForm[NewGivenCoupon]):
    """A coupon for a customer."""

    stake = NoStake("It moves no money: later invoices are lower by it.")
    declared = NewGivenCoupon
    shows = {"coupon": Display(help="Its ref.")}


def give_coupon_view(model_admin: ReadOnlyAdmin, request: HttpRequest, owner: Customer | Subscription) -> HttpResponse:
    """Show the form that gives a coupon to this customer or subscription, then its effect, then give it."""

    def write(form: GiveCouponForm) -> CustomerCoupon:
        code = form.request.coupon
        if isinstance(owner, Subscription):
            return coupons.give_subscription_coupon(ref=owner.ref, code=code)
        return coupons.give_coupon(customer_id=owner.pk, customer_ref=owner.ref, customer_currency=owner.currency, code=code)

    def describe(given: CustomerCoupon, form: GiveCouponForm) -> DryRun:
        words = coupon_words(Coupon.objects.get(pk=given.coupon_id))
        return DryRun(sentences=[f"From the next invoice on, {owner.ref} gets {words}."])

    return OrderPage(
        form=GiveCouponForm,
        collection=_collection(owner),
        about=owner,
        pointer="/coupon",
        write=write,
        describe=describe,
        done=lambda _, form: (f"Coupon {form.request.coupon}", f"{owner.ref} has it"),
        title=f"Give a coupon to {owner.ref}",
        button="Give the coupon",
        explanation="The next invoice is the first to use it.",
        back=row_url(type(owner), owner.pk),
    ).view(model_admin, request)


class TakeCouponForm(OrderForm):
    """Why a coupon is taken away."""

    stake = NoStake("It moves no money: later invoices are without the discount.")


def take_coupon_view(model_admin: ReadOnlyAdmin, request: HttpRequest, owner: Customer | Subscription, code: str) -> HttpResponse:
    """Show the form that takes a coupon away from this customer or subscription, then its effect, then take it."""

    def write(form: TakeCouponForm) -> CustomerCoupon:
        if isinstance(owner, Subscription):
            return coupons.take_subscription_coupon_off(ref=owner.ref, code=code)
        return coupons.take_coupon_off(customer_id=owner.pk, customer_ref=owner.ref, code=code)

    return OrderPage(
        form=TakeCouponForm,
        collection=_collection(owner),
        about=owner,
        pointer="",
        write=write,
        describe=lambda taken, form: DryRun(
            sentences=[f"Later invoices of {owner.ref} do not use {code}. Earlier invoices keep its discount."]
        ),
        done=lambda _, form: (f"Taking coupon {code} away", f"{owner.ref} no longer has it"),
        title=f"Take coupon {code} away from {owner.ref}",
        button="Take it away",
        explanation=f"Later invoices do not use it. You cannot give it to {owner.ref} again.",
        back=row_url(type(owner), owner.pk),
    ).view(model_admin, request)


def _collection(owner: Customer | Subscription) -> str:
    return "subscription-coupons" if isinstance(owner, Subscription) else "customer-coupons"
