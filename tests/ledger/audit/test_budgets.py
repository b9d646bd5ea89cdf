"""The audit counts budgets again from the entries: random histories are clean, and each change of a state is found."""

from collections.abc import Callable
from datetime import datetime

import pytest

from ledger import rules
from ledger.audit.auditing import audit
from ledger.rules import Entry
from ledger.rules.budgets.states import Budget, Counter
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import HOUR_US, RulesLedger
from tests.ledger.rules.budgets.test_budgets import BudgetHistory

Change = Callable[[Budget], Budget]


@pytest.mark.products(most=1)
@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("start", ["2024-03-25", "2024-10-21", "2024-02-20", "2023-12-20"])
def test_random_histories_of_budgets_break_no_law(empty_ledger, start):
    history = BudgetHistory(7, datetime.fromisoformat(f"{start}T05:00:00+00:00"))
    for _ in range(250):
        history.step()
    assert history.refused > 20
    entries = history.ledger.in_order
    store(empty_ledger, entries)
    assert audit([empty_ledger], slice_entries=100).findings == []


def history() -> list[Entry]:
    """1 grant, 2 budget of 10 a day for each member, 3 spend of 4 by ann, 4 hold of 5 by ben, 5 release, 6 spend of 6 by ann."""
    ledger = RulesLedger()
    execute(ledger, rules.GrantRequest, "1", amount=100)
    execute(ledger, rules.BudgetRequest, "2", budget="b", limit=10, window="day", by="label", label="member")
    execute(ledger, rules.SpendRequest, "3", amount=4, metadata={"member": "ann"})
    execute(ledger, rules.HoldRequest, "4", amount=5, metadata={"member": "ben"})
    ledger.now_us += HOUR_US // 2
    execute(ledger, rules.ReleaseRequest, "5", hold=4)
    execute(ledger, rules.SpendRequest, "6", amount=6, metadata={"member": "ann"})
    return ledger.entries["ada"]


def counters(budget: Budget, *of: tuple[str, int, int]) -> Budget:
    return budget._replace(counters=tuple(Counter(subject, ((start, used),)) for subject, start, used in of))


DAY = history()[2].budgets[0].counters[0].steps[0][0]
CHANGES: dict[str, tuple[int, Change | None]] = {
    "a spend is counted with less": (3, lambda budget: counters(budget, ("ann", DAY, 3))),
    "a spend is not counted": (3, lambda budget: counters(budget)),
    "a spend is counted for another": (3, lambda budget: counters(budget, ("ben", DAY, 4))),
    "a spend is counted for another day": (3, lambda budget: counters(budget, ("ann", DAY - 24 * HOUR_US, 4))),
    "a release gives back more": (5, lambda budget: counters(budget, ("ann", DAY, 2))),
    "a limit changes": (6, lambda budget: budget._replace(limit=11)),
    "the limit is lower than what was spent": (6, lambda budget: budget._replace(limit=9)),
    "a mode changes": (6, lambda budget: budget._replace(is_hard=False)),
    "the state is lost": (6, None),
}


@pytest.mark.products(most=3)
@pytest.mark.parametrize("what", CHANGES)
def test_each_change_of_a_state_is_found(empty_ledger, what):
    sequence, change = CHANGES[what]
    entries = history()
    store(empty_ledger, entries)
    assert laws_broken(empty_ledger) == {}
    empty_ledger.execute("DELETE FROM ledger_entry")
    wrong = [
        each._replace(budgets=(change(each.budgets[0]),) if change else ()) if each.sequence == sequence else each
        for each in entries
    ]
    store(empty_ledger, rechained(wrong))
    assert laws_broken(empty_ledger).keys() == {"budgets"}


def test_a_spend_beyond_a_hard_limit_is_found(empty_ledger):
    entries = history()
    wrong = [each._replace(budgets=(each.budgets[0]._replace(limit=9),)) if each.sequence >= 2 else each for each in entries]
    store(empty_ledger, rechained(wrong))
    assert laws_broken(empty_ledger) == {"budgets": {6}}


def test_a_setting_that_no_request_asked_for_is_found(empty_ledger):
    entries = history()
    wrong = [
        each._replace(counterpart=None, overdraft=0) if each.sequence == 2 else each._replace(overdraft=0) if each.sequence > 2
        else each for each in entries
    ]  # fmt: skip
    store(empty_ledger, rechained(wrong))
    assert laws_broken(empty_ledger) == {"budgets": {2}}
