"""The audit holds receipts to the law that those of equal terms share a lot, and finds what does not."""

import pytest

from ledger.rules.entries import Entry
from ledger.rules.lots import SINCE_ITS_GRANT, Lot
from ledger.rules.requests import GrantRequest, IncomingTransfersRequest, RefundRequest, SpendRequest, TransferRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import Tampering, changed, execute, laws_broken, rechained
from tests.ledger.random_histories import RulesLedger


@pytest.fixture(scope="module")
def ledger() -> RulesLedger:
    """Nine entries of the shop, and what ada sent.

    1  grant of 5                         4  receipt of 20, priority 7, as lot 4     7  receipt of 3, as the new lot 7
    2  receipt of 10, as lot 2            5  spend of 30: lot 4, and 10 of lot 2     8  refund of 15 of spend 5: to lots 7 and 4
    3  receipt of 4, which joins lot 2    6  spend of 9: the rest of lots 1 and 2    9  receipt of 1, which joins lot 7
    """
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "a1", amount=100)
    execute(ledger, GrantRequest, "g", holder_id="shop", amount=5)
    execute(ledger, TransferRequest, "a2", to="shop", amount=10)
    execute(ledger, TransferRequest, "a3", to="shop", amount=4)
    execute(ledger, GrantRequest, "a4", amount=20, priority=7)
    execute(ledger, TransferRequest, "a5", to="shop", amount=20)
    execute(ledger, SpendRequest, "s1", holder_id="shop", amount=30)
    execute(ledger, SpendRequest, "s2", holder_id="shop", amount=9)
    execute(ledger, TransferRequest, "a6", to="shop", amount=3)
    execute(ledger, RefundRequest, "r", holder_id="shop", spend=5, amount=15)
    execute(ledger, TransferRequest, "a7", to="shop", amount=1)
    return ledger


OWN = Lot(1, 5, SINCE_ITS_GRANT)
LOT_2 = Lot(2, 14, SINCE_ITS_GRANT, received=True)
LOT_4 = Lot(4, 20, SINCE_ITS_GRANT, None, 7, received=True)
LOT_7 = Lot(7, 3, SINCE_ITS_GRANT, received=True)


def test_the_history_to_tamper_with_is_clean_and_shares_lots(empty_ledger, ledger):
    entries = ledger.entries["shop"]
    assert [entry.kind for entry in entries] == [
        "grant", "transfer_in", "transfer_in", "transfer_in", "spend", "spend", "transfer_in", "refund", "transfer_in",
    ]  # fmt: skip
    assert [entry.drawn for entry in entries] == [
        (), (), ((2, 4),), (), ((4, 20), (1, 5), (2, 5)), ((2, 9),), (), ((7, 5), (1, 5), (4, 5)), ((7, 1),),
    ]  # fmt: skip
    store(empty_ledger, ledger.in_order)
    assert laws_broken(empty_ledger) == {}


TAMPERINGS: dict[str, tuple[Tampering, dict[str, set[int | None]]]] = {
    "receipt 3 opens a lot beside that of its terms": (
        changed(3, drawn=(), lots=(OWN, LOT_2._replace(remaining=10), Lot(3, 4, SINCE_ITS_GRANT, received=True))),
        {"shared": {3}, "lots": {4}},
    ),
    "receipt 3 goes into the account's own lot": (
        changed(3, drawn=((1, 4),), lots=(OWN._replace(remaining=9), LOT_2._replace(remaining=10))),
        {"shared": {3}, "transfers": {3}, "lots": {4}},
    ),
    "receipt 3 goes into two lots": (
        changed(3, drawn=((1, 1), (2, 3)), lots=(OWN._replace(remaining=6), LOT_2._replace(remaining=13))),
        {"shared": {3}, "drawn": {3}, "transfers": {3}, "lots": {4}},
    ),
    "receipt 3 says that it opened a lot": (changed(3, drawn=()), {"lots": {3}, "transfers": {3}}),
    "receipt 4 opens a lot that is not marked as received": (
        changed(4, lots=(LOT_4._replace(received=False), OWN, LOT_2)),
        {"terms": {4, 8}, "transfers": {4}},
    ),
    "receipt 4 joins lot 2, which has another priority": (
        changed(4, drawn=((2, 20),), lots=(OWN, LOT_2._replace(remaining=34))),
        {"transfers": {4}, "lots": {5}, "burn-order": {5}, "terms": {8}},
    ),
    "spend 6 makes the rest of lot 2 the account's own": (
        changed(6, amount=-8, balance=1, drawn=((2, 8),), lots=(Lot(2, 1, SINCE_ITS_GRANT),)),
        {"terms": {6}, "balance": {7}, "lots": {7}},
    ),
    "refund 8 opens lot 2 again beside lot 7": (
        changed(
            8,
            drawn=((2, 5), (1, 5), (4, 5)),
            lots=(LOT_4._replace(remaining=5), OWN, LOT_2._replace(remaining=5), LOT_7),
        ),
        {"shared": {8}, "lots": {9}},
    ),
    "refund 8 gives back what shared a lot to the account's own": (
        changed(8, drawn=((1, 10), (4, 5)), lots=(LOT_4._replace(remaining=5), OWN._replace(remaining=10), LOT_7)),
        {"refunds": {8}, "lots": {9}},
    ),
}


@pytest.mark.products(most=4)
@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_receipt_that_does_not_share_as_it_must_is_found(empty_ledger, ledger, name):
    tamper, expected = TAMPERINGS[name]
    store(empty_ledger, ledger.entries["ada"] + rechained(tamper(ledger.entries["shop"])))
    found = laws_broken(empty_ledger)
    found.pop("identity", None)
    assert found == expected


def test_a_lot_has_one_form_whether_it_was_received_or_not(empty_ledger, ledger):
    entries: list[Entry] = ledger.entries["shop"]
    store(empty_ledger, ledger.in_order)
    [(text,)] = empty_ledger.execute("SELECT lots::text FROM ledger_entry WHERE holder_id = 'shop' AND sequence = 4").fetchall()
    assert text == "[[4,20,0,null,7,0,1],[1,5,0],[2,14,0,null,100,0,1]]"
    assert entries[3].lots == (LOT_4, OWN, LOT_2)


@pytest.mark.parametrize(
    ("counterpart", "broken"),
    [(None, {}), ({"incoming": "refused"}, {"incoming": {4}}), ({"incoming": "maybe"}, {"incoming": {3}})],
    ids=["accepted again", "still refused", "not a word for it"],
)
def test_an_arrival_in_an_account_that_refuses_transfers_is_found(empty_ledger, counterpart, broken):
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "a1", amount=100)
    execute(ledger, TransferRequest, "a2", to="shop", amount=1)
    execute(ledger, IncomingTransfersRequest, "s1", holder_id="shop", accepted=False)
    execute(ledger, IncomingTransfersRequest, "s2", holder_id="shop", accepted=True)
    execute(ledger, TransferRequest, "a3", to="shop", amount=1)
    if counterpart is None:
        entries = ledger.in_order
    else:
        entries = ledger.entries["ada"] + rechained(changed(3, counterpart=counterpart)(ledger.entries["shop"]))
    store(empty_ledger, entries)
    assert laws_broken(empty_ledger) == broken
