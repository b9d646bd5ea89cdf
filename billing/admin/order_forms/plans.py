"""The forms that create a plan with its prices, or a plan's next version. A version never changes."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.cells import plain
from billing.admin.order_forms import prices
from billing.admin.order_forms.fields import OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import plan_sentences
from billing.models import Plan, Price
from billing.orders import plans
from billing.orders.plans import NewPlan
from billing.rating.periods import IntervalUnit
from billing.rating.prices.reading import MAX_PRICES
from ledger.admin.forms.credit_amounts import CreditAmountsForm
from ledger.admin.kit.cells import row_url
from ledger.admin.kit.forms.fields import Shown
from ledger.admin.kit.forms.idempotent import DryRun, FormSection
from ledger.admin.kit.pages import ReadOnlyAdmin

COUNT: Final = "price_count"
PRICES_AT_FIRST: Final = 2


class PlanForm(OrderForm, CreditAmountsForm[NewPlan]):
    """A plan: its name, its billing interval, its prices, and the credits that it grants."""

    declared = NewPlan
    shows = {
        "code": Shown(label="Ref", help="Your name for the plan; the ref of an existing plan makes this its next version."),
        "name": Shown(help="For people, such as Team: documents print it."),
        "names": Shown(label="Name in other languages", help="A language and the name on each line."),
        "currency": Shown(help="ISO 4217, such as EUR."),
        "unit": Shown(label="Billed every", at="/interval/unit", words={unit: unit.replace("_", " ") for unit in IntervalUnit}),
        "count": Shown(label="How many of them", at="/interval/count", help="1 month, 3 months …"),
        "minimum": Shown(label="At least", help="Per subscription and period, before tax."),
        "maximum": Shown(label="At most", help="Per subscription and period, before tax."),
        "grants": Shown(
            label="Credits granted each period",
            at="/allowance/amount",
            required=False,
            help="In the unit of the credit type, with its decimals.",
        ),
        "credit_type": Shown(label="Of the credit type", at="/allowance/credit_type", required=False),
        "rollover_cap": Shown(
            label="Carried over at most", at="/allowance/rollover_cap", help="Empty: the rest expires with its period."
        ),
        COUNT: forms.IntegerField(widget=forms.HiddenInput(), min_value=1, max_value=MAX_PRICES, required=False),
    }

    more = "Another price"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._filled: list[int] = []
        self._prices = _count(self.data if self.is_bound else self.initial)
        for index in range(self._prices):
            self.fields |= prices.fields_of_price(index)
            if self.is_bound and index and prices.is_empty(index, self.data):
                for name in prices.FIELDS:
                    self.fields[prices.name_of(index, name)].required = False
        self.initial.setdefault(COUNT, self._prices)
        self.set_units()

    def type_field_of(self, name: str) -> str:
        """Return the field for a pointer: the price's own field, or the plan's for the allowance."""
        return name.replace("credits_per_unit", "credits_type") if name.startswith("price_") else super().type_field_of(name)

    def sections(self) -> list[FormSection]:
        """Return the plan, each of its prices, and the rarely needed fields."""
        return [
            FormSection(self.bound("code", "name", "currency", "unit", "count")),
            *(self._price(index) for index in range(self._prices)),
            FormSection(
                [],
                self.bound("grants", "credit_type", "rollover_cap", "minimum", "maximum", "names"),
                title="The whole",
                summary="Credits granted, least and most, names in other languages",
            ),
            FormSection(self.bound("reason", COUNT, "shown_in", "idempotency_key")),
        ]

    def _price(self, index: int) -> FormSection:
        folded = [name for name in prices.FIELDS if name not in prices.MAIN]
        return FormSection(
            self.bound(*(prices.name_of(index, name) for name in prices.MAIN)),
            self.bound(*(prices.name_of(index, name) for name in folded)),
            title=f"Price {index + 1}",
            summary="Tiers, packages, free units, percentages, credits and more",
        )

    @classmethod
    def with_more(cls, typed: Mapping[str, str]) -> dict[str, Any]:
        """Add one price."""
        return {**typed, COUNT: min(_count(typed) + 1, MAX_PRICES)}

    def field_of(self, pointer: str) -> str | None:
        """Return the field of a fault in a price, or in another field."""
        named = prices.field_at(pointer, self._filled)
        return named if named in self.fields else super().field_of(pointer)

    def body(self) -> dict[str, Any]:
        """Return the JSON with the prices that are not empty."""
        self._filled = [index for index in range(self._prices) if not index or not prices.is_empty(index, self.data)]
        return super().body() | {"prices": [prices.price_typed(index, self.cleaned_data) for index in self._filled]}


def _count(values: Mapping[str, Any]) -> int:
    given = str(values.get(COUNT) or PRICES_AT_FIRST)
    return min(max(int(given), 1), MAX_PRICES) if given.isascii() and given.isdecimal() and len(given) < 4 else PRICES_AT_FIRST


def create_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form of a new plan, then the plan in sentences, then write it."""
    first: dict[str, Any] = {"unit": "month", "count": 1, COUNT: PRICES_AT_FIRST}
    first |= {prices.name_of(1, "kind"): "usage", prices.name_of(1, "model"): "unit", prices.name_of(1, "aggregation"): "sum"}
    return _view(
        model_admin,
        request,
        initial=first,
        title="New plan",
        explanation="A plan is what you sell: prices and a billing interval. The form ignores an empty price.",
        back=reverse("admin:billing_plan_changelist"),
    )


