"""Holds: set aside, captured, released, extended, expired."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import CaptureExceedsHold, HoldClosed, InsufficientCredits, Invalid, LotLimit, NotAHold
from ledger.rules.accounts import AccountState
from ledger.rules.decisions.credit_rules import grant
from ledger.rules.decisions.hold_rules import capture, hold, release
from ledger.rules.decisions.settlement import settle_due
from ledger.rules.requests import CaptureRequest, GrantRequest, HoldRequest, ReleaseRequest
from ledger.testing import FixedClock

pytestmark = pytest.mark.django_db


def state_of_ada():
    """Ada's available credits, balance, held credits and last sequence."""
    balance = reads.balance("ada")
    return balance.available, balance.balance, balance.held, balance.sequence


def test_a_hold_moves_credits_out_of_the_balance():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    entry = services.hold(holder_id="ada", amount=30, idempotency_key="h")
    assert (entry.kind, entry.amount, entry.balance, entry.held, entry.drawn) == ("hold", -30, 70, 30, ((1, 30),))
    assert state_of_ada() == (70, 70, 30, 2)


def test_a_capture_of_less_gives_the_rest_back():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=30, idempotency_key="h")
    entry = services.capture(holder_id="ada", hold=2, amount=20, idempotency_key="c")
    assert (entry.sequence, entry.kind, entry.amount, entry.balance, entry.held) == (4, "capture", 0, 80, 0)
    assert [(each.kind, each.amount) for each in reads.entries("ada")] == [
        ("capture", 0),
        ("release", 10),
        ("hold", -30),
        ("grant", 100),
    ]
    assert services.capture(holder_id="ada", hold=2, amount=20, idempotency_key="c").replayed


def test_a_hold_can_be_captured_several_times():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=30, idempotency_key="h")
    assert services.capture(holder_id="ada", hold=2, amount=5, final=False, idempotency_key="c1").held == 25
    assert services.capture(holder_id="ada", hold=2, amount=25, final=False, idempotency_key="c2").held == 0
    with pytest.raises(HoldClosed) as refused:
        services.capture(holder_id="ada", hold=2, amount=1, idempotency_key="c3")
    assert refused.value.facts == {"sequence": 2, "how": "captured", "closed_by": 4}
    assert state_of_ada() == (70, 70, 0, 5)


def test_more_than_is_held_is_refused_or_taken_from_the_balance():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=30, idempotency_key="h")
    with pytest.raises(CaptureExceedsHold) as refused:
        services.capture(holder_id="ada", hold=2, amount=31, idempotency_key="c1")
    assert refused.value.facts == {"sequence": 2, "held": 30, "requested": 31}
    with pytest.raises(InsufficientCredits):
        services.capture(holder_id="ada", hold=2, amount=101, over_capture="if_available", idempotency_key="c2")
    assert state_of_ada() == (70, 70, 30, 4)
    entry = services.capture(holder_id="ada", hold=2, amount=45, over_capture="if_available", idempotency_key="c3")
    assert (entry.amount, entry.balance, entry.held, entry.drawn) == (-15, 55, 0, ((1, 45),))
    refunded = services.refund(holder_id="ada", spend=entry.sequence, idempotency_key="r")
    assert (refunded.amount, refunded.balance) == (45, 100)


def test_a_released_hold_is_closed():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=30, idempotency_key="h")
    assert services.release(holder_id="ada", hold=2, idempotency_key="r").balance == 100
    with pytest.raises(HoldClosed) as refused:
        services.release(holder_id="ada", hold=2, idempotency_key="r2")
    assert refused.value.facts == {"sequence": 2, "how": "released", "closed_by": 3}
    with pytest.raises(NotAHold):
        services.release(holder_id="ada", hold=1, idempotency_key="r3")
    assert [refusal.code for refusal in reads.refusals("ada")] == ["not-a-hold", "hold-closed"]
    assert (reads.balance("ada").balance, reads.balance("ada").sequence) == (100, 5)


def test_a_hold_can_be_extended_but_not_beyond_31_days():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.hold(holder_id="ada", amount=30, idempotency_key="h")
    later = datetime.now(UTC) + timedelta(days=30)
    entry = services.extend(holder_id="ada", hold=2, expires_at=later, idempotency_key="e")
    assert (entry.kind, entry.amount, entry.refers_to, entry.hold.expires_us) == ("hold", 0, 2, entry.holds[0].expires_us)
    with pytest.raises(Invalid) as invalid:
        services.extend(holder_id="ada", hold=2, expires_at=later + timedelta(days=2), idempotency_key="e2")
    assert invalid.value.facts["pointer"] == "/expires_at"
    assert services.capture(holder_id="ada", hold=2, idempotency_key="c").held == 0


