"""Allowances whose credits can pay for certain rates or label values only."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.conf import LazySettings

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Claim, Plan
from billing.orders.customers import NewCredits
from ledger import reads, services
from ledger.errors import InsufficientCredits
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, metered, recurring, unique, use
from tests.billing.findings import findings_of
from tests.billing.generator.state.test_allowance_changes import MONTH, available, day, move, ordered, plan_of, run_at
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

IMAGES = {"rates": ["image.small"]}
FOR_ADA = {"labels": {"member": ["ada"]}}


@pytest.fixture(autouse=True)
def _clocks(settings: LazySettings) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    services.publish_rate(code="image.small", price=4, per=1)


def for_other_things(holder: str) -> list[tuple[dict[str, Any], int]]:
    """What there is of credits that pay only for certain things."""
    return [(one.applies_to, one.available) for one in reads.balance(holder).for_other_things or ()]


def draw(holder: str, images: int) -> None:
    """Spend for images."""
    services.spend(holder_id=holder, rate="image.small", quantity=images, idempotency_key=unique("image"))


@pytest.mark.parametrize("in_time", [True, False])
def test_the_credits_of_each_period_pay_for_these_things_only(in_time: bool) -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, applies_to=IMAGES))
    run_at(holder, subscription, day(1))
    assert (available(holder), for_other_things(holder)) == (0, [(IMAGES, 100)])
    draw(holder, 5)
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id=holder, amount=1, idempotency_key="text")
    # The ledger grants the next one by itself, and the run claims it.
    move(holder, day(2))
    if in_time:
        run_at(holder, subscription, day(2))
    draw(holder, 10)
    run_at(holder, subscription, day(2))
    assert for_other_things(holder) == [(IMAGES, 60)]
    rows = Claim.objects.filter(subscription=subscription.pk, kind=Claim.Kind.ALLOWANCE, released_at=None)
    assert sorted(f"{one.starts_at:%m-%d}" for one in rows) == ["01-01", "02-01"]
    assert findings_of("credits", "ledger", "billing") == []


def test_credits_for_other_things_take_the_place_of_the_share_that_is_left() -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH, applies_to=IMAGES))
    run_at(holder, subscription, day(1))
    move(holder, day(1, 11))
    amend(subscription, day(1, 11), plan=plan_of(310, "31.00", MONTH, applies_to=FOR_ADA))
    run_at(holder, subscription, day(1, 11))
    assert for_other_things(holder) == [(IMAGES, 100), (FOR_ADA, 210)]
    amend(subscription, day(1, 21), plan=plan_of(310, "31.00", MONTH))
    move(holder, day(1, 21))
    run_at(holder, subscription, day(1, 21))
    assert (available(holder), for_other_things(holder)) == (110, [(IMAGES, 100), (FOR_ADA, 100)])
    assert findings_of("credits", "ledger", "billing") == []


def test_previews_and_runs_say_what_the_credits_that_come_and_go_can_pay_for(api: ApiClient) -> None:
    holder, subscription = ordered(plan_of(310, "31.00", MONTH, applies_to=IMAGES))
    [first] = run_at(holder, subscription, day(1)).allowances
    assert (first.amount, first.applies_to) == (310, IMAGES)
    move(holder, day(1, 11))
    amend(subscription, day(1, 11), plan=plan_of(310, "31.00", MONTH, applies_to=FOR_ADA))
    [upcoming, *later] = api.get(f"/v1/customers/{subscription.customer.ref}/preview?invoices=2").json()["invoices"]
    moves = [(each["amount"], each["applies_to"]) for each in upcoming["allowances"]]
    assert moves == [(-210, IMAGES), (210, FOR_ADA)]
    assert [each["applies_to"] for one in later for each in one["allowances"]] == [FOR_ADA]
    assert [(one.amount, one.applies_to) for one in run_at(holder, subscription, day(1, 11)).allowances] == moves
    # The ledger grants the next one by itself, and the run claims it.
    assert [one.applies_to for one in run_at(holder, subscription, day(2)).allowances] == [FOR_ADA]


def test_what_rolls_over_stays_for_the_same_things() -> None:
    holder, subscription = ordered(plan_of(100, "10.00", MONTH, applies_to=IMAGES, rollover_cap=20))
    for month in (1, 2):
        run_at(holder, subscription, day(month))
    assert for_other_things(holder) == [(IMAGES, 120)]


def test_they_pay_neither_invoices_nor_usage_of_events_and_expire_with_their_period() -> None:
    holder, pays = unique("holder"), NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    move(holder, day(1))
    customer = CustomerFactory(holder_id=holder, credits=pays)
    prices = [recurring(), metered(credits={"credit_type": "credits", "per_unit": "1"})]
    plan = PlanFactory(prices=prices, interval=MONTH, allowance={"amount": 100, "applies_to": IMAGES})
    subscription = SubscriptionFactory(customer=customer.ref, plan=plan.code, started_at=day(1))
    run_at(holder, subscription, day(1))
    use(subscription, 3, day(1, 5))
    move(holder, day(2))
    # The ledger grants by the clock: no invoice has to come before.
    draw(holder, 25)
    made = generate_in(ref=subscription.ref, options=Options(as_of=day(2)))
    assert [(one.amount, f"{one.starts_at:%m-%d}") for one in made.granted] == [(100, "02-01")]
    assert (for_other_things(holder), reads.balance(holder).balance) == ([], 0)
    assert findings_of("credits", "ledger", "billing") == []


@pytest.fixture
def api(db: None, make_api: Callable[..., ApiClient]) -> ApiClient:
    """A client that may write in billing."""
    return make_api("billing:read", "billing:write")


def body_of(applies_to: Any) -> dict[str, Any]:
    """A plan as a request has it."""
    return {
        "ref": unique("plan"), "name": "Images", "currency": "EUR", "interval": {"unit": "month", "count": 1},
        "prices": [recurring()], "allowance": {"amount": 100, "applies_to": applies_to},
    }  # fmt: skip


def test_a_plan_says_what_its_credits_can_pay_for(api: ApiClient) -> None:
    made = api.post("/v1/plans", body_of({"rates": ["b", "a", "b"]})).json()
    assert made["allowance"]["applies_to"] == {"rates": ["a", "b"]}
    assert api.get(f"/v1/plans/{made['ref']}").json()["allowance"] == made["allowance"]
    assert api.post("/v1/plans", body_of(None)).json()["allowance"]["applies_to"] is None


@pytest.mark.parametrize(
    ("applies_to", "pointer"),
    [
        ({}, ""),
        ({"rates": []}, "/rates"),
        ({"models": ["a"]}, "/models"),
        ({"labels": {"member": ["a"], "team": ["b"]}}, "/labels"),
        ("image.small", ""),
    ],
)
def test_what_they_cannot_pay_for_is_refused_by_field(api: ApiClient, applies_to: Any, pointer: str) -> None:
    response = api.post("/v1/plans", body_of(applies_to))
    assert (response.status_code, [error["pointer"] for error in response.json()["errors"]]) == (
        400, [f"/allowance/applies_to{pointer}"],
    )  # fmt: skip
    assert Plan.objects.count() == 0
