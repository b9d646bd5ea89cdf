"""Receipts of equal terms share a lot, and what others send takes no room from the holder's own grants."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import BalanceLimit, LotLimit
from ledger.rules.entries import Entry
from ledger.rules.lots import MAX_OPEN_LOTS, MAX_RECEIVED_LOTS
from ledger.rules.requests import GrantRequest, TransferRequest
from ledger.values import MAX_AMOUNT

pytestmark = pytest.mark.django_db

SOON = datetime.now(UTC) + timedelta(days=30)


def lots_of(holder: str) -> list[tuple[Any, ...]]:
    """The open lots: number, remaining, whether receipts share it."""
    return [(lot.grant, lot.remaining, lot.received) for lot in reads.balance(holder).lots]


def send(holder: str, to: str, amount: int, key: str) -> None:
    """Transfer credits."""
    services.transfer(holder_id=holder, to=to, amount=amount, idempotency_key=key)


def assert_clean(*holders: str) -> None:
    """Assert that the accounts break no law of the audit, which shares no code with the rules."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")  # as the audit's own sessions
    for holder in holders:
        assert audit([connection.connection], holder_id=holder).findings == []


def entry(holder: str, sequence: int) -> Entry:
    """An entry of the holder's credits."""
    found = reads.entry(holder, "credits", sequence)
    assert found is not None
    return found


def test_receipts_of_equal_terms_share_a_lot_and_each_says_where_its_credits_are():
    for payer in ("ada", "bob"):
        services.grant(holder_id=payer, amount=10, idempotency_key="g1")
        services.grant(holder_id=payer, amount=10, idempotency_key="g2", expires_at=SOON, source="promotional")
    services.grant(holder_id="shop", amount=5, idempotency_key="own")
    send("ada", "shop", 15, "t1")  # 10 that expire soon, and 5
    send("bob", "shop", 20, "t2")

    # The shop's own grant stays a lot of its own, which a revocation can take back as it was.
    assert lots_of("shop") == [(2, 20, True), (1, 5, False), (3, 15, True)]
    assert [entry("shop", number).drawn for number in range(1, 6)] == [(), (), (), ((2, 10),), ((3, 10),)]
    with connection.cursor() as cursor:
        cursor.execute("SELECT sequence, kind, granted_by, amount FROM ledger_drawn WHERE holder_id = 'shop' ORDER BY 1")
        assert cursor.fetchall() == [(4, "transfer_in", 2, 10), (5, "transfer_in", 3, 10)]
    assert services.revoke(holder_id="shop", grant=1, idempotency_key="r").amount == -5
    explained = reads.explanation("shop", "credits", 4)
    assert explained is not None
    assert explained["text"] == "bob transferred 10 credits, which joined lot 2 of the same terms."
    assert [(lot["grant"], lot["amount"], lot["decision"]) for lot in explained["lots"]] == [(2, 10, "joined")]
    assert_clean("ada", "bob", "shop")


def test_a_refund_gives_back_to_the_lot_that_receipts_share_now():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    send("ada", "shop", 10, "t1")
    spend = services.spend(holder_id="shop", amount=10, idempotency_key="s")
    send("ada", "shop", 7, "t2")
    # Lot 1 was used up, so the second receipt opened a lot; the refund joins it instead of opening lot 1 again.
    assert lots_of("shop") == [(3, 7, True)]
    refund = services.refund(holder_id="shop", spend=spend.sequence, amount=4, idempotency_key="r1")
    assert (refund.drawn, lots_of("shop")) == (((3, 4),), [(3, 11, True)])
    send("shop", "ada", 11, "t3")
    again = services.refund(holder_id="shop", spend=spend.sequence, idempotency_key="r2")
    assert (again.drawn, again.refunded_total, lots_of("shop")) == (((1, 6),), 10, [(1, 6, True)])
    assert_clean("ada", "shop")


def test_a_receipt_opens_the_held_lot_of_its_terms_again():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    send("ada", "shop", 10, "t1")
    hold = services.hold(holder_id="shop", amount=10, idempotency_key="h")
    send("ada", "shop", 5, "t2")
    assert lots_of("shop") == [(1, 5, True)]
    assert entry("shop", 3).drawn == ((1, 5),)
    services.release(holder_id="shop", hold=hold.sequence, idempotency_key="r")
    assert lots_of("shop") == [(1, 15, True)]
    assert_clean("ada", "shop")


def test_a_received_lot_that_is_sent_on_is_received_there_too_and_repays_a_debt_first():
    services.grant(holder_id="ada", amount=10, idempotency_key="g")
    services.set_overdraft(holder_id="cyd", limit=20, idempotency_key="o")
    services.spend(holder_id="cyd", amount=3, idempotency_key="s")
    send("ada", "bob", 10, "t1")
    send("bob", "cyd", 4, "t2")
    send("bob", "cyd", 4, "t3")
    assert lots_of("cyd") == [(3, 5, True)]
    assert reads.balance("cyd").owed == 0
    assert_clean("bob", "cyd")


# What others send takes no room from the holder's own ------------------------------------------------


def send_dust(sender: str, to: str, many: int) -> list[str]:
    """Send that many credits, each of other terms than all others; return the codes of the refusals."""
    grants = [GrantRequest(holder_id=sender, amount=1, priority=n, idempotency_key=f"{sender} g{n}") for n in range(many)]
    transfers = [TransferRequest(holder_id=sender, to=to, amount=1, idempotency_key=f"{sender} t{n}") for n in range(many)]
    assert services.batch(grants, mode="each", idempotency_key=f"{sender} grants").outcomes
    outcomes = services.batch(transfers, mode="each", idempotency_key=f"{sender} transfers").outcomes
    return [outcome.error.code for outcome in outcomes if outcome.error is not None]


