"""Budgets with instants, against an independent model: for each instant, which of the orders up to now is in force then."""

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from ledger.errors import BudgetExceeded, BudgetLimit, BudgetNotFound, Invalid
from ledger.rules.budget_states import MAX_COMING, decode_budgets, encode_budgets, in_force
from ledger.rules.instants import from_us
from ledger.rules.requests import (
    BudgetRequest,
    EndBudgetRequest,
    GrantRequest,
    HoldRequest,
    ReleaseRequest,
    SpendRequest,
)
from ledger.values import annotations_of
from tests.ledger.random_histories import HOUR_US, RulesLedger
from tests.ledger.rules.budgets.test_budgets import BudgetHistory
from tests.parts import spread

DAY_US = 24 * HOUR_US


def history() -> BudgetHistory:
    """A ledger with 1,000 credits at midnight."""
    made = BudgetHistory.__new__(BudgetHistory)
    made.ledger, made.keys = RulesLedger(), 0
    made.run(GrantRequest, amount=1_000)
    return made


def at(made: BudgetHistory, days: float) -> Any:
    return from_us(made.ledger.now_us + int(days * DAY_US))


def limits(made: BudgetHistory) -> dict[str, int]:
    return {budget.name: budget.limit for budget in made.ledger.account("ada").present_budgets}


def spend(made: BudgetHistory, amount: int) -> int | None:
    """Return how much of the limit is used then; None if it was refused."""
    try:
        counts = made.run(SpendRequest, amount=amount).counts
    except BudgetExceeded:
        return None
    return counts[0].total if counts else 0


# One by one ------------------------------------------------------------------------------------------


def test_a_budget_for_later_counts_and_refuses_from_its_first_microsecond_until_its_last() -> None:
    made = history()
    made.run(BudgetRequest, budget="b", limit=10, window="day", starts_at=at(made, 2), ends_at=at(made, 3))
    assert spend(made, 50) == 0
    made.ledger.now_us += 2 * DAY_US - 1
    assert spend(made, 50) == 0
    made.ledger.now_us += 1
    assert (spend(made, 11), spend(made, 10), spend(made, 1)) == (None, 10, None)
    made.ledger.now_us += DAY_US - 1
    assert spend(made, 1) is None
    made.ledger.now_us += 1
    assert spend(made, 50) == 0


def test_another_limit_for_later_goes_on_counting_and_another_window_begins_with_nothing() -> None:
    made = history()
    made.run(BudgetRequest, budget="b", limit=10, window="month")
    made.run(BudgetRequest, budget="b", limit=15, window="month", starts_at=at(made, 1))
    made.run(BudgetRequest, budget="b", limit=8, window="week", starts_at=at(made, 2))
    assert (spend(made, 10), spend(made, 1)) == (10, None)
    made.ledger.now_us += DAY_US
    assert (spend(made, 5), spend(made, 1)) == (15, None)
    made.ledger.now_us += DAY_US
    assert (spend(made, 8), spend(made, 1)) == (8, None)


def test_what_is_set_now_replaces_what_comes_and_what_is_set_until_an_instant_leaves_what_begins_then() -> None:
    made = history()
    later = at(made, 5)
    made.run(BudgetRequest, budget="b", limit=1, window="day")
    made.run(BudgetRequest, budget="b", limit=2, window="day", starts_at=later)
    made.run(BudgetRequest, budget="b", limit=3, window="day", ends_at=later)
    assert [(each.limit, each.ends_us) for each in made.ledger.account("ada").budgets[0].versions] == [
        (3, made.ledger.now_us + 5 * DAY_US),
        (2, None),
    ]
    made.run(BudgetRequest, budget="b", limit=4, window="day")
    assert made.ledger.account("ada").budgets[0].later == ()
    made.ledger.now_us += 6 * DAY_US
    assert limits(made) == {"b": 4}


def test_an_end_for_later_ends_it_then_and_one_at_once_ends_what_comes_too() -> None:
    made = history()
    made.run(BudgetRequest, budget="b", limit=1, window="day")
    made.run(BudgetRequest, budget="b", limit=2, window="day", starts_at=at(made, 3))
    made.run(EndBudgetRequest, budget="b", ends_at=at(made, 2))
    made.run(BudgetRequest, budget="c", limit=5, window="day", starts_at=at(made, 3))
    made.ledger.now_us += 2 * DAY_US - 1
    assert limits(made) == {"b": 1}
    made.ledger.now_us += 1
    assert limits(made) == {}
    with pytest.raises(BudgetNotFound):
        made.run(EndBudgetRequest, budget="b")
    made.run(EndBudgetRequest, budget="c")
    made.ledger.now_us += 2 * DAY_US
    # Nothing is left on the account, not even what ended by the clock.
    assert made.ledger.account("ada").budgets == ()


