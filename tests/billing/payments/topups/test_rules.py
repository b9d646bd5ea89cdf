"""When an account is topped up, and with how many packs. Pure."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.payments.topup_rules import TopUpAttempt, TopUpTerms, is_paused, packs_to_buy, period_begins, waits

NOW = datetime(2026, 1, 14, 9, 30, tzinfo=UTC)


def terms(**fields: object) -> TopUpTerms:
    """Terms with these fields."""
    given = {
        "threshold": 200, "packs": 1, "up_to": None, "cap_minor": None, "cap_period": "month", "cooldown_seconds": 300,
        "declines": 3,
    }  # fmt: skip
    return TopUpTerms(**given | fields)  # type: ignore[arg-type]


def attempt(*, seconds_ago: int = 1000, is_open: bool = False, is_failed: bool = False) -> TopUpAttempt:
    """A payment of 20.00."""
    return TopUpAttempt(NOW - timedelta(seconds=seconds_ago), 2000, is_open, is_failed)


@pytest.mark.parametrize(
    ("fields", "available", "spent", "packs"),
    [
        ({}, 200, 0, 0),
        ({}, 199, 0, 1),
        ({}, 0, 10**15, 1),
        ({"packs": 3}, 0, 0, 3),
        ({"packs": None, "up_to": 1100}, 0, 0, 1),
        ({"packs": None, "up_to": 1101}, 0, 0, 2),
        ({"packs": None, "up_to": 200}, 199, 0, 1),
        ({"packs": None, "up_to": 10**15}, -500, 0, 1000),
        ({"cap_minor": 6000, "packs": 5}, 0, 0, 3),
        ({"cap_minor": 6000}, 0, 4000, 1),
        ({"cap_minor": 6000}, 0, 4001, 0),
        ({"cap_minor": 1}, 0, 0, 0),
    ],
)
def test_packs(fields: dict[str, object], available: int, spent: int, packs: int) -> None:
    bought = packs_to_buy(
        terms(**fields), available=available, credits_of_pack=1100, price_minor=2000, spent_minor=spent, most=1000
    )
    assert bought == packs


@given(
    available=st.integers(-(10**26), 10**26), up_to=st.integers(200, 10**16), pack=st.integers(1, 10**15),
    cap=st.integers(0, 10**12), price=st.integers(1, 10**9), spent=st.integers(0, 10**12),
)  # fmt: skip
def test_the_cap_is_kept_and_up_to_is_reached_if_it_leaves_room(
    available: int, up_to: int, pack: int, cap: int, price: int, spent: int
) -> None:
    bought = packs_to_buy(
        terms(packs=None, up_to=up_to, cap_minor=cap), available=available, credits_of_pack=pack, price_minor=price,
        spent_minor=spent, most=1000,
    )  # fmt: skip
    assert bought == 0 or spent + bought * price <= cap
    assert bought == 0 or available < 200
    if available < 200 and 0 < bought < min(1000, (cap - spent) // price):
        assert available + bought * pack >= up_to > available + (bought - 1) * pack


def test_what_waits_and_what_is_paused() -> None:
    assert not waits(terms(), [], NOW)
    assert waits(terms(), [attempt(is_open=True)], NOW)
    assert waits(terms(), [attempt(seconds_ago=299)], NOW)
    assert not waits(terms(), [attempt(seconds_ago=300)], NOW)
    declined = attempt(is_failed=True)
    assert is_paused(terms(), [declined] * 3)
    assert not is_paused(terms(), [declined] * 2)
    assert not is_paused(terms(), [declined, attempt(), declined, declined])


@pytest.mark.parametrize(
    ("period", "begins"),
    [
        ("day", datetime(2026, 1, 14, tzinfo=UTC)),
        ("week", datetime(2026, 1, 12, tzinfo=UTC)),
        ("month", datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_period_begins_in_utc(period: str, begins: datetime) -> None:
    assert period_begins(period, NOW) == begins
