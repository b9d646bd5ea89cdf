"""Adds entries to the totals of their days, each exactly once, up to an instant before which no further entry can appear.

An entry's time is read under its holder's lock, and the entry is visible only after COMMIT. So an entry of 23:59:59 may become
visible at 00:00:05, after one of 00:00:01, and a count by time alone would miss it. Therefore the count ends at an instant
before which no entry can appear any more (`ledger.database.horizon`).
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import connection, transaction

from ledger.database.horizon import find_horizon
from ledger.database.lock_names import TOTALS
from ledger.database.locks import try_advisory_lock
from ledger.rules.kinds import KINDS, LINES, TotalsLine, sql_list
from ledger.totals.expiring import add_expiring

PATIENCE_SECONDS: Final = 5.0
SLICE: Final = timedelta(hours=1)
"""How much one transaction counts: a first run over years of entries keeps no transaction open for long."""

COLUMNS: Final = (*LINES, "held_change", "refusals", "entries")


def _sum(line: TotalsLine) -> str:
    """Return the SQL of a line's sum over the entries of its kinds."""
    kinds = sql_list(kind.name for kind in KINDS.values() if kind.total == line.total)
    source = "" if line.source is None else f" AND e.source = '{line.source}'"
    return f"COALESCE(sum({line.sign} * e.moved) FILTER (WHERE e.kind IN {kinds}{source}), 0)"


SUMS: Final = ", ".join(
    [*map(_sum, LINES.values()), "COALESCE(sum(e.moved - e.amount), 0)", "count(*) FILTER (WHERE e.kind = 'refusal')", "count(*)"]
)
"""In the order of COLUMNS. A kind of entry that moves less or more than its amount changes the held credits by the difference."""

MOVED: Final = {
    "amount": "e.amount",
    "drawn": "-COALESCE((SELECT sum((part ->> 1)::numeric) FROM json_array_elements(e.drawn) AS part), 0)",
    "nothing": "0",
}
# The entries recorded in [since, until); refusals have a separate index. The lot of a grant shows its source.
ENTRIES: Final = """
    SELECT e.credit_type, e.kind, e.amount, e.recorded_at,
        CASE WHEN e.kind = 'grant' THEN (
            SELECT CASE lot ->> 5 WHEN '1' THEN 'promotional' WHEN '2' THEN 'postpaid' ELSE 'purchased' END
            FROM json_array_elements(e.lots) AS lot
            WHERE (lot ->> 0)::bigint = e.sequence
        ) END AS source,
        CASE {moved} END AS moved
    FROM ledger_entry AS e
    WHERE e.kind {comparison} 'refusal'
        AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(%(since)s) AND ledger_slot(%(until)s)
        AND e.recorded_at >= %(since)s AND e.recorded_at < %(until)s
"""
_MOVED: Final = " ".join(f"WHEN e.kind = '{kind.name}' THEN {MOVED[kind.moves]}" for kind in KINDS.values())
RECORDED: Final = " UNION ALL ".join(ENTRIES.format(comparison=comparison, moved=_MOVED) for comparison in ("<>", "="))

DAYS: Final = f"""
    INSERT INTO ledger_daily_total AS total (day, credit_type, {", ".join(COLUMNS)})
    SELECT (e.recorded_at AT TIME ZONE 'UTC')::date, e.credit_type, {SUMS}
    FROM ({RECORDED}) AS e
    GROUP BY 1, 2
    ON CONFLICT (day, credit_type) DO UPDATE SET {{assignments}}
    RETURNING 1
"""
ADD: Final = DAYS.format(assignments=", ".join(f"{name} = total.{name} + EXCLUDED.{name}" for name in COLUMNS))
REPLACE: Final = DAYS.format(assignments=", ".join(f"{name} = EXCLUDED.{name}" for name in COLUMNS))

KINDS_RECORDED: Final = f"SELECT e.kind, count(*) FROM ({RECORDED}) AS e GROUP BY e.kind"

# The slot of the next entry recorded since then; null if there is no such entry.
NEXT: Final = """
    SELECT min(found.at) FROM (
        (SELECT ledger_slot(recorded_at) AS at FROM ledger_entry
         WHERE kind <> 'refusal' AND ledger_slot(recorded_at) >= ledger_slot(%(since)s) AND recorded_at >= %(since)s
         ORDER BY ledger_slot(recorded_at) LIMIT 1)
        UNION ALL
        (SELECT ledger_slot(recorded_at) FROM ledger_entry
         WHERE kind = 'refusal' AND ledger_slot(recorded_at) >= ledger_slot(%(since)s) AND recorded_at >= %(since)s
         ORDER BY ledger_slot(recorded_at) LIMIT 1)
    ) AS found
"""


@dataclass(frozen=True, slots=True)
class CountResult:
    """The instant up to which entries are in the totals.

    Args:
        until: every entry recorded before it is in the totals.
        is_held_up: a transaction that may still write an earlier entry did not end in time; the next run goes on.
    """

    until: datetime
    is_held_up: bool = False


def count_entries(
    *, patience_seconds: float = PATIENCE_SECONDS, progress: Callable[[int, int], None] = lambda done, total: None
) -> CountResult:
    """Add all entries recorded before now to the totals of their days; if an earlier entry may still appear, add nothing.

    Args:
        patience_seconds: how long to wait for transactions that may still write an earlier entry.
        progress: called after each slice, with how many hours of entries are counted, and how many there are to count.

    Raises:
        LockBusy: another process is counting.
    """
    with transaction.atomic(), try_advisory_lock(TOTALS()):
        until = find_horizon(patience_seconds)
    if until is None:
        return CountResult(counted_until(), is_held_up=True)
    begun = counted = counted_until()
    while counted < until:
        counted = _count_slice(until)
        progress(_hours(counted - begun), _hours(until - begun))
    return CountResult(counted)


def _hours(time_span: timedelta) -> int:
    return int(time_span / timedelta(hours=1))


def counted_until() -> datetime:
    """Return the instant up to which entries are in the totals."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT counted_until FROM ledger_total_state")
        (until,) = cursor.fetchone()
    return until


def entries_by_kind() -> tuple[dict[str, int], datetime]:
    """Return how many entries of each kind were recorded, by any process, and the instant up to which they are counted.

    One row, whatever the ledger's size. Entries that a clock set back puts before that instant are not included.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT entries::text, counted_until FROM ledger_total_state")
        text, until = cursor.fetchone()
    counts = json.loads(text)
    return {kind: counts.get(kind, 0) for kind in KINDS}, until


def _count_slice(until: datetime) -> datetime:
    """Count the next slice with an entry before `until`; return its end."""
    with transaction.atomic(), try_advisory_lock(TOTALS()), connection.cursor() as cursor:
        since = counted_until()
        if since >= until:
            return since
        cursor.execute(NEXT, {"since": since})
        (begins,) = cursor.fetchone()
        end = until if begins is None or begins >= until else min(begins + SLICE, until)
        if begins is not None:
            # A slice is counted as a whole, however many entries it has.
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute(ADD, {"since": since, "until": end})
            _add_kinds(cursor, since, end)
            add_expiring(cursor, since=since, until=end)
        cursor.execute("UPDATE ledger_total_state SET counted_until = %s", [end])
    return end


def _add_kinds(cursor: Any, since: datetime, end: datetime) -> None:
    counts, _ = entries_by_kind()
    cursor.execute(KINDS_RECORDED, {"since": since, "until": end})
    for kind, count in cursor.fetchall():
        counts[kind] += count
    cursor.execute("UPDATE ledger_total_state SET entries = %s::jsonb", [json.dumps(counts)])
