"""`budget.exceeded`: once for each window and subject of a budget, by the entries that the feed reads."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger.database.statements import fetch_rows
from ledger.errors import BudgetExceeded
from ledger.rules.budget_states import Budget, Steps, counted_subject, own_subject, parents_of
from ledger.rules.budget_windows import HOUR_US, end_of
from ledger.rules.entries import Entry
from ledger.rules.instants import to_text, to_us
from ledger.signals.alert_states import AlertSignal
from ledger.signals.types import BUDGET_EXCEEDED
from ledger.values import encode_json

REPORTED: Final = "SELECT credit_type, budget, subject, until FROM ledger_budget_report WHERE holder_id = %s"
KEEP: Final = """
    INSERT INTO ledger_budget_report AS known (holder_id, credit_type, budget, subject, until)
    SELECT %s, r.credit_type, r.budget, r.subject, r.until
    FROM jsonb_to_recordset(%s::jsonb) AS r (credit_type text, budget text, subject text, until timestamptz)
    ON CONFLICT (holder_id, credit_type, budget, subject) DO UPDATE SET until = EXCLUDED.until
"""

_IN_WINDOW: Final = """
    SELECT subject, array_agg(start_us), array_agg(used)
    FROM ledger_budget_counter
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s AND setting = %(setting)s
        AND start_us BETWEEN %(first)s AND %(last)s AND used > 0 {where}
    GROUP BY subject
    {having}
"""
BY_SUBJECT: Final = _IN_WINDOW.format(where="AND subject = %(subject)s", having="")
BEYOND: Final = _IN_WINDOW.format(
    where="", having="HAVING sum(used) > %(limit)s AND max(sequence) < %(until)s ORDER BY subject LIMIT 100"
)

At = tuple[str, str, str]
"""A credit type, a budget and a subject."""


class BudgetReports:
    """Until when the budgets of one holder were reported, in the transaction of the feed."""

    def __init__(self, holder: str) -> None:
        self.holder = holder
        self._known: dict[At, int] | None = None
        self._fresh: dict[At, int] = {}

    def exceeded_by(self, entry: Entry) -> Iterator[AlertSignal]:
        """Yield the signals of the budgets that an entry exceeds, or that refused its request."""
        for budget, subject, facts in _exceeded_budgets(entry):
            at = (entry.credit_type, budget.name, subject)
            if self._until_us.get(at, 0) <= entry.decided_us:
                self._until_us[at] = self._fresh[at] = _window_ends_us(budget, entry.decided_us)
                yield AlertSignal(BUDGET_EXCEEDED.name, _data(entry, budget, subject) | facts)

    def keep(self) -> None:
        """Write what was reported."""
        names = ("credit_type", "budget", "subject")
        rows = [dict(zip(names, at, strict=True)) | {"until": to_text(until_us)} for at, until_us in self._fresh.items()]
        if rows:
            with connection.cursor() as cursor:
                cursor.execute(KEEP, [self.holder, encode_json(rows)])

    @property
    def _until_us(self) -> dict[At, int]:
        if self._known is None:
            rows = fetch_rows(lambda *row: row, REPORTED, [self.holder])
            self._known = {(credit_type, budget, subject): to_us(until) for credit_type, budget, subject, until in rows}
        return self._known


def _exceeded_budgets(entry: Entry) -> Iterator[tuple[Budget, str, dict[str, Any]]]:
    """The budgets and subjects, each with what is used and asked for."""
    known = {budget.setting: budget for budget in entry.present_budgets}
    if entry.refusal is not None and entry.refusal["code"] == BudgetExceeded.code:
        facts = entry.refusal["facts"]
        for budget in entry.present_budgets:
            if budget.name == facts["budget"]:
                yield budget, _refused_subject(entry, budget), {name: facts[name] for name in ("used", "requested", "resets_at")}
    elif entry.kind == "adjust":
        for budget in entry.present_budgets:
            if budget.name == entry.budget and not budget.is_hard:
                yield from _beyond(entry, budget)
    else:
        for each in entry.counts:
            budget = known[each.setting]
            if each.amount > 0 and not budget.is_hard and each.total > budget.limit:
                steps = _steps(entry, budget, BY_SUBJECT, {"subject": each.subject}).get(each.subject, {})
                yield budget, each.subject, _used_facts(budget, steps, each.total, entry.decided_us)


def _refused_subject(entry: Entry, budget: Budget) -> str:
    """Under which subject the budget would have counted the refused request. The facts have no subjects of parents."""
    if not budget.within and entry.refusal is not None:
        return entry.refusal["facts"]["subject"] or ""
    asked = AskedBy(entry.actor, entry.reference, entry.metadata)
    return counted_subject(budget, asked) or ""


class AskedBy(NamedTuple):
    """Who asked, as far as budgets count by it."""

    actor: str
    reference: str
    metadata: dict[str, Any]


def _beyond(entry: Entry, budget: Budget) -> Iterator[tuple[Budget, str, dict[str, Any]]]:
    """The subjects that had used more than the new limit; those that used something since are reported by what they used."""
    for subject, steps in _steps(entry, budget, BEYOND, {"limit": budget.limit, "until": entry.sequence}).items():
        yield budget, subject, _used_facts(budget, steps, sum(steps.values()), entry.decided_us)


def _used_facts(budget: Budget, steps: Steps, used: int, now_us: int) -> dict[str, Any]:
    resets_us = budget.resets_us(steps, now_us, 1)
    return {"used": used, "requested": None, "resets_at": None if resets_us is None else to_text(resets_us)}


def _steps(entry: Entry, budget: Budget, query: str, more: dict[str, Any]) -> dict[str, Steps]:
    """The steps of subjects in the window of the entry, by what is counted now."""
    window = budget.window_at(entry.decided_us)
    parameters: dict[str, Any] = {
        "holder_id": entry.holder_id,
        "credit_type": entry.credit_type,
        "setting": budget.setting,
        "first": window[0],
        "last": window[-1],
    }
    with connection.cursor() as cursor:
        cursor.execute(query, parameters | more)
        return {subject: dict(zip(starts, used, strict=True)) for subject, starts, used in cursor.fetchall()}


def _window_ends_us(budget: Budget, now_us: int) -> int:
    """When the window ends; a rolling one that begins now."""
    return end_of(budget.window, None, budget.time_zone, now_us) if budget.hours is None else now_us + budget.hours * HOUR_US


def _data(entry: Entry, budget: Budget, subject: str) -> dict[str, Any]:
    return {
        "holder_id": entry.holder_id,
        "credit_type": entry.credit_type,
        "budget": budget.name,
        "subject": own_subject(budget, subject),
        "within": parents_of(budget, subject),
        "mode": budget.mode,
        "limit": budget.limit,
        "window": budget.window,
        "hours": budget.hours,
        "time_zone": budget.time_zone,
        "sequence": entry.sequence,
        "as_of": to_text(entry.decided_us),
    }
