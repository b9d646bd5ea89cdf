"""The calls that show a customer's next invoices, also with what is not ordered yet."""

from decimal import Decimal
from unittest import mock

import pytest

from billing.generator.run import generate
from billing.models import Amendment, CustomerCoupon, Subscription
from billing.orders import coupons, suspension
from ledger import services
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, amend, at, metered, recurring, unique, use
from tests.billing.generator.run.test_generate import bill
from tests.billing.random_subscriptions.test_dry_runs import rows

pytestmark = pytest.mark.django_db
FAR = {"year": 2099}


def shown(response):
    assert response.status_code == 200, response.content
    return [(one["as_of"][:10], one["invoice"]["subtotal_minor"]) for one in response.json()["invoices"]]


@pytest.fixture
def monthly():
    """A customer with a subscription of 31.00 a month that begins in the future."""
    plan = PlanFactory(prices=[recurring(unit_amount="31.00")])
    return SubscriptionFactory(plan=plan.code, started_at=at(1, 1, **FAR))


def test_the_next_invoices_follow_each_other_and_nothing_is_written(api, monthly):
    other = SubscriptionFactory(
        customer=monthly.customer.ref, plan=PlanFactory(prices=[recurring(unit_amount="5.00")]).code, started_at=at(1, 15, **FAR)
    )
    before = rows()
    response = api.get(f"/v1/customers/{monthly.customer.ref}/preview?invoices=4")
    assert shown(response) == [("2099-01-01", 3100), ("2099-01-15", 500), ("2099-02-01", 3100), ("2099-02-15", 500)]
    first = response.json()["invoices"][0]
    assert (first["invoice"]["issue_date"], first["invoice"]["number"], first["difference"]) == ("2099-01-01", None, None)
    assert response.json()["invoices"][1]["invoice"]["subscription"] == other.ref
    assert shown(api.get(f"/v1/customers/{monthly.customer.ref}/preview")) == [("2099-01-01", 3100)]
    assert rows() == before


def test_a_planned_amendment_and_a_coupon_that_ends_say_why_the_next_one_is_different(api, monthly):
    customer = monthly.customer
    coupons.create_coupon(code="ONCE", kind="percentage", value=Decimal(10), duration="once")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code="ONCE")
    amend(monthly, at(3, 1, **FAR), quantities={"base": Decimal(2)})
    response = api.get(f"/v1/customers/{customer.ref}/preview?invoices=3")
    differences = [one["difference"] and one["difference"]["lines"] for one in response.json()["invoices"]]
    line = {"kind": "recurring", "price_key": "base", "title": "Basic: base"}
    assert differences == [
        None,
        [line | {"before_minor": 2790, "after_minor": 3100, "because": ["coupon"]}],
        [line | {"before_minor": 3100, "after_minor": 6200, "because": ["quantity"]}],
    ]


def test_what_is_not_ordered_is_shown_and_not_ordered(api, monthly):
    coupons.create_coupon(code="HALF", kind="percentage", value=Decimal(50), duration="once")
    plan = PlanFactory(prices=[recurring(unit_amount="10.00")]).code
    order = {
        "plan": plan,
        "started_at": "2098-12-01T00:00:00Z",
        "quantities": {"base": 3},
        "trial_ends_at": "2098-12-16T00:00:00Z",
    }
    before = (rows(), Subscription.objects.count(), Amendment.objects.count())
    path = f"/v1/customers/{monthly.customer.ref}/preview"
    response = api.post(path, {"subscription": order, "coupon": "HALF", "invoices": 2})
    # 16 of 31 days of 30.00 are 15.48, and half off; then 31.00 on 1 January.
    assert shown(response) == [("2098-12-16", 1548), ("2099-01-01", 3100)]
    assert response.json()["invoices"][0]["invoice"]["discount_minor"] == 774
    assert response.json()["invoices"][0]["invoice"]["subscription"] == "preview:not-ordered"
    amendment = {"subscription": monthly.ref, "effective_at": "2099-01-01T00:00:00Z", "price_override": {"percent_off": "10"}}
    assert shown(api.post(path, {"amendment": amendment})) == [("2099-01-01", 2790)]
    both = api.post(path, {"amendment": amendment, "subscription": order, "coupon": "HALF", "invoices": 3})
    assert shown(both) == [("2098-12-16", 1548), ("2099-01-01", 2790), ("2099-01-01", 3000)]
    assert (rows(), Subscription.objects.count(), Amendment.objects.count()) == before
    assert not CustomerCoupon.objects.exists()


def test_credits_pay_the_first_invoice_and_are_gone_for_the_second(api):
    holder = unique("holder")
    services.grant(holder_id=holder, amount=4_000, idempotency_key="first")
    customer = CustomerFactory(holder_id=holder, credits={"credit_type": "credits", "unit_value": Decimal("0.01")})
    SubscriptionFactory(
        customer=customer.ref, plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code, started_at=at(1, 1, **FAR)
    )
    response = api.get(f"/v1/customers/{customer.ref}/preview?invoices=2")
    assert [one["invoice"]["credits_applied_minor"] for one in response.json()["invoices"]] == [3100, 900]


