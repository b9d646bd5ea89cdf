"""Where the credits of an account went: what was used, by label, rate and day. See docs/adr/0165."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection

__all__ = [
    "LABEL", "RATE", "AccountUsage", "Days", "Used", "ValueUsed", "days_until", "start_of", "sum_of", "usage", "usage_labels",
]  # fmt: skip

RATE: Final = "rate"
LABEL: Final = "label:"
SUMMED_ENTRIES: Final = 256
"""The database sums up the entries of an account in groups of this number; a read adds those that are not summed up yet."""
QUARTER: Final = timedelta(minutes=15)
MICROSECOND: Final = timedelta(microseconds=1)
BEGINNING: Final = datetime(1970, 1, 1, tzinfo=UTC)
UTC_ZONE: Final = ZoneInfo("UTC")

# What is summed up, and the entries since, from one snapshot. A row of a day in UTC has parts of at most two days of the zone:
# `last_quarter` is the last one of the first. Quarters are added up only for such a row, and on the days that the span cuts: an
# array of days, so that the index finds their rows.
SUMS: Final = """
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
        d.day, d.starts, d.starts >= %(since)s AND d.starts + interval '1 day' <= %(until)s AS is_whole,
        CASE WHEN d.middle < d.starts + interval '1 day'
            THEN (EXTRACT(epoch FROM d.middle - d.starts) / 900 - 1)::smallint
        END AS last_quarter,
        CASE WHEN %(by_day)s THEN (d.starts AT TIME ZONE %(zone)s)::date END AS first_day,
        CASE WHEN %(by_day)s THEN (d.middle AT TIME ZONE %(zone)s)::date END AS second_day
    FROM (
        SELECT
            d.day, d.starts,
            LEAST(
                CASE WHEN %(by_day)s THEN ((d.starts AT TIME ZONE %(zone)s)::date + 1)::timestamp AT TIME ZONE %(zone)s END,
                d.starts + interval '1 day'
            ) AS middle
        FROM (
            SELECT day::date AS day, day::timestamp AT TIME ZONE 'UTC' AS starts
            FROM generate_series(
                (%(since)s AT TIME ZONE 'UTC')::date, (%(last)s AT TIME ZONE 'UTC')::date, interval '1 day'
            ) AS day
        ) AS d
    ) AS d
), summed AS NOT MATERIALIZED (
    SELECT
        u.dimension, u.value, u.day, d.first_day, d.second_day, d.last_quarter, u.amount, u.postpaid, u.entries,
        u.quarter_rates, u.quarter_amounts, u.quarter_postpaid, u.quarter_entries,
        u.rates, u.rate_amounts, u.rate_postpaid, u.rate_entries,
        cardinality(u.quarters) AS size,
        COALESCE(width_bucket(d.last_quarter, u.quarters), cardinality(u.quarters)) AS before
    FROM ledger_usage u
    JOIN days d ON d.day = u.day AND d.is_whole
    WHERE u.holder_id = %(holder_id)s
        AND u.credit_type = %(credit_type)s
        AND u.dimension = ANY (%(read)s)
        AND u.day BETWEEN (%(since)s AT TIME ZONE 'UTC')::date AND (%(last)s AT TIME ZONE 'UTC')::date
), cut AS MATERIALIZED (
    -- What is known by quarter of an hour: of days that the span cuts, and since the last sum. Of a day on which other values or
    -- rates are summed up, those without a row belong to these.
    SELECT c.dimension, c.value, c.rate, CASE WHEN %(by_day)s THEN (c.at AT TIME ZONE %(zone)s)::date END AS day,
        c.amount, c.postpaid, c.entries
    FROM (
        SELECT u.dimension, u.value, u.rates[q.place] AS rate, d.starts + q.quarter * interval '15 minutes' AS at,
            q.amount, q.postpaid, q.entries
        FROM days d
        JOIN ledger_usage u ON u.day = d.day
        CROSS JOIN LATERAL unnest(u.quarters, u.quarter_rates, u.quarter_amounts, u.quarter_postpaid, u.quarter_entries)
            AS q (quarter, place, amount, postpaid, entries)
        WHERE NOT d.is_whole
            AND u.day = ANY (ARRAY(SELECT c.day FROM days c WHERE NOT c.is_whole))
            AND u.holder_id = %(holder_id)s
            AND u.credit_type = %(credit_type)s
            AND u.dimension = ANY (%(read)s)
        UNION ALL
        SELECT
            n.dimension, CASE WHEN v.known = '' THEN '' ELSE n.value END, CASE WHEN r.known = '' THEN '' ELSE n.rate END,
            (n.day + n.quarter * interval '15 minutes') AT TIME ZONE 'UTC', n.amount, n.postpaid, n.entries
        FROM last
        CROSS JOIN LATERAL ledger_usage_of(
            %(holder_id)s, %(credit_type)s, last.sequence - last.sequence %% 256, last.sequence
        ) AS n
        CROSS JOIN LATERAL (
            SELECT max(u.value) AS known
            FROM ledger_usage u
            WHERE u.holder_id = %(holder_id)s
                AND u.credit_type = %(credit_type)s
                AND u.dimension = n.dimension
                AND u.day = n.day
                AND u.value IN ('', n.value)
        ) AS v
        CROSS JOIN LATERAL (
            SELECT max(u.value) AS known
            FROM ledger_usage u
            WHERE u.holder_id = %(holder_id)s
                AND u.credit_type = %(credit_type)s
                AND u.dimension = 'rate'
                AND u.day = n.day
                AND u.value IN ('', n.rate)
                AND n.rate IS NOT NULL
        ) AS r
        WHERE n.dimension = ANY (%(read)s)
    ) AS c
    WHERE c.at >= %(since)s AND c.at < %(until)s
), parts AS MATERIALIZED (
    SELECT u.dimension, u.value, NULL::date AS day, u.amount, u.postpaid, u.entries
    FROM ledger_usage u
    WHERE NOT %(by_day)s
        AND u.holder_id = %(holder_id)s
        AND u.credit_type = %(credit_type)s
        AND u.dimension = ANY (%(dimensions)s)
        AND u.day >= (SELECT min(d.day) FROM days d WHERE d.is_whole)
        AND u.day <= (SELECT max(d.day) FROM days d WHERE d.is_whole)
    UNION ALL
    SELECT
        s.dimension, s.value,
        CASE WHEN s.last_quarter IS NULL OR s.before > s.size / 2 THEN s.first_day ELSE s.second_day END,
        s.amount, s.postpaid, s.entries
    FROM summed s
    WHERE %(by_day)s AND s.dimension = ANY (%(dimensions)s)
    UNION ALL
    SELECT c.dimension, c.value, c.day, c.amount, c.postpaid, c.entries
    FROM cut c
    WHERE c.dimension = ANY (%(dimensions)s)
)"""
# Rows with quarters of two days of the zone. A row counts on the day with more of them; its other quarters, `least` to `most`,
# are moved. OFFSET 0 has the place of midnight looked up once for each row. In a zone with the days of UTC, no row is read.
SPLIT: Final = """
            SELECT
                s.*, s.before > s.size / 2 AS is_late, CASE WHEN s.before > s.size / 2 THEN s.before + 1 ELSE 1 END AS least,
                CASE WHEN s.before > s.size / 2 THEN s.size ELSE s.before END AS most
            FROM (
                SELECT s.*
                FROM summed s
                WHERE (SELECT bool_or(d.last_quarter IS NOT NULL) FROM days d) AND s.last_quarter IS NOT NULL AND {condition}
                OFFSET 0
            ) AS s
            WHERE s.before > 0 AND s.before < s.size"""
MOVED: Final = f"""
    SELECT
        m.dimension, m.value, CASE WHEN (sign.of > 0) = m.is_late THEN m.second_day ELSE m.first_day END AS day,
        sign.of * m.amount AS amount, sign.of * m.postpaid AS postpaid, sign.of * m.entries AS entries
    FROM (
        SELECT
            s.dimension, s.value, s.first_day, s.second_day, s.is_late,
            (SELECT sum(q) FROM unnest(s.quarter_amounts[s.least:s.most]) AS q) AS amount,
            (SELECT sum(q) FROM unnest(s.quarter_postpaid[s.least:s.most]) AS q) AS postpaid,
            (SELECT sum(q) FROM unnest(s.quarter_entries[s.least:s.most]) AS q) AS entries
        FROM ({SPLIT.format(condition="s.dimension = ANY (%(dimensions)s) AND {condition}")}
        ) AS s
        -- The sums are worked out once for both days.
        OFFSET 0
    ) AS m
    CROSS JOIN (VALUES (1), (-1)) AS sign (of)"""
# What depends on the number of rows is done for few of them. A value with one part needs no adding up, and most of a label of ids
# have one. Only values that are shown are told by day. If all entries have the label, its days are those of everything.
USAGE: Final = f"""
{SUMS}, known AS MATERIALIZED (
    SELECT p.value, count(*) AS parts
    FROM parts p
    WHERE p.dimension <> '' AND p.value <> ''
    GROUP BY p.value
), by_value AS NOT MATERIALIZED (
    SELECT p.value, p.amount, p.entries
    FROM parts p
    WHERE p.dimension <> '' AND p.value <> '' AND p.value NOT IN (SELECT k.value FROM known k WHERE k.parts > 1)
    UNION ALL
    SELECT p.value, sum(p.amount), sum(p.entries)
    FROM parts p
    WHERE p.dimension <> '' AND p.value IN (SELECT k.value FROM known k WHERE k.parts > 1)
    GROUP BY p.value
), shown AS MATERIALIZED (
    SELECT v.value, row_number() OVER () AS place
    FROM (SELECT v.value FROM by_value v ORDER BY v.amount DESC, v.entries DESC, v.value LIMIT %(limit)s) AS v
), rest AS MATERIALIZED (
    SELECT sum(CASE p.dimension WHEN '' THEN p.entries ELSE -p.entries END) <> 0 AS is_there
    FROM parts p
), moved AS MATERIALIZED ({
    MOVED.format(condition="(s.dimension = '' OR (SELECT r.is_there FROM rest r) OR s.value IN (SELECT n.value FROM shown n))")
}
), by_day AS NOT MATERIALIZED (
    SELECT p.dimension, p.value, p.day, p.amount, p.postpaid, p.entries
    FROM parts p
    UNION ALL
    SELECT m.dimension, m.value, m.day, m.amount, m.postpaid, m.entries
    FROM moved m
)
SELECT 0 AS place, s.day, '' AS value, NULL AS rate, s.amount, s.postpaid, s.entries, 0 AS found
FROM (
    SELECT d.day, sum(d.amount) AS amount, sum(d.postpaid) AS postpaid, sum(d.entries) AS entries
    FROM by_day d
    WHERE d.dimension = ''
    GROUP BY d.day
) AS s
UNION ALL
SELECT n.place, d.day, n.value, NULL, sum(d.amount), sum(d.postpaid), sum(d.entries), 0
FROM shown n
JOIN by_day d ON d.value = n.value AND d.dimension <> ''
GROUP BY n.place, d.day, n.value
UNION ALL
SELECT -1, d.day, '', NULL, sum(d.amount), sum(d.postpaid), sum(d.entries), 0
FROM by_day d
WHERE d.dimension = (SELECT CASE WHEN r.is_there THEN %(label)s ELSE '' END FROM rest r) AND %(label)s <> ''
GROUP BY d.day
UNION ALL
SELECT -3, NULL, '', NULL, 0, 0, 0, (SELECT count(*) FROM known)
ORDER BY place, day
"""
# The label's rows of the days that are whole in the span, which follow one another: a range, not a join with the days.
OF_WHOLE_DAYS: Final = """FROM ledger_usage u
    WHERE u.holder_id = %(holder_id)s
        AND u.credit_type = %(credit_type)s
        AND u.dimension = %(label)s
        AND u.day BETWEEN (%(since)s AT TIME ZONE 'UTC')::date AND (%(last)s AT TIME ZONE 'UTC')::date
        AND u.day >= (SELECT min(d.day) FROM days d WHERE d.is_whole)
        AND u.day <= (SELECT max(d.day) FROM days d WHERE d.is_whole)"""
# The rates of each value of the label. What has no such label is what the label leaves of a rate.
# Most values of a label of ids, such as sessions, have one row, so their rates need not be added up: pairs of value and rate are
# counted by row, and only rows with a pair that may be shown are unpacked. That is one not behind `threshold`, which is the last
# one to show of the values with the most. All rows are unpacked only if something has no such label. The days of a pair that is
# shown are read at its place in each row, and of a row with parts of two days of the zone, its fewer quarters move to the other.
# No row is joined with its day before it is known to be shown.
USAGE_BY_RATE: Final = f"""
{SUMS}, label_rows AS MATERIALIZED (
    SELECT
        u.value, u.day, u.amount, u.entries, cardinality(u.rates) - COALESCE('' = ANY (u.rates), false)::integer AS pairs
    {OF_WHOLE_DAYS}
    UNION ALL
    SELECT c.value, NULL, c.amount, c.entries, 0
    FROM cut c
    WHERE c.dimension = %(label)s
), added AS MATERIALIZED (
    -- The values that have to be added up: with several rows, or with none of whole days.
    SELECT l.value
    FROM label_rows l
    GROUP BY l.value
    HAVING count(*) > 1 OR count(l.day) = 0
), labelled AS MATERIALIZED (
    SELECT
        sum(l.entries) AS entries,
        sum(l.pairs) FILTER (WHERE l.value <> '' AND l.value NOT IN (SELECT a.value FROM added a)) AS pairs
    FROM label_rows l
), rest AS MATERIALIZED (
    SELECT
        (SELECT l.entries FROM labelled l)
            IS DISTINCT FROM (SELECT sum(p.entries) FROM parts p WHERE p.dimension = '') AS is_there
), sums AS MATERIALIZED (
    SELECT p.dimension, p.value, p.day, sum(p.amount) AS amount, sum(p.postpaid) AS postpaid, sum(p.entries) AS entries
    FROM (
        SELECT p.dimension, p.value, p.day, p.amount, p.postpaid, p.entries
        FROM parts p
        UNION ALL{MOVED.format(condition="(s.dimension = '' OR (SELECT r.is_there FROM rest r))")}
    ) AS p
    GROUP BY 1, 2, 3
), threshold AS MATERIALIZED (
    SELECT p.value, p.amount, p.entries
    FROM (
        SELECT l.value, l.day
        FROM label_rows l
        WHERE l.value <> '' AND l.value NOT IN (SELECT a.value FROM added a)
        ORDER BY l.amount DESC, l.value
        LIMIT %(limit)s
    ) AS l
    CROSS JOIN LATERAL (
        SELECT u.value, unnest(u.rates) AS rate, unnest(u.rate_amounts) AS amount, unnest(u.rate_entries) AS entries
        FROM ledger_usage u
        WHERE u.holder_id = %(holder_id)s
            AND u.credit_type = %(credit_type)s
            AND u.dimension = %(label)s
            AND u.day = l.day
            AND u.value = l.value
    ) AS p
    WHERE p.rate IS DISTINCT FROM ''
    ORDER BY p.amount DESC, p.entries DESC, p.value, p.rate NULLS FIRST
    OFFSET GREATEST(%(limit)s - 1, 0)
    LIMIT 1
), by_value AS MATERIALIZED (
    SELECT r.value, r.rate, sum(r.amount) AS amount, sum(r.postpaid) AS postpaid, sum(r.entries) AS entries
    FROM (
        -- By day, what was on overage is only read of the pairs that are shown.
        SELECT
            u.value, unnest(u.rates) AS rate, unnest(u.rate_amounts) AS amount,
            unnest(CASE WHEN %(by_day)s THEN '{{}}' ELSE u.rate_postpaid END) AS postpaid, unnest(u.rate_entries) AS entries
        {OF_WHOLE_DAYS}
            AND u.value <> ''
            AND (
                (SELECT count(*) FROM threshold t) = 0
                OR (SELECT t.amount FROM threshold t) < ANY (u.rate_amounts)
                OR (
                    (
                        u.value <= (SELECT t.value FROM threshold t)
                        OR (SELECT t.entries FROM threshold t) < ANY (u.rate_entries)
                    )
                    AND (SELECT t.amount FROM threshold t) = ANY (u.rate_amounts)
                )
                OR u.value IN (SELECT a.value FROM added a)
            )
        UNION ALL
        SELECT c.value, c.rate, c.amount, c.postpaid, c.entries
        FROM cut c
        WHERE c.dimension = %(label)s AND c.value <> ''
    ) AS r
    WHERE r.rate IS DISTINCT FROM ''
    GROUP BY 1, 2
), shown AS MATERIALIZED (
    SELECT v.value, v.rate, row_number() OVER () AS place, v.amount, v.postpaid, v.entries
    FROM (
        SELECT v.value, v.rate, v.amount, v.postpaid, v.entries
        FROM by_value v
        ORDER BY v.amount DESC, v.entries DESC, v.value, v.rate NULLS FIRST
        LIMIT %(limit)s
    ) AS v
), shown_rows AS MATERIALIZED (
    -- The rows of the values that are shown, with the quarters that are moved from `day` to `other_day`.
    SELECT
        s.value, s.rates, s.rate_amounts, s.rate_postpaid, s.rate_entries,
        CASE WHEN s.before > s.size / 2 THEN s.first_day ELSE s.second_day END AS day,
        CASE WHEN s.before > s.size / 2 THEN s.second_day ELSE s.first_day END AS other_day,
        s.before > 0 AND s.before < s.size AS is_split,
        CASE WHEN s.before > s.size / 2 THEN s.before + 1 ELSE 1 END AS least,
        CASE WHEN s.before > s.size / 2 THEN s.size ELSE s.before END AS most,
        s.quarter_rates, s.quarter_amounts, s.quarter_postpaid, s.quarter_entries
    FROM (
        SELECT s.*
        FROM summed s
        -- IS TRUE has the values looked up: of a join with them, PostgreSQL expects few rows, and compares each with each day.
        WHERE %(by_day)s AND s.dimension = %(label)s AND (s.value IN (SELECT n.value FROM shown n)) IS TRUE
        OFFSET 0
    ) AS s
), shown_by_day AS NOT MATERIALIZED (
    SELECT n.place, s.day, s.rate_amounts[p.at] AS amount, s.rate_postpaid[p.at] AS postpaid, s.rate_entries[p.at] AS entries
    FROM shown_rows s
    JOIN shown n ON n.value = s.value
    CROSS JOIN LATERAL (SELECT array_position(s.rates, n.rate) AS at) AS p
    WHERE p.at IS NOT NULL
    UNION ALL
    SELECT
        n.place, CASE sign.of WHEN 1 THEN m.other_day ELSE m.day END,
        sign.of * m.amount, sign.of * m.postpaid, sign.of * m.entries
    FROM (
        SELECT s.value, s.rates[q.place] AS rate, s.day, s.other_day, q.amount, q.postpaid, q.entries
        FROM shown_rows s
        CROSS JOIN LATERAL (
            SELECT q.place, sum(q.amount) AS amount, sum(q.postpaid) AS postpaid, sum(q.entries) AS entries
            FROM unnest(
                s.quarter_rates[s.least:s.most], s.quarter_amounts[s.least:s.most], s.quarter_postpaid[s.least:s.most],
                s.quarter_entries[s.least:s.most]
            ) AS q (place, amount, postpaid, entries)
            GROUP BY q.place
        ) AS q
        WHERE s.is_split
        -- The quarters of a row are added up once for all of its pairs.
        OFFSET 0
    ) AS m
    JOIN shown n ON n.value = m.value AND COALESCE(n.rate, '-') = COALESCE(m.rate, '-')
    CROSS JOIN (VALUES (1), (-1)) AS sign (of)
    UNION ALL
    SELECT n.place, c.day, c.amount, c.postpaid, c.entries
    FROM cut c
    JOIN shown n ON n.value = c.value AND n.rate IS NOT DISTINCT FROM c.rate
    WHERE %(by_day)s AND c.dimension = %(label)s
), by_rate AS MATERIALIZED (
    SELECT r.rate, r.day, sum(r.amount) AS amount, sum(r.postpaid) AS postpaid, sum(r.entries) AS entries
    FROM (
        SELECT
            s.day, unnest(s.rates) AS rate,
            unnest(s.rate_amounts) AS amount, unnest(s.rate_postpaid) AS postpaid, unnest(s.rate_entries) AS entries
        FROM (
            SELECT
                CASE WHEN s.before > s.size / 2 THEN s.first_day ELSE s.second_day END AS day,
                s.rates, s.rate_amounts, s.rate_postpaid, s.rate_entries
            FROM summed s
            WHERE s.dimension = %(label)s
            -- The day is worked out once for all rates.
            OFFSET 0
        ) AS s
        UNION ALL
        SELECT
            CASE WHEN (sign.of > 0) = m.is_late THEN m.second_day ELSE m.first_day END, m.rates[m.place],
            sign.of * m.amount, sign.of * m.postpaid, sign.of * m.entries
        FROM (
            SELECT
                q.rates, q.first_day, q.second_day, q.is_late, unnest(q.quarter_rates[q.least:q.most]) AS place,
                unnest(q.quarter_amounts[q.least:q.most]) AS amount, unnest(q.quarter_postpaid[q.least:q.most]) AS postpaid,
                unnest(q.quarter_entries[q.least:q.most]) AS entries
            FROM ({SPLIT.format(condition="s.dimension = %(label)s")}
            ) AS q
        ) AS m
        CROSS JOIN (VALUES (1), (-1)) AS sign (of)
        UNION ALL
        SELECT c.day, c.rate, c.amount, c.postpaid, c.entries
        FROM cut c
        WHERE c.dimension = %(label)s
    ) AS r
    WHERE r.rate IS DISTINCT FROM '' AND (SELECT r.is_there FROM rest r)
    GROUP BY 1, 2
)
SELECT 0 AS place, s.day, '' AS value, NULL AS rate, s.amount, s.postpaid, s.entries, 0 AS found
FROM sums s
WHERE s.dimension = ''
UNION ALL
SELECT n.place, d.day, n.value, n.rate, d.amount, d.postpaid, d.entries, 0
FROM (
    SELECT d.place, d.day, sum(d.amount) AS amount, sum(d.postpaid) AS postpaid, sum(d.entries) AS entries
    FROM shown_by_day d
    GROUP BY d.place, d.day
    HAVING sum(d.entries) <> 0
) AS d
JOIN shown n ON n.place = d.place
UNION ALL
SELECT n.place, NULL, n.value, n.rate, n.amount, n.postpaid, n.entries, 0
FROM shown n
WHERE NOT %(by_day)s
UNION ALL
SELECT -2, w.day, '', w.rate, sum(w.amount), sum(w.postpaid), sum(w.entries), 0
FROM (
    SELECT NULLIF(s.value, '') AS rate, s.day, s.amount, s.postpaid, s.entries
    FROM sums s
    WHERE s.dimension = '' OR s.dimension = 'rate' AND s.value <> ''
    UNION ALL
    SELECT NULL, s.day, -s.amount, -s.postpaid, -s.entries
    FROM sums s
    WHERE s.dimension = 'rate'
    UNION ALL
    SELECT r.rate, r.day, -r.amount, -r.postpaid, -r.entries
    FROM by_rate r
) AS w
WHERE (SELECT r.is_there FROM rest r)
GROUP BY w.rate, w.day
HAVING sum(w.entries) <> 0
UNION ALL
SELECT
    -3, NULL, '', NULL, 0, 0, 0,
    (SELECT count(*) FROM by_value v WHERE v.value IN (SELECT a.value FROM added a))
        + (SELECT COALESCE(l.pairs, 0) FROM labelled l)::bigint
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
FOUND, WITHOUT_BY_RATE, OF_LABEL, OF_ALL = -3, -2, -1, 0
"""The place of the row that says how many values there are, and of those with what has no such label by rate, with what has the
label, and with everything; the values have 1, 2, 3 …."""


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
    """What was used under a value of the label, or by a rate.

    Args:
        value: the label's, or the rate; None for what has no such label.
        rate: of use by label and rate, the rate; None for use without a rate.
    """

    value: str | None
    days: Days
    rate: str | None = None

    @property
    def sums(self) -> Used:
        """All days together."""
        return sum_of(self.days)


