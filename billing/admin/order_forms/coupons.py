"""The form that creates a coupon. A coupon never changes, because documents refer to it."""

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.order_forms.fields import REASON, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import coupon_words
from billing.models import Coupon
from billing.orders.coupons import NewCoupon, create_coupon
from billing.rating.totals import CouponPer
from ledger.admin.kit.forms.fields import Shown
from ledger.admin.kit.forms.idempotent import DryRun, RequestForm
from ledger.admin.kit.pages import ReadOnlyAdmin
from ledger.operators.approvals import NoStake

DURATIONS = {"once": "once", "recurring": "for some periods", "forever": "for every invoice"}


class CouponForm(OrderForm, RequestForm[NewCoupon]):
    """A discount for customers."""

    stake = NoStake("It moves no money: an invoice is the first to use it, when somebody has it.")
    declared = NewCoupon
    shows = {
        "code": Shown(label="Ref", help="Your name for the coupon, such as WELCOME."),
        "name": Shown(label="Called", help="By documents; empty: its ref in words."),
        "kind": Shown(label="Takes off", words={"percentage": "a percentage", "amount": "an amount"}),
        "value": Shown(label="How much", help="Percent, or money in major units."),
        "currency": Shown(help="The currency of an amount."),
        "duration": Shown(label="How often", words=DURATIONS),
        "periods": Shown(label="For how many periods", help="Only for a coupon that lasts some periods."),
        "per": Shown(
            label="Periods of",
            unset="each subscription",
            words={CouponPer.SUBSCRIPTION: "", CouponPer.CUSTOMER: "the customer"},
            help="Each subscription counts its periods from its first discount on; the customer's periods count from now on, and "
            "one subscription gets the amount of a period.",
        ),
        "reason": REASON,
        "prices": Shown(label="Only these prices", help="Keys of prices with commas between them; empty for all."),
        "plans": Shown(label="Only these plans", help="Refs of plans with commas between them; empty for all."),
        "names": Shown(label="Called in other languages", help="A language and the name on each line."),
    }
    folded = ("prices", "plans", "names")


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
