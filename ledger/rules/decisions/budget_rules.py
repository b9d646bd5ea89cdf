"""The rules of budgets: what counts, what is refused, and how budgets are set and ended.

Spends, holds, what a capture takes beyond its hold, and transfers to others count when they are made; a release takes back what
its hold counted. Refunds, revocations and expiries change nothing. What pays invoices does not count. See docs/adr/0075 and 0160.
"""

from datetime import datetime
from typing import Any

from ledger.errors import BudgetExceeded, BudgetLimit, BudgetNotFound, Invalid
from ledger.rules.accounts import AccountState
from ledger.rules.budget_states import (
    HARD,
    MAX_BUDGETS,
    MAX_COMING,
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
    in_force,
    join_settings,
    left_of,
    names_of,
    own_subject,
)
from ledger.rules.decisions.settlement import Entries, settle_due
from ledger.rules.instants import to_text, to_us
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
    """Set a budget, now or from an instant on, by an `adjust` entry of 0; no credits move.

    It takes the place of what the name has from then on; what begins at its end or later stays. A budget with the same window and
    scope as the one that it follows goes on counting, another one begins with nothing used. The scopes of its parents are those
    at its start: what becomes of a parent later does not change it.

    Raises:
        Invalid: it would end before it begins.
        BudgetLimit: the account has too many budgets, or they would nest too deep.
        BudgetNotFound: the account has no budget of the parent's name at the start.
    """
    booked, account = settle_due(account)
    now_us = account.now_us
    starts_us = _coming(request.starts_at, now_us)
    begins_us = starts_us or now_us
    ends_us = None if request.ends_at is None else to_us(request.ends_at)
    if ends_us is not None and ends_us <= begins_us:
        raise Invalid(pointer="/ends_at", rule="past", detail="must be in the future")
    versions = left_of(account.budgets, now_us)
    known = versions.pop(request.budget, [])
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
        _within(versions, request, begins_us),
        starts_us,
        ends_us,
    )
    for former in known:
        is_followed = former.is_in_force(begins_us if starts_us is None else begins_us - 1)
        if is_followed and former.counts_as == new.counts_as:
            new = new._replace(setting=former.setting)
    before = [] if starts_us is None else _until(known, starts_us)
    after = [] if ends_us is None else [each for each in known if each.starts_us is not None and each.starts_us >= ends_us]
    versions[new.name] = [*before, new, *after]
    budgets = join_settings(versions)
    _check_number(budgets, now_us)
    return [*booked, _setting(account, request, budgets)]


def _coming(instant: datetime | None, now_us: int) -> int | None:
    """Return an instant that is still to come; None for now."""
    return None if instant is None or to_us(instant) <= now_us else to_us(instant)


def _until(versions: list[Budget], end_us: int) -> list[Budget]:
    """Return the settings that begin before an instant, none of which lasts longer."""
    return [
        each if each.is_over(end_us) else each._replace(ends_us=end_us)
        for each in versions
        if each.starts_us is None or each.starts_us < end_us
    ]


def _check_number(budgets: Budgets, now_us: int) -> None:
    starts = [each.starts_us or now_us for budget in budgets for each in budget.versions]
    if any(len(in_force(budgets, at_us)) > MAX_BUDGETS for at_us in {now_us, *starts}):
        raise BudgetLimit(what="budgets", limit=MAX_BUDGETS)
    if sum(start_us > now_us for start_us in starts) > MAX_COMING:
        raise BudgetLimit(what="settings of budgets for later", limit=MAX_COMING)


def _within(others: dict[str, list[Budget]], request: BudgetRequest, at_us: int) -> tuple[BudgetScope, ...]:
    if request.parent is None:
        return ()
    parent = next((each for each in others.get(request.parent, []) if each.is_in_force(at_us)), None)
    if parent is None:
        raise BudgetNotFound(budget=request.parent)
    if (request.by, request.label) in {(level.by, level.label) for level in parent.levels}:
        raise Invalid(pointer="/parent", rule="same-scope", detail="must count by something else than this budget")
    if len(parent.levels) >= MAX_LEVELS:
        raise BudgetLimit(what="levels of budgets", limit=MAX_LEVELS)
    return parent.levels


@decides(EndBudgetRequest)
def end_budget(account: AccountState, request: EndBudgetRequest) -> Entries:
    """End a budget, now or at an instant, by an `adjust` entry of 0; no credits move. What would begin later does not begin.

    Raises:
        BudgetNotFound: the account has no budget of that name, and none that comes.
    """
    booked, account = settle_due(account)
    versions = left_of(account.budgets, account.now_us)
    if request.budget not in versions:
        raise BudgetNotFound(budget=request.budget)
    known, ends_us = versions.pop(request.budget), _coming(request.ends_at, account.now_us)
    if ends_us is not None and (left := _until(known, ends_us)):
        versions[request.budget] = left
    return [*booked, _setting(account, request, join_settings(versions))]


def _setting(account: AccountState, request: BudgetRequest | EndBudgetRequest, budgets: Budgets) -> Any:
    setting: dict[str, Any] = {"budget": request.budget}
    if isinstance(request, BudgetRequest):
        setting["settings"] = {name: getattr(request, name) for name in SETTINGS}
        if request.parent is not None:
            setting["settings"]["parent"] = request.parent
        starts_us = _coming(request.starts_at, account.now_us)
        if starts_us is not None:
            setting["starts_at"] = to_text(starts_us)
    ends_at = request.ends_at
    if ends_at is not None and to_us(ends_at) > account.now_us:
        setting["ends_at"] = to_text(to_us(ends_at))
    return account.next_entry("adjust", 0, lots=account.lots, budgets=budgets, counterpart=setting, request=request)


def _counting(account: AccountState, asking: Any) -> list[tuple[Budget, str]]:
    found = counting(account.present_budgets, asking)
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
