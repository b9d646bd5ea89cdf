"""What sold credits cost, over all accounts: at an instant, and by month from opening to closing.

The entries say it: the costs of lots are part of each account's state, and an index has the entries that changed them. So a month
is the scan of its own entries, and an instant is one look-up for each account. A closed month is stored and never changes. If a
server's clock was set back over the end of a closed month, entries with a time in that month appear after it was closed. They are
then in the month that is being closed, on rows that say `is_late`.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from django.db import connection

from ledger.errors import Invalid
from ledger.months import BEGINNING, month_after, starts
from ledger.rules.kinds import COST_LINES, KINDS
from ledger.totals.counting import counted_until
from ledger.totals.expiring import LAST_BEFORE

OPENING, CLOSING = "opening", "closing"

_EXPIRES: Final = "to_char(to_timestamp(floor(({})::numeric / 1000000)) AT TIME ZONE 'UTC', 'YYYY-MM')"

# A lot's terms never change, and the entry that opened it lists it; each lot is looked up once. The index has only entries that
# changed a cost.
CHANGES: Final = f"""
    SELECT moved.credit_type, moved.currency, {
    _EXPIRES.format("(SELECT lot ->> 3 FROM json_array_elements(o.lots) AS lot WHERE (lot ->> 0)::bigint = o.sequence LIMIT 1)")
}, moved.kind, sum(moved.minor)
    FROM (
        SELECT e.holder_id, e.credit_type, e.kind, (change ->> 0)::bigint AS opened_by, change ->> 2 AS currency,
            sum((change ->> 1)::numeric) AS minor
        FROM ledger_entry AS e
        CROSS JOIN LATERAL json_array_elements(e.cost_changes) AS change
        WHERE e.cost_changes IS NOT NULL
            AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(%(since)s) AND ledger_slot(%(until)s)
            AND e.recorded_at >= %(since)s AND e.recorded_at < %(until)s
        GROUP BY 1, 2, 3, 4, 5
    ) AS moved
    JOIN ledger_entry AS o ON o.holder_id = moved.holder_id AND o.credit_type = moved.credit_type AND o.sequence = moved.opened_by
    GROUP BY 1, 2, 3, 4
"""

# Not `FROM json_array_elements(last.holds) AS hold CROSS JOIN LATERAL …`: on a join of functions in a subquery that names a row
# outside of it, Citus fails with "bogus varno".
_EXPIRY_OF_COST: Final = _EXPIRES.format(
    "COALESCE((SELECT lot ->> 3 FROM json_array_elements(last.lots) AS lot WHERE lot ->> 0 = cost ->> 0 LIMIT 1), ("
    "SELECT part ->> 3 FROM ("
    "SELECT json_array_elements(hold -> 2) AS part FROM json_array_elements(last.holds) AS hold"
    ") AS held WHERE part ->> 0 = cost ->> 0 LIMIT 1))"
)
_COSTS: Final = f"""
    sum((cost ->> 1)::numeric)
    {LAST_BEFORE}
    CROSS JOIN LATERAL json_array_elements(last.costs) AS cost
    WHERE first.sequence = 1 AND first.recorded_at < %(until)s
"""
STATES: Final = f"SELECT first.credit_type, cost ->> 2, {_EXPIRY_OF_COST}, {_COSTS} GROUP BY 1, 2, 3"
BY_HOLDER: Final = f"""
    SELECT first.holder_id, {_COSTS}
        AND first.credit_type = %(credit_type)s AND cost ->> 2 = %(currency)s
        AND COALESCE({_EXPIRY_OF_COST}, '') = %(expires)s
    GROUP BY 1 HAVING sum((cost ->> 1)::numeric) <> 0
"""

BY_TIME: Final = """
    SELECT date_trunc(%(step)s, e.recorded_at AT TIME ZONE 'UTC')::date, sum((change ->> 1)::numeric)
    FROM ledger_entry AS e
    CROSS JOIN LATERAL json_array_elements(e.cost_changes) AS change
    WHERE e.cost_changes IS NOT NULL
        AND ledger_slot(e.recorded_at) BETWEEN ledger_slot(%(since)s) AND ledger_slot(%(until)s)
        AND e.recorded_at >= %(since)s AND e.recorded_at < %(until)s
        AND e.credit_type = %(credit_type)s AND e.kind = ANY(%(kinds)s) AND change ->> 2 = %(currency)s
    GROUP BY 1 ORDER BY 1
