"""The limits by the services: they pass, so a request that they refuse leaves nothing, and its key may succeed later."""

import pytest

from ledger import reads, services
from ledger.errors import RECORDED, REFUSALS, HoldLimit, LotLimit
from ledger.rules.lots import MAX_OPEN_LOTS
from ledger.rules.requests import GrantRequest
from ledger.values import MAX_AMOUNT

pytestmark = pytest.mark.django_db


@pytest.mark.slow
@pytest.mark.check
def test_the_501st_open_lot_is_refused_and_nothing_is_written():
    for number in range(500):
        services.grant(holder_id="ada", amount=MAX_AMOUNT, idempotency_key=f"g{number}")
    with pytest.raises(LotLimit) as refused:
        services.grant(holder_id="ada", amount=1, idempotency_key="one more")
    assert refused.value.facts == {"open_lots": 500, "limit": 500}
    found = reads.balance("ada")
    # The largest possible balance of own lots.
    assert (found.sequence, found.balance) == (500, MAX_OPEN_LOTS * MAX_AMOUNT)
    assert reads.refusals("ada") == []
    services.spend(holder_id="ada", amount=MAX_AMOUNT, idempotency_key="room")
    granted = services.grant(holder_id="ada", amount=1, idempotency_key="one more")
    assert (granted.sequence, granted.replayed) == (502, False)


def test_a_hold_beyond_the_limit_leaves_nothing_and_its_key_succeeds_when_there_is_room(monkeypatch):
    monkeypatch.setattr("ledger.rules.decisions.hold_rules.MAX_HOLD_PARTS", 2)
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    holds = [services.hold(holder_id="ada", amount=1, idempotency_key=f"h{number}") for number in range(2)]
    for dry_run in (True, False):
        with pytest.raises(HoldLimit) as refused:
            services.hold(holder_id="ada", amount=1, idempotency_key="h", dry_run=dry_run)
    assert refused.value.facts == {"held_lots": 2, "limit": 2}
    assert (reads.balance("ada").sequence, reads.refusals("ada")) == (3, [])
    services.release(holder_id="ada", hold=holds[0].sequence, idempotency_key="r")
    assert not services.hold(holder_id="ada", amount=1, idempotency_key="h").replayed


@pytest.mark.parametrize("mode", ["each", "atomic"])
def test_an_operation_of_a_batch_that_a_limit_refuses_may_succeed_later_by_its_own_key(monkeypatch, mode):
    monkeypatch.setattr("ledger.rules.decisions.credit_rules.MAX_OPEN_LOTS", 1)
    requests = [GrantRequest(holder_id="ada", amount=number, idempotency_key=f"g{number}") for number in (1, 2)]
    for replayed in (False, True):
        result = services.batch(requests, mode=mode, idempotency_key="b")
        assert [getattr(outcome.error, "code", None) for outcome in result.outcomes] == [None, "lot-limit"]
        assert result.replayed == replayed
    assert reads.refusals("ada") == []
    monkeypatch.setattr("ledger.rules.decisions.credit_rules.MAX_OPEN_LOTS", 2)
    assert not services.grant(holder_id="ada", amount=2, idempotency_key="g2").replayed


def test_each_refusal_is_recorded_or_is_a_limit_that_passes():
    passing = {
        "lot-limit",
        "balance-limit",
        "hold-limit",
        "budget-limit",
        "recurring-grant-due",
        "recurring-grant-limit",
        "test-clocks-off",
        "test-clocks-differ",
        "unknown-rate",
    }
    assert {code for code, refusal in REFUSALS.items() if refusal.passes} == passing
    assert set(RECORDED) == REFUSALS.keys() - passing
