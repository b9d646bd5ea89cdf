"""How many credits an account used on each day: spends and captures, less refunds."""

from datetime import date, datetime, time, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection

from ledger import conf
from ledger.rules.kinds import KINDS, sql_list

DAYS: Final = 30
MOST_ENTRIES: Final = 10_000
"""At most how many entries are added up, the newest: the cost does not grow with the history."""

MOVED: Final = {
    "amount": "amount",
    "drawn": "-COALESCE((SELECT sum((part ->> 1)::numeric) FROM json_array_elements(drawn) AS part), 0)",
}
OF_USAGE: Final = [kind for kind in KINDS.values() if kind.total in ("spent", "refunded")]
USED: Final = "\n".join(f"            WHEN '{kind.name}' THEN -({MOVED[kind.moves]})" for kind in OF_USAGE)
# By effective time, so imported history was used on its own days. No usage is effective after it was recorded.
_BY_DAY: Final = f"""
WITH newest AS (
    SELECT recorded_at, effective_at, kind, amount, drawn
    FROM ledger_entry
    WHERE holder_id = %(holder_id)s AND credit_type = %(credit_type)s
        AND sequence > ledger_sequence_at(%(holder_id)s, %(credit_type)s, {{since}} - interval '1 microsecond')
    ORDER BY sequence DESC
    LIMIT {MOST_ENTRIES}
)
SELECT (COALESCE(effective_at, recorded_at) AT TIME ZONE %(zone)s)::date AS day, sum(CASE kind
{USED}
        END), (SELECT count(*) FROM newest)
FROM newest
WHERE kind IN {sql_list(kind.name for kind in OF_USAGE)}
GROUP BY day
ORDER BY day
"""

BY_DAY: Final = _BY_DAY.format(since="%(since)s::timestamptz")
# With a test clock the days are the clock's.
BY_DAY_OF_CLOCK: Final = _BY_DAY.format(since="ledger_recorded_by(%(holder_id)s, %(since)s::timestamptz)")


class DayUsage(NamedTuple):
    """A day, and the credits that were used on it; below 0 if more was refunded."""

    day: date
    used: int


def usage_by_day(holder_id: str, credit_type: str, *, zone: ZoneInfo, now: datetime) -> list[DayUsage]:
    """Return the usage of each of the last DAYS days, today included.

    For an account with more than MOST_ENTRIES entries in them: only of the days that these cover.
    """
    today = now.astimezone(zone).date()
    first = today - timedelta(days=DAYS - 1)
    since = datetime.combine(first, time(), zone)
    values: dict[str, Any] = {"holder_id": holder_id, "credit_type": credit_type, "zone": zone.key, "since": since}
    with connection.cursor() as cursor:
        cursor.execute(BY_DAY_OF_CLOCK if conf.TEST_CLOCKS.value else BY_DAY, values)
        rows = cursor.fetchall()
    if rows and rows[0][2] == MOST_ENTRIES:
        # The first of these days may have more entries than were read.
        first = max(first, rows[0][0] + timedelta(days=1))
    # A sum can exceed a bigint.
    used = {day: int(amount) for day, amount, _ in rows}
    days = (first + timedelta(days=number) for number in range((today - first).days + 1))
    return [DayUsage(day, used.get(day, 0)) for day in days]
