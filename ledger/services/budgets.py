"""Budgets of which others set the terms, such as those of plans: what they may say, and who set them, read under the lock."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from ledger import budget_settings, journal
from ledger.budget_settings import LastSetting
from ledger.database.locks import Lock
from ledger.errors import Invalid
from ledger.rules.budget_states import (
    HARD,
    MAX_COMING,
    MAX_LEVELS,
    MAX_SUBJECT_CHARACTERS,
    MODES,
    SCOPES,
    Budget,
    Budgets,
    in_force,
    left_of,
)
from ledger.rules.budget_texts import scope_words, window_words
from ledger.rules.budget_windows import MAX_HOURS, WINDOWS
from ledger.rules.instants import to_us
from ledger.rules.requests import BudgetTerms, check_budget

__all__ = [
    "HARD",
    "MAX_COMING",
    "MAX_HOURS",
    "MAX_SUBJECT_CHARACTERS",
    "MODES",
    "SCOPES",
    "WINDOWS",
    "AccountBudget",
    "Budget",
    "budgets_now",
    "budgets_under",
    "check_budgets",
    "scope_words",
    "window_words",
]


class AccountBudget(NamedTuple):
    """A budget of an account by name: as it is in force, and its last setting; None: there is none, or was none.

    `versions` are its settings now and later, in the order of their starts.
    """

    present: Budget | None
    last: LastSetting | None
    versions: Budgets
    now_us: int

    def at(self, instant: datetime) -> Budget | None:
        """Return the setting that is in force at an instant, now or later."""
        return next((version for version in self.versions if version.is_in_force(to_us(instant))), None)

    def is_set_by_others(self, actor: str) -> bool:
        """Return whether the account has one that somebody else than the actor set last, of which the end has not come."""
        last = self.last
        if not self.versions or last is None or last.actor == actor:
            return False
        return last.ends_at is None or to_us(last.ends_at) > self.now_us

    @property
    def setting(self) -> int:
        """The sequence of the entry that set or ended it last; 0 if it was never set."""
        return 0 if self.last is None else self.last.sequence


def budgets_under(lock: Lock, *, holder_id: str, credit_type: str, budgets: Sequence[str]) -> dict[str, AccountBudget]:
    """Return these budgets of an account by name, also those that it does not have. They stay so under the lock."""
    state = journal.read(lock, holder_id, credit_type).state
    return _name_budgets(holder_id, credit_type, state.budgets, state.now_us, budgets)


def budgets_now(*, holder_id: str, credit_type: str, budgets: Sequence[str]) -> dict[str, AccountBudget]:
    """As `budgets_under`, without a lock, to be shown."""
    standing = budget_settings.standing_budgets(holder_id, credit_type)
    if standing is None:
        return _name_budgets(holder_id, credit_type, (), 0, budgets)
    return _name_budgets(holder_id, credit_type, standing.budgets, standing.now_us, budgets)


def _name_budgets(
    holder_id: str, credit_type: str, standing: Budgets, now_us: int, budgets: Sequence[str]
) -> dict[str, AccountBudget]:
    present = {budget.name: budget for budget in in_force(standing, now_us)}
    versions = left_of(standing, now_us)
    settings = budget_settings.last_settings(holder_id, credit_type, budgets)
    return {name: AccountBudget(present.get(name), settings.get(name), tuple(versions.get(name, ())), now_us) for name in budgets}


def check_budgets(terms: Iterable[tuple[str, BudgetTerms]], *, at: str) -> None:
    """Return, or raise for the first of some budgets that could not be set one after the other in the accounts of a holder.

    Args:
        terms: the credit type and the terms of each. A parent stands before the budgets that nest in it.
        at: the pointer of their list.
    """
    scopes: dict[tuple[str, str], list[tuple[str, str | None]]] = {}
    for number, (credit_type, budget) in enumerate(terms):
        pointer = f"{at}/{number}"
        check_budget(budget, at=pointer)
        levels = [(budget.by, budget.label)]
        if budget.parent is not None:
            within = scopes.get((credit_type, budget.parent))
            if within is None:
                detail = "must be a budget of the same credit type that stands before this one"
                raise Invalid(pointer=f"{pointer}/parent", rule="stands-before", detail=detail)
            if levels[0] in within:
                detail = "must count by something else than this budget"
                raise Invalid(pointer=f"{pointer}/parent", rule="same-scope", detail=detail)
            if len(within) >= MAX_LEVELS:
                raise Invalid(pointer=f"{pointer}/parent", rule="too-deep", detail=f"budgets nest at most {MAX_LEVELS} deep")
            levels = [*within, *levels]
        if (credit_type, budget.budget) in scopes:
            detail = "another budget of the credit type has this name"
            raise Invalid(pointer=f"{pointer}/budget", rule="unique", detail=detail)
        scopes[credit_type, budget.budget] = levels
