"""Random customers whose subscriptions share invoices and start when they are paid, compared with the slow calculator.

A simulation is its seed, as in `test_random_subscriptions.py`.
"""

import pytest

from billing.auditing import consistency
from tests.billing.random_subscriptions.customer_simulator import simulate
from tests.billing.random_subscriptions.simulator import Traits
from tests.parts import spread

pytestmark = pytest.mark.django_db


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_subscriptions_that_share_invoices(seed: int) -> None:
    simulate(seed, Traits(months=10), waits=False)
    assert consistency.check() == []


@pytest.mark.parametrize("seed", spread(range(100, 160), test=(), check=[101]))
def test_subscriptions_that_start_when_they_are_paid(seed: int) -> None:
    simulate(seed, Traits(months=10), shares=False)
    assert consistency.check() == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(200, 500))
def test_three_years_of_both(seed: int) -> None:
    simulate(seed, Traits(months=36))
    assert consistency.check() == []
