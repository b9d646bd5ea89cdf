"""A reversal takes back what the other holder still has of a transfer, and gives it back to the lots that it came from."""

from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import EntryNotFound, Invalid, NotReversible, ReversalExceedsTransfer
from ledger.rules.entries import Entry

pytestmark = pytest.mark.django_db


@pytest.fixture
def sent() -> Entry:
    """A transfer of 25 of ada's credits to bob: 20 of lot 2, promotional and with an expiry, and 5 of lot 1."""
    services.grant(holder_id="ada", amount=100, idempotency_key="1")
    soon = timezone.now() + timedelta(days=3)
    services.grant(holder_id="ada", amount=20, source="promotional", expires_at=soon, priority=50, idempotency_key="2")
    return services.transfer(holder_id="ada", to="bob", amount=25, idempotency_key="t")


def reverse(sent: Entry, key: str, **more: object) -> Entry:
    """Reverse the transfer."""
    return services.reverse(  # type: ignore[misc]
        **{"holder_id": "ada", "to": "bob", "transfer": sent.sequence, "idempotency_key": key, "actor": "key:x", **more}
    )


def assert_clean() -> None:
    """Assert that nobody breaks a law of the audit."""
    for holder in ("ada", "bob", "cy"):
        assert audit([connection.connection], holder_id=holder).findings == []


def test_all_of_it_goes_back_to_its_lots_under_their_terms(sent):
    before = reads.balance("ada").lots
    back = reverse(sent, "r")
    assert (back.kind, back.amount, back.balance, back.refers_to, back.drawn) == ("transfer_in", 20, 120, 3, ((2, 20),))
    assert back.counterpart == {"holder_id": "bob", "sequence": 4, "grant": 1}
    assert [(each.kind, each.amount, each.refers_to, each.idempotency_key) for each in reads.entries("bob")][:2] == [
        ("transfer_out", -20, 1, None), ("transfer_out", -5, 2, None),
    ]  # fmt: skip
    assert (reads.balance("ada").balance, reads.balance("bob").balance) == (120, 0)
    assert [(lot.grant, lot.remaining) for lot in reads.balance("ada").lots] == [(2, 20), (1, 100)]
    assert before[0].grant == 1
    assert reverse(sent, "r").replayed
    explained = reads.explanation("ada", "credits", back.sequence)
    assert explained is not None
    assert explained["text"] == "The reversal of transfer 3 took 20 credits back from bob."
    assert explained["refers_to"]["text"] == "The transfer moved 25 credits."
    other = reads.explanation("bob", "credits", 4)
    assert other is not None
    assert (other["text"], other["lots"][0]["decision"]) == (
        "ada reversed the transfer: 20 credits of entry 1 went back.",
        "reversed",
    )
    assert_clean()


def test_parts_go_back_until_nothing_is_left_whatever_else_the_other_holder_has(sent):
    services.grant(holder_id="bob", amount=1_000, idempotency_key="own")
    assert reverse(sent, "r1", amount=3).drawn == ((1, 3),)
    assert reverse(sent, "r2", amount=7).drawn == ((2, 5),)
    with pytest.raises(ReversalExceedsTransfer) as refused:
        reverse(sent, "r3", amount=16)
    assert refused.value.facts == {"sequence": 3, "reversible": 15, "requested": 16}
    assert reverse(sent, "r4").amount == 15
    with pytest.raises(ReversalExceedsTransfer) as refused:
        reverse(sent, "r5")
    assert refused.value.facts == {"sequence": 3, "reversible": 0, "requested": None}
    assert (reads.balance("ada").balance, reads.balance("bob").balance) == (120, 1_000)
    assert [each.code for each in reads.refusals("ada")] == ["reversal-exceeds-transfer"] * 2
    assert reads.refusals("bob") == []
    assert_clean()


def test_what_was_spent_is_held_or_went_further_does_not_go_back(sent):
    services.spend(holder_id="bob", amount=4, idempotency_key="s")
    services.hold(holder_id="bob", amount=5, idempotency_key="h")
    services.transfer(holder_id="bob", to="cy", amount=6, idempotency_key="t")
    assert reverse(sent, "r").balance == 95 + 10
    assert reads.balance("bob").balance == 0
    # cy's part goes back to bob, and from there on to ada.
    further = services.reverse(holder_id="bob", to="cy", transfer=5, idempotency_key="r")
    assert (further.amount, further.drawn) == (6, ((1, 6),))
    assert reverse(sent, "r2").amount == 6
    assert_clean()


def test_receipts_that_share_a_lot_go_back_as_far_as_the_lot_has_credits():
    for holder in ("ada", "cy"):
        services.grant(holder_id=holder, amount=10, idempotency_key="g")
    sent = services.transfer(holder_id="ada", to="bob", amount=10, idempotency_key="t")
    services.transfer(holder_id="cy", to="bob", amount=10, idempotency_key="t")
    services.spend(holder_id="bob", amount=15, idempotency_key="s")
    assert reverse(sent, "r").amount == 5
    assert_clean()


def test_neither_a_freeze_nor_refused_transfers_stop_it_and_a_debt_is_repaid(sent):
    services.set_overdraft(holder_id="ada", limit=500, idempotency_key="o")
    services.spend(holder_id="ada", amount=100, idempotency_key="s")
    for holder in ("ada", "bob"):
        services.freeze(holder_id=holder, frozen=True, idempotency_key="f")
        services.set_incoming_transfers(holder_id=holder, accepted=False, idempotency_key="i")
    reverse(sent, "r")
    assert (reads.balance("ada").balance, reads.balance("ada").owed, reads.balance("bob").balance) == (20, 0, 0)
    assert_clean()


@pytest.mark.parametrize(("transfer", "error"), [(99, EntryNotFound), (1, NotReversible), (5, NotReversible)])
def test_only_a_transfer_can_be_reversed_and_a_refusal_changes_neither_side(sent, transfer, error):
    reverse(sent, "r", amount=1)
    services.reverse(holder_id="ada", to="bob", transfer=3, amount=1, idempotency_key="again")
    before = (reads.balance("ada").balance, reads.balance("bob").sequence)
    with pytest.raises(error):
        reverse(sent, "wrong", transfer=transfer)
    assert (reads.balance("ada").balance, reads.balance("bob").sequence) == before
    assert_clean()


@pytest.mark.parametrize("to", ["ada", "cy"])
def test_another_holder_than_the_one_who_got_it_is_invalid_and_nothing_is_recorded(sent, to):
    before = reads.balance("ada").sequence
    with pytest.raises(Invalid) as invalid:
        reverse(sent, "r", to=to)
    assert invalid.value.facts["pointer"] == "/to"
    assert reads.balance("ada").sequence == before
    assert reverse(sent, "dry", dry_run=True).amount == 20
    assert reads.balance("ada").sequence == before
