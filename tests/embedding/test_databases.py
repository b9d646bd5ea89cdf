"""A project with a second database, of another kind: migrations, checks and tests act on the ledger's only."""

from collections.abc import Callable

import pytest

from tests.embedding.installations import Project

SECOND = "DATABASES['analytics'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': BASE_DIR / 'analytics.sqlite3'}"
TABLES = """
from django.db import connections
print(sorted(name for name in connections["analytics"].introspection.table_names() if name.startswith(("ledger", "billing"))))
"""
TESTS = """
from django.test import TestCase, TransactionTestCase
from ledger import services as credits

class Both(TestCase):
    databases = {"default", "analytics"}

    def test_both(self):
        assert credits.grant(holder_id="a", amount=1, idempotency_key="g", actor="test").balance == 1
"""


@pytest.mark.slow
def test_a_second_database_of_another_kind_gets_no_tables_and_can_be_tested_with(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger", "billing", extras=("billing", "testing"))
    project.add(SECOND)
    project.manage("migrate", "--database", "analytics")
    assert project.shell(TABLES) == "[]"
    project.manage("check", "--database", "analytics")
    (project.folder / "tests.py").write_text(TESTS)
    assert "Ran 1 test" in project.manage("test")
