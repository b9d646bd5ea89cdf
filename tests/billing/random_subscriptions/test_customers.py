"""Random customers whose subscriptions share invoices and start when they are paid, compared with the slow calculator.

A simulation is its seed, as in `test_random_subscriptions.py`.
"""

import pytest

from billing import auditing
from tests.billing.random_subscriptions.customer_simulator import simulate
from tests.billing.random_subscriptions.simulator import Traits

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))])
def test_subscriptions_that_share_invoices(seed: int) -> None:
    simulate(seed, Traits(months=10), waits=False)
    assert auditing.check() == []


@pytest.mark.parametrize("seed", [100, 101, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(102, 160))])
def test_subscriptions_that_start_when_they_are_paid(seed: int) -> None:
    simulate(seed, Traits(months=10), shares=False)
    assert auditing.check() == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 500))
def test_three_years_of_both(seed: int) -> None:
    simulate(seed, Traits(months=36))
    assert auditing.check() == []
