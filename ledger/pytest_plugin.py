"""Has pytest-django's tests that commit work: registered with pytest by the package itself (`pytest11`).

Such a test ends with a TRUNCATE of every table, which append-only tables refuse. So this allows TRUNCATE as soon as the test
database exists.
"""

from collections.abc import Generator
from typing import Any

import pytest

MAKES_DATABASES = "django_db_setup"
"""The fixture of pytest-django, or the project's own of that name, that makes the test databases."""
IS_MIGRATED = "SELECT to_regproc('refuse_change') IS NOT NULL"


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Generator[None, Any, Any]:
    """Allow TRUNCATE once the test databases are made."""
    made = yield
    if fixturedef.argname == MAKES_DATABASES:
        with request.getfixturevalue("django_db_blocker").unblock():
            _allow_truncate()
    return made


def _allow_truncate() -> None:
    """Allow it if the ledger's tables are in a database for tests; otherwise do nothing."""
    from django.apps import apps
    from django.db import DEFAULT_DB_ALIAS, connections

    from ledger.database.truncation import allow_truncate, is_for_tests

    database = connections[DEFAULT_DB_ALIAS]
    if not apps.is_installed("ledger") or database.vendor != "postgresql" or not is_for_tests(database):
        return
    with database.cursor() as cursor:
        cursor.execute(IS_MIGRATED)
        (is_migrated,) = cursor.fetchone()
    if is_migrated:
        allow_truncate()