def test_a_coupon_that_is_used_once_lowers_one_of_two_invoices_of_a_day(api, monthly):
    customer = monthly.customer
    SubscriptionFactory(
        customer=customer.ref, plan=PlanFactory(prices=[recurring(unit_amount="5.00")]).code, started_at=at(1, 1, **FAR)
    )
    coupons.create_coupon(code="FORTY", kind="amount", value=Decimal(40), currency="EUR", duration="once")
    coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code="FORTY")
    invoices = api.get(f"/v1/customers/{customer.ref}/preview?invoices=4").json()["invoices"]
    # 31.00 and 5.00 on the first day, and the last 4.00 a month later.
    assert [one["invoice"]["discount_minor"] for one in invoices] == [3100, 500, 400, 0]


def test_the_first_preview_is_compared_with_the_last_invoice(api):
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring(unit_amount="31.00"), metered()]).code)
    use(subscription, "100", at(1, 5))
    use(subscription, "150", at(2, 5))
    bill(subscription, at(2, 1))
    [first] = api.get(f"/v1/customers/{subscription.customer.ref}/preview").json()["invoices"]
    assert first["difference"]["before"].startswith("INV-")
    usage = [line for line in first["difference"]["lines"] if line["kind"] == "usage"]
    assert [(line["before_minor"], line["because"]) for line in usage] == [(200, ["usage"])]


def test_an_invoice_in_its_grace_is_shown_when_it_is_final(api):
    customer = CustomerFactory(grace_days=5)
    SubscriptionFactory(
        customer=customer.ref, plan=PlanFactory(prices=[recurring(unit_amount="31.00")]).code, started_at=at(1, 1, **FAR)
    )
    assert shown(api.get(f"/v1/customers/{customer.ref}/preview?invoices=2")) == [("2099-01-06", 3100), ("2099-02-06", 3100)]


def test_only_what_may_be_due_is_locked_and_late_usage_comes_with_the_next_invoice(api):
    plan = PlanFactory(prices=[recurring(unit_amount="31.00"), metered()]).code
    customer = CustomerFactory()
    first, second = (SubscriptionFactory(customer=customer.ref, plan=plan, started_at=at(1, 1, **FAR)) for _ in range(2))
    for one in (first, second):
        bill(one, at(2, 1, **FAR))
    use(second, "100", at(1, 5, **FAR))
    locks = mock.Mock(wraps=generate.try_advisory_lock)
    with mock.patch.object(generate, "try_advisory_lock", locks):
        response = api.get(f"/v1/customers/{customer.ref}/preview?invoices=2")
    assert shown(response) == [("2099-03-01", 3100), ("2099-03-01", 3300)]
    assert locks.call_count == 2


def test_a_preview_of_many_subscriptions_locks_no_more_than_it_shows(api):
    plan = PlanFactory(prices=[recurring(unit_amount="31.00")]).code
    customer = CustomerFactory()
    for _ in range(5):
        SubscriptionFactory(customer=customer.ref, plan=plan)
    locks = mock.Mock(wraps=generate.try_advisory_lock)
    with mock.patch.object(generate, "try_advisory_lock", locks):
        assert len(shown(api.get(f"/v1/customers/{customer.ref}/preview?invoices=2"))) == 2
    assert locks.call_count == 2


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, ""),
        ({"invoices": 13, "coupon": "X"}, "/invoices"),
        ({"subscription": {"plan": "nothing", "started_at": "2026-01-01T00:00:00Z"}}, "/plan"),
        ({"subscription": {"plan": "nothing"}}, "/subscription/started_at"),
        ({"amendment": {"subscription": "X", "paused": True}}, "/amendment/effective_at"),
        ({"coupon": "nothing"}, "/coupon"),
    ],
)
def test_what_cannot_be_previewed_is_refused_with_its_field(api, monthly, body, pointer):
    response = api.post(f"/v1/customers/{monthly.customer.ref}/preview", body)
    assert response.status_code == 400, response.content
    assert [error["pointer"] for error in response.json()["errors"]] == [pointer]


def test_subscriptions_of_others_busy_and_suspended_ones_and_unknown_customers_are_answered(api, monthly):
    other = SubscriptionFactory()
    amendment = {"subscription": other.ref, "effective_at": "2026-01-01T00:00:00Z", "paused": True}
    path = f"/v1/customers/{monthly.customer.ref}/preview"
    assert api.post(path, {"amendment": amendment}).status_code == 404
    assert api.get("/v1/customers/NOBODY/preview").status_code == 404
    assert api.get(f"{path}?invoices=13").status_code == 400
    suspension.suspend(ref=monthly.ref, reason="looks-odd")
    assert api.get(path).status_code == 409
