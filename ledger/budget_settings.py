"""The budgets of an account as they stand, and who set each: the last entry that set or ended it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from ledger.clocks import TimedStatement
from ledger.database.statements import fetch_rows, instant_us, parameter
from ledger.rules.budget_states import Budgets, decode_budgets
from ledger.rules.holds import Holds, decode_holds

STANDING_BUDGETS: Final = TimedStatement(
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
# By the index of entries with settings, which has no row for others.
LAST_SETTINGS: Final = """
SELECT DISTINCT ON (counterpart ->> 'budget')
    counterpart ->> 'budget' AS budget, sequence, actor, reference, counterpart ->> 'settings' IS NOT NULL AS sets,
    (counterpart ->> 'ends_at')::timestamptz AS ends_at
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND kind = 'adjust' AND counterpart IS NOT NULL AND counterpart ->> 'budget' = ANY(%s)
ORDER BY counterpart ->> 'budget', sequence DESC
"""


class StandingBudgets(NamedTuple):
    """The budgets of an account at an instant, and its holds, booked as expired or not."""

    now_us: int
    budgets: Budgets
    holds: Holds


def standing_budgets(holder_id: str, credit_type: str) -> StandingBudgets | None:
    """Return the budgets of an account as they stand, without a lock; None if it has no entry."""
    row = STANDING_BUDGETS.present.first([parameter(holder_id), parameter(credit_type)])
    return None if row is None else StandingBudgets(*row)


class LastSetting(NamedTuple):
    """The last entry that set a budget, or ended it; `reference` is the request's."""

    budget: str
    sequence: int
    actor: str
    reference: str
    sets: bool
    """False: it ended the budget."""
    ends_at: datetime | None
    """Until when the budget was set, or when it was to end, if the entry says so for later."""


def last_settings(holder_id: str, credit_type: str, budgets: Sequence[str]) -> dict[str, LastSetting]:
    """Return the last setting of each of these budgets of an account, by name; one that was never set has none."""
    if not budgets:
        return {}
    rows = fetch_rows(LastSetting, LAST_SETTINGS, [holder_id, credit_type, list(budgets)])
    return {row.budget: row for row in rows}
