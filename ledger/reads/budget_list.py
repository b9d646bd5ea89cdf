"""The budgets of an account, with what is used of them now."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

from ledger.database.statements import instant_us, parameter
from ledger.entries.clocks import TimedStatement
from ledger.rules import Budget
from ledger.rules.budgets.states import decode_budgets, given_back
from ledger.rules.holds import Holds, decode_holds
from ledger.rules.instants import from_us

BUDGETS = TimedStatement(
    "budgets",
    """
SELECT statement_timestamp(), COALESCE(budgets::text, '[]'), COALESCE(holds::text, '[]')
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s
ORDER BY sequence DESC
LIMIT 1
""",
    [instant_us, decode_budgets, decode_holds],
    holder="holder_id",
)


class BudgetUse(NamedTuple):
    """What a subject has used of its limit in the current window; the subject is None in a budget of the account."""

    subject: str | None
    used: int
    remaining: int
    is_exceeded: bool
    resets_at: datetime | None
    """From when the whole limit is there again, if nothing else is used; None if nothing is used of a rolling window."""


class ShownBudget(NamedTuple):
    """A budget as it stands now."""

    holder_id: str
    credit_type: str
    settings: Budget
    as_of: datetime
    usage: Sequence[BudgetUse]

    @property
    def name(self) -> str:
        return self.settings.name


def budgets(holder_id: str, credit_type: str = "credits") -> list[ShownBudget]:
    """The budgets of an account by name, without a lock; expired holds withhold nothing, booked or not."""
    row = BUDGETS.present.first([parameter(holder_id), parameter(credit_type)])
    if row is None:
        return []
    now_us, found, holds = row
    return [_shown(holder_id, credit_type, each, now_us) for each in _current(found, holds, now_us)]


class _Named(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)


def page_by_name(
    found: Sequence[NamedT], *, after: tuple[str] | None = None, before: tuple[str] | None = None, limit: int = 50
) -> list[NamedT]:
    """A page of an account's budgets or recurring grants, by name.

    Args:
        after: only those behind the one of that name; `before`: only those in front of it, next to it.
    """
    if after is not None:
        found = [each for each in found if each.name > after[0]]
    if before is not None:
        return [each for each in found if each.name < before[0]][-limit:]
    return list(found[:limit])


def _current(found: tuple[Budget, ...], holds: Holds, now_us: int) -> list[Budget]:
    for hold in holds:
        if hold.is_expired(now_us):
            found = given_back(found, hold.sequence, hold.amount)
    return [budget.at(now_us) for budget in found]


def _shown(holder_id: str, credit_type: str, budget: Budget, now_us: int) -> ShownBudget:
    subjects = [counter.subject for counter in budget.counters]
    only = "" if budget.by == "holder" else budget.subject
    if only is not None and only not in subjects:
        subjects.append(only)
    usage = [_use(budget, subject, now_us) for subject in subjects]
    return ShownBudget(holder_id, credit_type, budget, from_us(now_us), usage)


def _use(budget: Budget, subject: str, now_us: int) -> BudgetUse:
    used, resets_us = budget.used(subject), budget.resets_us(subject, now_us, budget.limit)
    return BudgetUse(
        subject=None if budget.by == "holder" else subject,
        used=used,
        remaining=max(0, budget.limit - used),
        is_exceeded=used > budget.limit,
        resets_at=None if resets_us is None else from_us(resets_us),
    )
