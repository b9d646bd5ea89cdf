"""The audit counts budgets again from the entries: random histories are clean, and each change of a state is found."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from ledger.audit.auditing import audit
from ledger.rules.budget_states import Budget, BudgetCount
from ledger.rules.entries import Entry
from ledger.rules.instants import from_us
from ledger.rules.requests import BudgetRequest, CaptureRequest, GrantRequest, HoldRequest, ReleaseRequest, SpendRequest
from tests.benchmarks.histories import store
from tests.ledger.audit.tampering import execute, laws_broken, rechained
from tests.ledger.random_histories import HOUR_US, RulesLedger
from tests.ledger.rules.budgets.test_budgets import BudgetHistory
from tests.ledger.rules.budgets.test_instants import live
from tests.parts import spread

Change = Callable[[Entry], Entry]


@pytest.mark.parametrize("start", spread(["2024-03-25", "2024-10-21", "2024-02-20", "2023-12-20"], test=(), check=["2024-02-20"]))
def test_random_histories_of_budgets_break_no_law(empty_ledger, start):
    history = BudgetHistory(7, datetime.fromisoformat(f"{start}T05:00:00+00:00"))
    for _ in range(250):
        history.step()
    assert history.refused > 20
    entries = history.ledger.in_order
    store(empty_ledger, entries)
    assert audit([empty_ledger], slice_entries=100).findings == []


def test_a_history_of_nested_and_individual_budgets_breaks_no_law(empty_ledger):
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "g", amount=1_000)
    each = {"window": "day"}
    for number, setting in enumerate(
        (
            {"budget": "team", "limit": 900, "window": "rolling", "hours": 24},
            {"budget": "member", "limit": 100, "by": "label", "label": "member", "parent": "team"},
            {"budget": "ann", "limit": 500, "by": "label", "label": "member", "parent": "team", "subject": "ann"},
            {"budget": "agent", "limit": 40, "by": "label", "label": "agent", "parent": "member"},
            {"budget": "agent-of-ann", "limit": 90, "by": "label", "label": "agent", "parent": "ann"},
        )
    ):
        execute(ledger, BudgetRequest, f"b{number}", **each | setting)
    for number, member in enumerate(("ann", "ben", 'x"\\', "", "ann")):
        metadata = {"member": member, "agent": "a1"} if member else {"agent": {"of": [1, "two"]}}
        execute(ledger, SpendRequest, f"s{number}", amount=40, metadata=metadata)
        hold = execute(ledger, HoldRequest, f"h{number}", amount=5, metadata=metadata | {"agent": "a2"})
        execute(ledger, CaptureRequest, f"c{number}", hold=hold.sequence, amount=3)
        ledger.now_us += HOUR_US
    store(empty_ledger, ledger.entries["ada"])
    assert laws_broken(empty_ledger) == {}


def test_random_budgets_with_instants_break_no_law(empty_ledger):
    store(empty_ledger, live(5, 120).ledger.entries["ada"])
    assert laws_broken(empty_ledger) == {}


def history() -> list[Entry]:
    """1 grant, 2 budget of 10 a day for each member, 3 spend of 4 by ann, 4 hold of 5 by ben, 5 release, 6 spend of 6 by ann."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=100)
    execute(ledger, BudgetRequest, "2", budget="b", limit=10, window="day", by="label", label="member")
    execute(ledger, SpendRequest, "3", amount=4, metadata={"member": "ann"})
    execute(ledger, HoldRequest, "4", amount=5, metadata={"member": "ben"})
    ledger.now_us += HOUR_US // 2
    execute(ledger, ReleaseRequest, "5", hold=4)
    execute(ledger, SpendRequest, "6", amount=6, metadata={"member": "ann"})
    return ledger.entries["ada"]


def counts(*of: tuple[str, int, int, int]) -> Change:
    """Have an entry count for other subjects, in other steps, other amounts, with other use after it."""
    return lambda entry: entry._replace(counts=tuple(BudgetCount(2, *each, each[-1]) for each in of))


def settings(**changed: Any) -> Change:
    return lambda entry: entry._replace(budgets=(entry.budgets[0]._replace(**changed),))


DAY = history()[2].counts[0].start_us
EARLIER = DAY - 24 * HOUR_US
CHANGES: dict[str, tuple[int, Change, set[str]]] = {
    "a spend is counted with less": (3, counts(("ann", DAY, 3, 3)), {"budgets", "counters"}),
    "a spend is not counted": (3, counts(), {"budgets", "counters"}),
    "a spend is counted for another": (3, counts(("ben", DAY, 4, 4)), {"budgets", "counters"}),
    "a spend is counted for another day": (3, counts(("ann", EARLIER, 4, 4)), {"budgets", "counters"}),
    "a spend is counted twice": (3, counts(("ann", DAY, 4, 4), ("ann", EARLIER, 4, 4)), {"budgets"}),
    "a spend says that less is used": (6, counts(("ann", DAY, 6, 9)), {"counters"}),
    "a release gives back more": (5, counts(("ben", DAY, -6, 0)), {"budgets", "counters"}),
    "a release gives back for another": (5, counts(("ann", DAY, -4, 0)), {"budgets", "counters"}),
    "a release gives nothing back": (5, counts(), {"budgets"}),
    "a limit changes": (6, settings(limit=11), {"budgets"}),
    "the limit is lower than what was spent": (6, settings(limit=9), {"budgets"}),
    "a mode changes": (6, settings(is_hard=False), {"budgets"}),
    "it counts from another entry": (6, settings(setting=1), {"budgets"}),
    "the state is lost": (6, lambda entry: entry._replace(budgets=(), counts=()), {"budgets"}),
}


