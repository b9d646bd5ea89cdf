"""The audit on refunds: credits go back under the terms that they came with, to new lots and out of debts too."""

from collections.abc import Callable

import pytest

from ledger import rules
from ledger.rules import Entry, Lot
from ledger.rules.instants import from_us
from ledger.rules.lots import SINCE_ITS_GRANT
from tests.benchmarks.histories import store
from tests.ledger.credit_model import DAY_US
from tests.ledger.test_audit import ask, changed, empty_ledger, laws_broken, sealed_anew
from tests.ledger.walks import NEW_LOT_DAYS, START_US, RulesLedger

__all__ = ["empty_ledger"]

NOW_US = START_US + 2 * DAY_US
UNTIL_US = NOW_US + NEW_LOT_DAYS * DAY_US


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """4 and 5 give back to two expired lots, the purchased one first; 9 repays a debt with lot 8, 10 gives some of it back."""
    ledger = RulesLedger()
    expires_at = from_us(START_US + DAY_US)
    ask(ledger, rules.GrantRequest, "1", amount=5, source="promotional", priority=50, expires_at=expires_at)
    ask(ledger, rules.GrantRequest, "2", amount=6, expires_at=expires_at)
    ask(ledger, rules.SpendRequest, "3", amount=11)
    ledger.now_us = NOW_US
    ask(ledger, rules.RefundRequest, "5", spend=3)
    ask(ledger, rules.OverdraftRequest, "6", limit=40)
    ask(ledger, rules.SpendRequest, "7", amount=20)
    ask(ledger, rules.GrantRequest, "8", amount=10, source="promotional")
    ask(ledger, rules.RefundRequest, "10", spend=7, amount=4)
    return ledger.entries["ada"]


def test_the_history_to_tamper_with_is_clean(empty_ledger, entries):
    assert [entry.kind for entry in entries] == [
        "grant", "grant", "spend", "refund", "refund", "adjust", "spend", "grant", "adjust", "refund",
    ]  # fmt: skip
    assert [entry.drawn for entry in entries[3:5]] == [((4, 6),), ((5, 5),)]
    assert [entry.drawn for entry in entries[8:]] == [((8, 9),), ((8, 4),)]
    store(empty_ledger, entries)
    assert laws_broken(empty_ledger) == {}


LOT_1 = Lot(1, 5, SINCE_ITS_GRANT, UNTIL_US, 50, "promotional")
LOT_4 = Lot(4, 6, SINCE_ITS_GRANT, UNTIL_US)
LOT_8 = Lot(8, 1, SINCE_ITS_GRANT, None, 100, "promotional")

TAMPERINGS: dict[str, tuple[Callable[[list[Entry]], list[Entry]], dict[str, set[int | None]]]] = {
    "an expired lot that is open again": (
        changed(5, lots=(LOT_1, LOT_4), drawn=((1, 5),)),
        {"terms": {5, 6}, "lots": {6}},
    ),
    "a new lot with another source": (changed(4, lots=(LOT_4._replace(source="promotional"),)), {"refunds": {4}, "terms": {5}}),
    "a new lot with another priority": (changed(4, lots=(LOT_4._replace(priority=7),)), {"refunds": {4}, "terms": {5}}),
    "a new lot that never expires": (changed(4, lots=(LOT_4._replace(expires_us=None),)), {"terms": {4, 5}}),
    "a new lot that has expired": (changed(4, lots=(LOT_4._replace(expires_us=NOW_US),)), {"terms": {4, 5}}),
    "money for what promotional credits repaid": (
        changed(10, drawn=((10, 4),), lots=(LOT_8, Lot(10, 4, SINCE_ITS_GRANT))),
        {"refunds": {10}, "terms": {10}},
    ),
    "more for a debt than has repaid it": (
        changed(10, amount=10, balance=11, refunded_total=10, drawn=((8, 10),), lots=(LOT_8._replace(remaining=11),)),
        {"refunds": {10}},
    ),
    "a refund without the key of the one behind it": (
        lambda entries: [*entries[:4], entries[4]._replace(refers_to=2)],
        {"refunds": {4}, "refers-to": {5}},
    ),
    "a repayment in the future": (changed(9, effective_us=NOW_US + 1), {"time": {9}}),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_chain_made_anew_over_a_false_refund_is_found(empty_ledger, entries, name):
    tamper, expected = TAMPERINGS[name]
    store(empty_ledger, sealed_anew(tamper(entries)))
    assert laws_broken(empty_ledger) == expected


@pytest.mark.parametrize(("off_us", "expected"), [(0, {}), (1, {"time": {4}}), (-1, {"time": {4}, "burn-order": {4}})])
def test_a_repayment_counts_from_when_a_lot_became_effective(empty_ledger, off_us, expected):
    ledger = RulesLedger()
    ask(ledger, rules.OverdraftRequest, "1", limit=40)
    ask(ledger, rules.SpendRequest, "2", amount=8)
    ask(ledger, rules.GrantRequest, "3", amount=5, effective_at=from_us(START_US + DAY_US))
    ledger.now_us = NOW_US
    ask(ledger, rules.SpendRequest, "5", amount=1)
    store(empty_ledger, sealed_anew(changed(4, effective_us=START_US + DAY_US + off_us)(ledger.entries["ada"])))
    assert laws_broken(empty_ledger) == expected
