"""The rules of budgets: what counts, what is refused, and how budgets are set and ended.

Spends, holds, what a capture takes beyond its hold, and transfers to others count when they are made; a release takes back what
its hold counted. Refunds, revocations and expiries change nothing. What pays invoices does not count. See docs/adr/0075.
"""

from typing import Any

from ledger.errors import BudgetExceeded, BudgetLimit, BudgetNotFound, Invalid
from ledger.rules.accounts import AccountState
from ledger.rules.budgets.states import (
    HARD,
    MAX_BUDGETS,
    MAX_COUNTERS,
    MAX_SUBJECT_CHARACTERS,
    SETTINGS,
    Budget,
    Budgets,
    Share,
    counted_subject,
)
from ledger.rules.decisions.settlement import Entries, settle_due
from ledger.rules.instants import to_text
from ledger.rules.requests import BudgetRequest, EndBudgetRequest, decides


def counted(account: AccountState, asking: Any, amount: int, *, requested: int | None = None, hold: int | None = None) -> Budgets:
    """Return the budgets after `amount` was used, or raise. What costs nothing changes no budget, and exceeds none.

    Args:
        account: with everything booked that is due.
        asking: the request, or the entry of the hold that is captured: its actor, reference and metadata name the subjects.
        requested: for the facts, how many credits were asked for if that is not `amount`.
        hold: the sequence of the hold that sets the credits aside.

    Raises:
        BudgetExceeded: a hard budget has less left.
        BudgetLimit: the budgets would count too many subjects.
        Invalid: a label is too long to be counted.
    """
    if amount == 0:
        return account.budgets
    now_us = account.now_us
    current = [(budget.at(now_us), _subject(budget, asking)) for budget in account.budgets]
    exceeded = [
        (budget, subject)
        for budget, subject in current
        if subject is not None and budget.is_hard and budget.used(subject) + amount > budget.limit
    ]
    if exceeded:
        raise _refusal(exceeded, now_us, amount if requested is None else requested)
    budgets = tuple([_after(budget, subject, now_us, amount, hold) for budget, subject in current])
    if sum([len(budget.counters) for budget in budgets]) > MAX_COUNTERS:
        raise BudgetLimit(what="subjects of budgets", limit=MAX_COUNTERS)
    return budgets


def _after(budget: Budget, subject: str | None, now_us: int, amount: int, hold: int | None) -> Budget:
    if subject is None:
        return budget
    start_us = budget.step(now_us)
    shares = budget.shares if hold is None else (*budget.shares, Share(hold, subject, start_us, amount))
    return budget.added(subject, start_us, amount)._replace(shares=shares)


def room(account: AccountState, asking: Any, amount: int) -> int:
    """Return how much of `amount` the hard budgets have room for: 0 or more. Args: as for `counted`."""
    for budget in account.budgets:
        subject = _subject(budget, asking) if budget.is_hard else None
        if subject is not None:
            amount = min(amount, budget.limit - budget.at(account.now_us).used(subject))
    return max(0, amount)


@decides(BudgetRequest)
def set_budget(account: AccountState, request: BudgetRequest) -> Entries:
    """Set a budget, or replace the one of its name, by an `adjust` entry of 0; no credits move.

    A budget with the same window and scope as before goes on counting, another one begins with nothing used.

    Raises:
        BudgetLimit: the account has too many budgets.
    """
    booked, account = settle_due(account)
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
    )
    others = {budget.name: budget for budget in account.budgets}
    known = others.get(new.name)
    if known is not None and known.counts_as == new.counts_as:
        new = new._replace(counters=known.counters, shares=known.shares).at(account.now_us)
    others[new.name] = new
    if len(others) > MAX_BUDGETS:
        raise BudgetLimit(what="budgets", limit=MAX_BUDGETS)
    return [*booked, _setting(account, request, tuple([others[name] for name in sorted(others)]))]


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
    return account.next_entry("adjust", 0, lots=account.lots, budgets=budgets, counterpart=setting, request=request)


def _subject(budget: Budget, asking: Any) -> str | None:
    subject = counted_subject(budget, asking)
    if subject is not None and len(subject) > MAX_SUBJECT_CHARACTERS:
        detail = f"must be at most {MAX_SUBJECT_CHARACTERS} characters: the budget {budget.name} counts by it"
        raise Invalid(pointer=f"/metadata/{budget.label}", rule="too-long", detail=detail)
    return subject


def _refusal(exceeded: list[tuple[Budget, str]], now_us: int, amount: int) -> BudgetExceeded:
    """The refusal by the budget that gets room last; one whose limit is below the amount never does."""
    budget, subject = max(exceeded, key=lambda each: (each[0].limit < amount, each[0].resets_us(each[1], now_us, amount) or 0))
    used, resets_us = budget.used(subject), budget.resets_us(subject, now_us, amount)
    return BudgetExceeded(
        budget=budget.name,
        subject=subject if budget.by != "holder" else None,
        requested=amount,
        resets_at=None if resets_us is None else to_text(resets_us),
        limit=budget.limit,
        used=used,
        remaining=max(0, budget.limit - used),
    )