def version_view(model_admin: ReadOnlyAdmin, request: HttpRequest, plan: Plan) -> HttpResponse:
    """Show the form of the next version of this plan, filled in with this version."""
    return _view(
        model_admin,
        request,
        initial=_typed_of(plan),
        title=f"New version of {plan.code}",
        explanation="Subscriptions stay on their version until an amendment names the plan again.",
        back=row_url(Plan, plan.pk),
    )


def _view(
    model_admin: ReadOnlyAdmin, request: HttpRequest, *, initial: dict[str, Any], title: str, explanation: str, back: str
) -> HttpResponse:
    return OrderPage(
        form=PlanForm,
        collection="plans",
        pointer="/code",
        rows=Plan,
        write=lambda form: plans.create_plan.execute(form.request),
        describe=_described,
        done=lambda plan, form: (f"Version {plan.version} of {plan.code}", plan.name),
        initial=initial,
        title=title,
        button="Create the plan" if title == "New plan" else "Create the version",
        explanation=explanation,
        back=back,
    ).view(model_admin, request)


def _described(plan: Plan, form: PlanForm) -> DryRun:
    """Return the plan in sentences, read back from the rows that would be written."""
    is_first = plan.version == 1
    new = "This is a new plan." if is_first else f"This is version {plan.version}; subscriptions stay on theirs until amended."
    return DryRun(sentences=[new, *plan_sentences(plans.terms_of.__wrapped__(plan.pk))])


def _typed_of(plan: Plan) -> dict[str, Any]:
    """Return the form's initial values for the next version."""
    found = list(Price.objects.filter(plan_id=plan.pk).order_by("position"))
    typed: dict[str, Any] = {name: getattr(plan, name) for name in ("code", "name", "names", "currency")}
    typed |= {"unit": plan.interval_unit, "count": plan.interval_count, COUNT: max(len(found), 1)}
    typed |= {name: plain(getattr(plan, name)) for name in ("minimum", "maximum")}
    allowance = plan.allowance or {}
    typed |= {"grants": allowance.get("amount"), "rollover_cap": allowance.get("rollover_cap")}
    typed["credit_type"] = allowance.get("credit_type", "credits")
    for index, price in enumerate(found):
        typed |= prices.typed_of(index, price.definition)
    return typed