def test_lots_that_are_held_count_as_open_since_they_come_back(monkeypatch):
    monkeypatch.setattr("ledger.rules.decisions.credit_rules.MAX_OPEN_LOTS", 2)
    services.grant(holder_id="ada", amount=10, idempotency_key="g1")
    services.grant(holder_id="ada", amount=10, idempotency_key="g2")
    services.hold(holder_id="ada", amount=15, idempotency_key="h")
    with pytest.raises(LotLimit) as refused:
        services.grant(holder_id="ada", amount=10, idempotency_key="g3")
    assert refused.value.facts == {"open_lots": 2, "limit": 2}
    assert state_of_ada() == (5, 5, 15, 3)


DAY = 86_400_000_000
NOW = 20_000 * DAY


def time_at(us):
    """The time that is `us` microseconds after 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)


def account_with_hold(*, lot_expires_us, hold_expires_us):
    """An account with a lot of 100 and a hold of it, which expire at these times."""
    account = AccountState("ada", "credits", NOW)
    account = account.after_all(
        grant(account, GrantRequest(holder_id="ada", idempotency_key="g", amount=100, expires_at=time_at(lot_expires_us)))
    )
    entries = hold(account, HoldRequest(holder_id="ada", idempotency_key="h", amount=30, expires_at=time_at(hold_expires_us)))
    return account.after_all(entries), entries[-1]


def test_an_expired_hold_withholds_nothing_from_its_instant_on():
    account, _ = account_with_hold(lot_expires_us=NOW + 2 * DAY, hold_expires_us=NOW + DAY)
    assert account._replace(now_us=NOW + DAY - 1).available == 70
    account = account._replace(now_us=NOW + DAY)
    assert (account.available, account.balance, account.held) == (100, 70, 30)
    booked, settled = settle_due(account)
    assert [(each.kind, each.amount, each.effective_us, each.refers_to) for each in booked] == [("release", 30, NOW + DAY, 2)]
    assert settled.available == 100


def test_what_is_held_of_an_expired_lot_does_not_come_back_to_life_by_a_refund():
    now = datetime.now(UTC)
    with FixedClock(now - timedelta(days=2)):
        services.grant(holder_id="ada", amount=10, idempotency_key="g", expires_at=now - timedelta(days=1))
        services.hold(holder_id="ada", amount=9, idempotency_key="h", expires_at=now + timedelta(days=1))
        services.spend(holder_id="ada", amount=1, idempotency_key="s")
    refund = services.refund(holder_id="ada", spend=3, idempotency_key="r")
    assert (refund.drawn, refund.refers_to) == (((4, 1),), 3)
    services.release(holder_id="ada", hold=2, idempotency_key="l")
    found = reads.balance("ada")
    assert (found.available, found.balance, found.held) == (1, 1, 0)
    assert [(lot.grant, lot.remaining) for lot in found.lots] == [(4, 1)]
    assert [(each.kind, each.amount) for each in reads.entries("ada", limit=2)] == [("expire", -9), ("release", 9)]
    assert audit([connection.connection], holder_id="ada").findings == []


def test_what_expires_while_held_can_be_captured_but_not_released_alive():
    account, hold_entry = account_with_hold(lot_expires_us=NOW + DAY, hold_expires_us=NOW + 2 * DAY)
    account = account._replace(now_us=NOW + DAY + 1)
    captured = capture(
        account,
        CaptureRequest(holder_id="ada", idempotency_key="c", hold=2, amount=20),
        hold_entry=hold_entry,
        last_closing=None,
    )
    assert [(each.kind, each.amount) for each in captured] == [
        ("expire", -70),
        ("release", 10),
        ("expire", -10),
        ("capture", 0),
    ]
    released = release(
        account, ReleaseRequest(holder_id="ada", idempotency_key="r", hold=2), hold_entry=hold_entry, last_closing=None
    )
    assert [(each.kind, each.amount) for each in released] == [("expire", -70), ("release", 30), ("expire", -30)]
