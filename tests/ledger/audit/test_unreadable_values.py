"""A value in an entry's JSON that the audit's SQL cannot read is a finding of its entry or holder, and hides no other finding."""

from itertools import repeat
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from ledger.audit import auditing
from ledger.audit.auditing import audit
from ledger.rules.entries import Entry
from ledger.rules.requests import (
    BudgetRequest,
    FreezeRequest,
    GrantRequest,
    HoldRequest,
    RefundRequest,
    ReleaseRequest,
    SpendRequest,
    TransferRequest,
)
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken
from tests.ledger.random_histories import RulesLedger


def history(holder_id: str) -> list[Entry]:
    """1 grant, 2 budget, 3 spend, 4 hold, 5 release, 6 refund of 3, 7 transfer, 8 freeze; and the receipt of the transfer."""
    ledger = RulesLedger()
    of: dict[str, Any] = {"holder_id": holder_id}
    execute(ledger, GrantRequest, "1", **of, amount=100)
    execute(ledger, BudgetRequest, "2", **of, budget="b", limit=50, window="day")
    execute(ledger, SpendRequest, "3", **of, amount=4)
    execute(ledger, HoldRequest, "4", **of, amount=5)
    execute(ledger, ReleaseRequest, "5", **of, hold=4)
    execute(ledger, RefundRequest, "6", **of, spend=3, amount=1)
    execute(ledger, TransferRequest, "7", **of, to=f"{holder_id}-friend", amount=2)
    execute(ledger, FreezeRequest, "8", **of, frozen=True)
    return ledger.in_order


def forge(session: Connection, holder_id: str, sequence: int, column: str, value: str) -> None:
    changed = f"UPDATE ledger_entry SET {column} = %s WHERE holder_id = %s AND sequence = %s"
    assert session.execute(changed, [value, holder_id, sequence]).rowcount == 1


def counts(*, start: str = "0", amount: str = "5") -> str:
    return f'[[2,"",{start},{amount},9]]'


FORGED: dict[str, tuple[str, str, int, str, str]] = {
    "budgets that are no array": ("budgets", "ada", 2, "budgets", "7"),
    "budgets that are an object": ("budgets", "ada", 2, "budgets", '{"forged": 1}'),
    "counts that are no array": ("counters", "ada", 4, "counts", "7"),
    "a start that is no number": ("budgets", "ada", 4, "counts", counts(start='"soon"')),
    "a start beyond all numbers": ("counters", "ada", 4, "counts", counts(start="1e30")),
    "an amount that is no number": ("budgets", "ada", 4, "counts", counts(amount='"x"')),
    "a next period at no time": ("recurring", "ada", 2, "counterpart", '{"recurring_grant": "r", "next_at": "soon"}'),
    "a transfer from an entry without a number": ("transfers", "ada-friend", 1, "counterpart", '{"sequence": "x"}'),
    "drawn parts that are an object": ("refunds", "ada", 3, "drawn", '{"forged": 1}'),
    "lots of credits that are no number": ("form", "ada", 3, "lots", '[[1,"x",0]]'),
    "lots that are no array": ("form", "ada", 3, "lots", "7"),
}
"""By what is forged: the law that finds it; the entry, its column and the value."""


@pytest.mark.products(most=2)
@pytest.mark.parametrize(("what", "slice_entries"), [*zip(FORGED, repeat(1_000)), ("budgets that are no array", 2)])
def test_a_value_that_cannot_be_read_is_found_and_hides_nothing(empty_ledger, monkeypatch, what, slice_entries):
    law, *forged = FORGED[what]
    for holder_id in ("ada", "bob", "cy"):
        store(empty_ledger, history(holder_id))
    assert laws_broken(empty_ledger) == {}
    forge(empty_ledger, "cy", 3, "budgets", "[]")
    before = set(audit([empty_ledger], slice_entries=slice_entries).findings)
    forge(empty_ledger, *forged)
    found = set(audit([empty_ledger], slice_entries=slice_entries).findings)
    assert found > before
    assert {each.holder_id for each in found - before} == {forged[0]}
    assert law in {each.law for each in found - before}
    monkeypatch.setattr(auditing, "UNREADABLE", ())
    with pytest.raises(psycopg.Error), empty_ledger.transaction():
        audit([empty_ledger], slice_entries=slice_entries)
