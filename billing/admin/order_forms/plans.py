"""The forms that create a plan with its prices, or a plan's next version. A version never changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import reverse
from unfold.widgets import UnfoldAdminDecimalFieldWidget

from billing.admin.cells import plain
from billing.admin.document_tables import notation_in
from billing.admin.order_forms import prices
from billing.admin.order_forms.fields import BudgetsField, NamesInLanguages, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import plan_sentences
from billing.admin.references import LANGUAGE_NAMES
from billing.admin.version_previews import version_parts, version_sentences
from billing.documents.printed_arithmetic import Notation, calculation
from billing.models import Plan, Price
from billing.orders import plans
from billing.orders.plans import NewPlan
from billing.rating.limits import MAX_MONEY, MAX_QUANTITY
from billing.rating.money import MINOR_DIGITS, decimal_text, to_decimal
from billing.rating.names import Names, name_in
from billing.rating.prices.models import FlatPrice, UnitPrice
from billing.rating.prices.overage import METER_PREFIX
from billing.rating.prices.price import PriceKind
from billing.rating.prices.pricing import quote, rate, usage_of_quantity
from billing.rating.prices.reading import MAX_PRICES, PriceInvalid, parse_price
from billing.rating.prices.wording import group_words
from billing.rating.vat import TaxBehavior
from billing.reads.document_names import TITLES
from ledger.staff.approvals import NoStake
from ledger.staff.credit_amounts import CreditAmountField, CreditAmountsForm
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.fault_words import say_labels, words_within
from ledger.staff.kit.form_fields import Display, as_typed
from ledger.staff.kit.idempotent_forms import DryRun, FormSection, KeyedForm
from ledger.staff.kit.money_fields import MoneyField
from ledger.staff.kit.pages import ReadOnlyAdmin
from ledger.staff.kit.rows import purpose_field
from ledger.units import units_of
from ledger.values import MAX_AMOUNT

COUNT: Final = "price_count"
ANOTHER: Final = "yes"
ANY_VALUE: Final = "…"
"""What a line in the form says in place of the values of a group."""
"""What the button for another price sends; others only show the form again."""
PRICES_AT_FIRST: Final = 2
MODEL_FIELDS: Final = ("model", "unit_amount", "tiers", "package_size", "free_units", "flat_fee_at_zero")
"""What the price of an overage has for its model; the rest is its tax and its name."""


class PlanForm(OrderForm, CreditAmountsForm[NewPlan]):
    """A plan: its name, its billing interval, its prices, and the credits that it grants."""

    stake = NoStake("It moves no money: it is an offer.")
    declared = NewPlan
    shows = {
        "code": Display(label="Ref", help="Your name for the plan; the ref of an existing plan makes this its next version."),
        "name": Display(help="Shown to customers and printed on documents, such as Team."),
        "names": Display(label="Name in other languages"),
        "currency": Display(),
        "unit": Display(label="Billed every", at="/interval/unit", words=prices.UNITS),
        "count": Display(label="How many of them", at="/interval/count", help="1 month, 3 months …"),
        "minimum": Display(label="At least", help="Per subscription and period, before tax unless the amounts include it."),
        "maximum": Display(label="At most", help="Per subscription and period, before tax unless the amounts include it."),
        "tax_behavior": Display(
            label="Tax",
            required=False,
            unset="is added to the amounts",
            words={"exclusive": "", "inclusive": "is included in the amounts"},
            help="Of all prices of the plan, its minimum and its maximum.",
        ),
        "usage_threshold": Display(
            label="Invoice usage at", help="When this amount is not invoiced yet; empty: only at its end."
        ),
        "grants": Display(
            label="Credits granted each period",
            at="/allowance/amount",
            required=False,
            help="In the unit of the credit type, with its decimals.",
        ),
        "credit_type": Display(label="Of the credit type", at="/allowance/credit_type", required=False),
        "rollover_cap": Display(
            label="Carried over at most", at="/allowance/rollover_cap", help="Empty: the rest expires with its period."
        ),
        "allowance_applies_to": Display(
            label="Pay only for",
            at="/allowance/applies_to",
            make=purpose_field,
            help="Without a row: everything. Each further value of a label has a row. "
            "Then they pay neither invoices nor usage of events.",
        ),
        "allowance_unit": Display(
            label="Granted every",
            at="/allowance/interval/unit",
            required=False,
            unset="period of the plan",
            words=prices.UNITS,
            help="More often than the plan is billed, such as each month of a year.",
        ),
        "allowance_count": Display(label="How many of them", at="/allowance/interval/count", required=False),
        "allowance_per": Display(
            label="For each unit of",
            at="/allowance/per_quantity_of",
            help="The key of a recurring price, such as seats. Empty: for the subscription.",
        ),
        "allowance_in_trial": Display(
            label="In a trial",
            at="/allowance/in_trial",
            required=False,
            initial=False,
            words={True: "granted", False: "not granted"},
        ),
        "overage_per": Display(
            label="The limit counts for each unit of", at="/overage/per_quantity_of", help="The key of a recurring price."
        ),
        "overage_amount": MoneyField(
            label="Price of each credit beyond",
            required=False,
            least=0,
            most=MAX_MONEY,
            is_minor=False,
            help_text="Invoiced at the end of each period. Empty: a spend beyond the credits is refused. A price in tiers or "
            "packages that the plan has stays.",
        ),
        "overage_limit": CreditAmountField(
            label="At most this number of credits",
            required=False,
            least=0,
            most=MAX_AMOUNT,
            help_text="Per period; beyond, a spend is refused. Empty: no limit.",
        ),
        "overage_cost": MoneyField(
            label="Or as many as cost",
            required=False,
            least=0,
            most=MAX_AMOUNT,
            is_minor=True,
            help_text="Per period.",
        ),
        "budgets": Display(
            label="Limits of spending",
            help="Budgets of the account while a subscription is on the plan. One that somebody set there by hand prevails.",
        ),
        "trial_days": Display(
            label="Days of trial", help="Nothing is charged in them, if an order names no trial of its own. Empty: no trial."
        ),
        "on_sale": Display(label="On sale", required=False, initial=True, words={True: "yes", False: "no: the plan is retired"}),
        COUNT: forms.IntegerField(widget=forms.HiddenInput(), min_value=1, max_value=MAX_PRICES, required=False),
    }

    more = "Another price"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._filled: list[int] = []
        self._prices = _count(self.data if self.is_bound else self.initial)
        for index in range(self._prices):
            self.fields |= prices.fields_of_price(index)
            self.fields[prices.name_of(index, prices.EXAMPLE)] = _example_field()
            chosen = {name: str(self[prices.name_of(index, name)].value() or "") for name in ("kind", "model")}
            prices.show_used(index, self.fields, **chosen)
            if self.is_bound and index and prices.is_empty(index, self.data):
                for name in prices.FIELDS:
                    self.fields[prices.name_of(index, name)].required = False
        self.initial.setdefault(COUNT, self._prices)
        self.set_units()
        self.set_currencies()
        self.set_references()

    def type_field_of(self, name: str) -> str:
        """Return the field for a pointer: the price's own field, or the plan's for the allowance."""
        return name.replace("credits_per_unit", "credits_type") if name.startswith("price_") else super().type_field_of(name)

    def set_units(self) -> None:
        """Give also the amounts in rows their units: the plan's, where a row names no credit type."""
        self.fields["budgets"].plan_type = self._type_of("grants")  # type: ignore[attr-defined]
        super().set_units()

    def types_in_rows(self) -> Sequence[str]:
        """Return the credit types of the budgets."""
        field = self.fields["budgets"]
        assert isinstance(field, BudgetsField)
        return field.types_in(field.prepare_value(self["budgets"].value()))

    def clean(self) -> dict[str, Any]:
        """Refuse limits that were typed under another unit than the present one."""
        cleaned = super().clean()
        for unit in units_of(each["credit_type"] for each in cleaned.get("budgets") or ()).values():
            self.ensure_shown_in("budgets", unit)
        return cleaned

    def sections(self) -> list[FormSection]:
        """Return the plan, each of its prices, and the rarely needed fields."""
        return [
            FormSection(self.bound("code", "name", "currency", "tax_behavior", "unit", "count")),
            *(self._price(index) for index in range(self._prices)),
            FormSection(
                self.bound("grants", "credit_type", "trial_days"),
                self.bound(
                    "rollover_cap",
                    "allowance_applies_to",
                    "allowance_unit",
                    "allowance_count",
                    "allowance_per",
                    "allowance_in_trial",
                    "overage_amount",
                    "overage_limit",
                    "overage_cost",
                    "overage_per",
                    "budgets",
                    "minimum",
                    "maximum",
                    "usage_threshold",
                    "on_sale",
                    "names",
                ),
                title="Credits and trial",
                summary="Rollover, overage, limits, minimum and maximum, a threshold, names in other languages",
            ),
            FormSection(self.bound("reason", COUNT, "shown_in", "idempotency_key")),
        ]

    def _price(self, index: int) -> "PriceSection":
        folded = [name for name in prices.FIELDS if name not in prices.MAIN]
        return PriceSection(
            self.bound(*(prices.name_of(index, name) for name in prices.MAIN)),
            self.bound(*(prices.name_of(index, name) for name in folded)),
            title=f"Price {index + 1}",
            summary="Filters, credits, minimum and maximum, billing and more",
            index=index,
            quantity=self[prices.name_of(index, prices.EXAMPLE)],
            example=example_of(self, index),
        )

    def with_more(self, what: str) -> dict[str, Any]:
        """Show the fields of the chosen models, with another price if the operator asks for one."""
        return super().with_more(what) | {COUNT: min(self._prices + (what == ANOTHER), MAX_PRICES)}

    def typed(self) -> dict[str, str]:
        """Return the form's texts as a browser would send them."""
        values = {bound.name: bound.value() for bound in self}
        return {name: as_typed(value) for name, value in values.items() if value}

    def field_of(self, pointer: str) -> str | None:
        """Return the field of a fault in a price, or in another field."""
        named = prices.field_at(pointer, self._filled)
        return named if named in self.fields else super().field_of(pointer)

    def words_at(self, name: str) -> dict[str, str]:
        """Return the words of a price at its fields, where the plan has a field of the same name."""
        words = super().words_at(name)
        return words | prices.WORDS | words_within(self.fields[name]) if name.startswith("price_") else words

    def parts_within(self, name: str, pointer: str) -> Sequence[str]:
        """Return the parts of a fault's pointer within the value of a field, of a price or of the plan."""
        return pointer.split("/")[4:] if name.startswith("price_") else super().parts_within(name, pointer)

    def body(self) -> dict[str, Any]:
        """Return the JSON with the prices that are not empty."""
        self._filled = [index for index in range(self._prices) if not index or not prices.is_empty(index, self.data)]
        body = super().body()
        body["prices"] = [prices.price_typed(index, self.cleaned_data) for index in self._filled]
        price, per = self._overage_price(), self.cleaned_data.get("overage_per")
        if price is not None:
            body["overage"] = {
                "credit_type": self.cleaned_data.get("credit_type") or "credits",
                "price": price,
                "limit_credits": self.cleaned_data.get("overage_limit"),
                "limit_minor": self.cleaned_data.get("overage_cost"),
                **({"per_quantity_of": per} if per else {}),
            }
        return body

    def _overage_price(self) -> dict[str, Any] | None:
        """Return the price of the overage: per credit, or that of the plan's present version if it has another model."""
        newest = Plan.objects.filter(code=self.cleaned_data.get("code")).order_by("-version").first()
        known = ((newest.overage if newest else None) or {}).get("price") or {}
        amount = self.cleaned_data.get("overage_amount")
        if amount is not None:
            taxed = {name: value for name, value in known.items() if name not in MODEL_FIELDS}
            return taxed | {"model": UnitPrice.model, "unit_amount": decimal_text(amount)}
        return known if known and known["model"] != UnitPrice.model else None