class AccountUsage(NamedTuple):
    """What an account used in a span of time: `everything` is the sum of `values`, `others` and `without`.

    Args:
        values: those with the most, the most first.
        others: what the other values have used together; of an account with many values also what could not be told apart.
        without: what has no such label or rate.
        without_by_rate: of use by label and rate: what `without` is, by rate; the rates by name, after what has no rate.
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
    without_by_rate: Sequence[ValueUsed]
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
    by_rate: bool = False,
    by_day: bool = False,
    limit: int = 20,
) -> AccountUsage:
    """Where the credits went: spends and captures less refunds, exactly as the entries say, without a lock.

    A use counts at its effective time, a refund at its own, under the labels of what it refunds. A capture has the labels of its
    hold and its own, which prevail. Without a label `model` the rate is the model.

    Args:
        since: from the start of its quarter of an hour on; `until` up to the end of its quarter.
        zone: whose days count.
        by: "rate", or "label:" and the key of a label; empty for the sums alone.
        by_rate: whether each value of the label, and what has no such label, is told by rate too. Only with a label.
        limit: how many values at most, or pairs of a value and a rate, those with the most.
    """
    if by_rate and not by.startswith(LABEL):
        raise ValueError("Only use by label can be by rate too.")
    since, until = _quarter(since), _quarter(until + QUARTER - MICROSECOND)
    values: dict[str, Any] = {
        "holder_id": holder_id,
        "credit_type": credit_type,
        "since": since,
        "until": until,
        "last": until - MICROSECOND,
        "zone": zone.key,
        "read": ["", *([by] if by else []), *([RATE] if by_rate else [])],
        "dimensions": ["", RATE] if by_rate else ["", by],
        "label": by,
        "by_day": by_day,
        "limit": limit,
    }
    with connection.cursor() as cursor:
        cursor.execute(USAGE_BY_RATE if by_rate else USAGE, values)
        rows = cursor.fetchall()
    groups: dict[tuple[int, str, str | None], dict[date | None, Used]] = {}
    for place, day, value, rate, amount, postpaid, entries, _ in rows:
        if place != FOUND:
            groups.setdefault((place, value, rate), {})[day] = Used(int(amount), int(postpaid), int(entries))
    everything, labelled = groups.get((OF_ALL, "", None), {}), groups.get((OF_LABEL, "", None), {})
    shown = [ValueUsed(value, days, rate) for (place, value, rate), days in groups.items() if place > 0]
    without_by_rate = [ValueUsed(None, days, rate) for (place, _, rate), days in groups.items() if place == WITHOUT_BY_RATE]
    without = _together(without_by_rate) if by_rate else _without(everything, [labelled])
    return AccountUsage(
        holder_id=holder_id,
        credit_type=credit_type,
        since=since,
        until=until,
        zone=zone.key,
        everything=everything,
        values=shown,
        others=_without(everything, [without, *(each.days for each in shown)]) if by else {},
        without=without,
        without_by_rate=sorted(without_by_rate, key=lambda each: each.rate or ""),
        values_left_out=rows[0][-1] - len(shown),
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


def _together(groups: Iterable[ValueUsed]) -> Days:
    """Return each day of all groups together."""
    together: dict[date | None, Used] = {}
    for each in groups:
        for day, used in each.days.items():
            together[day] = together.get(day, Used()).plus(used)
    return together


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
