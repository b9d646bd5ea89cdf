"""Budgets under contention: what is spent is the limit, never more. test_spend_races has the race of two spends, and its twins.

A member's, a key's and the account's budget are contested at the same time, by single spends, holds and batches.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from ledger import reads, services
from ledger.audit.auditing import audit
from ledger.errors import BudgetExceeded
from ledger.rules.requests import SpendRequest

NewHolder = Callable[[], str]
RunThreads = Callable[..., list[Any]]
THREADS = 4
MEMBERS = ("ann", "ben")


def pool(new_holder: NewHolder, *, member: int, account: int) -> str:
    """A holder with more credits than its budgets allow to be spent."""
    holder = new_holder()
    services.grant(holder_id=holder, amount=10**9, idempotency_key="grant")
    setting = {"holder_id": holder, "window": "month"}
    services.set_budget(**setting, budget="account", limit=account, idempotency_key="b1")
    services.set_budget(**setting, budget="member", limit=member, by="label", label="member", idempotency_key="b2")
    services.set_budget(**setting, budget="seen", limit=1, mode="soft", idempotency_key="b3")
    return holder


def used(holder: str) -> dict[tuple[str, str | None], int]:
    return {(budget.name, use.subject): use.used for budget in reads.budgets(holder) for use in budget.usage}


def test_contested_spends_and_holds_use_exactly_the_limits(new_holder: NewHolder, run_threads: RunThreads) -> None:
    holder = pool(new_holder, member=30, account=45)

    def work(thread: int) -> int:
        taken = 0
        for number in range(20):
            member = MEMBERS[(thread + number) % 2]
            asked = {"holder_id": holder, "idempotency_key": f"{thread}/{number}", "metadata": {"member": member}}
            try:
                if number % 3:
                    taken -= services.spend(**asked, amount=3, partial=True).amount
                else:
                    hold = services.hold(**asked, amount=2).sequence
                    services.capture(holder_id=holder, hold=hold, amount=1, idempotency_key=f"{thread}/{number}/c")
                    taken += 1
            except BudgetExceeded:
                pass
        return taken

    taken = run_threads(work, THREADS)
    found = used(holder)
    assert sum(taken) == found["account", None] == found["seen", None] == 45
    assert found["member", "ann"] + found["member", "ben"] == 45
    assert max(found["member", member] for member in MEMBERS) <= 30


@pytest.mark.slow
@pytest.mark.deployment
def test_of_100_000_contested_spends_none_exceeds_a_budget(
    new_holder: NewHolder, run_threads: RunThreads, raw_connection: Callable[..., Any]
) -> None:
    holder = pool(new_holder, member=25_000, account=40_000)

    def work(thread: int) -> Counter[str]:
        outcomes: Counter[str] = Counter()
        for number in range(50):
            asked = [
                SpendRequest(
                    holder_id=holder,
                    amount=1,
                    idempotency_key=f"{thread}/{number}/{index}",
                    metadata={"member": MEMBERS[index % 2]},
                )
                for index in range(500)
            ]
            done = services.batch(asked, mode="each", idempotency_key=f"{holder}/{thread}/{number}").outcomes
            outcomes.update("spent" if each.entry else type(each.error).__name__ for each in done)
        return outcomes

    outcomes = sum(run_threads(work, THREADS), Counter())
    assert outcomes == {"spent": 40_000, "BudgetExceeded": 60_000}
    found = used(holder)
    assert found["account", None] == found["member", "ann"] + found["member", "ben"] == 40_000
    assert reads.balance(holder).balance == 10**9 - 40_000
    assert audit([raw_connection("superuser")], holder_id=holder).findings == []