@dataclass(frozen=True)
class PriceSection(FormSection):
    """The fields of a price, beside an example of what it costs.

    Args:
        index: the number of the price in the form, from 0.
        quantity: the field with the quantity of the example.
    """

    index: int = 0
    quantity: Any = None
    example: "Example | None" = None


def _example_field() -> forms.Field:
    return forms.DecimalField(
        label="Example quantity",
        required=False,
        help_text="Empty: a usual one.",
        min_value=0,
        max_value=MAX_QUANTITY,
        widget=UnfoldAdminDecimalFieldWidget(attrs={"autocomplete": "off", "step": "any"}),
    )


# What a price costs ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Example:
    """What a quantity costs, as the call POST /v1/ratings computes it, and how the line reads on an invoice.

    Args:
        sentence: what it costs, and why; or what the price still lacks.
        lines: for each language of documents the title of the line, its quantity and price of a unit if documents show them, and
            its amount.
        tax: whether the amounts include it, in words.
    """

    sentence: str
    lines: Sequence[tuple[str, str, str]] = ()
    tax: str = "before tax"


USUAL_QUANTITY: Final = {PriceKind.RECURRING: Decimal(5), PriceKind.USAGE: Decimal(1_500)}


def usual_quantity(price: Any) -> Decimal:
    """Return the quantity of which the cost is shown if the operator names none: more than is free."""
    if price.model == FlatPrice.model:
        return Decimal(1)
    return max(USUAL_QUANTITY[price.kind], to_decimal((price.free_quantity() or 0) * Fraction(3, 2)))


