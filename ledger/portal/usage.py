"""How many credits an account used on each day, and by which models and members: spends and captures, less refunds."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from ledger import reads
from ledger.reads import LABEL, AccountUsage, Used, ValueUsed, sum_of

DAYS: Final = 30
MEMBER: Final = "member"
GROUPS: Final = ("model", MEMBER)
"""The labels by which the page shows use, in this order."""
BY_RATE: Final = "member_and_rate"
"""The name of the list by member that also tells the rates apart."""
SHOWN: Final = 8
"""How many models or members the page names, those with the most."""
SHOWN_PAIRS: Final = 16
"""How many pairs of a member and a rate the page names, those with the most."""


class DayUsage(NamedTuple):
    """A day, and the credits that were used on it; below 0 if more was refunded."""

    day: date
    used: int


class ShownUsage(NamedTuple):
    """The last DAYS days, today included, and what was used in them by each of GROUPS, and by member and rate if members did."""

    days: Sequence[DayUsage]
    groups: dict[str, AccountUsage]
    by_rate: AccountUsage | None


def read_usage(holder_id: str, credit_type: str, *, zone: ZoneInfo, now: datetime) -> ShownUsage:
    """Return the use of the last DAYS days, today included."""
    since, until = reads.days_until(now, zone, DAYS)
    groups = {
        name: reads.usage(
            holder_id,
            credit_type,
            since=since,
            until=until,
            zone=zone,
            by=f"{LABEL}{name}",
            by_day=name == GROUPS[0],
            limit=SHOWN,
        )
        for name in GROUPS
    }
    by_rate = None
    if groups[MEMBER].values:
        by_rate = reads.usage(
            holder_id, credit_type, since=since, until=until, zone=zone, by=f"{LABEL}{MEMBER}", by_rate=True, limit=SHOWN_PAIRS
        )
    everything, first = groups[GROUPS[0]].everything, since.astimezone(zone).date()
    days = (first + timedelta(days=number) for number in range(DAYS))
    return ShownUsage([DayUsage(day, everything.get(day, Used()).amount) for day in days], groups, by_rate)


def group_rows(found: AccountUsage) -> list[dict[str, Any]]:
    """Return the rows of the JSON: the values with the most, all others, then what has no such label; nothing without values."""
    if not found.values:
        return []
    rows: list[tuple[str, str | None, Used]] = [("value", each.value, each.sums) for each in found.values]
    rows += [(group, None, sum_of(days)) for group, days in (("others", found.others), ("without", found.without)) if days]
    return [{"group": group, "name": name, "used": used.amount} for group, name, used in rows if used.amount]


def rated_rows(found: AccountUsage | None) -> list[dict[str, Any]]:
    """Return the rows of the JSON by member and rate; `rate` is None for use without one. Nothing where no member used a rate."""
    if found is None or not any(each.rate for each in found.values):
        return []
    groups = [("value", found.values), ("others", [ValueUsed(None, found.others)]), ("without", found.without_by_rate)]
    rows = [(group, each, sum_of(each.days).amount) for group, parts in groups for each in parts]
    return [{"group": group, "name": each.value, "rate": each.rate, "used": used} for group, each, used in rows if used]
