"""Overdrafts: spends below zero down to a limit; later grants repay first."""

import pytest

from ledger import selectors, services
from ledger.errors import InsufficientCredits

pytestmark = pytest.mark.django_db


def test_spends_go_below_zero_down_to_the_limit():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    assert services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o", reason="trusted").overdraft == 50
    entry = services.spend(holder_id="ada", amount=60, idempotency_key="s")
    assert (entry.balance, entry.drawn, entry.lots) == (-50, ((1, 10),), ())
    with pytest.raises(InsufficientCredits) as refused:
        services.spend(holder_id="ada", amount=1, idempotency_key="s2")
    assert (refused.value.facts["available"], refused.value.facts["balance"]) == (0, -50)
    assert selectors.balance("ada").sequence == 3


def test_later_grants_repay_first():
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    services.spend(holder_id="ada", amount=40, idempotency_key="s")
    assert services.grant(holder_id="ada", amount=100, idempotency_key="g").balance == 60
    balance = selectors.balance("ada")
    assert (balance.available, balance.balance, [(lot.grant, lot.remaining) for lot in balance.lots]) == (110, 60, [(3, 60)])
    assert [(each.kind, each.amount, each.drawn) for each in selectors.entries("ada", limit=1)] == [("adjust", 0, ((3, 40),))]


def test_holds_and_transfers_never_draw_on_an_overdraft():
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    with pytest.raises(InsufficientCredits):
        services.hold(holder_id="ada", amount=1, idempotency_key="h")
    with pytest.raises(InsufficientCredits):
        services.transfer(holder_id="ada", to="bob", amount=1, idempotency_key="t")
    assert selectors.balance("ada").sequence == 1


def test_a_refund_lowers_what_is_owed_and_beyond_that_becomes_a_lot():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.set_overdraft(holder_id="ada", limit=50, idempotency_key="o")
    services.spend(holder_id="ada", amount=40, idempotency_key="s")
    services.grant(holder_id="ada", amount=20, idempotency_key="g2")
    assert selectors.balance("ada").balance == -10
    entry = services.refund(holder_id="ada", spend=3, amount=25, idempotency_key="r")
    assert (entry.balance, entry.drawn) == (15, ((6, 15),))
    rest = services.refund(holder_id="ada", spend=3, idempotency_key="r2")
    assert (rest.amount, rest.balance, rest.drawn) == (15, 30, ((7, 5), (1, 10)))
