"""`unique` inserts once for a kind and its arguments, or once in each period; its keys are River's by setting."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from pytest_django import Settings

from ledger.database import locking
from ledger.database.lock_names import UNIQUE
from ledger.database.locking import unique
from ledger.database.locks import lock_number
from ledger.database.statements import fetch_rows, fetch_value

NOW = datetime(2026, 3, 5, 13, 30, 59, 123456, tzinfo=UTC)
DAY = timedelta(days=1)
RIVER = "unique=unique_keykind={kind}&{key}&state=available,completed,running,retryable,scheduled"
"""How River, until 0.11, spells the lock of a job that is unique by its arguments, with its default states."""


class Undone(Exception):
    """What goes wrong in an insertion."""


@pytest.fixture(autouse=True)
def reminders(committed_db: None) -> Iterator[None]:
    """A table of a project."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE reminder (id int GENERATED ALWAYS AS IDENTITY, team int, sent_at timestamptz)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE reminder")


def remind(team: int, now: datetime = NOW, period: timedelta | None = DAY) -> tuple[int, bool]:
    """Store a reminder, once in a period."""
    find = "SELECT id FROM reminder WHERE team = %s AND sent_at >= coalesce(%s::timestamptz, '-infinity')"
    with mock.patch.object(locking.timezone, "now", return_value=now):
        return unique(
            "reminder", {"team": team}, period,
            check=lambda since: next(iter(fetch_rows(int, find, [team, since])), None),
            insert=lambda: fetch_value(int, "INSERT INTO reminder (team, sent_at) VALUES (%s, %s) RETURNING id", [team, now]),
        )  # fmt: skip


def count() -> int:
    return fetch_value(int, "SELECT count(*) FROM reminder")


def test_what_is_there_is_returned_and_nothing_is_inserted() -> None:
    first, is_new = remind(7)
    assert (is_new, remind(7), remind(7, NOW + timedelta(hours=10)), count()) == (True, (first, False), (first, False), 1)
    assert remind(8)[1], "other arguments"
    assert remind(7, NOW + timedelta(hours=11))[1], "the next day, in UTC"
    assert (remind(7, NOW + timedelta(days=9), period=None)[1], count()) == (False, 3)


def test_an_insertion_that_fails_leaves_nothing_and_is_tried_by_the_next_call() -> None:
    def fail() -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO reminder (team) VALUES (7)")
        raise Undone

    with pytest.raises(Undone):
        unique("reminder", {"team": 7}, check=lambda since: None, insert=fail)
    assert count() == 0
    assert remind(7)[1]


def test_a_kind_with_a_slash_is_refused_and_nothing_is_looked_for() -> None:
    with pytest.raises(ValueError, match="the kind 'a/b' has a slash"):
        unique("a/b", {}, check=lambda since: pytest.fail("checked"), insert=lambda: pytest.fail("inserted"))


@pytest.mark.parametrize(
    ("kind", "arguments", "period", "name", "number"),
    [
        ("reminder", {"team": 7}, None, 'args={"team":7}', 12635211539715337),
        ("reminder", {"team": 7}, DAY, 'args={"team":7}&period=2026-03-05T00:00:00Z', -7521902131774267235),
        ("reminder", {"team": 7}, 7 * DAY, 'args={"team":7}&period=2026-03-02T00:00:00Z', 7761373709283913546),
        ("reminder", {"team": 7}, DAY / 96, 'args={"team":7}&period=2026-03-05T13:30:00Z', 8515048456001657276),
        ("reminder", {"team": 7}, timedelta(seconds=7), 'args={"team":7}&period=2026-03-05T13:30:53Z', -6156602413415334464),
        (
            "mail", {"team": 7, "city": "Zürich"}, DAY / 24, 'args={"city":"Zürich","team":7}&period=2026-03-05T13:00:00Z',
            4519653650816735154,
        ),
    ],
)  # fmt: skip
def test_spelled_as_river_spells_it_the_lock_has_rivers_number(
    settings: Settings, kind: str, arguments: dict[str, Any], period: timedelta | None, name: str, number: int
) -> None:
    """The numbers are those of a program in Go that writes what River's dbunique writes: docs/reference/lock-keys.md."""
    names: list[str] = []
    with (
        mock.patch.object(locking.timezone, "now", return_value=NOW),
        mock.patch.object(locking, "insert_once", lambda name, **how: (names.append(name), True)),
    ):
        unique(kind, arguments, period, check=lambda since: None, insert=lambda: None)
        settings.LEDGER = {**settings.LEDGER, "LOCK_KEY_SCHEME": "fnv1-64", "LOCK_NAMES": RIVER}
        unique(kind, arguments, period, check=lambda since: None, insert=lambda: None)
    default, rivers = names
    assert default == f"unique/{kind}/{name}"
    assert lock_number(rivers) == number
    assert rivers == UNIQUE(kind, name)