def example_of(form: PlanForm, index: int) -> Example | None:
    """Return the example of a price with what is typed in the form so far; None for an empty price."""
    typed = form.data if form.is_bound else form.typed()
    if index and prices.is_empty(index, typed):
        return None
    currency = form.fields["currency"].to_python(typed.get("currency"))
    named = {}
    try:
        for name in (prices.name_of(index, each) for each in (*prices.FIELDS, prices.EXAMPLE)):
            field = form.fields[name]
            typed_value = field.widget.value_from_datadict(typed, {}, name)
            # What a price lacks, and what does not fit, its declaration says; nothing declares the quantity of an example.
            named[name] = (field.clean if name.endswith(f"_{prices.EXAMPLE}") else field.to_python)(typed_value)
        price = parse_price(prices.price_typed(index, named))
    except ValidationError as invalid:
        return Example(sentence=f"No example yet: {invalid.messages[0]}")
    except PriceInvalid as invalid:
        return Example(sentence=f"No example yet: {say_labels(invalid.errors[0].detail, prices.WORDS)}.")
    if currency not in MINOR_DIGITS:
        return Example(sentence="Choose a currency to see an example.")
    quantity = named[prices.name_of(index, prices.EXAMPLE)]
    return _rate_example(price, usual_quantity(price) if quantity is None else quantity, currency, typed)


