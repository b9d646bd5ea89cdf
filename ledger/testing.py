"""For the tests of a project: holders with credits, factories, a stopped clock. Needs the extra `[testing]`.

All of it works inside Django's `TestCase` and pytest-django's `db`, whose transaction is rolled back after each test.
"""

import uuid
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, Final
from unittest import mock

import factory
from django.db import DEFAULT_DB_ALIAS, connections

from ledger import services
from ledger.database.truncation import allow_truncate
from ledger.errors import NotInTransaction
from ledger.rules.entries import Entry

__all__ = [
    "FixedClock", "GrantFactory", "HoldFactory", "SpendFactory", "allow_truncate", "api_key", "holder_with_credits", "unique",
]  # fmt: skip


def unique(prefix: str) -> str:
    """Return a name that nothing else has."""
    return f"{prefix}-{uuid.uuid4().hex[:16]}"


class _EntryFactory(factory.Factory):
    """Calls the use-case of its name with its declarations; further arguments are those of the use-case."""

    class Meta:
        abstract = True
        model = Entry

    idempotency_key = factory.LazyFunction(lambda: unique("key"))

    @classmethod
    def _build(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        raise NotImplementedError("an entry is stored as soon as it exists: call the factory, or its create()")


class GrantFactory(_EntryFactory):
    """A grant of 100 credits to a new holder."""

    holder_id = factory.LazyFunction(lambda: unique("holder"))
    amount = 100

    @classmethod
    def _create(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        return services.grant(**kwargs)


class SpendFactory(_EntryFactory):
    """A spend of 10 credits, by a new holder of 100."""

    holder_id = factory.LazyFunction(lambda: holder_with_credits(100))
    amount = 10

    @classmethod
    def _create(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        return services.spend(**kwargs)


class HoldFactory(_EntryFactory):
    """A hold of 10 credits, by a new holder of 100."""

    holder_id = factory.LazyFunction(lambda: holder_with_credits(100))
    amount = 10

    @classmethod
    def _create(cls, model_class: type[Entry], *args: Any, **kwargs: Any) -> Entry:
        return services.hold(**kwargs)


def holder_with_credits(amount: int, **grant: Any) -> str:
    """Grant credits and return the holder, a new one by default.

    Args:
        grant: other arguments of `services.grant`, such as `holder_id`, `credit_type`, `expires_at`.
    """
    entry: Entry = GrantFactory.create(amount=amount, **grant)
    return entry.holder_id


def api_key(*scopes: str, **confines: Any) -> str:
    """Make an API key and return its secret, for `Authorization: Bearer …`.

    Args:
        scopes: such as "ledger:spend".
        confines: other arguments of `api_keys.create_api_key`, such as `holder_id`.
    """
    from ledger.keys import api_keys  # a project may leave it out

    _, secret = api_keys.create_api_key(**({"name": unique("key")} | confines), scopes=scopes)
    return secret


SCHEMA: Final = "ledger_test_clock"
CLOCKS: Final = ("clock_timestamp", "statement_timestamp", "transaction_timestamp")
"""The functions from which the ledger's SQL reads the time."""

# What stands before pg_catalog in a search path is found before PostgreSQL's own. The ledger's functions have paths of their own.
FUNCTIONS: Final = """
SELECT p.oid::regprocedure::text, substr(setting, length('search_path=') + 1)
FROM pg_proc p, unnest(p.proconfig) AS setting
WHERE p.pronamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'ledger_entry'::regclass)
    AND setting LIKE 'search_path=%%'
    AND p.prosrc ~ %s
"""
BEFORE_OTHERS: Final = f"{SCHEMA}, pg_catalog, "


class FixedClock:
    """Stop time at an instant, for a block inside a transaction such as that of a `TestCase`.

    The ledger's decisions, its reads and `django.utils.timezone.now` see the instant, in the past or in the future; so lots
    expire, holds end and months pass without waiting. Columns with a default in the database have the server's time. Python's
    `datetime.now` continues: use time-machine or freezegun beside it if your own code calls that.

    Raises:
        NotInTransaction: the block is not inside a transaction.
    """

    def __init__(self, at: datetime) -> None:
        if at.tzinfo is None:
            raise ValueError("an instant needs a time zone")
        self.at = at
        self._cleanup = ExitStack()

    def __enter__(self) -> "FixedClock":
        """Stop time."""
        self._cleanup.enter_context(mock.patch("django.utils.timezone.now", self._now))
        try:
            self.move_to(self.at)
        except BaseException:
            self._cleanup.close()
            raise
        return self

    def __exit__(self, *raised: Any) -> None:
        """Let time continue. In a transaction that an error has aborted, the server's clock continues with the rollback."""
        self._cleanup.close()
        if not connections[DEFAULT_DB_ALIAS].needs_rollback:
            reset_server_clock()

    def _now(self) -> datetime:
        return self.at

    def move_to(self, at: datetime) -> None:
        """Stop time at another instant."""
        set_server_clock(f"timestamptz '{at.isoformat()}'")
        self.at = at

    def advance(self, **by: float) -> None:
        """Stop time later: `advance(days=31)`, with the arguments of `timedelta`."""
        self.move_to(self.at + timedelta(**by))


def set_server_clock(time: str) -> None:
    """Give the open transaction another time of the server's clock, until it ends or `reset_server_clock`.

    Args:
        time: SQL of type timestamptz; `{clock}` in it is the function that reads the clock.

    Raises:
        NotInTransaction: there is no transaction.
    """
    database = connections[DEFAULT_DB_ALIAS]
    if not database.in_atomic_block:
        raise NotInTransaction(using=DEFAULT_DB_ALIAS)
    with database.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
        for clock in CLOCKS:
            cursor.execute(
                f"CREATE OR REPLACE FUNCTION {SCHEMA}.{clock}() RETURNS timestamptz LANGUAGE sql VOLATILE"
                f" RETURN {time.format(clock=clock)}"
            )
        for function, path in _paths(cursor):
            if not path.startswith(BEFORE_OTHERS):
                cursor.execute(f"ALTER FUNCTION {function} SET search_path = {BEFORE_OTHERS}{path}")
        cursor.execute(
            "SELECT set_config('search_path', %s || path, true) FROM current_setting('search_path') AS path"
            " WHERE path NOT LIKE %s",
            [BEFORE_OTHERS, f"{BEFORE_OTHERS}%"],
        )


def reset_server_clock() -> None:
    """Let the server's clock be right again for the open transaction."""
    with connections[DEFAULT_DB_ALIAS].cursor() as cursor:
        cursor.execute("SELECT set_config('search_path', replace(current_setting('search_path'), %s, ''), true)", [BEFORE_OTHERS])
        for function, path in _paths(cursor):
            cursor.execute(f"ALTER FUNCTION {function} SET search_path = {path.removeprefix(BEFORE_OTHERS)}")
        cursor.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE")


def _paths(cursor: Any) -> list[tuple[str, str]]:
    """Return the ledger's functions that read a clock, each with its search path."""
    cursor.execute(FUNCTIONS, ["|".join(CLOCKS)])
    rows: list[tuple[str, str]] = cursor.fetchall()
    return rows
