"""What budgets add to a spend: the bytes of its entry, and the time of decision and encoding, by the rules alone.

python -m tests.benchmarks.budgets
"""

import time
from datetime import UTC, datetime

from ledger import rules
from ledger.rules import AccountState, BudgetRequest, GrantRequest, SpendRequest
from ledger.rules.instants import to_us

SPENDS = 2_000
NOW_US = to_us(datetime(2026, 1, 31, 9, 30, tzinfo=UTC))


def measured(subjects: int) -> tuple[int, float]:
    """Return the bytes of an entry and the microseconds of a spend, of an account whose budget counts that many subjects."""
    # Needs settings.
    from ledger.entries.rows import texts

    common = {"holder_id": "team-7", "idempotency_key": "k"}
    state = AccountState("team-7", "credits", NOW_US)
    state = state.after_all(rules.grant(state, GrantRequest(**common, amount=10**9)))
    if subjects:
        setting = BudgetRequest(**common, budget="daily", limit=10**6, window="day", by="label", label="member")
        state = state.after_all(rules.set_budget(state, setting))
    for number in range(subjects):
        request = SpendRequest(**common, amount=1, metadata={"member": f"user-{number:06}"})
        state = state.after_all(rules.spend(state, request))
    began = time.perf_counter()
    for number in range(SPENDS):
        request = SpendRequest(**common, amount=1, metadata={"member": f"user-{number % max(subjects, 1):06}"})
        state = state.after_all(rules.spend(state, request))
        row = texts(rules.spend(state, request)[0])
    microseconds = (time.perf_counter() - began) / SPENDS * 1e6
    return sum(len(value.encode()) for value in row if value is not None), microseconds


def main() -> None:
    """Print a line for each number of subjects."""
    print("| subjects counted | bytes of an entry's columns | µs of two decisions and one encoding, relative to none |")
    print("|---|---|---|")
    _, base = measured(0)
    for subjects in (0, 1, 10, 50, 200):
        size, microseconds = measured(subjects)
        print(f"| {subjects or 'no budget'} | {size:,} | {microseconds / base:.2f} |")


if __name__ == "__main__":
    main()
