"""The page that says what another price would have brought: a form, and the answer above it. It writes nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminSelectWidget, UnfoldBooleanWidget

from billing.admin.cells import by_pk, customer_link, money
from billing.admin.order_forms.fields import OrderForm, TiersField, names_of
from billing.admin.order_forms.once import faults_at
from billing.admin.order_forms.prices import TITLES
from billing.generator.run.price_trials import MOST_PERIODS, NewPriceTrial, PriceTrial, TrialSum, try_price
from billing.models import Customer, Plan, Price
from billing.permissions import VIEW_CUSTOMER
from billing.rating.limits import MAX_MONEY, MAX_QUANTITY
from billing.rating.money import decimal_text, money_text
from billing.rating.prices.overage import OVERAGE_MODELS
from billing.rating.prices.price import PriceKind
from ledger.errors import Invalid
from ledger.operators import additions
from ledger.staff.approvals import NoStake
from ledger.staff.kit.cells import instant_words, number
from ledger.staff.kit.form_fields import Display, PlainDecimalField
from ledger.staff.kit.idempotent_forms import FieldFaults, FormSection, RequestForm
from ledger.staff.kit.money_fields import MoneyField
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.staff.kit.rows import TypedRows
from ledger.values import FieldError

AMOUNTS: Final = ("model", "unit_amount", "tiers", "package_size", "free_units", "flat_fee_at_zero")
"""The fields of the other price."""
TIERED: Final = "graduated"
"""A model whose tiers have all the columns that the models of the other price have."""
EXPLANATION: Final = "The usage of invoiced periods is rated again at another price, exactly as invoices are. Nothing is written."


def _quantity(label: str) -> forms.Field:
    widget = UnfoldAdminDecimalFieldWidget(attrs={"autocomplete": "off", "step": "any"})
    return PlainDecimalField(label=label, required=False, min_value=0, max_value=MAX_QUANTITY, widget=widget)


class PriceTrialForm(OrderForm, RequestForm[NewPriceTrial]):
    """Which price is replaced, and by what."""

    stake = NoStake("It only counts, and writes nothing.")
    declared = NewPriceTrial
    reason = None  # type: ignore[assignment]
    idempotency_key = None  # type: ignore[assignment]
    shows: ClassVar[Mapping[str, Display | forms.Field]] = {
        "plans": Display(make=names_of("plan", "Plan"), help="Whose price it is, in all of their versions."),
        "price": Display(
            label="Price",
            refers_to="price_key",
            help="The key of a usage price, such as tokens; overage for what is used beyond the credits.",
        ),
        "months": Display(label="Months", help="Periods that ended within this number of months count."),
        "model": forms.ChoiceField(
            label="Instead of it",
            choices=[(name, TITLES[name]) for name in OVERAGE_MODELS],
            widget=UnfoldAdminSelectWidget(),
        ),
        "unit_amount": MoneyField(
            label="Price", required=False, least=0, most=MAX_MONEY, is_minor=False, help_text="For a unit or a package."
        ),
        "package_size": _quantity("Units in a package"),
        "free_units": _quantity("Free units"),
        "tiers": TiersField(label="Tiers", required=False),
        "flat_fee_at_zero": forms.BooleanField(
            label="The first tier's fixed amount is due without usage", required=False, widget=UnfoldBooleanWidget()
        ),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["tiers"].widget.model = TIERED

    def sections(self) -> list[FormSection]:
        """Return the price, and the one in its place."""
        return [
            FormSection(self.bound("plans", "price", "months"), title="The price"),
            FormSection(
                self.bound("model", "unit_amount", "free_units"),
                self.bound("tiers", "flat_fee_at_zero", "package_size"),
                title="The other price",
                summary="Tiers, and units in a package",
            ),
        ]

    def currency_of(self, name: str) -> tuple[str, str]:
        """Return the currency of the plans, which begins with the seller's."""
        rows = self["plans"].value() or ()
        typed = [row.get("name", "") for row in rows if isinstance(row, dict)] if isinstance(rows, TypedRows) else list(rows)
        newest = Plan.objects.filter(code__in=[code for code in typed if "\x00" not in code]).order_by("-version").first()
        return newest.currency if newest else additions.default_currency(), ""

    def clean_plans(self) -> list[str]:
        """Refuse a plan that does not exist, before the currency of its money is asked for."""
        codes: list[str] = self.cleaned_data["plans"] or []
        known = set(Plan.objects.filter(code__in=[code for code in codes if "\x00" not in code]).values_list("code", flat=True))
        if unknown := [code for code in codes if code not in known]:
            raise forms.ValidationError(f"There is no plan {unknown[0]}.")
        return codes

    def body(self) -> dict[str, Any]:
        """Return the JSON with the other price."""
        typed = {name: self.cleaned_data.get(name) for name in AMOUNTS}
        amounts = {name: value for name, value in typed.items() if value not in (None, "", [], False)}
        numbers = {name: decimal_text(amounts[name]) for name in ("unit_amount", "package_size", "free_units") if name in amounts}
        return {**super().body(), "replaced_by": amounts | numbers}

    def field_of(self, pointer: str) -> str | None:
        """Return the field of a fault in the other price too."""
        parts = pointer.split("/")
        if parts[1:2] == ["replaced_by"]:
            return parts[2] if "".join(parts[2:3]) in self.fields else "model"
        return super().field_of(pointer)

    def parts_within(self, name: str, pointer: str) -> Sequence[str]:
        """Return the parts of a fault's pointer within the tiers."""
        return pointer.split("/")[3:] if name == "tiers" else super().parts_within(name, pointer)