@pytest.mark.products(most=3)
@pytest.mark.parametrize("what", CHANGES)
def test_each_change_of_a_state_or_count_is_found(empty_ledger, what):
    sequence, change, laws = CHANGES[what]
    entries = history()
    store(empty_ledger, entries)
    assert laws_broken(empty_ledger) == {}
    empty_ledger.execute("DELETE FROM ledger_entry")
    store(empty_ledger, rechained([change(each) if each.sequence == sequence else each for each in entries]))
    assert laws_broken(empty_ledger).keys() == laws


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE ledger_budget_counter SET used = used - 1 WHERE subject = 'ann'",
        "UPDATE ledger_budget_counter SET sequence = sequence + 1 WHERE subject = 'ann'",
        "UPDATE ledger_budget_counter SET subject = 'cy' WHERE subject = 'ann'",
        "UPDATE ledger_budget_counter SET start_us = start_us - 1 WHERE subject = 'ann'",
        "UPDATE ledger_budget_counter SET setting = 1 WHERE subject = 'ann'",
        "DELETE FROM ledger_budget_counter WHERE subject = 'ann'",
        "INSERT INTO ledger_budget_counter VALUES ('ada', 'credits', 2, 0, 10, 3, 'cy')",
    ],
)
def test_a_counter_that_the_entries_do_not_add_up_to_is_found(empty_ledger, tampering):
    store(empty_ledger, history())
    assert laws_broken(empty_ledger) == {}
    empty_ledger.execute(tampering)
    assert laws_broken(empty_ledger).keys() == {"counters"}


def test_a_spend_beyond_a_hard_limit_is_found(empty_ledger):
    entries = history()
    wrong = [each._replace(budgets=(each.budgets[0]._replace(limit=9),)) if each.sequence >= 2 else each for each in entries]
    store(empty_ledger, rechained(wrong))
    # The setting itself, and what it let pass.
    assert laws_broken(empty_ledger) == {"budgets": {2, 6}}


def history_with_instants() -> list[Entry]:
    """1 grant, 2 budget of 10 a day, 3 of 20 a day from tomorrow, 4 another one from tomorrow for a day, 5 and 6 spends."""
    ledger = RulesLedger()
    execute(ledger, GrantRequest, "1", amount=100)
    execute(ledger, BudgetRequest, "2", budget="b", limit=10, window="day")
    tomorrow, after = (from_us(ledger.now_us + days * 24 * HOUR_US) for days in (1, 2))
    execute(ledger, BudgetRequest, "3", budget="b", limit=20, window="day", starts_at=tomorrow)
    execute(ledger, BudgetRequest, "4", budget="c", limit=20, window="week", starts_at=tomorrow, ends_at=after)
    execute(ledger, SpendRequest, "5", amount=10)
    ledger.now_us += 24 * HOUR_US
    execute(ledger, SpendRequest, "6", amount=20)
    return ledger.entries["ada"]


def changed_from(first: int, change: Callable[[Budget], Budget], name: str = "b") -> list[Entry]:
    """The history with another budget of a name, from an entry on."""
    entries = [
        each._replace(budgets=tuple([change(budget) if budget.name == name else budget for budget in each.budgets]))
        if each.sequence >= first
        else each
        for each in history_with_instants()
    ]
    return rechained(entries)


def later(**changed: Any) -> Callable[[Budget], Budget]:
    return lambda budget: budget._replace(later=(budget.later[0]._replace(**changed),))


MIDNIGHT = history_with_instants()[5].decided_us


@pytest.mark.products(most=2)
@pytest.mark.parametrize(
    ("entries", "found"),
    [
        (changed_from(3, later(limit=21)), {3}),
        (changed_from(3, later(starts_us=MIDNIGHT - 1)), {3}),
        (changed_from(3, later(ends_us=MIDNIGHT + 1)), {3}),
        (changed_from(3, later(setting=1)), {3, 6}),
        (changed_from(3, lambda budget: budget._replace(ends_us=MIDNIGHT - 1)), {3}),
        (changed_from(3, lambda budget: budget._replace(ends_us=None, later=())), {3, 6}),
        (changed_from(4, lambda budget: budget._replace(starts_us=MIDNIGHT + 1), name="c"), {4, 6}),
        (changed_from(4, later(limit=19)), {4, 6}),
    ],
    ids=["limit", "start", "end", "counts from", "ends early", "lost", "begins late", "another name's"],
)
def test_a_budget_for_later_that_is_not_what_its_entry_says_is_found(empty_ledger, entries, found):
    store(empty_ledger, entries)
    assert laws_broken(empty_ledger)["budgets"] == found


def test_control_budgets_with_instants_as_their_entries_say_break_no_law(empty_ledger):
    store(empty_ledger, history_with_instants())
    assert laws_broken(empty_ledger) == {}


def test_a_setting_that_no_request_asked_for_is_found(empty_ledger):
    entries = history()
    wrong = [
        each._replace(counterpart=None, overdraft=0) if each.sequence == 2 else each._replace(overdraft=0) if each.sequence > 2
        else each for each in entries
    ]  # fmt: skip
    store(empty_ledger, rechained(wrong))
    assert laws_broken(empty_ledger) == {"budgets": {2}}
