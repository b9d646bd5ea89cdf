"""The use-cases, against the database."""

import pytest

from ledger import reads, services
from ledger.errors import IdempotencyKeyReused, InsufficientCredits, RefundExceedsSpend

pytestmark = pytest.mark.django_db


def test_a_spend_takes_from_the_balance():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    entry = services.spend(holder_id="ada", amount=30, idempotency_key="s", reason="job 1", actor="key:test")
    assert (entry.sequence, entry.kind, entry.amount, entry.balance, entry.drawn) == (2, "spend", -30, 70, ((1, 30),))
    assert reads.entry("ada", "credits", 2) == entry
    assert reads.balance("ada").available == 70


def test_a_refusal_is_recorded_and_replayed_after_a_top_up():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    with pytest.raises(InsufficientCredits) as first:
        services.spend(holder_id="ada", amount=30, idempotency_key="s")
    effective_at = reads.balance("ada").lots[0].effective_at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    assert first.value.facts == {
        "available": 10,
        "balance": 10,
        "requested": 30,
        "shortfall": 20,
        "held": 0,
        "expired": 0,
        "not_yet_effective": 0,
        "lots": [{"grant": 1, "remaining": 10, "state": "spendable", "effective_at": effective_at, "expires_at": None}],
        "holds": [],
        "earliest_sufficient_at": None,
    }
    services.grant(holder_id="ada", amount=100, idempotency_key="g2")
    with pytest.raises(InsufficientCredits) as again:
        services.spend(holder_id="ada", amount=30, idempotency_key="s")
    assert again.value.replayed
    assert again.value.facts == first.value.facts
    assert reads.balance("ada").sequence == 3
    with pytest.raises(IdempotencyKeyReused):
        services.spend(holder_id="ada", amount=31, idempotency_key="s")
    assert reads.balance("ada").sequence == 3


def test_refunds_never_give_back_more_than_was_spent():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.grant(holder_id="ada", amount=10, idempotency_key="g2")
    services.spend(holder_id="ada", amount=15, idempotency_key="s")
    assert services.refund(holder_id="ada", spend=3, amount=7, idempotency_key="r1").drawn == ((2, 5), (1, 2))
    assert services.refund(holder_id="ada", spend=3, idempotency_key="r2").amount == 8
    with pytest.raises(RefundExceedsSpend) as refused:
        services.refund(holder_id="ada", spend=3, idempotency_key="r3")
    assert refused.value.facts == {"sequence": 3, "refundable": 0, "requested": None}
    assert [entry.kind for entry in reads.entries("ada")] == ["refund", "refund", "spend", "grant", "grant"]
    assert [b.holder_id for b in reads.holders(prefix="ad")] == ["ada"]
    assert [r.code for r in reads.refusals("ada")] == ["refund-exceeds-spend"]
