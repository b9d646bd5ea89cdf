"""Two reversals of one transfer at the same time: one takes the credits back, the other finds nothing left."""

from collections.abc import Callable
from functools import partial

import pytest

from ledger import services
from ledger.errors import ReversalExceedsTransfer
from ledger.rules.entries import Entry
from tests.concurrency.race_harness import NO_LOCK, RaceSchema


@pytest.mark.parametrize(
    ("broken", "constrained"),
    [(None, True), (None, False), (NO_LOCK, True), (NO_LOCK, False)],
    ids=["as it is", "the lock alone", "the constraints alone", "control: neither"],
)
def test_credits_go_back_once(
    make_race_schema: Callable[..., RaceSchema], new_holder: Callable[[], str], broken: str | None, constrained: bool
) -> None:
    schema = make_race_schema(broken, constrained=constrained)
    ada, bob = new_holder(), new_holder()
    services.grant(holder_id=ada, amount=10, idempotency_key="g")
    services.transfer(holder_id=ada, to=bob, amount=10, idempotency_key="t")
    reverse = partial(services.reverse, holder_id=ada, to=bob, transfer=2)
    first, second = schema.race(partial(reverse, idempotency_key="a"), partial(reverse, idempotency_key="b"))
    assert isinstance(first, Entry)
    if broken and not constrained:
        assert isinstance(second, Entry)
        assert schema.sum_of_amounts(bob) == -10
        return
    assert isinstance(second, ReversalExceedsTransfer)
    assert (schema.sum_of_amounts(ada), schema.sum_of_amounts(bob)) == (10, 0)
