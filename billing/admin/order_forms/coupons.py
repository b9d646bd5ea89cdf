"""The form that creates a coupon. A coupon never changes, because documents refer to it."""

import re
from collections.abc import Mapping
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.order_forms.fields import CurrencyField, OrderForm, choice_field, decimal_field, ref_field
from billing.admin.order_forms.once import tried, written_once
from billing.admin.prose import coupon_words
from billing.models import Coupon
from billing.orders import coupons
from billing.rating.limits import MAX_COUPON_PERIODS
from billing.rating.totals import CouponPer
from ledger.admin.kit.cells import row_url
from ledger.admin.kit.idempotent_forms import Done, DryRun, amount_field, operation_view, text_field
from ledger.admin.kit.pages import ReadOnlyAdmin
from ledger.values import HOLDER_ID

KINDS: Final = [("percentage", "a percentage"), ("amount", "an amount")]
NAME: Final = re.compile(HOLDER_ID.pattern, re.ASCII)
MAX_NAMES: Final = 100
DURATIONS: Final = [("once", "once"), ("recurring", "for some periods"), ("forever", "for every invoice")]
PER: Final = [("", "each subscription"), (CouponPer.CUSTOMER.value, "the customer")]


class CouponForm(OrderForm):
    """A discount for customers."""

    code = ref_field(label="Code", help_text="Its name, such as WELCOME.")
    kind = choice_field(label="Takes off", choices=KINDS)
    value = decimal_field(label="How much", required=True, help_text="Percent, or money in major units.")
    currency = CurrencyField(label="Currency", required=False, help_text="Of an amount.")
    duration = choice_field(label="How often", choices=DURATIONS)
    periods = amount_field(
        label="For how many periods", required=False, most=MAX_COUPON_PERIODS, help_text="If it is for some periods."
    )
    per = choice_field(
        label="Periods of", choices=PER, required=False,
        help_text="Of each subscription from its first one on, or of the customer from now on: then an amount is taken off once.",
    )  # fmt: skip
    prices = text_field(label="Only these prices", most=1000, help_text="Keys of prices with commas between them; empty for all.")
    plans = text_field(label="Only these plans", most=1000, help_text="Codes of plans with commas between them; empty for all.")
    field_order = ["code", "kind", "value", "currency", "duration", "periods", "per", "reason", "prices", "plans"]
    folded = ("prices", "plans")

    def clean_prices(self) -> str:
        """Keys of prices."""
        return _checked_names(self.cleaned_data["prices"])

    def clean_plans(self) -> str:
        """Codes of plans."""
        return _checked_names(self.cleaned_data["plans"])


def _names(text: str) -> list[str]:
    """Names with commas between them, each once."""
    return list(dict.fromkeys(name for name in (part.strip() for part in text.split(",")) if name))


def _checked_names(text: str) -> str:
    names = _names(text)
    wrong = next((name for name in names if not NAME.fullmatch(name)), None)
    if wrong is not None:
        raise ValidationError(f"“{wrong[:40]}” is not a name: use 1 to 64 letters, digits and . _ : @ -.")
    if len(names) > MAX_NAMES:
        raise ValidationError(f"Name at most {MAX_NAMES}.")
    return ", ".join(names)


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new coupon, then what it does, then write it."""
    return operation_view(
        model_admin,
        request,
        form_class=CouponForm,
        operation=_create,
        dry_run=_dry_run,
        title="New coupon",
        button="Create the coupon",
        explanation="A discount. Give it to customers on their pages.",
        back=reverse("admin:billing_coupon_changelist"),
    )


def _fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    names = ("code", "kind", "value", "currency", "duration", "periods", "per")
    fields = {name: asked[name] for name in names if name in asked}
    fields["per"] = fields.get("per") or None
    return fields | {name: _names(asked.get(name, "")) for name in ("prices", "plans")}


def _create(*, idempotency_key: str, actor: str, **asked: Any) -> Done:
    fields = _fields(asked)
    pk, replayed = written_once(
        "coupons", idempotency_key=idempotency_key, asked=asked, act=lambda: coupons.create_coupon(**fields).pk, field="/code"
    )
    return Done(f"Coupon {fields['code']}", coupon_words(Coupon.objects.get(pk=pk)), row_url(Coupon, pk), replayed)


def _dry_run(*, idempotency_key: str, actor: str, **asked: Any) -> DryRun:
    coupon = tried(lambda: coupons.create_coupon(**_fields(asked)), field="/code")
    return DryRun(sentences=[f"{coupon.code}: {coupon_words(coupon)}.", "You can give it to customers. It never changes."])
