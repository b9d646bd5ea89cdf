"""The page that says what another price would have brought: its form, its answer, and who sees what of it."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from billing.models import Claim, Plan, Price
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill
from tests.ledger.staff.admin_site import operator, text_of

pytestmark = pytest.mark.django_db

PAGE = "/admin/billing/plan/price-trial/"


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> str:
    """A plan with 0.02 a call beyond 100, of which a customer has used 600 in January; it is February."""
    plan = PlanFactory(code=unique("plan"), prices=[recurring(), metered("calls", unit_amount="0.02", free_units="100")])
    subscription = SubscriptionFactory(plan=plan.code, customer=CustomerFactory(name="Lumen Studios").ref)
    use(subscription, "600", at(1, 10))
    bill(subscription, at(2, 1))
    monkeypatch.setattr(timezone, "now", lambda: at(2, 1) + timedelta(hours=1))
    return plan.code


def fields(code: str, **more: Any) -> dict[str, Any]:
    typed = {"plans-0-name": code, "price": "calls", "months": "3", "model": "unit", "unit_amount": "0.03", "free_units": "100"}
    return typed | more


def test_the_form_begins_with_the_price_as_it_is(code: str) -> None:
    plan = Plan.objects.get(code=code)
    client = operator()
    link = client.get(f"/admin/billing/plan/{plan.pk}/try-price/")
    assert link.url == f"{PAGE}?plan={code}"
    page = client.get(link.url).content.decode()
    for shown in (f'value="{code}"', 'value="calls"', 'value="0.02"', 'value="100"', "EUR"):
        assert shown in page, shown


def test_the_answer_has_the_money_before_and_after_by_plan_and_customer(code: str) -> None:
    before = [list(model.objects.order_by("pk").values()) for model in (Claim, Plan, Price)]
    response = operator().post(PAGE, fields(code))
    assert response.status_code == 200
    page = text_of(response.content.decode())
    assert "1 invoiced period of 1 subscription ended from" in page
    # 500 calls: 10.00 at 0.02, 15.00 at 0.03.
    assert "They brought 10.00 EUR; the other price would have brought 15.00 EUR, 5.00 EUR more." in page
    assert f"{code}, version 1 1 10.00 EUR 15.00 EUR 5.00 EUR" in page
    assert "Lumen Studios" in page
    assert [list(model.objects.order_by("pk").values()) for model in (Claim, Plan, Price)] == before


def test_tiers_are_typed_in_rows_and_money_as_people_write_it(code: str) -> None:
    typed = fields(code, model="graduated", unit_amount="", free_units="") | {
        "tiers-0-up_to": "200", "tiers-0-unit_amount": "0,01", "tiers-1-unit_amount": "0,05", "tiers-1-flat_amount": "1,50",
    }  # fmt: skip
    page = text_of(operator().post(PAGE, typed).content.decode())
    # 200 × 0.01 + 400 × 0.05 + 1.50.
    assert "the other price would have brought 23.50 EUR, 13.50 EUR more." in page


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        ({"plans-0-name": "nobody"}, "There is no plan nobody"),
        ({"price": "base"}, "has no usage price of this key"),
        ({"unit_amount": ""}, "unit_amount"),
        ({"unit_amount": "12 cents"}, "is not an amount"),
        ({"months": "0"}, "1"),
    ],
)
def test_a_fault_stands_at_its_field(code: str, wrong: dict[str, str], fault: str) -> None:
    response = operator().post(PAGE, fields(code) | wrong)
    assert response.status_code == 422
    assert fault in text_of(response.content.decode()) or fault in response.content.decode()
    assert "would have brought" not in text_of(response.content.decode()).partition("would another price have brought?")[2]


def test_who_may_not_see_customers_sees_their_names_without_links(code: str) -> None:
    assert operator("billing.view_plan", name="ben").get(PAGE).status_code == 403
    page = operator("billing.view_invoice", name="eve").post(PAGE, fields(code)).content.decode()
    assert "Lumen Studios" in page
    assert "/admin/billing/customer/" not in page.partition("operation")[0].partition("What it would have brought")[2]