def test_a_start_that_has_passed_is_now_and_an_end_that_has_passed_is_refused() -> None:
    made = history()
    made.run(BudgetRequest, budget="b", limit=1, window="day", starts_at=at(made, -1))
    assert made.ledger.account("ada").budgets[0].starts_us is None
    before = made.ledger.account("ada").sequence
    with pytest.raises(Invalid) as refused:
        made.run(BudgetRequest, budget="b", limit=2, window="day", ends_at=at(made, 0))
    assert (refused.value.pointer, refused.value.rule) == ("/ends_at", "past")
    with pytest.raises(Invalid) as refused:
        made.run(BudgetRequest, budget="b", limit=2, window="day", starts_at=at(made, 2), ends_at=at(made, 2))
    assert (refused.value.pointer, refused.value.rule) == ("/ends_at", "order")
    assert (made.ledger.account("ada").sequence, limits(made)) == (before, {"b": 1})


def test_a_budget_for_later_nests_in_what_its_parent_is_then() -> None:
    made = history()
    team = {"window": "day", "by": "label", "label": "team"}
    made.run(BudgetRequest, budget="team", limit=9, starts_at=at(made, 2), **team)
    with pytest.raises(BudgetNotFound):
        made.run(BudgetRequest, budget="b", limit=1, window="day", parent="team")
    made.run(BudgetRequest, budget="b", limit=1, window="day", parent="team", starts_at=at(made, 2))
    made.ledger.now_us += 2 * DAY_US
    made.run(SpendRequest, amount=1, metadata={"team": "red"})
    assert made.run(SpendRequest, amount=1, metadata={"team": "blue"}).counts[0].subject == "blue"
    with pytest.raises(BudgetExceeded):
        made.run(SpendRequest, amount=1, metadata={"team": "red"})


def test_a_release_gives_back_to_what_is_in_force_then() -> None:
    made = history()
    made.run(BudgetRequest, budget="b", limit=10, window="month", ends_at=at(made, 1))
    made.run(BudgetRequest, budget="b", limit=20, window="month", starts_at=at(made, 1), ends_at=at(made, 2))
    holds = [made.run(HoldRequest, amount=4, expires_at=at(made, 9)) for _ in range(2)]
    made.ledger.now_us += DAY_US
    assert [each.used for each in made.run(ReleaseRequest, hold=holds[0].sequence).counts] == [4]
    made.ledger.now_us += DAY_US
    assert made.run(ReleaseRequest, hold=holds[1].sequence).counts == ()


def test_20_budgets_at_the_same_time_and_40_settings_for_later() -> None:
    made = history()
    for number in range(20):
        made.run(BudgetRequest, budget=f"b{number}", limit=1, window="day", ends_at=at(made, 1))
    for number in range(20):
        made.run(BudgetRequest, budget=f"c{number}", limit=1, window="day", starts_at=at(made, 1))
    with pytest.raises(BudgetLimit) as refused:
        made.run(BudgetRequest, budget="d", limit=1, window="day", starts_at=at(made, 7))
    assert refused.value.facts == {"what": "budgets", "limit": 20}
    for number in range(MAX_COMING - 20):
        made.run(BudgetRequest, budget="c0", limit=number, window="day", starts_at=at(made, 2 + number))
    with pytest.raises(BudgetLimit) as refused:
        made.run(BudgetRequest, budget="c1", limit=1, window="day", starts_at=at(made, 7))
    assert refused.value.facts == {"what": "settings of budgets for later", "limit": MAX_COMING}
    # What clients are told that it may be.
    assert annotations_of(BudgetLimit)["what"].value.read(refused.value.facts["what"])
    # What is in force now needs no room among them.
    made.run(BudgetRequest, budget="b0", limit=2, window="day", ends_at=at(made, 1))
    assert limits(made)["b0"] == 2


