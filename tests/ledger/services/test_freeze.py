"""A frozen holder spends, holds and transfers nothing, in any credit type, until an operator ends the freeze."""

from collections.abc import Callable

import pytest
from django.db import connection

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import HolderFrozen
from ledger.rules.entries import Entry
from ledger.rules.requests import FreezeRequest, GrantRequest, SpendRequest

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _holders() -> None:
    for credit_type in ("credits", "sms"):
        services.grant(holder_id="ada", credit_type=credit_type, amount=100, idempotency_key=f"g-{credit_type}")
    services.grant(holder_id="bob", amount=100, idempotency_key="g")


def freeze(frozen: bool, key: str, **more: object) -> Entry:
    """Freeze ada, or end that."""
    return services.freeze(holder_id="ada", frozen=frozen, idempotency_key=key, actor="key:x", reason="why", **more)  # type: ignore[misc]


def assert_clean() -> None:
    """Assert that the holders break no law of the audit."""
    for holder in ("ada", "bob"):
        assert audit([connection.connection], holder_id=holder).findings == []


REFUSED: dict[str, Callable[[], Entry]] = {
    "a spend": lambda: services.spend(holder_id="ada", amount=1, idempotency_key="k"),
    "a spend of another type": lambda: services.spend(holder_id="ada", credit_type="sms", amount=1, idempotency_key="k"),
    "a hold": lambda: services.hold(holder_id="ada", amount=1, idempotency_key="k"),
    "a transfer": lambda: services.transfer(holder_id="ada", to="bob", amount=1, idempotency_key="k"),
    "a capture beyond the hold": lambda: services.capture(
        holder_id="ada", hold=2, amount=11, over_capture="if_available", idempotency_key="k"
    ),
}
WORKS: dict[str, Callable[[], Entry]] = {
    "a grant": lambda: services.grant(holder_id="ada", amount=1, idempotency_key="k"),
    "a refund": lambda: services.refund(holder_id="ada", spend=3, idempotency_key="k"),
    "a capture of what is held": lambda: services.capture(holder_id="ada", hold=2, amount=4, idempotency_key="k"),
    "a release": lambda: services.release(holder_id="ada", hold=2, idempotency_key="k"),
    "a revocation": lambda: services.revoke(holder_id="ada", grant=1, idempotency_key="k"),
    "a revocation of everything": lambda: services.void(holder_id="ada", idempotency_key="k"),
    "an overdraft": lambda: services.set_overdraft(holder_id="ada", limit=5, idempotency_key="k"),
}


@pytest.fixture
def _hold_and_spend() -> None:
    services.hold(holder_id="ada", amount=10, idempotency_key="h")
    services.spend(holder_id="ada", amount=5, idempotency_key="s")


@pytest.mark.usefixtures("_hold_and_spend")
@pytest.mark.parametrize("name", REFUSED)
def test_what_would_take_credits_out_is_refused_and_changes_nothing(name):
    entry = freeze(True, "freeze")
    assert (entry.kind, entry.amount, entry.freezes, entry.actor, entry.reason) == ("adjust", 0, True, "key:x", "why")
    before = [(each.available, each.balance, each.held) for each in reads.accounts("ada")]
    with pytest.raises(HolderFrozen) as refused:
        REFUSED[name]()
    assert refused.value.facts == {"holder_id": "ada"}
    assert [(each.available, each.balance, each.held) for each in reads.accounts("ada")] == before
    [recorded] = reads.refusals("ada")
    assert (recorded.code, recorded.facts) == ("holder-frozen", {"holder_id": "ada"})
    # The refusal stays under its key; a new key succeeds once the holder is no longer frozen.
    freeze(False, "thaw")
    with pytest.raises(HolderFrozen):
        REFUSED[name]()
    services.spend(holder_id="ada", credit_type="sms", amount=1, idempotency_key="after")
    assert_clean()


@pytest.mark.usefixtures("_hold_and_spend")
@pytest.mark.parametrize("name", WORKS)
def test_what_gives_credits_back_or_takes_them_away_works(name):
    freeze(True, "freeze")
    assert WORKS[name]().idempotency_key == "k"
    assert_clean()


@pytest.mark.parametrize("credit_type", ["credits", "minutes"])
def test_transfers_to_a_frozen_holder_are_refused_also_to_an_account_without_entries(credit_type):
    services.grant(holder_id="bob", credit_type="minutes", amount=5, idempotency_key="m")
    freeze(True, "freeze")
    with pytest.raises(HolderFrozen) as refused:
        services.transfer(holder_id="bob", to="ada", credit_type=credit_type, amount=1, idempotency_key="t")
    assert refused.value.facts == {"holder_id": "ada"}
    assert reads.balance("ada", credit_type).balance == (100 if credit_type == "credits" else 0)
    assert [each.code for each in reads.refusals("bob")] == ["holder-frozen"]
    freeze(False, "thaw")
    services.transfer(holder_id="bob", to="ada", credit_type=credit_type, amount=1, idempotency_key="t2")
    assert_clean()


def test_it_is_read_with_the_entry_that_said_so_and_explained():
    assert reads.freeze("ada") == ("ada", False, None, None, None)
    entry = freeze(True, "freeze", credit_type="sms")
    assert reads.freeze("ada") == ("ada", True, "sms", entry.sequence, entry.recorded_at)
    later = freeze(False, "thaw")
    assert reads.freeze("ada") == ("ada", False, "credits", later.sequence, later.recorded_at)
    assert freeze(False, "thaw").replayed
    texts = [
        explained["text"]
        for each in (entry, later)
        if (explained := reads.explanation("ada", each.credit_type, each.sequence)) is not None
    ]
    assert texts == ["The holder is frozen from now on.", "The holder is no longer frozen from now on."]
    # What it says of transfers is another setting.
    assert reads.incoming_transfers("ada").accepted
    services.set_incoming_transfers(holder_id="ada", accepted=False, idempotency_key="off")
    freeze(True, "again")
    assert not reads.incoming_transfers("ada").accepted
    assert_clean()


def test_a_dry_run_changes_nothing():
    assert freeze(True, "dry", dry_run=True).freezes is True
    assert not reads.freeze("ada").frozen
    assert services.spend(holder_id="ada", amount=1, idempotency_key="s").amount == -1


def test_requests_of_one_batch_see_what_those_before_them_set_in_every_account_of_the_holder():
    requests = [
        SpendRequest(holder_id="ada", credit_type="sms", amount=1, idempotency_key="b1"),
        FreezeRequest(holder_id="ada", frozen=True, idempotency_key="b2"),
        SpendRequest(holder_id="ada", credit_type="sms", amount=1, idempotency_key="b3"),
        GrantRequest(holder_id="ada", credit_type="sms", amount=1, idempotency_key="b4"),
        FreezeRequest(holder_id="ada", frozen=False, idempotency_key="b5"),
        SpendRequest(holder_id="ada", amount=1, idempotency_key="b6"),
    ]
    outcomes = services.batch(requests, mode="each", idempotency_key="b").outcomes
    assert [getattr(outcome.error, "code", None) for outcome in outcomes] == [None, None, "holder-frozen", None, None, None]
    assert_clean()
