"""A holder can refuse transfers from others: a setting of the account, on record as an entry."""

import pytest
from django.db import connection

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import InsufficientCredits, TransfersRefused
from ledger.rules.entries import Entry
from ledger.rules.requests import GrantRequest, IncomingTransfersRequest, TransferRequest

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _two_holders() -> None:
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.grant(holder_id="shop", amount=5, idempotency_key="g")


def set_incoming(accepted: bool, key: str, **more: object) -> Entry:
    """Let the shop accept or refuse transfers."""
    return services.set_incoming_transfers(
        holder_id="shop", accepted=accepted, idempotency_key=key, actor="key:x", reason="why", **more
    )  # type: ignore[misc]


def send(key: str, amount: int = 10) -> Entry:
    """Transfer credits of ada to the shop."""
    return services.transfer(holder_id="ada", to="shop", amount=amount, idempotency_key=key)


def assert_clean() -> None:
    """Assert that neither account breaks a law of the audit."""
    for holder in ("ada", "shop"):
        assert audit([connection.connection], holder_id=holder).findings == []


def test_an_account_accepts_transfers_until_it_refuses_them_and_after_it_accepts_them_again():
    assert send("t1").amount == -10
    entry = set_incoming(False, "off")
    assert (entry.kind, entry.amount, entry.balance, entry.accepts_transfers, entry.actor, entry.reason) == (
        "adjust", 0, 15, False, "key:x", "why",
    )  # fmt: skip
    with pytest.raises(TransfersRefused) as refused:
        send("t2")
    assert refused.value.facts == {"to": "shop"}
    assert (reads.balance("ada").balance, reads.balance("shop").sequence) == (90, entry.sequence)
    [recorded] = reads.refusals("ada")
    assert (recorded.code, recorded.facts, reads.refusals("shop")) == ("transfers-refused", {"to": "shop"}, [])

    # Its own grants, spends and transfers go on.
    services.grant(holder_id="shop", amount=1, idempotency_key="own")
    services.transfer(holder_id="shop", to="ada", amount=1, idempotency_key="out")
    set_incoming(True, "on")
    assert send("t3").amount == -10
    # The refused request stays refused under its key, as every refusal that is no limit.
    with pytest.raises(TransfersRefused):
        send("t2")
    assert_clean()


def test_it_is_read_with_the_entry_that_said_so():
    assert reads.incoming_transfers("shop") == ("shop", "credits", True, None, None)
    entry = set_incoming(False, "off")
    assert reads.incoming_transfers("shop") == ("shop", "credits", False, entry.sequence, entry.recorded_at)
    assert reads.incoming_transfers("shop", "sms").accepted
    on = set_incoming(True, "on")
    assert reads.incoming_transfers("shop") == ("shop", "credits", True, on.sequence, on.recorded_at)
    assert set_incoming(True, "on").replayed
    explained = reads.explanation("shop", "credits", entry.sequence)
    assert explained is not None
    assert explained["text"] == "The account refuses transfers from others from now on."


def test_a_dry_run_changes_nothing_and_a_refusal_tells_a_sender_without_credits_nothing_of_the_other():
    assert set_incoming(False, "dry", dry_run=True).accepts_transfers is False
    assert send("t1").amount == -10
    set_incoming(False, "off")
    with pytest.raises(InsufficientCredits):
        send("t2", amount=1_000)


def test_requests_of_one_batch_see_what_those_before_them_set():
    requests = [
        TransferRequest(holder_id="ada", to="shop", amount=1, idempotency_key="b1"),
        IncomingTransfersRequest(holder_id="shop", accepted=False, idempotency_key="b2"),
        TransferRequest(holder_id="ada", to="shop", amount=1, idempotency_key="b3"),
        GrantRequest(holder_id="shop", amount=1, idempotency_key="b4"),
        IncomingTransfersRequest(holder_id="shop", accepted=True, idempotency_key="b5"),
        TransferRequest(holder_id="ada", to="shop", amount=1, idempotency_key="b6"),
    ]
    outcomes = services.batch(requests, mode="each", idempotency_key="b").outcomes
    assert [getattr(outcome.error, "code", None) for outcome in outcomes] == [None, None, "transfers-refused", None, None, None]
    assert_clean()


@pytest.mark.parametrize("with_overdraft", [False, True])
def test_it_changes_nothing_else_of_the_account(with_overdraft):
    if with_overdraft:
        services.set_overdraft(holder_id="shop", limit=7, idempotency_key="o")
    before = reads.balance("shop")
    set_incoming(False, "off")
    after = reads.balance("shop")
    assert (after.available, after.balance, after.lots, after.overdraft) == (
        before.available, before.balance, before.lots, before.overdraft,
    )  # fmt: skip
    assert_clean()
