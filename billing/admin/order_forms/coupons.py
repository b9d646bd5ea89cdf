"""The form that creates a coupon. A coupon never changes, because documents refer to it."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.order_forms.fields import REASON, OrderForm, names_of
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import coupon_words
from billing.models import Coupon
from billing.orders.coupons import NewCoupon, create_coupon
from billing.rating.totals import CouponPer
from billing.rating.values import Money
from ledger.staff.approvals import NoStake
from ledger.staff.kit.form_fields import Display, as_json
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.values import Number

DURATIONS = {"once": "once", "recurring": "for some periods", "forever": "for every invoice"}


class CouponForm(OrderForm, RequestForm[NewCoupon]):
    """A discount for customers."""

    stake = NoStake("It moves no money: an invoice is the first to use it, when somebody has it.")
    declared = NewCoupon
    shows = {
        "code": Display(label="Ref", help="Your name for the coupon, such as WELCOME."),
        "name": Display(label="Name on invoices", help="Default: the reference."),
        "kind": Display(label="Discount", words={"percentage": "a percentage", "amount": "an amount"}),
        "percent": Display(at="/value", value=Number(least=0, most=100), label="Percent off", help="For a percentage."),
        "amount": Display(at="/value", value=Money(), label="Amount off", help="For an amount."),
        "currency": Display(help="Of the amount."),
        "duration": Display(label="How often", words=DURATIONS),
        "periods": Display(label="For how many periods", help="Only for a coupon that lasts some periods."),
        "per": Display(
            label="Periods of",
            unset="each subscription",
            words={CouponPer.SUBSCRIPTION: "", CouponPer.CUSTOMER: "the customer"},
            help="Each subscription counts its periods from its first discount on; the customer's periods count from now on, and "
            "one subscription gets the amount of a period.",
        ),
        "reason": REASON,
        "prices": Display(label="Only these prices", make=names_of("price_key", "Price"), help="Keys of prices; empty for all."),
        "plans": Display(label="Only these plans", make=names_of("plan", "Plan"), help="Refs of plans; empty for all."),
        "names": Display(label="Name in other languages"),
    }
    folded = ("prices", "plans", "names")

    @property
    def value_field(self) -> str:
        """The field with the value of the chosen kind."""
        return "amount" if self.cleaned_data.get("kind") == "amount" else "percent"

    def body(self) -> dict[str, Any]:
        """Return the JSON with the value of the chosen kind; only an amount has a currency."""
        body = super().body()
        value = self.cleaned_data.get(self.value_field)
        body.pop("value", None)
        if self.value_field != "amount":
            body.pop("currency", None)
        return body if value is None else body | {"value": as_json(value)}

    def field_of(self, pointer: str) -> str | None:
        """Return the field of the chosen kind for a fault in the value."""
        return self.value_field if pointer == "/value" else super().field_of(pointer)

    def clean(self) -> dict[str, Any]:
        """Refuse a value of the other kind, which would have no effect."""
        cleaned: dict[str, Any] = super().clean() or {}
        other = {"amount": "percent", "percent": "amount"}[self.value_field]
        if cleaned.get(other) is not None:
            self.add_error(other, f"Leave this empty: the discount is {'an amount' if other == 'percent' else 'a percentage'}.")
        return cleaned


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new coupon, then its effect, then write it."""
    return OrderPage(
        form=CouponForm,
        collection="coupons",
        pointer="/code",
        rows=Coupon,
        write=lambda form: create_coupon.execute(form.request),
        describe=lambda coupon, form: DryRun(
            sentences=[f"{coupon.code}: {coupon_words(coupon)}.", "You can give it to customers. It never changes."]
        ),
        done=lambda coupon, form: (f"Coupon {coupon.code}", coupon_words(coupon)),
        title="New coupon",
        button="Create the coupon",
        explanation="A discount. Give it to customers on their pages.",
        back=reverse("admin:billing_coupon_changelist"),
    ).view(model_admin, request)