def test_code_of_0_2_1_carries_a_budget_with_instants_as_it_is() -> None:
    """It read ten fields, the parent and the levels, and wrote what it had read."""
    made = history()
    made.run(BudgetRequest, budget="b", limit=1, window="day", by="label", label="team")
    made.run(BudgetRequest, budget="b", limit=2, window="day", by="label", label="team", starts_at=at(made, 1))
    budgets = made.ledger.account("ada").budgets
    text = encode_budgets(budgets)
    assert decode_budgets(text) == budgets
    start_us, instants = made.ledger.now_us + DAY_US, budgets[0].later[0].starts_us
    assert text == (
        f'[["b",1,"day",null,"UTC","label","team",null,1,2,{{"until":{start_us},"later":'
        f'[["b",2,"day",null,"UTC","label","team",null,1,2,{{"from":{instants}}},[]]]}},[]]]'
    )


# Any order -------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Order:
    """A budget that was ordered, from its start to its end; `counted` is what is used by step, with those that it continues."""

    start_us: int
    end_us: float
    limit: int
    window: str
    counted: dict[int, int]


@dataclass
class Orders:
    """All orders so far, in their order; None is an end. It knows nothing of versions that are cut."""

    given: list[tuple[int, float, Order | None]] = field(default_factory=list)

    def at(self, at_us: int) -> Order | None:
        """Return what is in force at an instant."""
        present: Order | None = None
        for start_us, end_us, order in self.given:
            if start_us <= at_us < end_us:
                present = order
            elif at_us >= end_us and present is not None and present.start_us < end_us:
                present = None
        return present


def step_us(window: str, at_us: int) -> int:
    day = at_us // DAY_US
    # The first of January 2025 was a Wednesday, as the first of January 1970 was a Thursday.
    return day if window == "day" else (day + 3) // 7


def live(seed: int, steps: int) -> BudgetHistory:
    """Return a history of random orders and spends, each compared with the model."""
    chance, made, orders = random.Random(seed), history(), Orders()
    made.run(GrantRequest, amount=10**9)
    refused = 0
    for _ in range(steps):
        ledger = made.ledger
        ledger.now_us += chance.choice((1, HOUR_US, 9 * HOUR_US, DAY_US, DAY_US - ledger.now_us % DAY_US))
        now_us = ledger.now_us
        days = chance.sample(range(1, 9), 2)
        start_us, end_us = sorted(now_us - now_us % DAY_US + day * DAY_US for day in days)
        starts, ends = chance.random() < 0.6, chance.random() < 0.4
        begins_us, until = (start_us if starts else now_us), (end_us if ends else float("inf"))
        kind = chance.random()
        if kind < 0.25:
            limit, window = chance.randint(0, 40), chance.choice(("day", "week"))
            former = orders.at(begins_us - 1 if starts else now_us)
            counted = former.counted if former is not None and former.window == window else {}
            made.run(
                BudgetRequest,
                budget="b", limit=limit, window=window,
                starts_at=from_us(start_us) if starts else None, ends_at=from_us(end_us) if ends else None,
            )  # fmt: skip
            orders.given.append((begins_us, until, Order(begins_us, until, limit, window, counted)))
        elif kind < 0.3:
            try:
                made.run(EndBudgetRequest, budget="b", ends_at=from_us(start_us) if starts else None)
            except BudgetNotFound:
                assert all(orders.at(now_us + hours * HOUR_US) is None for hours in range(24 * 12))
            else:
                orders.given.append((begins_us, float("inf"), None))
        else:
            amount, present = chance.randint(1, 15), orders.at(now_us)
            used = spend(made, amount)
            if present is None:
                assert used == 0
                continue
            step = step_us(present.window, now_us)
            expected = present.counted.get(step, 0) + amount
            assert used == (expected if expected <= present.limit else None)
            if used is None:
                refused += 1
            else:
                present.counted[step] = expected
        state = made.ledger.account("ada").budgets
        assert decode_budgets(encode_budgets(state)) == state
        for hours in range(0, 24 * 10, 7):
            at_us = now_us + hours * HOUR_US
            present, found = orders.at(at_us), in_force(state, at_us)
            assert [(each.limit, each.window) for each in found] == ([] if present is None else [(present.limit, present.window)])
    assert refused > steps // 25
    return made


@pytest.mark.parametrize("seed", spread(range(8), test=[0, 1], check=[2, 3]))
def test_random_orders_are_in_force_and_count_as_an_independent_model_says(seed: int) -> None:
    live(seed, 250)