def page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the form, filled in with the price that the address names; once it was sent, also what the other price brought."""
    trial: PriceTrial | None = None
    if request.method == "POST" and "more" in request.POST:
        form = PriceTrialForm(initial=PriceTrialForm(request.POST).with_more(request.POST["more"]))
    elif request.method == "POST":
        form = PriceTrialForm(request.POST)
        trial = _compute(request, form) if form.is_valid() else None
    else:
        form = PriceTrialForm(initial=_price_of(request.GET.get("plan", ""), request.GET.get("price", "")))
    context = {
        **model_admin.admin_site.each_context(request),
        "opts": model_admin.model._meta,
        "title": "What would another price have brought?",
        "explanation": EXPLANATION,
        "button": "Compute",
        "back": reverse("admin:billing_plan_changelist"),
        "form": form,
        "reference_lists": form.reference_lists(request.user.has_perm),
        "trial": _show_trial(trial, may_see_customers=request.user.has_perm(VIEW_CUSTOMER)) if trial else None,
    }
    status = 422 if form.is_bound and trial is None else 200
    return TemplateResponse(request, "admin/billing/price_trial.html", context, status=status)


def _compute(request: HttpRequest, form: PriceTrialForm) -> PriceTrial | None:
    try:
        with faults_at("/plans"):
            return try_price.execute(form.request)
    except Invalid as error:
        form.show([FieldError(error.facts["pointer"], error.facts["rule"], error.facts["detail"])])
    except FieldFaults as error:
        form.show(error.errors)
    if form.non_field_errors():
        messages.error(request, "Nothing was computed.")
    return None


def _price_of(code: str, key: str) -> dict[str, Any]:
    """Return the first values of the form for a price of the newest version of a plan; without one, no price."""
    initial: dict[str, Any] = {"model": OVERAGE_MODELS[0], "plans": [code] if code else [], "price": key}
    if "\x00" in code or "\x00" in key:
        return {"model": OVERAGE_MODELS[0]}
    plan = Plan.objects.filter(code=code).order_by("-version").first()
    usage = Price.objects.filter(plan=plan, subscription=None, kind=PriceKind.USAGE.value).order_by("position") if plan else None
    row = None if usage is None else (usage.filter(key=key) if key else usage).first()
    if row is None or row.model not in OVERAGE_MODELS:
        return initial
    return initial | {"price": row.key} | {name: row.definition[name] for name in AMOUNTS if name in row.definition}


# The answer ------------------------------------------------------------------------------------------


def _show_trial(trial: PriceTrial, *, may_see_customers: bool) -> dict[str, Any]:
    currency, total = trial.currency, trial.total
    more = "more" if total.difference_minor >= 0 else "less"
    subscriptions = _count_words(len(trial.subscriptions), "subscription")
    first = (
        f"{_count_words(total.periods, 'invoiced period')} of {subscriptions} ended from "
        f"{instant_words(trial.since)} to {instant_words(trial.until)}. They brought {money_text(total.before_minor, currency)}; "
        f"the other price would have brought {money_text(total.after_minor, currency)}, "
        f"{money_text(abs(total.difference_minor), currency)} {more}."
    )
    sentences = [first]
    if trial.negotiated:
        sentences.append(f"{_count_words(trial.negotiated, 'period')} at negotiated prices would stay; no sum has them.")
    if not trial.is_whole:
        sentences.append(f"There are more: only the first {MOST_PERIODS:,} periods are rated, by the age of the subscriptions.")
    sentences.append(
        "For the same use, before coupons, tax, and the minimum and maximum of a plan; a limit on overage stays as it was."
    )
    by_plan = sorted(trial.by_plan.items())
    customers = trial.most_affected()
    named = by_pk(Customer, [customer for customer, _ in customers])
    return {
        "sentences": sentences,
        "parts": [
            ("By plan", _table("Plan", ((f"{code}, version {version}", each) for (code, version), each in by_plan), currency)),
            (
                "The customers for whom most would change",
                _table("Customer", ((_customer(named[pk], may_see=may_see_customers), each) for pk, each in customers), currency),
            ),
        ],
    }


def _count_words(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _customer(customer: Customer, *, may_see: bool) -> Any:
    return customer_link(customer.pk, customer.ref, customer.name) if may_see else f"{customer.name} ({customer.ref})"


def _table(title: str, rows: Iterable[tuple[Any, TrialSum]], currency: str) -> dict[str, Any]:
    return {
        "headers": [title, "Periods", "Charged", "At the other price", "Difference"],
        "rows": [
            [
                name,
                number(each.periods),
                money(each.before_minor, currency),
                money(each.after_minor, currency),
                money(each.difference_minor, currency),
            ]
            for name, each in rows
        ],
    }
