"""The forms that create a plan with its prices, or a plan's next version. A version never changes."""

from collections.abc import Mapping
from typing import Any, Final

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from billing.admin.cells import plain
from billing.admin.order_forms import prices
from billing.admin.order_forms.fields import (
    CurrencyField,
    OrderForm,
    choice_field,
    credit_type_field,
    decimal_field,
    ref_field,
)
from billing.admin.order_forms.once import tried, written_once
from billing.admin.prose import plan_sentences
from billing.models import Plan, Price
from billing.orders import plans
from billing.rating.periods import MAX_INTERVAL_COUNT, Interval, IntervalUnit
from billing.rating.price_input import MAX_PRICES
from ledger.admin.forms.credit_amounts import CreditAmountField, CreditAmountsForm
from ledger.admin.kit.cells import row_url
from ledger.admin.kit.idempotent_forms import Done, DryRun, FormSection, amount_field, operation_view, text_field
from ledger.admin.kit.pages import ReadOnlyAdmin

UNITS: Final = [(unit.value, unit.value.replace("_", " ")) for unit in IntervalUnit]
COUNT: Final = "price_count"
PRICES_AT_FIRST: Final = 2


class PlanForm(OrderForm, CreditAmountsForm):
    """A plan: its name, how often it is billed, its prices, and the credits that it grants."""

    code = ref_field(label="Code", help_text="With the code of an existing plan, this becomes its next version.")
    name = text_field(label="Name", required=True, most=200, help_text="For people, such as Team.")
    currency = CurrencyField(label="Currency", help_text="ISO 4217, such as EUR.")
    unit = choice_field(label="Billed every", choices=UNITS)
    count = amount_field(label="How many of them", most=MAX_INTERVAL_COUNT, help_text="1 month, 3 months …")
    minimum = decimal_field(label="At least", help_text="Per subscription and period, before tax.")
    maximum = decimal_field(label="At most", help_text="Per subscription and period, before tax.")
    grants = CreditAmountField(
        label="Credits granted each period", required=False, help_text="In the unit of the credit type, with its decimals."
    )
    credit_type = credit_type_field(label="Of the credit type", initial="credits")
    rollover_cap = CreditAmountField(
        label="Carried over at most", required=False, least=0, help_text="Empty: the rest expires with its period."
    )
    price_count = forms.IntegerField(widget=forms.HiddenInput(), min_value=1, max_value=MAX_PRICES, required=False)

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
        """Of a price, its own field; of the allowance, the plan's."""
        return name.replace("credits_per_unit", "credits_type") if name.startswith("price_") else super().type_field_of(name)

    def sections(self) -> list[FormSection]:
        """The plan, each of its prices, and the fields that are seldom needed."""
        return [
            FormSection([self[name] for name in ("code", "name", "currency", "unit", "count")]),
            *(self._price(index) for index in range(self._prices)),
            FormSection(
                [],
                [self[name] for name in ("grants", "credit_type", "rollover_cap", "minimum", "maximum")],
                title="The whole",
                summary="Credits granted, least and most",
            ),
            FormSection([self[name] for name in ("reason", COUNT, "shown_in", "idempotency_key")]),
        ]

    def _price(self, index: int) -> FormSection:
        folded = [name for name in prices.FIELDS if name not in prices.MAIN]
        return FormSection(
            [self[prices.name_of(index, name)] for name in prices.MAIN],
            [self[prices.name_of(index, name)] for name in folded],
            title=f"Price {index + 1}",
            summary="Tiers, packages, free units, percentages, credits and more",
        )

    @classmethod
    def with_more(cls, typed: Mapping[str, str]) -> dict[str, Any]:
        """Add one price."""
        return {**typed, COUNT: min(_count(typed) + 1, MAX_PRICES)}

    def field_of(self, pointer: str) -> str | None:
        """The field for a mistake in a price, or in another field."""
        allowance = {"/allowance/amount": "grants", "/allowance/rollover_cap": "rollover_cap"}
        named = allowance.get(pointer) or prices.field_at(pointer, self._filled)
        return named if named in self.fields else super().field_of(pointer)

    def clean(self) -> dict[str, Any]:
        """The prices in the form of the REST contract, without empty ones."""
        clean = super().clean() or {}
        self._filled = [index for index in range(self._prices) if not index or not prices.is_empty(index, self.data)]
        clean["prices"] = [prices.price_typed(index, clean) for index in self._filled]
        return clean


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
        explanation="A plan says what you sell: its prices, and how often it is billed. The form ignores an empty price.",
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
    return operation_view(
        model_admin,
        request,
        form_class=PlanForm,
        operation=_create,
        dry_run=_dry_run,
        initial=initial,
        title=title,
        button="Create the plan" if title == "New plan" else "Create the version",
        explanation=explanation,
        back=back,
    )


def _typed_of(plan: Plan) -> dict[str, Any]:
    """The form's initial values for the next version."""
    found = list(Price.objects.filter(plan_id=plan.pk).order_by("position"))
    typed: dict[str, Any] = {name: getattr(plan, name) for name in ("code", "name", "currency")}
    typed |= {"unit": plan.interval_unit, "count": plan.interval_count, COUNT: max(len(found), 1)}
    typed |= {name: plain(getattr(plan, name)) for name in ("minimum", "maximum")}
    allowance = plan.allowance or {}
    typed |= {"grants": allowance.get("amount"), "rollover_cap": allowance.get("rollover_cap")}
    typed["credit_type"] = allowance.get("credit_type", "credits")
    for index, price in enumerate(found):
        typed |= prices.typed_of(index, price.definition)
    return typed


def _fields(asked: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: asked[name] for name in ("code", "name", "currency", "prices")}
    fields |= {name: asked[name] for name in ("minimum", "maximum") if name in asked}
    fields["interval"] = Interval(IntervalUnit(asked["unit"]), asked["count"])
    if "grants" in asked:
        fields["allowance"] = {
            "credit_type": asked.get("credit_type", "credits"),
            "amount": asked["grants"],
            "rollover_cap": asked.get("rollover_cap"),
        }
    return fields


def _create(*, idempotency_key: str, actor: str, **asked: Any) -> Done:
    pk, replayed = written_once(
        "plans",
        idempotency_key=idempotency_key,
        asked=asked,
        act=lambda: plans.create_plan(**_fields(asked)).pk,
        field="/code",
    )
    plan = Plan.objects.get(pk=pk)
    return Done(f"Version {plan.version} of {plan.code}", plan.name, row_url(Plan, pk), replayed)


def _dry_run(*, idempotency_key: str, actor: str, **asked: Any) -> DryRun:
    """The plan in sentences, read back from the rows that would be written."""

    def act() -> tuple[int, list[str]]:
        plan = plans.create_plan(**_fields(asked))
        return plan.version, plan_sentences(plans.terms_of.__wrapped__(plan.pk))

    version, sentences = tried(act, field="/code")
    new = "This is a new plan." if version == 1 else f"This is version {version}; subscriptions stay on theirs until amended."
    return DryRun(sentences=[new, *sentences])
