"""Tests that commit, and then empty every table: Django's `TransactionTestCase`, pytest-django's `transactional_db`."""

from typing import Final

from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.creation import TEST_DATABASE_PREFIX

REFUSES: Final = "SELECT pg_get_functiondef('refuse_change'::regproc)"
"""The trigger function of every append-only table."""
BEGINS: Final = "BEGIN\n"
LETS_THROUGH: Final = "    IF TG_OP = 'TRUNCATE' THEN RETURN NULL; END IF;\n"


def is_for_tests(database: BaseDatabaseWrapper) -> bool:
    """Return whether a test runner made the database, by its name."""
    name = str(database.settings_dict["NAME"])
    return name.startswith(database.settings_dict["TEST"]["NAME"] or TEST_DATABASE_PREFIX)


def allow_truncate(using: str = DEFAULT_DB_ALIAS) -> None:
    """Let the tables of a test database be emptied by TRUNCATE; UPDATE and DELETE are refused as before.

    Call it once, after the test database was made; under pytest-django, `ledger.pytest_plugin` does. An append-only ledger
    otherwise refuses how those tests end.

    Raises:
        ImproperlyConfigured: this is not a test database.
    """
    database = connections[using]
    name = database.settings_dict["NAME"]
    if not is_for_tests(database):
        raise ImproperlyConfigured(f"{name} is not a test database")
    with database.cursor() as cursor:
        cursor.execute(REFUSES)
        (function,) = cursor.fetchone()
        if LETS_THROUGH not in function:
            cursor.execute(function.replace(BEGINS, BEGINS + LETS_THROUGH, 1))
