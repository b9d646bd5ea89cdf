"""Other terms for a lot while its credits are spent, or given other terms: nothing of the lot is there twice."""

from collections.abc import Callable
from functools import partial

import pytest

from ledger import reads, services
from ledger.errors import LotClosed
from ledger.rules.entries import Entry
from tests.concurrency.race_harness import NO_LOCK, RaceSchema


@pytest.mark.parametrize(
    ("broken", "constrained"),
    [(None, True), (None, False), (NO_LOCK, True), (NO_LOCK, False)],
    ids=["as it is", "the lock alone", "the constraints alone", "control: neither"],
)
def test_a_lot_gets_other_terms_once(
    make_race_schema: Callable[..., RaceSchema], new_holder: Callable[[], str], broken: str | None, constrained: bool
) -> None:
    schema, holder = make_race_schema(broken, constrained=constrained), new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    reissue = partial(services.reissue, holder_id=holder, lot=1)
    first, second = schema.race(
        partial(reissue, priority=1, idempotency_key="a"), partial(reissue, priority=2, idempotency_key="b")
    )
    assert isinstance(first, Entry)
    assert isinstance(second, Entry if broken and not constrained else LotClosed)


def test_a_spend_that_meets_other_terms_takes_from_the_new_lot(
    make_race_schema: Callable[..., RaceSchema], new_holder: Callable[[], str]
) -> None:
    schema, holder = make_race_schema(None), new_holder()
    services.grant(holder_id=holder, amount=10, idempotency_key="g")
    _, spend = schema.race(
        partial(services.reissue, holder_id=holder, lot=1, priority=1, idempotency_key="a"),
        partial(services.spend, holder_id=holder, amount=4, idempotency_key="b"),
    )
    assert spend.drawn == ((2, 4),)
    assert reads.balance(holder).balance == 6