"""

STORED: Final = "SELECT credit_type, costs::text FROM ledger_month_close WHERE month = %s ORDER BY credit_type"
LAST_CLOSED: Final = "SELECT max(month) FROM ledger_month_close WHERE month < %s"
STORED_BEFORE: Final = "SELECT month, costs::text FROM ledger_month_close WHERE credit_type = %s AND month < %s"
ALL_STORED: Final = "SELECT credit_type, costs::text FROM ledger_month_close WHERE month < %s"


class CostKey(NamedTuple):
    """Which credits: of a type, sold in a currency, that expire in a month (UTC), "2026-10"; "" for never."""

    credit_type: str
    currency: str
    expires: str


class CostRow(NamedTuple):
    """One amount of a month, in minor units: `line` is OPENING, CLOSING or one of COST_LINES.

    Amounts of lines are changes of the cost of what is unused: below 0 what left it. `is_late`: of entries that appeared after
    the month of their time was closed.
    """

    key: CostKey
    line: str
    minor: int
    is_late: bool = False

    @property
    def stored(self) -> list[Any]:
        return [self.key.currency, self.key.expires, self.line, self.minor, *([1] if self.is_late else [])]


@dataclass(frozen=True, slots=True)
class MonthCosts:
    """What sold credits cost in a month: opening, changes, closing.

    Args:
        month: its first day.
        as_of: the instant up to which entries are counted; None for a closed month, which never changes.
    """

    month: date
    as_of: datetime | None
    rows: tuple[CostRow, ...]

    @property
    def is_closed(self) -> bool:
        return self.as_of is None


Costs = Counter[CostKey]
Changes = Counter[tuple[CostKey, str]]
"""By line too."""


def costs_at(at: datetime) -> Costs:
    """Return what the unused credits of all accounts cost at an instant, by what was recorded before it."""
    with connection.cursor() as cursor:
        cursor.execute(STATES, {"until": at})
        return Counter({CostKey(of, currency, expires or ""): int(minor) for of, currency, expires, minor in cursor.fetchall()})


def costs_by_holder(at: datetime, key: CostKey) -> dict[str, int]:
    """Return what the unused credits of each holder cost at an instant. It reads every account of the type."""
    with connection.cursor() as cursor:
        cursor.execute(BY_HOLDER, {"until": at, **key._asdict()})
        return {holder_id: int(minor) for holder_id, minor in cursor.fetchall()}


def month_costs(month: date) -> MonthCosts:
    """Return a month: as it was closed, or as far as its entries are counted.

    Args:
        month: its first day.

    Raises:
        Invalid: the month lies before 2000, or has not begun at the instant up to which entries are counted.
    """
    start, counted = starts(month), counted_until()
    if month < BEGINNING.date():
        raise Invalid(pointer="/month", rule="too-early", detail="the first month is 2000-01")
    with connection.cursor() as cursor:
        cursor.execute(STORED, [month])
        stored = cursor.fetchall()
        if stored:
            return MonthCosts(month, None, tuple(_read(stored)))
        if start > counted:
            detail = f"entries are counted up to {counted:%Y-%m-%d %H:%M:%S} UTC; manage.py update_totals counts them"
            raise Invalid(pointer="/month", rule="in-the-future", detail=detail)
        until = min(starts(month_after(month)), counted)
        return MonthCosts(month, until, tuple(rows_of_month(cursor, month, until)))


def rows_of_month(cursor: Any, month: date, until: datetime) -> list[CostRow]:
    """Return the rows of a month that is not closed, by the entries recorded before `until`."""
    start = starts(month)
    cursor.execute(LAST_CLOSED, [month])
    (last,) = cursor.fetchone()
    follows = last is not None and month_after(last) == month
    opening = _closing_of(cursor, last) if follows else costs_at(start)
    changes, closing = _changes(cursor, start, until), costs_at(until)
    late: Changes = Counter()
    if follows and opening + Counter() != _without(closing, changes):
        late = _late(cursor, month, start)
    rows = [CostRow(key, OPENING, minor) for key, minor in opening.items() if minor]
    rows += [CostRow(key, line, minor, is_late=True) for (key, line), minor in late.items() if minor]
    rows += [CostRow(key, line, minor) for (key, line), minor in changes.items() if minor]
    rows += [CostRow(key, CLOSING, minor) for key, minor in closing.items() if minor]
    places = {line: place for place, line in enumerate((OPENING, *COST_LINES, CLOSING))}
    return sorted(rows, key=lambda row: (row.key, row.is_late, places[row.line]))


def changes_by_day(
    month: date, credit_type: str, currency: str, lines: Collection[str], *, until: datetime | None = None
) -> dict[date, int]:
    """Return what the entries of a month changed of the cost of a credit type in a currency, by day.

    Args:
        lines: of COST_LINES.
        until: entries before this instant; None: all of the month.
    """
    return _by_time("day", starts(month), until or starts(month_after(month)), credit_type, currency, lines)


def late_by_month(month: date, credit_type: str, currency: str, lines: Collection[str]) -> dict[date, int]:
    """Return what entries of earlier months changed that appeared after these were closed, by the month of their time.

    Months after their own count them. It reads all entries that changed a cost.
    """
    late = Counter(_by_time("month", BEGINNING, starts(month), credit_type, currency, lines))
    with connection.cursor() as cursor:
        cursor.execute(STORED_BEFORE, [credit_type, month])
        for closed, text in cursor.fetchall():
            stored = _read([(credit_type, text)])
            late[closed] -= sum(
                row.minor for row in stored if row.key.currency == currency and row.line in lines and not row.is_late
            )
    return {closed: minor for closed, minor in late.items() if minor}


def _by_time(
    step: str, since: datetime, until: datetime, credit_type: str, currency: str, lines: Collection[str]
) -> dict[date, int]:
    kinds = [kind.name for kind in KINDS.values() if kind.cost in lines]
    facts: dict[str, Any] = {
        "step": step,
        "since": since,
        "until": until,
        "credit_type": credit_type,
        "currency": currency,
        "kinds": kinds,
    }
    with connection.cursor() as cursor:
        cursor.execute(BY_TIME, facts)
        return {first: int(minor) for first, minor in cursor.fetchall()}


def _without(closing: Costs, changes: Changes) -> Costs:
    """Return the opening that closing and changes come to, without zeros."""
    opening = Counter(closing)
    for (key, _), minor in changes.items():
        opening[key] -= minor
    return Counter({key: minor for key, minor in opening.items() if minor})


def _changes(cursor: Any, since: datetime, until: datetime) -> Changes:
    cursor.execute(CHANGES, {"since": since, "until": until})
    changes: Changes = Counter()
    for credit_type, currency, expires, kind, minor in cursor.fetchall():
        changes[CostKey(credit_type, currency, expires or ""), KINDS[kind].cost or ""] += int(minor)
    return changes


def _late(cursor: Any, month: date, start: datetime) -> Changes:
    """Return what was recorded before the month and is in no closed month: reads all entries that changed a cost."""
    late = _changes(cursor, BEGINNING, start)
    cursor.execute(ALL_STORED, [month])
    for row in _read(cursor.fetchall()):
        if row.line not in (OPENING, CLOSING):
            late[row.key, row.line] -= row.minor
    return late


def _closing_of(cursor: Any, month: date) -> Costs:
    cursor.execute(STORED, [month])
    return Counter({row.key: row.minor for row in _read(cursor.fetchall()) if row.line == CLOSING})


def _read(stored: Iterable[tuple[str, str]]) -> list[CostRow]:
    return [
        CostRow(CostKey(credit_type, currency, expires), line, minor, bool(late))
        for credit_type, text in stored
        for currency, expires, line, minor, *late in json.loads(text)
    ]


def untied(rows: Iterable[CostRow]) -> Mapping[tuple[str, str], int]:
    """Return by credit type and currency by how much opening and changes differ from the closing; empty if all tie."""
    sums: Counter[tuple[str, str]] = Counter()
    for row in rows:
        sums[row.key.credit_type, row.key.currency] += -row.minor if row.line == CLOSING else row.minor
    return {key: minor for key, minor in sums.items() if minor}
