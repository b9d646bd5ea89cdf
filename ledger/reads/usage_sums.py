"""Where the credits of an account went: what was used, by label, rate and day. See docs/adr/0165."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection

RATE: Final = "rate"
LABEL: Final = "label:"
NAMED_VALUES: Final = 200
"""How many values of a label have a sum of their own on a day, of an account with more than SUMMED_ENTRIES entries."""
SUMMED_ENTRIES: Final = 256
"""The database sums up the entries of an account in groups of this number; a read adds those that are not summed up yet."""
QUARTER: Final = timedelta(minutes=15)
MICROSECOND: Final = timedelta(microseconds=1)
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
UTC_ZONE: Final = ZoneInfo("UTC")

# What is summed up, and the entries since, from one snapshot. A row of a day in UTC has parts of at most two days of the zone
# or of the span: `middle` is the quarter of an hour at which the second one begins. Quarters are added up only for such a row.
USAGE: Final = """
WITH last AS MATERIALIZED (
    SELECT COALESCE((
        SELECT e.sequence
        FROM ledger_entry e
        WHERE e.holder_id = %(holder_id)s AND e.credit_type = %(credit_type)s
        ORDER BY e.sequence DESC
        LIMIT 1
    ), 0) AS sequence
), days AS MATERIALIZED (
    SELECT
        d.day,
        CASE
            WHEN d.starts < %(since)s THEN %(since)s
            WHEN NOT %(by_day)s THEN LEAST(%(until)s, d.starts + interval '1 day')
            ELSE LEAST(((d.starts AT TIME ZONE %(zone)s)::date + 1)::timestamp AT TIME ZONE %(zone)s, d.starts + interval '1 day')
        END AS middle, d.starts
    FROM (
        SELECT day::date AS day, day::timestamp AT TIME ZONE 'UTC' AS starts
        FROM generate_series((%(since)s AT TIME ZONE 'UTC')::date, (%(last)s AT TIME ZONE 'UTC')::date, interval '1 day') AS day
    ) AS d
), summed AS (
    SELECT
        u.dimension, u.value, d.starts, d.middle, u.amount, u.postpaid, u.entries,
        u.quarter_amounts, u.quarter_postpaid, u.quarter_entries, cardinality(u.quarters) AS size,
        CASE WHEN d.middle < d.starts + interval '1 day'
            THEN width_bucket((EXTRACT(epoch FROM d.middle - d.starts) / 900 - 1)::smallint, u.quarters)
            ELSE cardinality(u.quarters)
        END AS before
    FROM ledger_usage u
    JOIN days d ON d.day = u.day
    WHERE u.holder_id = %(holder_id)s
        AND u.credit_type = %(credit_type)s
        AND u.dimension = ANY (%(dimensions)s)
        AND u.day BETWEEN (%(since)s AT TIME ZONE 'UTC')::date AND (%(last)s AT TIME ZONE 'UTC')::date
), halves AS (
    SELECT
        s.dimension, s.value, s.starts, s.middle, s.amount, s.postpaid, s.entries, s.before, s.size,
        CASE
            WHEN s.before = s.size THEN s.amount
            WHEN s.before = 0 THEN 0
            WHEN s.before > s.size / 2 THEN s.amount - (SELECT sum(q) FROM unnest(s.quarter_amounts[s.before + 1:]) AS q)
            ELSE (SELECT sum(q) FROM unnest(s.quarter_amounts[:s.before]) AS q)
        END AS amount_before,
        CASE
            WHEN s.before = s.size THEN s.postpaid
            WHEN s.before = 0 THEN 0
            WHEN s.before > s.size / 2 THEN s.postpaid - (SELECT sum(q) FROM unnest(s.quarter_postpaid[s.before + 1:]) AS q)
            ELSE (SELECT sum(q) FROM unnest(s.quarter_postpaid[:s.before]) AS q)
        END AS postpaid_before,
        CASE
            WHEN s.before = s.size THEN s.entries
            WHEN s.before = 0 THEN 0
            WHEN s.before > s.size / 2 THEN s.entries - (SELECT sum(q) FROM unnest(s.quarter_entries[s.before + 1:]) AS q)
            ELSE (SELECT sum(q) FROM unnest(s.quarter_entries[:s.before]) AS q)
        END AS entries_before
    FROM summed s
), new AS MATERIALIZED (
    SELECT n.*
    FROM last
    CROSS JOIN LATERAL ledger_usage_of(
        %(holder_id)s, %(credit_type)s, last.sequence - last.sequence %% 256, last.sequence
    ) AS n
    WHERE n.dimension = ANY (%(dimensions)s)
), parts AS (
    SELECT
        h.dimension, h.value, h.starts AS at,
        h.amount_before AS amount, h.postpaid_before AS postpaid, h.entries_before AS entries
    FROM halves h
    WHERE h.before > 0
    UNION ALL
    SELECT
        h.dimension, h.value, h.middle, h.amount - h.amount_before, h.postpaid - h.postpaid_before, h.entries - h.entries_before
    FROM halves h
    WHERE h.before < h.size
    UNION ALL
    -- Of a day on which other values are summed up, a value without a row belongs to these.
    SELECT
        n.dimension,
        CASE WHEN n.dimension <> '' AND '' = (
            SELECT max(u.value)
            FROM ledger_usage u
            WHERE u.holder_id = %(holder_id)s
                AND u.credit_type = %(credit_type)s
                AND u.dimension = n.dimension
                AND u.day = n.day
                AND u.value IN ('', n.value)
        ) THEN '' ELSE n.value END,
        (n.day + n.quarter * interval '15 minutes') AT TIME ZONE 'UTC', n.amount, n.postpaid, n.entries
    FROM new n
), sums AS MATERIALIZED (
    SELECT
        p.dimension, p.value, CASE WHEN %(by_day)s THEN (p.at AT TIME ZONE %(zone)s)::date END AS day,
        sum(p.amount) AS amount, sum(p.postpaid) AS postpaid, sum(p.entries) AS entries
    FROM parts p
    WHERE p.at >= %(since)s AND p.at < %(until)s
    GROUP BY 1, 2, 3
), by_value AS MATERIALIZED (
    SELECT s.value, sum(s.amount) AS amount, sum(s.entries) AS entries
    FROM sums s
    WHERE s.dimension <> '' AND s.value <> ''
    GROUP BY s.value
), shown AS MATERIALIZED (
    SELECT v.value, row_number() OVER () AS place
    FROM (SELECT v.value FROM by_value v ORDER BY v.amount DESC, v.entries DESC, v.value LIMIT %(limit)s) AS v
)
SELECT 0 AS place, s.day, '' AS value, s.amount, s.postpaid, s.entries, 0 AS found
FROM sums s
WHERE s.dimension = ''
UNION ALL
SELECT n.place, s.day, n.value, s.amount, s.postpaid, s.entries, 0
FROM shown n
JOIN sums s ON s.value = n.value AND s.dimension <> ''
UNION ALL
SELECT -1, s.day, '', sum(s.amount), sum(s.postpaid), sum(s.entries), (SELECT count(*) FROM by_value)
FROM sums s
WHERE s.dimension <> ''
GROUP BY s.day
ORDER BY place, day
"""
# The labels of the rows, by one look into the index for each, and those of the entries since then.
LABELS: Final = """
WITH RECURSIVE known AS (
    (
        SELECT u.dimension
        FROM ledger_usage u
        WHERE u.holder_id = %(holder_id)s AND u.credit_type = %(credit_type)s
        ORDER BY u.dimension
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT u.dimension
        FROM ledger_usage u
        WHERE u.holder_id = %(holder_id)s AND u.credit_type = %(credit_type)s AND u.dimension > k.dimension
        ORDER BY u.dimension
        LIMIT 1
    )
    FROM known k
    WHERE k.dimension IS NOT NULL
), last AS MATERIALIZED (
    SELECT COALESCE((
        SELECT e.sequence
        FROM ledger_entry e
        WHERE e.holder_id = %(holder_id)s AND e.credit_type = %(credit_type)s
        ORDER BY e.sequence DESC
        LIMIT 1
    ), 0) AS sequence
)
SELECT substr(k.dimension, 7) FROM known k WHERE k.dimension LIKE 'label:%%'
UNION
SELECT substr(n.dimension, 7)
FROM last
CROSS JOIN LATERAL ledger_usage_of(%(holder_id)s, %(credit_type)s, last.sequence - last.sequence %% 256, last.sequence) AS n
WHERE n.dimension LIKE 'label:%%'
ORDER BY 1
"""
OF_LABEL, OF_ALL = -1, 0
"""The place of the row with what has the label, and of those with everything; the values have 1, 2, 3 …."""


class Used(NamedTuple):
    """What spends and captures took, less what refunds returned in the same time, whenever it was used: `amount` can be below 0.

    `postpaid` is how much of it was on overage, `entries` how many spends, captures and refunds it is.
    """

    amount: int = 0
    postpaid: int = 0
    entries: int = 0

    def plus(self, other: "Used") -> "Used":
        """Return both together."""
        return Used(*(own + added for own, added in zip(self, other, strict=True)))

    def minus(self, other: "Used") -> "Used":
        """Return it without the other."""
        return Used(*(own - taken for own, taken in zip(self, other, strict=True)))


Days = Mapping[date | None, Used]
"""What was used on each day of the zone that has entries, the first one first; not asked by day, all of it under None."""


class ValueUsed(NamedTuple):
    """What was used under a value of the label, or by a rate."""

    value: str
    days: Days

    @property
    def sums(self) -> Used:
        """All days together."""
        return sum_of(self.days)


class Usage(NamedTuple):
    """What an account used in a span of time: `everything` is the sum of `values`, `others` and `without`.

    Args:
        values: those with the most, the most first.
        others: what the other values have used together; of an account with many values also what could not be told apart.
        without: what has no such label or rate.
        values_left_out: how many values `others` has, at least.
    """

    holder_id: str
    credit_type: str
    since: datetime
    until: datetime
    zone: str
    everything: Days
    values: Sequence[ValueUsed]
    others: Days
    without: Days
    values_left_out: int

    @property
    def sums(self) -> Used:
        """Everything, all days together."""
        return sum_of(self.everything)


def sum_of(days: Days) -> Used:
    """Return all days together."""
    sums = Used()
    for each in days.values():
        sums = sums.plus(each)
    return sums


def usage(
    holder_id: str,
    credit_type: str = "credits",
    *,
    since: datetime,
    until: datetime,
    zone: ZoneInfo = UTC_ZONE,
    by: str = "",
    by_day: bool = False,
    limit: int = 20,
) -> Usage:
    """Where the credits went: spends and captures less refunds, exactly as the entries say, without a lock.

    A use counts at its effective time, a refund at its own, under the labels of what it refunds. A capture has the labels of its
    hold and its own, which prevail. Without a label `model` the rate is the model.

    Args:
        since: from the start of its quarter of an hour on; `until` up to the end of its quarter.
        zone: whose days count.
        by: "rate", or "label:" and the key of a label; empty for the sums alone.
        limit: how many values at most, those with the most.
    """
    since, until = _quarter(since), _quarter(until + QUARTER - MICROSECOND)
    values: dict[str, Any] = {
        "holder_id": holder_id,
        "credit_type": credit_type,
        "since": since,
        "until": until,
        "last": until - MICROSECOND,
        "zone": zone.key,
        "dimensions": [by, ""] if by else [""],
        "by_day": by_day,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(USAGE, values)
        rows = cursor.fetchall()
    everything: dict[date | None, Used] = {}
    labelled: dict[date | None, Used] = {}
    shown: dict[str, dict[date | None, Used]] = {}
    values_found = 0
    for place, day, value, amount, postpaid, entries, found in rows:
        days = labelled if place == OF_LABEL else everything if place == OF_ALL else shown.setdefault(value, {})
        days[day] = Used(int(amount), int(postpaid), int(entries))
        values_found = max(values_found, found)
    return Usage(
        holder_id=holder_id,
        credit_type=credit_type,
        since=since,
        until=until,
        zone=zone.key,
        everything=everything,
        values=[ValueUsed(value, days) for value, days in shown.items()],
        others=_without(labelled, shown.values()),
        without=_without(everything, [labelled]),
        values_left_out=values_found - len(shown),
    )


def usage_labels(holder_id: str, credit_type: str = "credits") -> list[str]:
    """The labels that uses of an account have ever had, by name."""
    with connection.cursor() as cursor:
        cursor.execute(LABELS, {"holder_id": holder_id, "credit_type": credit_type})
        return [label for (label,) in cursor.fetchall()]


def days_until(now: datetime, zone: ZoneInfo, days: int) -> tuple[datetime, datetime]:
    """Return the start of the first of that many days, of which today is the last, and its end."""
    today = now.astimezone(zone).date()
    return start_of(today - timedelta(days=days - 1), zone), start_of(today + timedelta(days=1), zone)


def start_of(day: date, zone: ZoneInfo) -> datetime:
    """Return the instant at which a day of the zone begins."""
    return datetime.combine(day, time(), zone)


def _without(days: Days, taken: Iterable[Days]) -> Days:
    """Return what is left of each day; days with nothing left are not in it."""
    left = dict(days)
    for each in taken:
        for day, used in each.items():
            left[day] = left[day].minus(used)
    return {day: used for day, used in left.items() if used != Used()}


def _quarter(instant: datetime) -> datetime:
    """Return the start of its quarter of an hour."""
    return BEGINNING + (instant - BEGINNING) // QUARTER * QUARTER
