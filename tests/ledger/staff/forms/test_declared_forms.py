"""Every form about a request has its fields from the declaration: a limit that changes there changes form, call and document."""

from collections.abc import Iterator

import pytest
from django.core.exceptions import ValidationError

from billing.admin.order_forms import amendments, coupons, customers, plans, subscriptions
from billing.admin.order_forms.fields import CodeField
from billing.orders.phases import PhaseList
from billing.orders.plans import PlanBudgets
from billing.rating.names import Names
from ledger import values
from ledger.records import Shape, shape_of
from ledger.signals import alert_pages
from ledger.staff import entry_operations, operations, rates
from ledger.staff.credit_amounts import CreditNumberField
from ledger.staff.kit.form_fields import Display, UTCField, YesNoField
from ledger.staff.kit.idempotent_forms import RequestForm, declared_at, sentence
from ledger.staff.kit.money_fields import MoneyField
from ledger.staff.kit.rows import RowsField, TypedRows
from ledger.values import AppliesTo, Boolean, ByComponent, Choice, Integer, ListOf, MapOf, Number, Text, Time

pytestmark = pytest.mark.django_db

MODULES = (alert_pages, amendments, coupons, customers, entry_operations, operations, plans, rates, subscriptions)
FORMS = {
    each
    for module in MODULES
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, RequestForm) and hasattr(each, "declared")
}


def shape_of_form(form) -> Shape:
    """The shape that the form's request is read by."""
    return form.declared if isinstance(form.declared, Shape) else shape_of(form.declared)


def declared_fields_of(form) -> Iterator[tuple[str, str, object]]:
    """Name, pointer and type of each field that the form shows of its request."""
    for name, shown in form.shows.items():
        if isinstance(shown, Display) and shown.value is None:
            pointer = shown.at or f"/{name}"
            yield name, pointer, declared_at(shape_of_form(form), pointer).value


CASES = [
    pytest.param(form, name, pointer, value, id=f"{form.__name__}-{name}")
    for form in sorted(FORMS, key=lambda form: form.__name__)
    for name, pointer, value in declared_fields_of(form)
]


def test_all_forms_about_requests_are_tested():
    assert {form.__name__ for form in FORMS} == {
        "AlertForm", "AmendmentForm", "AnchorForm", "BudgetForm", "CancellationForm", "ChangePlanForm", "ClockForm",
        "ConsolidationForm", "CouponForm", "CustomerChangeForm", "CustomerForm", "EndAlertForm", "EndBudgetForm",
        "EndRecurringGrantForm", "FreezeForm",
        "GiveCouponForm", "GrantForm", "HoldForm", "IncomingTransfersForm",
        "OverdraftForm", "OverrideForm", "PauseForm", "PhasesForm", "PlanForm", "RecurringGrantForm",
        "PublishForm", "QuantitiesForm", "RefundForm", "ReissueForm", "ReleaseForm", "ReversalForm", "RevokeForm",
        "SubscriptionForm", "TransferForm", "TrialForm", "VoidForm",
    }  # fmt: skip
    assert len(CASES) > 75


TYPED_IN = {
    ListOf: (TypedRows([{"name": "abcd"}]), ["abcd"]),
    MapOf: (TypedRows([{"key": "seats", "quantity": "4"}]), {"seats": "4"}),
    Names: (TypedRows([{"language": "de", "name": "abcd"}]), {"de": "abcd"}),
}
"""What is typed for values that have others in them, and the request's JSON."""


