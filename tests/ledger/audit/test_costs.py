"""The audit finds shares that are not exact, costs that nobody paid, and refunds and transfers that bring other shares."""

import pytest

from ledger.rules.cost_shares import CostChange, LotCost
from ledger.rules.requests import CaptureRequest, GrantRequest, HoldRequest, RefundRequest, SpendRequest, TransferRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import RulesLedger

pytestmark = pytest.mark.one_node("a session would read all shards, slice by slice; tests/distributed audits a cluster")


@pytest.fixture
def history() -> RulesLedger:
    """1 sale of 3 credits for 1.00 EUR, 2 spend of 2, 3 refund of 1, 4 hold of 1, 5 capture, 6 transfer of 1 to bob."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=3, paid_minor=100, currency="EUR", document="INV-1")
    execute(ledger, SpendRequest, "2", amount=2)
    execute(ledger, RefundRequest, "3", spend=2, amount=1)
    execute(ledger, HoldRequest, "4", amount=1)
    execute(ledger, CaptureRequest, "5", hold=4)
    execute(ledger, TransferRequest, "6", to="bob", amount=1)
    return ledger


def test_exact_shares_break_no_law(empty_ledger, history):
    store(empty_ledger, history.in_order)
    assert laws_broken(empty_ledger) == {}


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("sequence", "values", "laws"),
    [
        (1, {"sale": {"currency": "EUR", "paid_minor": 101}}, {"cost": {1}}),
        (1, {"sale": None}, {"cost": {1}}),
        (1, {"cost_changes": (), "costs": ()}, {"cost": {1, 2}}),
        (1, {"costs": (LotCost(1, 100, "EUR", 100, 4),)}, {"cost": {1, 2}}),
        (2, {"cost_changes": (CostChange(1, -67, "EUR"),), "costs": (LotCost(1, 33, "EUR", 100, 3),)}, {"cost": {2, 3}}),
        (2, {"cost_changes": ()}, {"cost": {2, 3}}),
        (2, {"cost_changes": (CostChange(1, -66, "USD"),)}, {"cost": {2, 3}}),
        (3, {"cost_changes": (CostChange(1, 34, "EUR"),)}, {"cost": {3}}),
        (3, {"costs": (LotCost(1, 67, "EUR", 67, 2),)}, {"cost": {3, 4}}),
        (4, {"cost_changes": (CostChange(1, -1, "EUR"),)}, {"cost": {4}}),
        (4, {"costs": ()}, {"cost": {4, 5}}),
        (6, {"cost_changes": (CostChange(1, -33, "EUR"),)}, {"cost": {6, 1}}),
        (6, {"costs": (LotCost(1, 1, "EUR", 100, 3),)}, {"cost": {6}}),
    ],
)
def test_other_shares_are_found(empty_ledger, history, sequence, values, laws):
    entries = [entry._replace(**values) if entry.sequence == sequence else entry for entry in history.entries["ada"]]
    with empty_ledger.transaction(force_rollback=True):
        empty_ledger.execute("ALTER TABLE ledger_entry DISABLE TRIGGER follows")
        empty_ledger.execute("ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_cost_fits_kind")
        empty_ledger.execute("ALTER TABLE ledger_entry DROP CONSTRAINT ledger_entry_sale_of_a_grant")
        store(empty_ledger, [*rechained(entries), *history.entries["bob"]])
        assert laws_broken(empty_ledger) == laws
