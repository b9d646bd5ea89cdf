"""Two years of random subscriptions, every line, tax and total compared with the slow calculator.

A simulation is its seed: `pytest "tests/billing/random_subscriptions/test_random_subscriptions.py::test_two_years[17]"`
runs one again, and prints what was done in it when the product and the calculator differ.
"""

import pytest

from billing.auditing import consistency
from tests.billing.random_subscriptions.simulator import Simulator, Traits
from tests.parts import spread

pytestmark = pytest.mark.django_db


def simulate(seed: int, traits: Traits) -> None:
    """Run one simulation; print what was done in it when it fails."""
    simulator = Simulator(seed, traits)
    try:
        simulator.run()
        assert consistency.check() == []
    except BaseException:
        for simulated in simulator.subscriptions:
            print("\n".join(["", simulated.ref, *simulated.log]))
        raise


@pytest.mark.parametrize("seed", spread(range(12), test=(), check=[2]))
def test_two_years(seed: int) -> None:
    """Amendments, usage, late usage, downtime, drafts, voids, coupons, limits and credits."""
    simulate(seed, Traits())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_500))
def test_three_years(seed: int) -> None:
    simulate(seed, Traits(months=36))
