"""When an API key was last used: to five minutes, beside the requests, and by nobody who waits."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection, connections
from django.utils import timezone

from ledger.audit.auditing import audit
from ledger.keys import api_keys, last_use
from ledger.keys.models import ApiKey
from ledger.testing import unique
from tests import nodes
from tests.nodes import Session


@pytest.fixture(autouse=True)
def _tries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No earlier test has met a server that takes no writes; what is queued is executed in the test that queued it."""
    monkeypatch.setattr(last_use, "_tries_again_at", 0.0)
    yield
    last_use.USES.close()


def made(**more: Any) -> ApiKey:
    """A new key, last used at this time."""
    key, _ = api_keys.create_api_key(name=unique("key"), scopes=["ledger:read"])
    ApiKey.objects.filter(pk=key.pk).update(**more)
    key.refresh_from_db()
    return key


def last_used(key: ApiKey) -> Any:
    """What is on record."""
    return ApiKey.objects.values_list("last_used_at", flat=True).get(pk=key.pk)


@pytest.mark.django_db
@pytest.mark.parametrize(("minutes", "is_written"), [(None, True), (4, False), (6, True)])
def test_a_use_replaces_a_time_that_is_older_than_five_minutes(minutes: int | None, is_written: bool) -> None:
    before = None if minutes is None else timezone.now() - timedelta(minutes=minutes)
    key = made(last_used_at=before)
    last_use.record_uses(connection, [key.pk])
    assert (last_used(key) != before) is is_written
    assert last_used(key) > timezone.now() - timedelta(minutes=4, seconds=30)


@pytest.mark.django_db
def test_the_register_does_not_cover_the_last_use_and_covers_all_else() -> None:
    key = made()
    last_use.record_uses(connection, [key.pk])
    assert audit([connection.connection]).totals == {}
    api_keys.rotate_api_key(id=key.pk)
    assert audit([connection.connection]).totals == {}
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_api_key DISABLE TRIGGER USER")
        cursor.execute("UPDATE ledger_api_key SET scopes = '[\"ledger:admin\"]', last_used_at = NULL WHERE id = %s", [key.pk])
    assert audit([connection.connection]).totals == {"register": 1}


def test_a_use_is_recorded_after_the_lookup_returned(committed_db: None) -> None:
    key = made()
    last_use.note_use(key)
    last_use.USES.close()
    assert last_used(key) is not None


def queued_by(key: ApiKey, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The keys that are queued when this one is used."""
    queued: list[int] = []
    monkeypatch.setattr(last_use.USES, "submit", lambda pk, notify: queued.append(pk))
    last_use.note_use(key)
    return queued


def test_while_the_time_is_fresh_nothing_is_asked_of_the_database(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert queued_by(made(last_used_at=timezone.now() - timedelta(minutes=4)), monkeypatch) == []
    stale = made(last_used_at=timezone.now() - timedelta(minutes=6))
    assert queued_by(stale, monkeypatch) == [stale.pk]


@pytest.mark.django_db
def test_in_a_transaction_of_the_caller_nothing_is_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    assert queued_by(made(), monkeypatch) == []


def test_a_server_that_takes_no_writes_is_left_alone_without_an_error(
    committed_db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    key = made()
    options = connection.settings_dict["OPTIONS"] | {"options": "-c default_transaction_read_only=on"}
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    with caplog.at_level(logging.DEBUG):
        last_use._record([key.pk])
    assert [record for record in caplog.records if record.levelno >= logging.INFO] == []
    assert last_used(key) is None
    assert queued_by(key, monkeypatch) == []


def test_a_full_queue_does_not_reach_the_request(committed_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_use.USES, "_limit", 0)
    last_use.note_use(made())


def test_a_database_that_fails_does_not_reach_the_request(
    committed_db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(connection: Any) -> str:
        raise OperationalError("the server is gone")

    key = made()
    monkeypatch.setattr(last_use, "refusal_of_writes", fail)
    with caplog.at_level(logging.DEBUG):
        last_use._record([key.pk])
    logged = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == last_use.log.name]
    assert logged == [("DEBUG", "The last use of API keys is not recorded for a while.")]
    assert queued_by(key, monkeypatch) == []


# A row that another transaction has ------------------------------------------------------------------


def update_that_waits(keys: list[int]) -> None:
    """Write the use of keys by a plain UPDATE."""
    ApiKey.objects.filter(pk__in=keys).update(last_used_at=timezone.now())


def update_that_skips(keys: list[int]) -> None:
    """Write it as the product does."""
    last_use.record_uses(connection, keys)


def under_a_lock(key: ApiKey, raw_connection: Callable[..., Session], act: Callable[[list[int]], None], *, waits: bool) -> None:
    """Let the act write the use of a key whose row a transaction has, which ends when the act is done or waits for it."""
    observer, other = raw_connection(autocommit=True), raw_connection()
    other.execute("SELECT FROM ledger_api_key WHERE id = %s FOR NO KEY UPDATE", [key.pk])
    session: list[int] = []

    def run() -> None:
        session.append(nodes.session_id())
        try:
            act([key.pk])
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        while not running.done() and not (session and nodes.is_waiting(observer, session[0])):
            pass
        assert running.done() is not waits
        other.rollback()
        running.result(30)


def test_a_row_that_another_transaction_has_is_skipped(committed_db: None, raw_connection: Callable[..., Session]) -> None:
    key = made()
    under_a_lock(key, raw_connection, update_that_skips, waits=False)
    assert last_used(key) is None


def test_control_a_plain_update_waits_for_that_transaction(committed_db: None, raw_connection: Callable[..., Session]) -> None:
    key = made()
    under_a_lock(key, raw_connection, update_that_waits, waits=True)
    assert last_used(key) is not None
