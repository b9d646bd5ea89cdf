"""The clock for tests that stands still: for decisions, reads and Python, in the past and in the future, until its block ends."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection, transaction
from django.utils import timezone

from ledger import reads, services
from ledger.errors import InsufficientCredits, NotInTransaction
from ledger.testing import FixedClock, GrantFactory, holder_with_credits

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


def server_time() -> datetime:
    """The server's clock, as the ledger asks for it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        (time,) = cursor.fetchone()
    assert isinstance(time, datetime)
    return time


def test_decisions_and_python_see_the_instant(db: None) -> None:
    with FixedClock(NEW_YEAR):
        entry = GrantFactory.create()
        assert (entry.recorded_at, timezone.now(), server_time()) == (NEW_YEAR, NEW_YEAR, NEW_YEAR)
    assert timezone.now() - NEW_YEAR > DAY
    assert server_time() - NEW_YEAR > DAY


def test_a_lot_expires_without_waiting(db: None) -> None:
    with FixedClock(NEW_YEAR) as clock:
        holder = holder_with_credits(100, expires_at=NEW_YEAR + 30 * DAY)
        clock.advance(days=29)
        assert services.spend(holder_id=holder, amount=1, idempotency_key="before").balance == 99
        clock.advance(days=1)
        assert reads.balance(holder).available == 0
        with pytest.raises(InsufficientCredits):
            services.spend(holder_id=holder, amount=1, idempotency_key="after")


def test_the_future_is_recorded_too(db: None) -> None:
    later = timezone.now() + 400 * DAY
    with FixedClock(later):
        assert GrantFactory.create().recorded_at == later


def test_a_savepoint_that_is_rolled_back_leaves_the_clock(db: None) -> None:
    with FixedClock(NEW_YEAR), pytest.raises(ZeroDivisionError), transaction.atomic():
        raise ZeroDivisionError
    with FixedClock(NEW_YEAR) as clock:
        clock.advance(days=1)
        assert server_time() == NEW_YEAR + DAY


def test_an_error_in_the_block_ends_it(db: None) -> None:
    with pytest.raises(ZeroDivisionError), FixedClock(NEW_YEAR):
        raise ZeroDivisionError
    assert timezone.now() - NEW_YEAR > DAY
    assert server_time() - NEW_YEAR > DAY


def test_afterwards_each_function_has_its_own_search_path_again(db: None) -> None:
    before = search_paths()
    with FixedClock(NEW_YEAR) as clock:
        clock.advance(days=1)
        assert search_paths() != before
    assert search_paths() == before


def search_paths() -> list[tuple[str]]:
    """The search paths of functions."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT oid::text, proconfig::text FROM pg_proc WHERE proname LIKE 'ledger%' ORDER BY oid")
        found: list[tuple[str]] = cursor.fetchall()
    return found


def test_without_a_transaction_nothing_is_changed(committed_db: None) -> None:
    with pytest.raises(NotInTransaction), FixedClock(NEW_YEAR):
        raise AssertionError("not entered")
    assert timezone.now() - NEW_YEAR > DAY
    assert server_time() - NEW_YEAR > DAY


def test_an_instant_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="an instant needs a time zone"):
        FixedClock(datetime(2026, 1, 1))
