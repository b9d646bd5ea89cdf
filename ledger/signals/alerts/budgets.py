"""`budget.exceeded`: once for each window and subject of a budget, by the entries that the feed reads."""

from collections.abc import Iterator
from typing import Any, Final

from django.db import connection

from ledger.database.statements import fetch_rows
from ledger.errors import BudgetExceeded
from ledger.rules import Entry
from ledger.rules.budgets.states import BY_HOLDER, Budget
from ledger.rules.budgets.windows import HOUR_US, end_of
from ledger.rules.instants import to_text, to_us
from ledger.rules.kinds import KINDS
from ledger.signals.alerts.states import AlertSignal
from ledger.signals.types import BUDGET_EXCEEDED
from ledger.values import encode_json

REPORTED: Final = "SELECT credit_type, budget, subject, until FROM ledger_budget_report WHERE holder_id = %s"
KEEP: Final = """
    INSERT INTO ledger_budget_report AS known (holder_id, credit_type, budget, subject, until)
    SELECT %s, r.credit_type, r.budget, r.subject, r.until
    FROM jsonb_to_recordset(%s::jsonb) AS r (credit_type text, budget text, subject text, until timestamptz)
    ON CONFLICT (holder_id, credit_type, budget, subject) DO UPDATE SET until = EXCLUDED.until
"""

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
        for budget, subject, facts in _exceeded(entry):
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
            found = fetch_rows(lambda *row: row, REPORTED, [self.holder])
            self._known = {(credit_type, budget, subject): to_us(until) for credit_type, budget, subject, until in found}
        return self._known


def _exceeded(entry: Entry) -> Iterator[tuple[Budget, str, dict[str, Any]]]:
    """The budgets and subjects, each with what is used and asked for."""
    if entry.refusal is not None and entry.refusal["code"] == BudgetExceeded.code:
        facts = entry.refusal["facts"]
        for budget in entry.budgets:
            if budget.name == facts["budget"]:
                yield budget, facts["subject"] or "", {name: facts[name] for name in ("used", "requested", "resets_at")}
    elif KINDS[entry.kind].budgets == "uses" or entry.kind == "adjust":
        for budget in entry.budgets:
            if not budget.is_hard:
                yield from _beyond(budget.at(entry.decided_us), entry.decided_us)


def _beyond(budget: Budget, now_us: int) -> Iterator[tuple[Budget, str, dict[str, Any]]]:
    for counter in budget.counters:
        if counter.used > budget.limit:
            resets_us = budget.resets_us(counter.subject, now_us, 1)
            resets_at = None if resets_us is None else to_text(resets_us)
            yield budget, counter.subject, {"used": counter.used, "requested": None, "resets_at": resets_at}


def _window_ends_us(budget: Budget, now_us: int) -> int:
    """When the window ends; a rolling one that begins now."""
    return end_of(budget.window, None, budget.time_zone, now_us) if budget.hours is None else now_us + budget.hours * HOUR_US


def _data(entry: Entry, budget: Budget, subject: str) -> dict[str, Any]:
    return {
        "holder_id": entry.holder_id,
        "credit_type": entry.credit_type,
        "budget": budget.name,
        "subject": None if budget.by == BY_HOLDER else subject,
        "mode": budget.mode,
        "limit": budget.limit,
        "window": budget.window,
        "hours": budget.hours,
        "time_zone": budget.time_zone,
        "sequence": entry.sequence,
        "as_of": to_text(entry.decided_us),
    }
