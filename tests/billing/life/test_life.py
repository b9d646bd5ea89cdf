"""Two years of random subscriptions, every line, tax and total held against the slow calculator.

A life is its seed: `pytest "tests/billing/life/test_life.py::test_two_years_of_life[17]"` lives one again and tells it.
"""

import pytest

from billing import auditing
from tests.billing.life.world import Traits, World

pytestmark = pytest.mark.django_db


def live(seed: int, traits: Traits) -> None:
    """Live one life, and tell it when the two accounts of it differ."""
    known = auditing.check()
    world = World(seed, traits)
    try:
        world.live()
        assert [finding for finding in auditing.check() if finding not in known] == []
    except BaseException:
        for lived in world.lives:
            print("\n".join(["", lived.ref, *lived.told]))
        raise


@pytest.mark.parametrize("seed", range(40))
def test_two_years_of_life(seed: int) -> None:
    """Fifty subscriptions: amendments, usage, late usage, downtime, drafts, voids, coupons, limits, credits."""
    live(seed, Traits())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1_000, 1_400))
def test_three_years_of_many_lives(seed: int) -> None:
    live(seed, Traits(months=36))