@pytest.mark.products(by=lambda value: type(value))
@pytest.mark.parametrize(("form", "name", "pointer", "value"), CASES)
def test_a_limit_that_changes_in_the_declaration_changes_form_call_and_document(form, name, pointer, value, monkeypatch):
    fixed = {} if "credit_type" in form.shows else {"credit_type": "credits"}
    if isinstance(value, Time | Boolean):
        assert isinstance(form(fixed=fixed).fields[name], UTCField | YesNoField), "these types have no limits of their own"
        return
    if isinstance(value, Choice):
        monkeypatch.setattr(value, "choices", ("other",))
        typed, given, limit = "another", "another", "other"
    elif isinstance(value, PhaseList):
        monkeypatch.setattr(declared_at(value.child.shape, "/intervals").value, "most", 3)
        rows = [{"ends": "periods", "intervals": "4", "prices": "trial"}, {"ends": "then", "prices": "list_prices"}]
        typed, given, limit = TypedRows(rows), [{"intervals": 4, "trial": True}, {"list_prices": True}], 3
    elif isinstance(value, PlanBudgets):
        monkeypatch.setattr(declared_at(value.child.shape, "/hours").value, "most", 3)
        typed = TypedRows([{"budget": "member", "limit": "5", "window": "rolling", "hours": "4"}])
        given, limit = [{"budget": "member", "limit": 5, "window": "rolling", "hours": 4}], 3
    elif isinstance(value, ByComponent):
        monkeypatch.setattr(declared_at(value.child.shape, "/per").value, "most", 3)
        rows = [{"name": "input", "price": "1", "per": "4"}]
        typed, given, limit = TypedRows(rows), {"input": {"price": 1, "per": 4}}, 3
    elif isinstance(value, AppliesTo):
        monkeypatch.setattr(values, "MAX_PURPOSES", 3)
        typed, given, limit = TypedRows({"rate": rate} for rate in "abcd"), {"rates": ["a", "b", "c", "d"]}, 3
    elif isinstance(value, ListOf | MapOf | Names):
        monkeypatch.setattr(value.child, "most", 3)
        typed, given = TYPED_IN[type(value)]
        limit = 3
    else:
        assert isinstance(value, Text | Integer | Number)
        limited = value
        monkeypatch.setattr(limited, "most", 3)
        monkeypatch.setattr(limited, "least", 0)
        typed, given, limit = (
            ("abcd", "abcd", 3) if isinstance(value, Text) else ("4", 4 if isinstance(value, Integer) else "4", 3)
        )

    # The call.
    errors = []
    value.take(given, pointer, errors)
    [error] = errors
    assert str(limit) in error.detail
    # The document.
    if isinstance(value, PhaseList | PlanBudgets):
        field = "/intervals" if isinstance(value, PhaseList) else "/hours"
        assert f"'maximum': {limit}" in str(declared_at(value.child.shape, field).value.openapi())
    elif not isinstance(value, Number | MapOf):
        assert str(limit) in str(value.openapi())
    # The form shows it, and refuses what is beyond, in the same words.
    # Terms of credits count only together with how many or how much.
    beside = {"grants": "1", "unit_value": "1"} if name == "credit_type" or name.startswith("allowance_") else {}
    # So do those of the overage with its price, and how often with of what.
    beside |= {"overage_per": {"overage_amount": "1"}, "allowance_count": {"allowance_unit": "week"}}.get(name, {})
    # A currency counts only together with an amount, and an amount has a currency.
    if name == "currency":
        beside |= {"kind": "amount", "paid": "1"}
    elif "currency" in form.shows:
        beside["currency"] = "JPY"
    sent = form({**beside, name: typed, "idempotency_key": "k"}, fixed=fixed)
    field = sent.fields[name]
    if isinstance(value, Choice):
        assert [choice for choice, _ in field.choices if choice] == ["other"]
        assert "Select a valid choice" in sent.errors[name][0]
    elif isinstance(field, MoneyField):
        assert sent.errors[name] == [f"{field.label} must be at most 3 JPY."]
    elif isinstance(field, CreditNumberField) and not isinstance(value, ByComponent):
        with pytest.raises(ValidationError, match="must be at most 3"):
            field.validate(4)
        assert "must be at most 3" in sent.errors[name][0]
    else:
        shown = field.widget.attrs.get("maxlength", field.widget.attrs.get("max"))
        assert (
            str(shown) == str(limit)
            or type(value) in (*TYPED_IN, PhaseList, PlanBudgets, ByComponent, AppliesTo)
            or isinstance(field, CodeField)
        )
        # How many they are is no matter of one row.
        row = f"{field.widget.noun} 1: " if isinstance(field, RowsField) and not isinstance(value, AppliesTo) else ""
        assert sent.errors[name] == [f"{row}{sentence(error.detail)}"]


def test_a_form_shows_every_error_that_the_declaration_finds(client):
    address = "/admin/billing/coupon/add/"
    values = {
        "code": "a b",
        "kind": "percentage",
        "percent": "-1",
        "duration": "recurring",
        "periods": "0",
        "plans-0-name": "y z",
    }
    response = client.post(address, values | {"idempotency_key": "k"})
    assert response.status_code == 422
    assert set(response.context_data["form"].errors) == {"code", "percent", "periods", "plans"}
