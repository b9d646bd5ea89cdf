"""Inserts once: lock, check, insert. The second caller gets the row of the first."""

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from django.utils import timezone

from ledger.database.lock_names import UNIQUE
from ledger.database.transactions import locked_transaction

Row = TypeVar("Row")


def insert_once(name: str, *, check: Callable[[], Row | None], insert: Callable[[], Row]) -> tuple[Row, bool]:
    """Return what `check` finds under the lock of this name and False, or else what `insert` returns and True.

    Both run in one transaction; inside a transaction of the caller it is a part of that one.

    Args:
        check: returns the existing row; it sees everything that others committed before the lock was free.
        insert: its writes are rolled back if it raises.

    Raises: as `locked_transaction`.
    """
    with locked_transaction(name):
        known = check()
        return (insert(), True) if known is None else (known, False)


def unique(
    kind: str,
    arguments: Mapping[str, Any],
    period: timedelta | None = None,
    *,
    check: Callable[[datetime | None], Row | None],
    insert: Callable[[], Row],
) -> tuple[Row, bool]:
    """As `insert_once`, for a kind of work with these arguments: once for ever, or once in each period.

        sent, is_new = unique(
            "reminder", {"team": 7}, timedelta(days=1),
            check=lambda since: Reminder.objects.filter(team_id=7, sent_at__gte=since).first(),
            insert=lambda: Reminder.objects.create(team_id=7),
        )

    Args:
        kind: a word without a slash.
        arguments: as JSON; their order counts for nothing.
        period: above 0. Periods are counted from Monday, 1 January of the year 1, in UTC, by this machine's clock.
        check: takes the start of the period, or None without one.

    Raises:
        ValueError: the kind has a slash.
        As `insert_once`.

    Source: River's unique jobs, `internal/dbunique`, until 0.11.
    """
    if "/" in kind:
        raise ValueError(f"the kind {kind!r} has a slash")
    since = None if period is None else datetime.min.replace(tzinfo=UTC) + _whole(timezone.now(), period)
    return insert_once(UNIQUE(kind, _key(arguments, since)), check=lambda: check(since), insert=insert)


def _whole(now: datetime, period: timedelta) -> timedelta:
    return (now - datetime.min.replace(tzinfo=UTC)) // period * period


def _key(arguments: Mapping[str, Any], since: datetime | None) -> str:
    """Return the part of River's key behind the kind: the arguments as JSON without spaces, and the period in RFC 3339."""
    of_period = "" if since is None else f"&period={since:%Y-%m-%dT%H:%M:%SZ}"
    return f"args={json.dumps(arguments, sort_keys=True, separators=(',', ':'), ensure_ascii=False)}{of_period}"
