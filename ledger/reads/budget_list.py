"""The budgets of an account, with what is used of them now."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from json.encoder import encode_basestring
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from django.db import connection

from ledger.budget_settings import last_settings, standing_budgets
from ledger.rules.budget_states import (
    BY_HOLDER,
    Budget,
    Budgets,
    Steps,
    counted_subject,
    decode_counts,
    in_force,
    join_settings,
    left_of,
    own_subject,
    parents_of,
)
from ledger.rules.holds import Holds
from ledger.rules.instants import from_us, to_us

__all__ = ["BudgetUse", "ShownBudget", "budget_usage", "budgets", "page_by_name"]

COUNTS_OF_HOLDS: Final = """
SELECT sequence, counts::text
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s) AND counts IS NOT NULL
"""
# The key begins with the setting and the step, so this reads what is used in the window, whatever was used before it.
_USED: Final = """
SELECT subject, array_agg(start_us), array_agg(used)
FROM ledger_budget_counter
WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND setting = %(setting)s
    AND start_us BETWEEN %(first)s AND %(last)s AND used > 0 {where}
GROUP BY subject
ORDER BY {order}
LIMIT %(limit)s
"""
MOST_USED: Final = _USED.format(where="", order="sum(used) DESC, subject")
_ONE: Final = """
    AND (%(only)s::text IS NULL OR subject = %(only)s)
    AND (%(ending)s::text IS NULL OR right(subject, char_length(%(ending)s)) = %(ending)s)
"""
USED_FROM: Final = _USED.format(where=_ONE, order="subject")
USED_AFTER: Final = _USED.format(where=f"AND subject > %(after)s {_ONE}", order="subject")
USED_BEFORE: Final = _USED.format(where=f"AND subject < %(before)s {_ONE}", order="subject DESC")
SUBJECTS: Final = """
SELECT count(DISTINCT subject)
FROM ledger_budget_counter
WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND setting = %(setting)s
    AND start_us BETWEEN %(first)s AND %(last)s AND used > 0
"""
SHOWN_SUBJECTS: Final = 100
"""How many subjects a budget shows: those that have used most. `budget_usage` has pages of all."""


class BudgetUse(NamedTuple):
    """What a subject has used of its limit in the current window; the subject is None in a budget of the account.

    `within` are the subjects of the budget's parents, the outermost first.
    """

    subject: str | None
    within: Sequence[str]
    used: int
    remaining: int
    is_exceeded: bool
    resets_at: datetime | None
    """From when the whole limit is there again, if nothing else is used; None if nothing is used of a rolling window."""
    key: str
    """The subject with those of the parents, by which pages go on."""


class ShownBudget(NamedTuple):
    """A budget as it stands now. `usage` are the subjects that have used most, at most 100 of `subjects`.

    `settings` are those that are in force, or else the next ones, with those that come after them. `set_by` and `reference` are
    those of the request that set it last: of a plan's budget `billing`, and the subscription's.
    """

    holder_id: str
    credit_type: str
    settings: Budget
    as_of: datetime
    usage: Sequence[BudgetUse]
    subjects: int
    set_by: str = ""
    reference: str = ""

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def is_in_force(self) -> bool:
        return self.settings.is_in_force(to_us(self.as_of))

    @property
    def starts_at(self) -> datetime | None:
        return self.settings.starts_at

    @property
    def ends_at(self) -> datetime | None:
        return self.settings.ends_at

    @property
    def coming(self) -> Budgets:
        """The settings that are not in force yet, in the order of their starts."""
        return self.settings.later if self.is_in_force else self.settings.versions


class _BudgetAccount(NamedTuple):
    """The budgets of an account at an instant."""

    holder_id: str
    credit_type: str
    now_us: int
    budgets: Sequence[Budget]
    freed: Mapping[tuple[int, str, int], int]
    """What holds that have expired give back, booked or not, by setting, subject and step."""


def budgets(holder_id: str, credit_type: str = "credits") -> list[ShownBudget]:
    """The budgets of an account by name, without a lock; expired holds withhold nothing, booked or not."""
    account = _account(holder_id, credit_type)
    if account is None:
        return []
    settings = last_settings(holder_id, credit_type, [budget.name for budget in account.budgets])
    shown = [_show_budget(account, budget) for budget in account.budgets]
    set_by = [settings[each.name] for each in shown]
    return [each._replace(set_by=last.actor, reference=last.reference) for each, last in zip(shown, set_by, strict=True)]


def budget_usage(
    holder_id: str,
    credit_type: str,
    budget: str,
    *,
    subject: str | None = None,
    labels: Mapping[str, str] | None = None,
    after: tuple[str] | None = None,
    before: tuple[str] | None = None,
    limit: int = 50,
) -> list[BudgetUse] | None:
    """A page of what the subjects of a budget have used in its window, by subject; None if there is no such budget.

    Args:
        subject: only this one, within any parents.
        labels: only what these have used; there is no such budget if it does not count by them alone.
        after: only those behind the one of that key; `before`: only those in front of it, next to it.
    """
    account = _account(holder_id, credit_type)
    found = next((each for each in account.budgets if each.name == budget), None) if account else None
    if account is None or found is None:
        return None
    if not found.is_in_force(account.now_us):
        return []
    only = _only(found, subject) | {"limit": limit}
    if labels:
        own = _subject_of_labels(found, labels)
        if own is None:
            return None
        only["only"] = own
    if before is not None:
        rows = _rows(account, found, USED_BEFORE, before=before[0], **only)[::-1]
    elif after is not None:
        rows = _rows(account, found, USED_AFTER, after=after[0], **only)
    else:
        rows = _rows(account, found, USED_FROM, **only)
    return [_use(account, found, subject, steps) for subject, steps in rows]


class _Labelled(NamedTuple):
    """What a budget counts of a request: here its labels alone."""

    metadata: Mapping[str, str]
    actor: str = ""
    reference: str = ""


def _subject_of_labels(budget: Budget, labels: Mapping[str, str]) -> str | None:
    by = [level.label for level in budget.levels if level.by != BY_HOLDER]
    if not by or not all(label in labels for label in by):
        return None
    return counted_subject(budget, _Labelled(labels))


class _WithName(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_WithName)


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


def _only(budget: Budget, subject: str | None) -> dict[str, Any]:
    """Parameters for all subjects of a budget, or for one: itself, or with what it ends behind its parents'."""
    is_nested = sum(level.by != BY_HOLDER for level in budget.levels) > 1
    if subject is None or not is_nested:
        return {"only": subject, "ending": None}
    return {"only": None, "ending": f", {encode_basestring(subject)}]"}


