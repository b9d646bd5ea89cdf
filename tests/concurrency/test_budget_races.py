"""A spend at the instant of a budget, while a clock comes to it or the budget is set: the holder's lock alone orders them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ledger import reads, services
from ledger.errors import BudgetExceeded
from ledger.rules.entries import Entry
from tests.concurrency.race_harness import NO_LOCK, RaceSchema

MakeRaceSchema = Callable[..., RaceSchema]

START = datetime(2029, 3, 1, tzinfo=UTC)
INSTANT = START + timedelta(days=1)
BEFORE = INSTANT - timedelta(microseconds=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


def holder_at(new_holder: Callable[[], str], now: datetime) -> str:
    """A holder whose clock shows a time."""
    name = new_holder()
    services.set_clock(holder_id=name, now=now, idempotency_key="clock")
    return name


def use_sms(operation: Callable[..., Entry], holder: str, **asked: Any) -> Entry:
    """Not the account in which the clock moves: there the numbers of the entries would order them too."""
    return operation(holder_id=holder, credit_type="sms", **asked)


@pytest.mark.parametrize(
    ("broken", "moved_to", "is_refused"),
    [(None, BEFORE, False), (None, INSTANT, True), (NO_LOCK, INSTANT, False)],
    ids=["just before", "at the instant", "control: at the instant without the lock"],
)
def test_a_spend_that_meets_the_move_of_a_clock_is_decided_by_the_budget_of_the_clocks_new_time(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None, moved_to: datetime, is_refused: bool
) -> None:
    holder = holder_at(new_holder, START)
    use_sms(services.grant, holder, amount=100, idempotency_key="grant")
    use_sms(services.set_budget, holder, budget="b", limit=90, window="month", idempotency_key="b1")
    use_sms(services.set_budget, holder, budget="b", limit=10, window="month", starts_at=INSTANT, idempotency_key="b2")
    move, spend = make_race_schema(broken).race(
        partial(services.set_clock, holder_id=holder, now=moved_to, idempotency_key="move"),
        partial(use_sms, services.spend, holder, amount=50, idempotency_key="spend"),
    )
    assert isinstance(move, Entry)
    assert isinstance(spend, BudgetExceeded if is_refused else Entry)
    [budget] = reads.budgets(holder, "sms")
    assert budget.settings.limit == (90 if moved_to == BEFORE else 10)
    assert sum(use.used for use in budget.usage) == (0 if is_refused else 50)


@pytest.mark.parametrize(
    ("broken", "constrained", "now", "is_refused"),
    [(None, True, BEFORE, False), (None, True, INSTANT, True), (NO_LOCK, True, INSTANT, True), (NO_LOCK, False, INSTANT, False)],
    ids=[
        "just before",
        "at the instant",
        "at the instant without the lock, by the numbers of the entries",
        "control: at the instant without the lock and the constraints",
    ],
)
def test_a_spend_that_meets_the_setting_of_a_budget_for_an_instant_is_refused_from_the_instant_on(
    make_race_schema: MakeRaceSchema,
    new_holder: Callable[[], str],
    broken: str | None,
    constrained: bool,
    now: datetime,
    is_refused: bool,
) -> None:
    holder = holder_at(new_holder, now)
    schema = make_race_schema(broken, constrained=constrained)
    use_sms(services.grant, holder, amount=100, idempotency_key="grant")
    setting, spend = schema.race(
        partial(
            use_sms, services.set_budget, holder, budget="b", limit=10, window="month", starts_at=INSTANT, idempotency_key="b"
        ),
        partial(use_sms, services.spend, holder, amount=50, idempotency_key="spend"),
    )
    assert isinstance(setting, Entry)
    assert isinstance(spend, BudgetExceeded if is_refused else Entry)
    assert schema.sum_of_amounts(holder) == (100 if is_refused else 50)