@pytest.mark.slow
def test_500_own_grants_find_room_whatever_strangers_have_sent():
    # A stranger's dust: each of other terms, so nothing can be shared.
    assert send_dust("stranger", "ada", 180) == ["lot-limit"] * (180 - MAX_RECEIVED_LOTS)
    assert send_dust("other", "ada", 50) == []  # the same terms as of the first 50: they share
    for number in range(MAX_OPEN_LOTS):
        services.grant(holder_id="ada", amount=2, idempotency_key=f"own {number}")
    with pytest.raises(LotLimit) as refused:
        services.grant(holder_id="ada", amount=2, idempotency_key="one more")
    assert refused.value.facts == {"open_lots": 500, "limit": 500}
    assert len(lots_of("ada")) == MAX_OPEN_LOTS + MAX_RECEIVED_LOTS
    assert reads.refusals("stranger") == reads.refusals("ada") == []
    # Own spends, refunds and holds of received credits go on.
    spend = services.spend(holder_id="ada", amount=120, idempotency_key="s")
    assert services.refund(holder_id="ada", spend=spend.sequence, idempotency_key="r").amount == 120
    assert services.hold(holder_id="ada", amount=300, idempotency_key="h").amount == -300
    assert_clean("ada", "stranger")


def test_credits_that_come_back_by_a_refund_find_room_when_others_have_filled_theirs():
    send_dust("stranger", "ada", MAX_RECEIVED_LOTS)
    spend = services.spend(holder_id="ada", amount=MAX_RECEIVED_LOTS, idempotency_key="s")
    services.grant(holder_id="other", amount=100, idempotency_key="g", priority=1000)
    later = [GrantRequest(holder_id="other", amount=1, priority=1000 + n, idempotency_key=f"g{n}") for n in range(100)]
    services.batch(later, mode="each", idempotency_key="grants")
    send("other", "ada", 200, "t")
    assert len(lots_of("ada")) == MAX_RECEIVED_LOTS

    services.refund(holder_id="ada", spend=spend.sequence, idempotency_key="r")

    assert len(lots_of("ada")) == 2 * MAX_RECEIVED_LOTS
    services.grant(holder_id="stranger", amount=1, idempotency_key="g", priority=5000)
    with pytest.raises(LotLimit):
        send("stranger", "ada", 1, "full")
    assert_clean("ada")


def test_what_others_send_has_a_limit_too_and_it_passes(monkeypatch):
    monkeypatch.setattr("ledger.rules.decisions.credit_rules.MAX_RECEIVED", 20)
    services.grant(holder_id="ada", amount=50, idempotency_key="g")
    send("ada", "shop", 15, "t1")
    spend = services.spend(holder_id="shop", amount=10, idempotency_key="s")
    send("ada", "shop", 15, "t2")
    with pytest.raises(BalanceLimit) as refused:
        send("ada", "shop", 1, "t3")
    assert refused.value.facts == {"limit": 20}
    with pytest.raises(BalanceLimit):
        services.refund(holder_id="shop", spend=spend.sequence, idempotency_key="r")
    services.grant(holder_id="shop", amount=MAX_AMOUNT, idempotency_key="own", priority=200)
    assert reads.refusals("shop") == reads.refusals("ada") == []
    services.spend(holder_id="shop", amount=20, idempotency_key="room")
    assert not services.refund(holder_id="shop", spend=spend.sequence, idempotency_key="r").replayed
    send("ada", "shop", 1, "t3")


# Sellers and pools -----------------------------------------------------------------------------------


def receive(many: int, *, at_once: int = 1_000) -> None:
    """Have a shop receive that many payments of 1, in turns of 50 payers, by batches."""
    payers = [f"payer-{number}" for number in range(50)]
    funds = [GrantRequest(holder_id=payer, amount=many, idempotency_key="g") for payer in payers]
    services.batch(funds, mode="atomic", idempotency_key="funds")
    for first in range(0, many, at_once):
        paid = [
            TransferRequest(holder_id=payers[n % 50], to="shop", amount=1, idempotency_key=f"t{n}")
            for n in range(first, min(first + at_once, many))
        ]
        assert services.batch(paid, mode="atomic", idempotency_key=f"paid {first}").outcomes[-1].entry is not None


def check_receipts(many: int) -> None:
    """Assert that the state is as small after all receipts as after two, that all are there, and that a spend is as short."""
    receive(many)
    assert lots_of("shop") == [(1, many, True)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), max(length(lots::text)) FILTER (WHERE sequence = 2), max(length(lots::text))"
            " FROM ledger_entry WHERE holder_id = 'shop' AND kind = 'transfer_in'"
        )
        count, of_the_second, longest = cursor.fetchone()
    assert count == many
    assert longest <= of_the_second + len(str(many)), "only the number of its credits grows"
    spend = services.spend(holder_id="shop", amount=many // 2, idempotency_key="s")
    assert (spend.drawn, len(spend.lots)) == (((1, many // 2),), 1)
    services.refund(holder_id="shop", spend=spend.sequence, idempotency_key="r")
    assert lots_of("shop") == [(1, many, True)]


def test_a_shop_with_300_receipts_has_one_lot():
    check_receipts(300)
    assert_clean("shop")


@pytest.mark.slow
def test_a_shop_with_100_000_receipts_has_one_lot():
    check_receipts(100_000)
    assert_clean("shop")
