"""Overdrafts: spends below zero down to a limit; later grants repay first."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import InsufficientCredits
from ledger.services import earlier_entries

pytestmark = pytest.mark.django_db


def test_spends_go_below_zero_down_to_the_limit():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    assert services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o", reason="trusted").overdraft == 50
    entry = services.spend(holder_id="ada", amount=60, idempotency_key="s")
    assert (entry.balance, entry.drawn, entry.lots) == (-50, ((1, 10),), ())
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=1, idempotency_key="s2")
    assert (refused.value.facts["available"], refused.value.facts["balance"]) == (0, -50)
    assert [each.sequence for each in reads.entries("ada")] == [3, 2, 1]


def test_later_grants_repay_first():
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    services.spend(holder_id="ada", amount=40, idempotency_key="s")
    assert services.grant(holder_id="ada", amount=100, idempotency_key="g").balance == 60
    balance = reads.balance("ada")
    assert (balance.available, balance.balance, [(lot.grant, lot.remaining) for lot in balance.lots]) == (110, 60, [(3, 60)])
    assert [(each.kind, each.amount, each.drawn) for each in reads.entries("ada", limit=1)] == [("adjust", 0, ((3, 40),))]


def test_holds_and_transfers_never_draw_on_an_overdraft():
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    with pytest.raises(InsufficientCredits):
        services.hold(holder_id="ada", amount=1, idempotency_key="h")
    with pytest.raises(InsufficientCredits):
        services.transfer(holder_id="ada", to="bob", amount=1, idempotency_key="t")
    assert [each.sequence for each in reads.entries("ada")] == [1]


def test_a_refund_lowers_what_is_owed_and_beyond_that_goes_back_to_the_lots_that_repaid_it():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    services.spend(holder_id="ada", amount=40, idempotency_key="s")
    services.grant(holder_id="ada", amount=20, idempotency_key="g2")
    assert reads.balance("ada").balance == -10
    entry = services.refund(holder_id="ada", spend=3, amount=25, idempotency_key="r")
    assert (entry.balance, entry.drawn) == (15, ((4, 15),))
    rest = services.refund(holder_id="ada", spend=3, idempotency_key="r2")
    assert (rest.amount, rest.balance, rest.drawn) == (15, 30, ((4, 5), (1, 10)))


def test_promotional_credits_are_not_laundered_through_an_overdraft():
    expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=9)
    services.set_overdraft(holder_id="ada", limit=10, idempotency_key="o")
    services.spend(holder_id="ada", amount=8, idempotency_key="s")
    services.grant(
        holder_id="ada", amount=8, idempotency_key="g", source="promotional", expires_at=expires_at, priority=7
    )  # entry 3, and its repayment
    assert services.refund(holder_id="ada", spend=2, idempotency_key="r").drawn == ((3, 8),)
    [lot] = reads.balance("ada").lots
    assert (lot.grant, lot.remaining, lot.source, lot.expires_at, lot.priority) == (3, 8, "promotional", expires_at, 7)
    assert services.revoke(holder_id="ada", grant=3, idempotency_key="v").balance == 0


def test_a_refund_finds_what_repaid_its_debt_however_much_came_between(monkeypatch):
    monkeypatch.setattr(earlier_entries, "REPAYMENTS_AT_ONCE", 2)
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    services.spend(holder_id="ada", amount=5, idempotency_key="older")
    services.spend(holder_id="ada", amount=6, idempotency_key="s")
    for number in range(6):  # entries 4, 6, 8 … and a repayment behind each
        services.grant(holder_id="ada", amount=2, idempotency_key=f"g{number}")
    services.spend(holder_id="ada", amount=1, idempotency_key="s2")
    # The older one is repaid by 4, 6 and half of 8; this one by the other half of 8, 10, 12 and half of 14.
    assert services.refund(holder_id="ada", spend=3, idempotency_key="r").drawn == ((14, 1), (12, 2), (10, 2), (8, 1))
    assert audit([connection.connection], holder_id="ada").findings == []