def _rate_example(price: Any, quantity: Decimal, currency: str, typed: Mapping[str, Any]) -> Example:
    say = notation_in(currency)
    usage = usage_of_quantity(price, quantity)
    free_of_limits, rating = rate(price, usage, currency), quote(price, usage, currency)
    calculated = {"steps": free_of_limits.as_dict()["steps"], **price.conversion_facts(usage)}
    line: dict[str, Any] = {"rating": calculated, "unit_amount": None, "discount_minor": 0}
    because = calculation(say, line | {"quantity": quantity, "amount_minor": rating.amount_minor})
    if rating.exact != free_of_limits.exact:
        bound, amount = ("most", price.maximum) if rating.exact < free_of_limits.exact else ("least", price.minimum)
        because = [*because, f"at {bound} {say.price(amount)} {currency}"]
    noun = f"{currency} of {price.meter}" if price.counts_money else (price.meter or price.key).replace("_", " ")
    cost = f"{say.money(rating.amount_minor)} {currency}"
    reasons = f", because {'; '.join(because)}" if because else ""
    return Example(
        sentence=f"{say.number(quantity)} {noun}: {cost}{reasons}.",
        lines=_lines(price, decimal_text(usage.quantity), cost, say, typed),
        tax="with tax" if typed.get("tax_behavior") == TaxBehavior.INCLUSIVE else "before tax",
    )


def _lines(price: Any, quantity: str, cost: str, say: Notation, typed: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return the line of an invoice, and again in each language in which it differs."""
    rows = NamesInLanguages(Names.languages).widget.value_from_datadict(typed, {}, "names")
    plan_names = {row.get("language", ""): row.get("name", "") for row in rows}
    unit = price.amount_on_line()
    times = "" if unit is None else f"{say.number(quantity)} at {say.price(unit)}"
    titles: dict[str, str] = {}
    group = f": {group_words(dict.fromkeys(price.group_by, ANY_VALUE))}" if price.group_by else ""
    for language, texts in TITLES.items():
        plan = name_in(
            language, key=str(typed.get("code") or "plan"), name=str(typed.get("name") or "") or None, names=plan_names
        )
        called = name_in(language, key=price.key, name=price.name, names=dict(price.names))
        titles.setdefault(texts[price.kind].format(plan=plan, price=called, group=group), language)
    first, *others = titles.items()
    named = [first[0], *(f"{title} (in {LANGUAGE_NAMES.get(language, language)})" for title, language in others)]
    return [(title, times, cost) for title in named]


def examples_view(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Return the examples of the prices that are typed, for the form's script; nothing is written."""
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    form = PlanForm(request.POST)
    sections = [section for section in form.sections() if isinstance(section, PriceSection)]
    return TemplateResponse(request, "admin/billing/order_forms/examples.html", {"sections": sections})


class PlanPage(OrderPage[PlanForm, Plan]):
    """The page of a plan's form: the fields of each price, beside what it costs."""

    template = "admin/billing/order_forms/plan.html"


# The forms -------------------------------------------------------------------------------------------


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
        button="Create the plan",
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
        button="Create the version",
    )


def copy_view(model_admin: ReadOnlyAdmin, request: HttpRequest, plan: Plan) -> HttpResponse:
    """Show the form of another plan, filled in with this version, without its ref."""
    return _view(
        model_admin,
        request,
        initial=_typed_of(plan) | {"code": "", "name": f"Copy of {plan.name}", "names": {}},
        title=f"Copy of {plan.code}",
        explanation=f"Another plan with the terms of {plan.code}, version {plan.version}. Give it another ref.",
        back=row_url(Plan, plan.pk),
        button="Create the plan",
    )


