"""Closes a month: its totals are counted again, compared with the accounts at its end, and never change afterwards.

The accounts are the second opinion. The last entry of each account before the end has its number, balance and held credits; the
totals must have as many entries and credits. If a server's clock was set back over the end of a closed month, entries with a time
in that month appear after it was closed. They then count in the month that is being closed, as late entries.
"""

import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction

from ledger.database.lock_names import TOTALS
from ledger.database.locks import try_advisory_lock
from ledger.database.statements import fetch_rows
from ledger.months import BEGINNING, month_after, starts
from ledger.rules.kinds import left_of
from ledger.totals.costs import CostRow, rows_of_month, untied
from ledger.totals.counting import COLUMNS, NEXT, RECORDED, REPLACE, SUMS, counted_until
from ledger.totals.expiring import LAST_BEFORE, recount_expiring
from ledger.totals.ties import ties

# A state has a part for the account, without a source, and one for each lot: a cluster adds up the accounts of a shard on its
# node. An account with nothing but refusals is not counted; its entries are.
_PARTS: Final = f"""
    {LAST_BEFORE}
    CROSS JOIN LATERAL ledger_state_parts(last.sequence, last.balance, last.held, last.lots, last.holds) AS part
    WHERE first.sequence = 1 AND first.recorded_at < %(until)s
"""
STATES: Final = f"""
    SELECT first.credit_type, part.source, part.expires, part.is_held,
        count(*) FILTER (WHERE last.refusal ->> 'after' IS DISTINCT FROM '0'),
        sum(part.entries), sum(part.credits), sum(part.held)
    {_PARTS}
    GROUP BY 1, 2, 3, 4
    ORDER BY first.credit_type, part.expires NULLS LAST, part.source DESC, part.is_held
"""
# The same for one credit type, by holder: the credits of a source and month of expiry; and what overdrafts owe, below 0.
BY_HOLDER: Final = f"""
    SELECT first.holder_id, sum(part.credits)
    {_PARTS} AND first.credit_type = %(credit_type)s
        AND part.source = %(source)s AND COALESCE(part.expires, '') = %(expires)s AND part.is_held = %(is_held)s
    GROUP BY 1 HAVING sum(part.credits) <> 0
"""
OWED_BY_HOLDER: Final = f"""
    SELECT holder_id, owed FROM (
        SELECT first.holder_id, sum(CASE WHEN part.source IS NULL THEN part.credits ELSE -part.credits END) AS owed
        {_PARTS} AND first.credit_type = %(credit_type)s AND part.is_held IS NOT TRUE
        GROUP BY 1
    ) AS account
    WHERE owed <> 0
"""

# The amounts that customers paid for purchased credits, of the grants that say so.
_SOLD: Final = """
    sum((e.sale ->> 'paid_minor')::numeric)
    FROM ledger_entry AS e
    WHERE e.kind = 'grant'
        AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(%(start)s) AND ledger_slot(%(end)s)
        AND e.recorded_at >= %(start)s AND e.recorded_at < %(end)s
        AND e.sale IS NOT NULL
"""
PAID: Final = f"SELECT e.credit_type, e.sale ->> 'currency', {_SOLD} GROUP BY 1, 2 ORDER BY 1, 2"
PAID_BY_DAY: Final = f"""
    SELECT (e.recorded_at AT TIME ZONE 'UTC')::date, {_SOLD}
        AND e.credit_type = %(credit_type)s AND e.sale ->> 'currency' = %(currency)s
    GROUP BY 1
"""

COUNTED: Final = f"""
    SELECT credit_type, {", ".join(f"sum({name})" for name in COLUMNS)}
    FROM ledger_daily_total WHERE day < %(end)s GROUP BY credit_type
"""
RECORDED_BEFORE: Final = f"SELECT e.credit_type, {SUMS} FROM ({RECORDED}) AS e GROUP BY e.credit_type"

