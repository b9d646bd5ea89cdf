"""The rules of budgets: what counts, what is refused, and how budgets are set and ended.

Spends, holds, what a capture takes beyond its hold, and transfers to others count when they are made; a release takes back what
its hold counted. Refunds, revocations and expiries change nothing. What pays invoices does not count. See docs/adr/0075 and 0160.
"""

from typing import Any

from ledger.errors import BudgetExceeded, BudgetLimit, BudgetNotFound, Invalid
from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import (
    HARD,
    MAX_BUDGETS,
    MAX_LEVELS,
    MAX_SUBJECT_BYTES,
    MAX_SUBJECT_CHARACTERS,
    NO_STEPS,
    SETTINGS,
    Budget,
    Budgets,
    BudgetScope,
    Counts,
    Steps,
    count,
    counting,
    names_of,
    own_subject,
)
from ledger.rules.decisions.settlement import Entries, settle_due
from ledger.rules.instants import to_text
from ledger.rules.requests import BudgetRequest, EndBudgetRequest, decides


def counted(account: AccountState, asking: Any, amount: int, *, requested: int | None = None) -> Counts:
    """Return what the budgets count of `amount`, or raise. What costs nothing is not counted, and exceeds nothing.

    Args:
        account: with everything booked that is due, and with the counters of the request's subjects.
        asking: the request, or the entry of the hold that is captured: its actor, reference and metadata name the subjects.
        requested: for the facts, how many credits were asked for if that is not `amount`.

    Raises:
        BudgetExceeded: a hard budget has less left.
        Invalid: a label is too long to be counted.
    """
    if amount == 0:
        return ()
    now_us = account.now_us
    found = _counting(account, asking)
    exceeded = [
        (budget, subject)
        for budget, subject in found
        if budget.is_hard and budget.used(_steps(account, budget, subject), now_us) + amount > budget.limit
    ]
    if exceeded:
        raise _refusal(account, exceeded, amount if requested is None else requested)
    return tuple(
        [
            count(budget, subject, budget.step(now_us), amount, counters=account.counters, now_us=now_us)
            for budget, subject in found
        ]
    )


def room(account: AccountState, asking: Any, amount: int) -> int:
    """Return how much of `amount` the hard budgets have room for: 0 or more. Args: as for `counted`."""
    for budget, subject in _counting(account, asking):
        if budget.is_hard:
            amount = min(amount, budget.limit - budget.used(_steps(account, budget, subject), account.now_us))
    return max(0, amount)


@decides(BudgetRequest)
def set_budget(account: AccountState, request: BudgetRequest) -> Entries:
    """Set a budget, or replace the one of its name, by an `adjust` entry of 0; no credits move.

    A budget with the same window and scope as before goes on counting, another one begins with nothing used. The scopes of its
    parents are those of now: what becomes of a parent later does not change it.

    Raises:
        BudgetLimit: the account has too many budgets, or they would nest too deep.
        BudgetNotFound: the account has no budget of the parent's name.
    """
    booked, account = settle_due(account)
    others = {budget.name: budget for budget in account.budgets}
    known = others.get(request.budget)
    new = Budget(
        request.budget,
        request.limit,
        request.window,
        request.hours,
        request.time_zone,
        request.by,
        request.label,
        request.subject,
        request.mode == HARD,
        account.sequence + 1,
        request.parent,
        _within(others, request),
    )
    if known is not None and known.counts_as == new.counts_as:
        new = new._replace(setting=known.setting)
    others[new.name] = new
    if len(others) > MAX_BUDGETS:
        raise BudgetLimit(what="budgets", limit=MAX_BUDGETS)
    return [*booked, _setting(account, request, tuple([others[name] for name in sorted(others)]))]


def _within(others: dict[str, Budget], request: BudgetRequest) -> tuple[BudgetScope, ...]:
    if request.parent is None:
        return ()
    parent = others.get(request.parent)
    if parent is None:
        raise BudgetNotFound(budget=request.parent)
    if (request.by, request.label) in {(level.by, level.label) for level in parent.levels}:
        raise Invalid(pointer="/parent", rule="same-scope", detail="must count by something else than this budget")
    if len(parent.levels) >= MAX_LEVELS:
        raise BudgetLimit(what="levels of budgets", limit=MAX_LEVELS)
    return parent.levels


@decides(EndBudgetRequest)
def end_budget(account: AccountState, request: EndBudgetRequest) -> Entries:
    """End a budget, by an `adjust` entry of 0; no credits move.

    Raises:
        BudgetNotFound: the account has no budget of that name.
    """
    booked, account = settle_due(account)
    left = tuple([budget for budget in account.budgets if budget.name != request.budget])
    if len(left) == len(account.budgets):
        raise BudgetNotFound(budget=request.budget)
    return [*booked, _setting(account, request, left)]


def _setting(account: AccountState, request: BudgetRequest | EndBudgetRequest, budgets: Budgets) -> Any:
    setting: dict[str, Any] = {"budget": request.budget}
    if isinstance(request, BudgetRequest):
        setting["settings"] = {name: getattr(request, name) for name in SETTINGS}
        if request.parent is not None:
            setting["settings"]["parent"] = request.parent
    return account.next_entry("adjust", 0, lots=account.lots, budgets=budgets, counterpart=setting, request=request)


def _counting(account: AccountState, asking: Any) -> list[tuple[Budget, str]]:
    found = counting(account.budgets, asking)
    for budget, subject in found:
        if len(subject) > MAX_SUBJECT_CHARACTERS:
            _check_names(budget, subject, asking)
    return found


def _check_names(budget: Budget, subject: str, asking: Any) -> None:
    for scope, name in names_of(asking, budget):
        if len(name) > MAX_SUBJECT_CHARACTERS or len(subject.encode()) > MAX_SUBJECT_BYTES:
            detail = f"must be at most {MAX_SUBJECT_CHARACTERS} characters: the budget {budget.name} counts by it"
            raise Invalid(pointer=f"/metadata/{scope.label}", rule="too-long", detail=detail)


def _steps(account: AccountState, budget: Budget, subject: str) -> Steps:
    return account.counters.get((budget.setting, subject), NO_STEPS)


def _refusal(account: AccountState, exceeded: list[tuple[Budget, str]], amount: int) -> BudgetExceeded:
    """The refusal by the budget that gets room last; one whose limit is below the amount never does."""

    def resets_us(budget: Budget, subject: str) -> int | None:
        return budget.resets_us(_steps(account, budget, subject), account.now_us, amount)

    budget, subject = max(exceeded, key=lambda each: (each[0].limit < amount, resets_us(*each) or 0, len(each[0].within)))
    used, resets = budget.used(_steps(account, budget, subject), account.now_us), resets_us(budget, subject)
    return BudgetExceeded(
        budget=budget.name,
        subject=own_subject(budget, subject),
        requested=amount,
        resets_at=None if resets is None else to_text(resets),
        limit=budget.limit,
        used=used,
        remaining=max(0, budget.limit - used),
    )
