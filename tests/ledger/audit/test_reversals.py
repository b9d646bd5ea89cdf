"""The audit finds reversals that take from another lot, more than arrived, or for another holder."""

import pytest

from ledger.rules.lots import Lot
from ledger.rules.requests import GrantRequest, ReversalRequest, TransferRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import RulesLedger

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")


@pytest.fixture
def reversed_transfer() -> RulesLedger:
    """ada: 1 grant of 10, 2 transfer of 6, 3 reversal of 4. bob: 1 grant of 9, 2 receipt, 3 reversal."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=10)
    execute(ledger, GrantRequest, "1", holder_id="bob", amount=9)
    execute(ledger, TransferRequest, "2", to="bob", amount=6)
    execute(ledger, ReversalRequest, "3", to="bob", transfer=2, amount=4)
    return ledger


def test_a_reversal_breaks_no_law(empty_ledger, reversed_transfer):
    store(empty_ledger, reversed_transfer.in_order)
    assert laws_broken(empty_ledger) == {}


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("holder", "values", "laws"),
    [
        ("bob", {"drawn": ((1, 4),), "lots": (Lot(1, 5, 0), Lot(2, 6, 0, received=True))}, {"transfers"}),
        ("bob", {"counterpart": {"holder_id": "cy"}}, {"transfers"}),
        ("bob", {"refers_to": 1}, {"transfers", "refers-to"}),
        ("bob", {"refers_to": None}, {"transfers", "burn-order"}),
        ("ada", {"refers_to": 1}, {"refers-to"}),
        ("ada", {"refers_to": None}, {"transfers", "shared"}),
        ("ada", {"counterpart": {"holder_id": "bob", "sequence": 2, "grant": 2}}, {"transfers"}),
    ],
    ids=[
        "another lot",
        "another holder",
        "of a grant",
        "no reference",
        "back of a grant",
        "back of nothing",
        "from another entry",
    ],
)
def test_a_wrong_reversal_is_found(empty_ledger, reversed_transfer, holder, values, laws):
    entries = reversed_transfer.entries
    entries[holder] = rechained([*entries[holder][:2], entries[holder][2]._replace(**values)])
    store(empty_ledger, [*entries["ada"], *entries["bob"]])
    assert laws_broken(empty_ledger).keys() == laws


def test_a_reversal_of_more_than_arrived_is_found(empty_ledger, reversed_transfer):
    execute(reversed_transfer, GrantRequest, "g", holder_id="cy", amount=9)
    execute(reversed_transfer, TransferRequest, "t", holder_id="cy", to="bob", amount=9)
    entries = reversed_transfer.entries
    bob, ada = entries["bob"], entries["ada"]
    # Both receipts share bob's lot, so it has enough: once more, as if the first reversal had not been.
    more = bob[2]._replace(
        sequence=5, balance=bob[-1].balance - 4, lots=(bob[-1].lots[0], bob[-1].lots[1]._replace(remaining=7)), digest=b""
    )
    back = ada[2]._replace(sequence=4, balance=12, lots=(ada[2].lots[0]._replace(remaining=12),), idempotency_key="4")
    back = back._replace(counterpart={"holder_id": "bob", "sequence": 5, "grant": 2})
    later = {"recorded_us": bob[-1].recorded_us, "effective_us": bob[-1].recorded_us}
    entries["bob"], entries["ada"] = rechained([*bob, more._replace(**later)]), rechained([*ada, back._replace(**later)])
    store(empty_ledger, [each for account in entries.values() for each in account])
    assert laws_broken(empty_ledger) == {"transfers": {5}}
