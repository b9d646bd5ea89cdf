"""The audit checks that refunded credits keep their terms, also in new lots for expired ones and after they repaid a debt."""

import pytest

from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.lots import SINCE_ITS_GRANT, Lot
from ledger.rules.requests import GrantRequest, OverdraftRequest, RefundRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import Tampering, changed, execute, laws_broken, rechained
from tests.ledger.random_histories import NEW_LOT_DAYS, START_US, RulesLedger
from tests.ledger.rules.credit_model import DAY_US

NOW_US = START_US + 2 * DAY_US
UNTIL_US = NOW_US + NEW_LOT_DAYS * DAY_US


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    """Ten entries of ada.

    1  grant of 5, promotional, expires after a day    6  adjustment: an overdraft of 40
    2  grant of 6, purchased, expires after a day      7  spend of 20: 11 from lots 4 and 5, 9 on the overdraft
    3  spend of 11, both lots                          8  grant of 10, promotional
    4  refund of 6 of spend 3, as the new lot 4        9  adjustment: lot 8 repays the 9
    5  refund of 5 of spend 3, as the new lot 5       10  refund of 4 of spend 7, to lot 8
    """
    ledger = RulesLedger()
    expires_at = from_us(START_US + DAY_US)
    execute(ledger, GrantRequest, "1", amount=5, source="promotional", priority=50, expires_at=expires_at)
    execute(ledger, GrantRequest, "2", amount=6, expires_at=expires_at)
    execute(ledger, SpendRequest, "3", amount=11)
    ledger.now_us = NOW_US
    execute(ledger, RefundRequest, "5", spend=3)
    execute(ledger, OverdraftRequest, "6", limit=40)
    execute(ledger, SpendRequest, "7", amount=20)
    execute(ledger, GrantRequest, "8", amount=10, source="promotional")
    execute(ledger, RefundRequest, "10", spend=7, amount=4)
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

TAMPERINGS: dict[str, tuple[Tampering, dict[str, set[int | None]]]] = {
    "refund 5 opens the expired lot 1 again": (
        changed(5, lots=(LOT_1, LOT_4), drawn=((1, 5),)),
        {"terms": {5, 6}, "lots": {6}},
    ),
    "the new lot 4 has another source": (
        changed(4, lots=(LOT_4._replace(source="promotional"),)),
        {"refunds": {4}, "terms": {5}},
    ),
    "the new lot 4 has another priority": (changed(4, lots=(LOT_4._replace(priority=7),)), {"refunds": {4}, "terms": {5}}),
    "the new lot 4 never expires": (changed(4, lots=(LOT_4._replace(expires_us=None),)), {"terms": {4, 5}}),
    "the new lot 4 has expired already": (changed(4, lots=(LOT_4._replace(expires_us=NOW_US),)), {"terms": {4, 5}}),
    "refund 10 gives purchased credits for a debt that promotional credits repaid": (
        changed(10, drawn=((10, 4),), lots=(LOT_8, Lot(10, 4, SINCE_ITS_GRANT))),
        {"refunds": {10}, "terms": {10}},
    ),
    "refund 10 gives back more than was repaid": (
        changed(10, amount=10, balance=11, refunded_total=10, drawn=((8, 10),), lots=(LOT_8._replace(remaining=11),)),
        {"refunds": {10}},
    ),
    "refund 4 is not followed by a refund of the same spend with the key": (
        lambda entries: [*entries[:4], entries[4]._replace(refers_to=2)],
        {"refunds": {4}, "refers-to": {5}},
    ),
    "repayment 9 counts from the future": (changed(9, effective_us=NOW_US + 1), {"time": {9}}),
}


@pytest.mark.products(most=4)
@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_wrong_refund_is_found_even_if_the_chain_of_digests_is_unbroken(empty_ledger, entries, name):
    tamper, expected = TAMPERINGS[name]
    store(empty_ledger, rechained(tamper(entries)))
    assert laws_broken(empty_ledger) == expected


@pytest.mark.parametrize(
    ("off_us", "expected"),
    [(0, {}), (1, {"time": {4}}), (-1, {"time": {4}, "burn-order": {4}})],
    ids=["exactly then", "1 µs later", "1 µs earlier"],
)
def test_a_repayment_counts_from_when_the_lot_became_effective(empty_ledger, off_us, expected):
    ledger = RulesLedger()
    execute(ledger, OverdraftRequest, "1", limit=40)
    execute(ledger, SpendRequest, "2", amount=8)
    execute(ledger, GrantRequest, "3", amount=5, effective_at=from_us(START_US + DAY_US))
    ledger.now_us = NOW_US
    execute(ledger, SpendRequest, "5", amount=1)
    store(empty_ledger, rechained(changed(4, effective_us=START_US + DAY_US + off_us)(ledger.entries["ada"])))
    assert laws_broken(empty_ledger) == expected