def _account(holder_id: str, credit_type: str) -> _BudgetAccount | None:
    standing = standing_budgets(holder_id, credit_type)
    if standing is None:
        return None
    now_us, budgets_, holds = standing
    freed = _read_freed(holder_id, credit_type, budgets_, holds, now_us) if budgets_ else {}
    return _BudgetAccount(holder_id, credit_type, now_us, join_settings(left_of(budgets_, now_us)), freed)


def _read_freed(
    holder_id: str, credit_type: str, budgets_: Budgets, holds: Holds, now_us: int
) -> dict[tuple[int, str, int], int]:
    expired = {hold.sequence: hold for hold in holds if hold.is_expired(now_us)}
    freed: dict[tuple[int, str, int], int] = {}
    for sequence, text in _fetch(COUNTS_OF_HOLDS, [holder_id, credit_type, list(expired)]) if expired else ():
        hold = expired[sequence]
        settings = {budget.setting for budget in in_force(budgets_, hold.expires_us)}
        for each in decode_counts(text):
            if each.setting in settings:
                step = each.setting, each.subject, each.start_us
                freed[step] = freed.get(step, 0) + hold.amount
    return freed


def _fetch(query: str, parameters: Any) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(query, parameters)
        return cursor.fetchall()


def _rows(account: _BudgetAccount, budget: Budget, query: str, **more: Any) -> list[tuple[str, Steps]]:
    rows = _fetch(query, _parameters(account, budget) | more)
    return [
        (subject, _remaining_steps(account, budget, subject, zip(starts, used, strict=True))) for subject, starts, used in rows
    ]


def _parameters(account: _BudgetAccount, budget: Budget) -> dict[str, Any]:
    window = budget.window_at(account.now_us)
    return {
        "holder_id": account.holder_id,
        "credit_type": account.credit_type,
        "setting": budget.setting,
        "first": window[0],
        "last": window[-1],
    }


def _remaining_steps(account: _BudgetAccount, budget: Budget, subject: str, steps: Iterable[tuple[int, int]]) -> Steps:
    """The steps without what expired holds give back."""
    return {start_us: max(0, used - account.freed.get((budget.setting, subject, start_us), 0)) for start_us, used in steps}


def _show_budget(account: _BudgetAccount, budget: Budget) -> ShownBudget:
    if not budget.is_in_force(account.now_us):
        return ShownBudget(account.holder_id, account.credit_type, budget, from_us(account.now_us), [], 0)
    rows = _rows(account, budget, MOST_USED, limit=SHOWN_SUBJECTS)
    [(subjects,)] = _fetch(SUBJECTS, _parameters(account, budget)) if len(rows) == SHOWN_SUBJECTS else [(len(rows),)]
    usage = [_use(account, budget, subject, steps) for subject, steps in rows if any(steps.values())]
    only = "" if not budget.within and budget.by == BY_HOLDER else None if budget.within else budget.subject
    if only is not None and all(use.key != only for use in usage):
        usage.append(_use(account, budget, only, {}))
    return ShownBudget(account.holder_id, account.credit_type, budget, from_us(account.now_us), usage, subjects)


def _use(account: _BudgetAccount, budget: Budget, subject: str, steps: Steps) -> BudgetUse:
    now_us = account.now_us
    used, resets_us = budget.used(steps, now_us), budget.resets_us(steps, now_us, budget.limit)
    return BudgetUse(
        subject=own_subject(budget, subject),
        within=parents_of(budget, subject),
        used=used,
        remaining=max(0, budget.limit - used),
        is_exceeded=used > budget.limit,
        resets_at=None if resets_us is None else from_us(resets_us),
        key=subject,
    )
