"""Transfers between holders."""

from datetime import UTC, datetime, timedelta

import pytest

from ledger import reads, services
from ledger.errors import InsufficientCredits, Invalid, LotLimit

pytestmark = pytest.mark.django_db


def test_lots_keep_expiry_priority_and_source():
    expires_at = datetime.now(UTC) + timedelta(days=3)
    services.grant(holder_id="ada", amount=10, idempotency_key="g1", expires_at=expires_at, source="promotional")
    services.grant(holder_id="ada", amount=10, idempotency_key="g2", priority=7)
    out = services.transfer(holder_id="ada", to="bob", amount=15, idempotency_key="t", reason="team", actor="key:x")
    assert (out.kind, out.amount, out.balance, out.counterpart) == ("transfer_out", -15, 5, {"holder_id": "bob"})
    arrived = reads.balance("bob")
    assert [(lot.grant, lot.remaining, lot.expires_at, lot.priority, lot.source) for lot in arrived.lots] == [
        (1, 10, None, 7, "purchased"),
        (2, 5, expires_at, 100, "promotional"),
    ]
    first = reads.entry("bob", "credits", 1)
    assert first.counterpart == {"holder_id": "ada", "sequence": 3, "grant": 2}
    assert (first.actor, first.reason, first.idempotency_key) == ("key:x", "team", None)
    assert services.transfer(holder_id="ada", to="bob", amount=15, idempotency_key="t", reason="team").replayed
    assert reads.balance("bob").balance == 15


def test_a_transfer_of_more_than_there_is_writes_only_the_refusal():
    services.grant(holder_id="ada", amount=10, idempotency_key="g1")
    with pytest.raises(InsufficientCredits):
        services.transfer(holder_id="ada", to="bob", amount=11, idempotency_key="t")
    assert reads.balance("bob").sequence == 0
    assert [each.operation for each in reads.refusals("ada")] == ["transfer"]
    with pytest.raises(Invalid):
        services.transfer(holder_id="ada", to="ada", amount=1, idempotency_key="t2")
    assert reads.balance("ada").sequence == 2


def test_the_other_holder_must_have_room_for_the_lots(monkeypatch):
    services.grant(holder_id="ada", amount=10, idempotency_key="g1")
    services.grant(holder_id="ada", amount=10, idempotency_key="g2", priority=7)
    services.grant(holder_id="bob", amount=10, idempotency_key="g1")
    monkeypatch.setattr("ledger.rules.decisions.credit_rules.MAX_RECEIVED_LOTS", 1)
    services.transfer(holder_id="ada", to="bob", amount=1, idempotency_key="t1")
    for dry_run in (True, False):
        with pytest.raises(LotLimit) as refused:
            services.transfer(holder_id="ada", to="bob", amount=10, idempotency_key="t2", dry_run=dry_run)
    # It says how many lots others may open, and nothing of the receiver's own.
    assert refused.value.facts == {"open_lots": 1, "limit": 1}
    assert (reads.balance("ada").sequence, reads.balance("bob").sequence) == (3, 2)
    assert reads.refusals("ada") == reads.refusals("bob") == []
    services.transfer(holder_id="bob", to="cyd", amount=1, idempotency_key="t3")
    assert services.transfer(holder_id="ada", to="bob", amount=9, idempotency_key="t4").amount == -9
