"""A void of all lots beside another void, or a spend: no credit leaves twice."""

from collections.abc import Callable
from functools import partial

import pytest

from ledger import reads, services
from ledger.errors import InsufficientCredits, NothingToVoid
from ledger.rules.entries import Entry
from tests.concurrency.race_harness import NO_LOCK, RaceSchema

WAYS = pytest.mark.parametrize(
    ("broken", "constrained"),
    [(None, True), (None, False), (NO_LOCK, True), (NO_LOCK, False)],
    ids=["as it is", "the lock alone", "the constraints alone", "control: neither"],
)
MakeRaceSchema = Callable[..., RaceSchema]


def with_two_lots(holder: str) -> str:
    """Give the holder 10 credits in two lots."""
    for number in range(2):
        services.grant(holder_id=holder, amount=5, priority=number, idempotency_key=f"g{number}")
    return holder


@WAYS
def test_of_two_voids_one_finds_nothing(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None, constrained: bool
) -> None:
    schema, holder = make_race_schema(broken, constrained=constrained), new_holder()
    with_two_lots(holder)
    void = partial(services.void, holder_id=holder)
    first, second = schema.race(partial(void, idempotency_key="a"), partial(void, idempotency_key="b"))
    assert (first.amount, first.drawn) == (-10, ((1, 5), (2, 5)))
    assert isinstance(second, Entry if broken and not constrained else NothingToVoid)
    if isinstance(second, Entry):
        assert (second.sequence, second.amount) == (first.sequence, -10), "the same credits left twice"


@WAYS
def test_a_spend_that_meets_a_void_finds_nothing(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None, constrained: bool
) -> None:
    schema, holder = make_race_schema(broken, constrained=constrained), new_holder()
    with_two_lots(holder)
    _, spend = schema.race(
        partial(services.void, holder_id=holder, idempotency_key="a"),
        partial(services.spend, holder_id=holder, amount=1, idempotency_key="b"),
    )
    assert isinstance(spend, Entry if broken and not constrained else InsufficientCredits)
    if not isinstance(spend, Entry):
        assert reads.balance(holder).balance == 0
