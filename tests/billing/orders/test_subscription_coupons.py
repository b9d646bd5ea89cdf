"""Coupons of one subscription: given, used by its invoices alone, listed and taken away."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.auditing import consistency
from billing.models import CouponUse, Customer, CustomerCoupon, Subscription
from billing.orders import coupons
from ledger.errors import Refused
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, unique
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db


def two_subscriptions() -> tuple[Customer, Subscription, Subscription]:
    """Two of one customer, each at 31.00 a month in advance."""
    customer, plan = CustomerFactory(), PlanFactory(prices=[recurring(unit_amount="31.00")])
    one, other = (SubscriptionFactory(plan=plan.code, customer=customer.ref) for _ in range(2))
    return customer, one, other


def new_coupon(**terms: Any) -> str:
    """Half off for two periods, or on other terms."""
    half = {"kind": "percentage", "value": Decimal(50), "duration": "recurring", "periods": 2}
    return coupons.create_coupon(**{"code": unique("coupon")} | half | terms).code


def due(subscription: Subscription, *months: int) -> list[int]:
    """What each month's invoice comes to."""
    return [one["total_minor"] for month in months for one in bill(subscription, at(month, 1))]


def test_only_its_subscription_uses_it_over_rest(api: ApiClient) -> None:
    customer, one, other = two_subscriptions()
    code = new_coupon()
    path = f"/v1/subscriptions/{one.ref}/coupons"
    given = api.post(path, {"coupon": code})
    assert given.status_code == 201, given.content
    made = dict(given.json())
    assert made.pop("given_at")
    expected = {"customer": customer.ref, "subscription": one.ref, "coupon": code, "taken_off_at": None}
    assert made == expected | {"used_minor": 0, "used_invoices": 0}
    assert (due(other, 1), due(one, 1, 2, 3)) == ([3100], [1550, 1550, 3100])
    [listed] = api.get(path).json()["results"]
    assert (listed["used_minor"], listed["used_invoices"]) == (3100, 2)
    assert api.get(f"/v1/customers/{customer.ref}/coupons").json()["results"] == [listed]
    assert api.get(f"/v1/subscriptions/{other.ref}/coupons").json()["results"] == []
    assert consistency.check() == []


def test_after_it_was_taken_away_no_invoice_uses_it(api: ApiClient) -> None:
    _, one, _ = two_subscriptions()
    code = new_coupon()
    coupons.give_subscription_coupon(ref=one.ref, code=code)
    assert due(one, 1) == [1550]
    taken = api.delete(f"/v1/subscriptions/{one.ref}/coupons/{code}", key="away")
    assert (taken.status_code, taken.json()["used_minor"]) == (200, 1550)
    assert taken.json()["taken_off_at"]
    assert due(one, 2) == [3100]
    again = api.delete(f"/v1/subscriptions/{one.ref}/coupons/{code}", key="again")
    assert again.status_code == 404


def test_its_periods_count_from_when_it_was_given() -> None:
    """`per` means for one subscription what it means for a customer's: from the next period on."""
    _, one, _ = two_subscriptions()
    code = new_coupon(per="customer")
    assert due(one, 1) == [3100]
    coupons.give_subscription_coupon(ref=one.ref, code=code)
    CustomerCoupon.objects.update(given_at=at(1, 15))
    assert due(one, 2, 3, 4) == [1550, 1550, 3100]


def test_an_amount_per_period_goes_to_its_subscription_although_another_is_older() -> None:
    _, older, one = two_subscriptions()
    code = new_coupon(kind="amount", value=Decimal(10), currency="EUR", per="customer")
    coupons.give_subscription_coupon(ref=one.ref, code=code)
    CustomerCoupon.objects.update(given_at=at(12, 15, year=2025))
    assert (due(older, 1), due(one, 1, 2, 3)) == ([3100], [2100, 2100, 3100])


def test_nobody_has_a_coupon_twice() -> None:
    customer, one, other = two_subscriptions()
    code, foreign = new_coupon(), new_coupon(kind="amount", value=Decimal(5), currency="USD")
    to_customer = {"customer_id": customer.pk, "customer_ref": customer.ref, "customer_currency": "EUR"}
    coupons.give_subscription_coupon(ref=one.ref, code=code)
    coupons.give_subscription_coupon(ref=other.ref, code=code)
    for_all = new_coupon()
    coupons.give_coupon(**to_customer, code=for_all)
    before = list(CustomerCoupon.objects.order_by("pk").values())
    for give, why in (
        (lambda: coupons.give_subscription_coupon(ref=one.ref, code=code), "the subscription has it already"),
        (lambda: coupons.give_coupon(**to_customer, code=code), "a subscription of the customer has it already"),
        (
            lambda: coupons.give_subscription_coupon(ref=one.ref, code=for_all),
            "the customer has it already, for all subscriptions",
        ),
        (
            lambda: coupons.give_subscription_coupon(ref=one.ref, code=foreign),
            "its currency is not that of the subscription's plan",
        ),
    ):
        with pytest.raises(Refused) as refused:
            give()
        assert refused.value.facts["why"] == why
    assert list(CustomerCoupon.objects.order_by("pk").values()) == before


@pytest.mark.slow
@pytest.mark.check
def test_it_is_given_and_taken_away_in_the_admin() -> None:
    _, one, _ = two_subscriptions()
    code = new_coupon()
    client = operator()
    page = f"/admin/billing/subscription/{one.pk}/change/"
    give = f"/admin/billing/subscription/{one.pk}/give-coupon/"
    take = f"/admin/billing/subscription/{one.pk}/coupons/{code}/take/"
    assert give in client.get(page).content.decode()
    for url, typed in ((give, {"coupon": code}), (take, {})):
        sent = typed | {"reason": "", "idempotency_key": unique("form")}
        assert client.post(url, sent).status_code == 200
        assert client.post(url, sent | {"confirmed": "1"}).status_code == 302
        assert (take in client.get(page).content.decode()) is (url == give)
    assert CustomerCoupon.objects.get().taken_off_at is not None


def test_the_check_finds_a_coupon_of_another_subscription() -> None:
    _, one, other = two_subscriptions()
    coupons.give_subscription_coupon(ref=one.ref, code=new_coupon())
    due(one, 1)
    assert CouponUse.objects.count() == 1
    assert consistency.check() == []
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_customercoupon DISABLE TRIGGER USER")
        cursor.execute("UPDATE billing_customercoupon SET subscription_id = %s", [other.pk])
    assert len(findings_of("coupon of another customer or subscription")) == 1
