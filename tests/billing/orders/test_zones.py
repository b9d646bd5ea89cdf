"""A subscription counts its days where its customer is, unless its order names a zone."""

from datetime import UTC, datetime

import pytest

from billing.orders.subscriptions import create_subscription
from billing.testing import CustomerFactory, PlanFactory

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("named", "zone"), [(None, "America/New_York"), ("UTC", "UTC")])
def test_the_zone_of_a_subscription_is_by_default_its_customers(named: str | None, zone: str) -> None:
    customer = CustomerFactory(time_zone="America/New_York")
    made = create_subscription(
        ref="SUB-1", customer=customer.ref, plan=PlanFactory().code, started_at=datetime(2026, 1, 1, tzinfo=UTC), time_zone=named
    )
    assert made.time_zone == zone