LATE: Final = f"""
    INSERT INTO ledger_daily_total AS total (day, credit_type, {", ".join(COLUMNS)}, late_entries)
    VALUES (%s, %s, {", ".join(["%s"] * len(COLUMNS))}, %s)
    ON CONFLICT (day, credit_type) DO UPDATE
    SET {", ".join(f"{name} = total.{name} + EXCLUDED.{name}" for name in (*COLUMNS, "late_entries"))}
"""

CLOSE: Final = """
    INSERT INTO ledger_month_close (month, credit_type, accounts, entries, balance, held, outstanding, paid, ties, costs)
    VALUES (%s, %s, %s, %s, %s, %s, %s::json, %s::json, %s::json, %s::json)
"""


class TotalsDisagree(Exception):
    """The totals of a month differ from the accounts at its end; the month stays open. A law of the ledger is broken."""


@dataclass(slots=True)
class CountedState:
    """The sums over all accounts of a credit type at an instant."""

    credit_type: str
    accounts: int = 0
    entries: int = 0
    balance: int = 0
    held: int = 0
    outstanding: list[dict[str, Any]] = field(default_factory=list)


def close_months() -> list[date]:
    """Close every month that has ended and is counted, the oldest first; return them.

    Raises:
        LockBusy: another process is counting or closing.
        TotalsDisagree: a month's totals and the accounts differ; it is not closed.
    """
    closed = []
    while (month := _close_next()) is not None:
        closed.append(month)
    return closed


def credits_by_holder(at: datetime, credit_type: str, *, source: str, expires: str, is_held: bool) -> dict[str, int]:
    """Return the credits of each holder at an instant, of a source and month of expiry ("" for never), held or not.

    It reads every account of the type.
    """
    facts = {"until": at, "credit_type": credit_type, "source": source, "expires": expires, "is_held": is_held}
    return dict(fetch_rows(_of_holder, BY_HOLDER, facts))


def owed_by_holder(at: datetime, credit_type: str) -> dict[str, int]:
    """Return what each holder owes on overdrafts at an instant, below 0. It reads every account of the type."""
    return dict(fetch_rows(_of_holder, OWED_BY_HOLDER, {"until": at, "credit_type": credit_type}))


def _of_holder(holder_id: str, amount: Any) -> tuple[str, int]:
    return holder_id, int(amount)


def paid_by_day(month: date, credit_type: str, currency: str) -> dict[date, int]:
    """Return what was paid for the purchased credits of a month, by the day of the grant, in minor units."""
    facts = {"start": starts(month), "end": starts(month_after(month)), "credit_type": credit_type, "currency": currency}
    return {day: int(minor) for day, minor in fetch_rows(lambda *row: row, PAID_BY_DAY, facts)}


def is_closed_up_to(month: date) -> bool:
    """Return whether no entry of the month, or of an earlier one, is in a month that is still to be closed."""
    with connection.cursor() as cursor:
        following = _next_month(cursor)
    return following is None or following > month


def _close_next() -> date | None:
    with transaction.atomic(), try_advisory_lock(TOTALS()), connection.cursor() as cursor:
        month = _next_month(cursor)
        if month is None or starts(month_after(month)) > counted_until():
            return None
        # The statement reads a whole month, however large it is.
        cursor.execute("SET LOCAL statement_timeout = 0")
        _close(cursor, month)
        recount_expiring(cursor, until=counted_until())
    return month


def _next_month(cursor: Any) -> date | None:
    """Return the first month that is not closed and has entries before its end; None without any entries."""
    cursor.execute("SELECT max(month) FROM ledger_month_close")
    (last,) = cursor.fetchone()
    if last is not None:
        return month_after(last)
    cursor.execute(NEXT, {"since": BEGINNING})
    (first,) = cursor.fetchone()
    return None if first is None else first.astimezone(UTC).date().replace(day=1)


