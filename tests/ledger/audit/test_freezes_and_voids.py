"""The audit finds what left a frozen holder, wrong numbers of freezes, and a void that is not of all lots."""

import pytest

from ledger.rules.requests import (
    FreezeRequest,
    GrantRequest,
    HoldRequest,
    ReleaseRequest,
    SpendRequest,
    TransferRequest,
    VoidRequest,
)
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import HOUR_US, RulesLedger

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")


def frozen_and_thawed() -> RulesLedger:
    """1 grant, 2 hold, 3 freeze, 4 grant, 5 release, 6 thaw, 7 spend; bob has a grant."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "b", holder_id="bob", amount=50)
    for kind, fields in (
        (GrantRequest, {"amount": 100}),
        (HoldRequest, {"amount": 10}),
        (FreezeRequest, {"frozen": True}),
        (GrantRequest, {"amount": 5}),
        (ReleaseRequest, {"hold": 2}),
        (FreezeRequest, {"frozen": False}),
        (SpendRequest, {"amount": 7}),
    ):
        ledger.now_us += HOUR_US // 10
        execute(ledger, kind, f"{kind.__name__}-{ledger.now_us}", **fields)
    return ledger


def test_what_a_frozen_holder_may_do_breaks_no_law(empty_ledger):
    store(empty_ledger, frozen_and_thawed().in_order)
    assert laws_broken(empty_ledger) == {}


@pytest.mark.parametrize(
    ("number", "word"), [(1, "frozen"), (7, "thawed")], ids=["the thaw was a freeze", "the thaw is numbered 7"]
)
def test_a_spend_of_a_frozen_holder_and_a_gap_in_the_freezes_are_found(empty_ledger, number, word):
    ledger = frozen_and_thawed()
    counterpart = {"change": 2 if number == 1 else number, "holder": word}
    entries = [entry._replace(counterpart=counterpart) if entry.sequence == 6 else entry for entry in ledger.entries["ada"]]
    store(empty_ledger, [*ledger.entries["bob"], *rechained(entries)])
    assert laws_broken(empty_ledger) == {"frozen": {7 if number == 1 else 6}}


def test_a_transfer_to_a_frozen_holder_is_found(empty_ledger):
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "b", holder_id="bob", amount=50)
    execute(ledger, FreezeRequest, "f", frozen=True)
    frozen = ledger.entries["ada"][0]
    ledger.entries["ada"] = [rechained([frozen._replace(counterpart={"incoming": "accepted"})])[0]]
    ledger.now_us += 1
    execute(ledger, TransferRequest, "t", holder_id="bob", to="ada", amount=5)
    entries = rechained([frozen, *ledger.entries["ada"][1:]])
    store(empty_ledger, [*ledger.entries["bob"], *entries])
    assert laws_broken(empty_ledger) == {"frozen": {2}}


@pytest.mark.parametrize(
    ("values", "laws"),
    [
        ({"drawn": ((2, 10), (1, 5))}, {"burn-order"}),
        ({"drawn": ((1, 5),), "amount": -5, "balance": 10, "left": 1}, {"burn-order"}),
        ({"refers_to": 1}, {"burn-order"}),
    ],
    ids=["another order", "a lot is left", "as if it were of one grant"],
)
def test_a_void_that_is_not_of_all_lots_is_found(empty_ledger, values, laws):
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=5)
    execute(ledger, GrantRequest, "2", amount=10)
    execute(ledger, VoidRequest, "3")
    entries = ledger.entries["ada"]
    if values.pop("left", 0):
        values["lots"] = entries[1].lots[1:]
    store(empty_ledger, rechained([*entries[:2], entries[2]._replace(**values)]))
    assert laws_broken(empty_ledger) == {law: {3} for law in laws}