class SaleForm(KeyedForm):
    """Why a plan is retired, or put on sale again."""

    stake = NoStake("It moves no money: it is an offer.")


def sale_view(model_admin: ReadOnlyAdmin, request: HttpRequest, plan: Plan, *, on_sale: bool) -> HttpResponse:
    """Show the form that retires a plan or puts it on sale again, then its effect, then write it."""
    order = plans.PlanSale(plan=plan.code, on_sale=on_sale)
    return OrderPage(
        form=SaleForm,
        collection="plan-sales",
        rows=Plan,
        write=lambda form: plans.change_plan_sale.execute(order),
        describe=_sale_described,
        done=lambda written, form: (f"Version {written.version} of {written.code}", "on sale" if on_sale else "retired"),
        title=f"{'Put on sale' if on_sale else 'Retire'}: {plan.code}",
        button="Put on sale" if on_sale else "Retire the plan",
        explanation="New orders and changes of plan can take it again."
        if on_sale
        else "No order takes the plan any more, by itself, by a change of plan or by a phase. Subscriptions that have it go on.",
        back=row_url(Plan, plan.pk),
    ).view(model_admin, request)


def _sale_described(written: Plan, form: SaleForm) -> DryRun:
    """Return which version is written."""
    how = "on sale again" if written.on_sale else "retired"
    return DryRun(
        sentences=[
            f"The plan is {how}: version {written.version} has the same terms.",
            "Subscriptions that have it go on with theirs.",
        ]
    )


def _view(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    *,
    initial: dict[str, Any],
    title: str,
    explanation: str,
    back: str,
    button: str,
) -> HttpResponse:
    return PlanPage(
        form=PlanForm,
        collection="plans",
        pointer="/code",
        rows=Plan,
        write=lambda form: plans.create_plan.execute(form.request),
        describe=_describe_plan,
        done=lambda plan, form: (f"Version {plan.version} of {plan.code}", plan.name),
        initial=initial,
        title=title,
        button=button,
        explanation=explanation,
        back=back,
    ).view(model_admin, request)


def _describe_plan(plan: Plan, form: PlanForm) -> DryRun:
    """Return the plan in sentences, read back from the rows that would be written."""
    terms = plans.terms_of.__wrapped__(plan.pk)
    if plan.version == 1:
        return DryRun(sentences=["This is a new plan.", *plan_sentences(terms)])
    return DryRun(sentences=[*version_sentences(plan), *plan_sentences(terms)], parts=version_parts(plan, terms))


def _typed_of(plan: Plan) -> dict[str, Any]:
    """Return the form's initial values for the next version."""
    rows = Price.objects.filter(plan_id=plan.pk, subscription=None).exclude(meter__startswith=METER_PREFIX)
    found = list(rows.order_by("position"))
    typed: dict[str, Any] = {name: getattr(plan, name) for name in ("code", "name", "names", "currency")}
    typed["tax_behavior"] = "" if plan.tax_behavior == TaxBehavior.EXCLUSIVE else plan.tax_behavior
    typed |= {"unit": plan.interval_unit, "count": plan.interval_count, COUNT: max(len(found), 1)}
    typed |= {name: plain(getattr(plan, name)) for name in ("minimum", "maximum", "usage_threshold")}
    typed |= {"trial_days": plan.trial_days, "on_sale": plan.on_sale}
    allowance = plan.allowance or {}
    typed |= {"grants": allowance.get("amount"), "rollover_cap": allowance.get("rollover_cap")}
    typed["allowance_applies_to"] = allowance.get("applies_to")
    interval = allowance.get("interval") or {}
    typed |= {"allowance_unit": interval.get("unit", ""), "allowance_count": interval.get("count")}
    typed |= {"allowance_per": allowance.get("per_quantity_of"), "allowance_in_trial": allowance.get("in_trial", False)}
    typed["budgets"] = plan.budgets
    overage = plan.overage or {}
    typed["overage_per"] = overage.get("per_quantity_of")
    typed["credit_type"] = allowance.get("credit_type") or overage.get("credit_type", "credits")
    typed |= {"overage_limit": overage.get("limit_credits"), "overage_cost": overage.get("limit_minor")}
    typed["overage_amount"] = (
        overage["price"].get("unit_amount") if overage and overage["price"]["model"] == UnitPrice.model else None
    )
    for index, price in enumerate(found):
        typed |= prices.typed_of(index, price.definition)
    return typed
