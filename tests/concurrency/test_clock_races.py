"""A test clock moves and a lot is spent at the same time, in two accounts of one holder: the holder's lock alone orders them.

In one account the constraints would do it too: the spend finds its number taken, and decides again.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ledger import reads, services
from ledger.errors import InsufficientCredits
from ledger.rules.entries import Entry
from tests.concurrency.race_harness import NO_LOCK, RaceSchema

MakeRaceSchema = Callable[..., RaceSchema]

START = datetime(2040, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}


@pytest.fixture
def holder(new_holder: Callable[[], str]) -> str:
    """A holder whose credits of two types expire a day after its clock's time."""
    name = new_holder()
    services.set_clock(holder_id=name, now=datetime(2035, 3, 1, tzinfo=UTC), idempotency_key="first")
    services.set_clock(holder_id=name, now=START, idempotency_key="start")
    for each in ("credits", "sms"):
        services.grant(holder_id=name, credit_type=each, amount=10, expires_at=START + DAY, idempotency_key=f"grant-{each}")
    return name


@pytest.mark.parametrize(
    ("broken", "credit_type", "is_refused"),
    [(None, "sms", True), (None, "credits", True), (NO_LOCK, "credits", True), (NO_LOCK, "sms", False)],
    ids=["another account", "the same account", "the same without the lock", "control: another account without the lock"],
)
def test_a_spend_that_meets_the_move_of_a_clock_is_decided_at_the_clocks_new_time(
    make_race_schema: MakeRaceSchema, holder: str, broken: str | None, credit_type: str, is_refused: bool
) -> None:
    schema = make_race_schema(broken)
    move, spend = schema.race(
        partial(services.set_clock, holder_id=holder, now=START + DAY, idempotency_key="move"),
        partial(services.spend, holder_id=holder, credit_type=credit_type, amount=1, idempotency_key="spend"),
    )
    assert isinstance(move, Entry)
    assert isinstance(spend, InsufficientCredits) is is_refused
    assert reads.balance(holder, credit_type).balance == (10 if is_refused else 9)
    if not is_refused:
        assert spend.recorded_us > move.recorded_us, "an expired lot was spent after the move, which is what the audit finds"
        assert spend.effective_at == START


@pytest.mark.parametrize("broken", [None, NO_LOCK], ids=["with the lock", "without the lock, by the index of moves"])
def test_two_moves_in_two_accounts_get_two_numbers(make_race_schema: MakeRaceSchema, holder: str, broken: str | None) -> None:
    schema = make_race_schema(broken)
    made = schema.race(
        partial(services.set_clock, holder_id=holder, now=START + DAY, idempotency_key="a"),
        partial(services.set_clock, holder_id=holder, credit_type="sms", now=START + 2 * DAY, idempotency_key="b"),
    )
    assert [each.counterpart and each.counterpart["tick"] for each in made] == [3, 4]
    assert reads.clock(holder).now == START + 2 * DAY