def _close(cursor: Any, month: date) -> None:
    start, end = starts(month), starts(month_after(month))
    cursor.execute(REPLACE, {"since": start, "until": end})
    states = _states(cursor, end)
    if _entries(cursor, end) != {state.credit_type: state.entries for state in states}:
        _count_late(cursor, month, end)
    _ensure_agree(month, _count_entries(cursor, end), states)
    cursor.execute(PAID, {"start": start, "end": end})
    paid: dict[str, dict[str, int]] = {}
    for credit_type, currency, minor in cursor.fetchall():
        paid.setdefault(credit_type, {})[currency] = int(minor)
    tied, costs = ties(start, end), rows_of_month(cursor, month, end)
    _ensure_costs_tie(month, costs)
    for state in states:
        of_type = [tie._asdict() for tie in tied if tie.credit_type == state.credit_type]
        facts = [json.dumps(state.outstanding), json.dumps(paid.get(state.credit_type, {})), json.dumps(of_type)]
        facts.append(json.dumps([row.stored for row in costs if row.key.credit_type == state.credit_type]))
        cursor.execute(CLOSE, [month, state.credit_type, state.accounts, state.entries, state.balance, state.held, *facts])


def _states(cursor: Any, end: datetime) -> list[CountedState]:
    """Return all accounts at the end, by credit type."""
    cursor.execute(STATES, {"until": end})
    states: dict[str, CountedState] = {}
    for credit_type, source, expires, is_held, count, entries, amount, held in cursor.fetchall():
        state = states.setdefault(credit_type, CountedState(credit_type))
        if source is None:
            state.accounts, state.entries, state.balance, state.held = count, int(entries), int(amount), int(held)
        else:
            state.outstanding.append({"expires": expires, "source": source, "is_held": is_held, "amount": int(amount)})
    return list(states.values())


def _count_entries(cursor: Any, end: datetime) -> dict[str, dict[str, int]]:
    cursor.execute(COUNTED, {"end": end.date()})
    return {credit_type: dict(zip(COLUMNS, map(int, sums), strict=True)) for credit_type, *sums in cursor.fetchall()}


def _entries(cursor: Any, end: datetime) -> dict[str, int]:
    return {credit_type: sums["entries"] for credit_type, sums in _count_entries(cursor, end).items()}


def _count_late(cursor: Any, month: date, end: datetime) -> None:
    """Add to the month's last day what was recorded before its end and is in no day's totals."""
    counted = _count_entries(cursor, end)
    cursor.execute(RECORDED_BEFORE, {"since": BEGINNING, "until": end})
    for credit_type, *sums in cursor.fetchall():
        known = counted.get(credit_type, dict.fromkeys(COLUMNS, 0))
        missing = [int(recorded) - known[name] for name, recorded in zip(COLUMNS, sums, strict=True)]
        if any(missing):
            late_entries = missing[COLUMNS.index("entries")]
            cursor.execute(LATE, [end.date() - timedelta(days=1), credit_type, *missing, late_entries])


def _ensure_agree(month: date, counted: dict[str, dict[str, int]], states: list[CountedState]) -> None:
    for state in states:
        sums = counted.get(state.credit_type, dict.fromkeys(COLUMNS, 0))
        found = (sums["entries"], left_of(sums), sums["held_change"])
        if found != (state.entries, state.balance + state.held, state.held):
            raise TotalsDisagree(
                f"{month:%Y-%m}, {state.credit_type}: the totals come to {found[0]} entries, {found[1]} credits, "
                f"{found[2]} held; the accounts to {state.entries}, {state.balance + state.held}, {state.held}"
            )


def _ensure_costs_tie(month: date, rows: list[CostRow]) -> None:
    for (credit_type, currency), minor in untied(rows).items():
        raise TotalsDisagree(
            f"{month:%Y-%m}, {credit_type}: opening and changes of costs are {minor} {currency} above the closing"
        )
