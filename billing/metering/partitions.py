"""The usage table by months: partitions are made in advance, and dropped after all their usage is billed. For the tables' owner.

An event of a month without a partition goes into the default partition, so the table accepts every event.
"""

from dataclasses import dataclass
from datetime import date

from django.db.backends.base.base import BaseDatabaseWrapper

PREFIX = "billing_usageevent_"

PARTITIONS = """
    SELECT child.relname, pg_get_expr(child.relpartbound, child.oid), pg_total_relation_size(child.oid), child.reltuples::bigint
    FROM pg_inherits
    JOIN pg_class AS child ON child.oid = inhrelid
    WHERE inhparent = 'billing_usageevent'::regclass
    ORDER BY child.relname
"""

MAKE = "SELECT billing_make_usage_month(%s)"

# Grouped first: a claim covers millions of events. A day is billed if no usage price counted on it, if a claim ends after it, or
# if a claim ends where the price stopped counting; not by the claim of a running period, which is measured again as a whole.
# Usage in a trial is never billed.
NOT_BILLED = """
    SELECT count(*) FROM (
        SELECT DISTINCT subscription_id, meter, date_trunc('day', occurred_at) AS day FROM {name}
    ) AS used
    WHERE EXISTS (
        SELECT FROM billing_itemversion AS v
        JOIN billing_price AS p ON p.id = v.price_id
        JOIN billing_subscription AS s ON s.id = v.subscription_id
        WHERE v.subscription_id = used.subscription_id AND v.superseded_at IS NULL AND p.kind = 'usage' AND p.meter = used.meter
            AND coalesce(v.ends_at, 'infinity') > greatest(used.day, s.trial_end)
            AND greatest(v.starts_at, s.trial_end) < used.day + interval '1 day'
            AND NOT EXISTS (
                SELECT FROM billing_claim AS c
                WHERE c.subscription_id = v.subscription_id AND c.item_id = v.item_id AND c.kind = 2 AND c.released_at IS NULL
                    AND NOT c.snapshot ? 'running' AND c.starts_at < least(used.day + interval '1 day', v.ends_at)
                    AND c.ends_at >= least(used.day + interval '1 day', v.ends_at)))
"""


# A dropped month can get a partition again for later events, and then be dropped again.
REMEMBER = """
    INSERT INTO billing_droppedmonth AS dropped (month, events) SELECT %s, count(*) FROM {name}
    ON CONFLICT (month) DO UPDATE SET events = dropped.events + excluded.events
"""
SEAL_KEYS = "UPDATE billing_droppedmonth SET keys_digest = billing_dropped_keys_digest(month) WHERE month = %s"


class MonthNotBilled(Exception):
    """The month has events that are not billed yet, so its partition stays."""


class MonthInDefault(Exception):
    """The default partition already has events of the month, so the month cannot get a partition."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A row of PostgreSQL's catalogue about a partition; `rows` is PostgreSQL's estimate, -1 before the first ANALYZE."""

    name: str
    bounds: str
    size_bytes: int
    rows: int


def partitions(database: BaseDatabaseWrapper) -> list[Partition]:
    """Return all partitions of the usage table, by name."""
    with database.cursor() as cursor:
        cursor.execute(PARTITIONS)
        return [Partition(*row) for row in cursor.fetchall()]


def month_after(month: date, months: int) -> date:
    """Return the first day of the month that many months later, or earlier."""
    year, month0 = divmod(month.year * 12 + month.month - 1 + months, 12)
    return date(year, month0 + 1, 1)


def name_of(month: date) -> str:
    """Return the name of the partition of a month, such as `billing_usageevent_2026_01`."""
    return f"{PREFIX}{month:%Y_%m}"


def make_month(database: BaseDatabaseWrapper, month: date) -> str | None:
    """Make the partition of a month, with its trigger. Return its name, or None if it exists already.

    It waits at most for lock_timeout while usage is written; the call can be repeated.

    Raises:
        MonthInDefault: events of the month came before its partition; no partition was made.
    """
    with database.cursor() as cursor:
        cursor.execute(MAKE, [month])
        (result,) = cursor.fetchone()
    if result == "in-default":
        raise MonthInDefault(f"{month:%Y-%m}")
    return name_of(month) if result == "made" else None


def months_ahead(database: BaseDatabaseWrapper, today: date) -> int:
    """Return how many months in a row from this one on have a partition; -1 if this month has none."""
    names = {one.name for one in partitions(database)}
    ahead = -1
    while name_of(month_after(today.replace(day=1), ahead + 1)) in names:
        ahead += 1
    return ahead


def drop_month(database: BaseDatabaseWrapper, month: date) -> None:
    """Drop the partition of a month with all its events. Their idempotency keys stay, so none of them can be recorded again.

    Raises:
        MonthNotBilled: a usage price of that time is not billed up to the end of the month; the partition stays.
    """
    name = name_of(month)
    with database.cursor() as cursor:
        cursor.execute(NOT_BILLED.format(name=name))
        (days,) = cursor.fetchone()
        if days:
            raise MonthNotBilled(f"{month:%Y-%m}: {days} subscription-days")
        cursor.execute(REMEMBER.format(name=name), [month])
        cursor.execute(f"DROP TABLE {name}")
        cursor.execute(SEAL_KEYS, [month])
