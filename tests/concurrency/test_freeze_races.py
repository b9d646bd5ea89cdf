"""A freeze and a spend at the same time, in two accounts of one holder: the holder's lock alone keeps them apart.

In one account the constraints would do it too: the spend finds its number taken, and decides again.
"""

from collections.abc import Callable
from functools import partial

import pytest

from ledger import reads, services
from ledger.errors import HolderFrozen
from ledger.rules.entries import Entry
from tests.concurrency.race_harness import NO_LOCK, RaceSchema

MakeRaceSchema = Callable[..., RaceSchema]


@pytest.mark.parametrize(
    ("broken", "credit_type", "is_refused"),
    [(None, "sms", True), (None, "credits", True), (NO_LOCK, "credits", True), (NO_LOCK, "sms", False)],
    ids=["another account", "the same account", "the same without the lock", "control: another account without the lock"],
)
def test_a_spend_that_meets_a_freeze_is_refused(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None, credit_type: str, is_refused: bool
) -> None:
    schema, holder = make_race_schema(broken), new_holder()
    for each in ("credits", "sms"):
        services.grant(holder_id=holder, credit_type=each, amount=10, idempotency_key=f"grant-{each}")
    freeze, spend = schema.race(
        partial(services.freeze, holder_id=holder, frozen=True, idempotency_key="freeze"),
        partial(services.spend, holder_id=holder, credit_type=credit_type, amount=1, idempotency_key="spend"),
    )
    assert isinstance(freeze, Entry)
    assert isinstance(spend, HolderFrozen) is is_refused
    assert reads.balance(holder, credit_type).balance == (10 if is_refused else 9)
    if not is_refused:
        assert spend.recorded_us > freeze.recorded_us, "spent after the freeze, which is what the audit finds"


@pytest.mark.parametrize("broken", [None, NO_LOCK], ids=["with the lock", "without the lock, by the index of changes"])
def test_two_freezes_in_two_accounts_get_two_numbers(
    make_race_schema: MakeRaceSchema, new_holder: Callable[[], str], broken: str | None
) -> None:
    schema, holder = make_race_schema(broken), new_holder()
    for each in ("credits", "sms"):
        services.grant(holder_id=holder, credit_type=each, amount=10, idempotency_key=f"grant-{each}")
    made = schema.race(
        partial(services.freeze, holder_id=holder, frozen=True, idempotency_key="a"),
        partial(services.freeze, holder_id=holder, credit_type="sms", frozen=False, idempotency_key="b"),
    )
    assert [each.counterpart and each.counterpart["change"] for each in made] == [1, 2]
    assert not reads.freeze(holder).frozen
