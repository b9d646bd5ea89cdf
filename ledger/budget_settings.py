"""Who set a budget: the last entry of an account that set or ended it."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ledger.database.statements import fetch_rows

# By the index of entries with settings, which has no row for others.
LAST_SETTINGS: Final = """
SELECT DISTINCT ON (counterpart ->> 'budget')
    counterpart ->> 'budget' AS budget, sequence, actor, reference, counterpart ->> 'settings' IS NOT NULL AS sets
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND kind = 'adjust' AND counterpart IS NOT NULL AND counterpart ->> 'budget' = ANY(%s)
ORDER BY counterpart ->> 'budget', sequence DESC
"""


class LastSetting(NamedTuple):
    """The last entry that set a budget, or ended it; `reference` is the request's."""

    budget: str
    sequence: int
    actor: str
    reference: str
    sets: bool
    """False: it ended the budget."""


def last_settings(holder_id: str, credit_type: str, budgets: Sequence[str]) -> dict[str, LastSetting]:
    """Return the last setting of each of these budgets of an account, by name; one that was never set has none."""
    if not budgets:
        return {}
    rows = fetch_rows(LastSetting, LAST_SETTINGS, [holder_id, credit_type, list(budgets)])
    return {row.budget: row for row in rows}
