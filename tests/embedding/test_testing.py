"""A project's own tests with `ledger.testing`, run by Django's runner."""

from collections.abc import Callable

import pytest

from tests.embedding.installations import Project, run

ROLLED_BACK = """
from datetime import UTC, datetime

from django.db import transaction
from django.test import TestCase

from ledger import services as credits
from ledger.errors import InsufficientCredits
from ledger.testing import FixedClock, SpendFactory, holder_with_credits

class Orders(TestCase):
    def test_an_order_spends(self):
        holder = holder_with_credits(100)
        with transaction.atomic():
            assert credits.spend(holder_id=holder, amount=10, idempotency_key="order-1").balance == 90

    def test_credits_expire(self):
        with FixedClock(datetime(2026, 1, 1, tzinfo=UTC)) as clock:
            holder = holder_with_credits(100, expires_at=datetime(2026, 2, 1, tzinfo=UTC))
            clock.advance(days=31)
            with self.assertRaises(InsufficientCredits):
                SpendFactory(holder_id=holder)
"""

EMPTIED = """
from django.test import TransactionTestCase

from ledger.models import Entry
from ledger.testing import allow_truncate, holder_with_credits

class Committed(TransactionTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        allow_truncate()

    def test_one(self):
        holder_with_credits(100)
        assert Entry.objects.count() == 1

    def test_two(self):
        holder_with_credits(100)
        assert Entry.objects.count() == 1
        with self.assertRaisesMessage(Exception, "ledger_entry is append-only: DELETE refused"):
            Entry.objects.all()._raw_delete("default")
"""


WITH_PYTEST = """
import pytest
from ledger import services as credits
from ledger.models import Entry

@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("run", [1, 2])
def test_committed(run):
    credits.grant(holder_id="a", amount=1, idempotency_key="g", actor="test")
    assert Entry.objects.count() == 1

@pytest.mark.django_db(transaction=True, databases=["default", "analytics"])
def test_both_databases():
    with pytest.raises(Exception, match="ledger_entry is append-only: DELETE refused"):
        Entry.objects.all()._raw_delete("default")

def test_no_database():
    pass
"""


@pytest.mark.slow
def test_pytests_tests_that_commit_empty_the_tables_by_themselves(new_project: Callable[..., Project]) -> None:
    """With the extra of no helper, and a second database of another kind; the control is without the plugin."""
    project = new_project("ledger", also=("pytest-django",))
    project.add("DATABASES['analytics'] = {'ENGINE': 'django.db.backends.sqlite3', 'NAME': BASE_DIR / 'analytics.sqlite3'}")
    (project.folder / "test_own.py").write_text(WITH_PYTEST)
    (project.folder / "pytest.ini").write_text("[pytest]\nDJANGO_SETTINGS_MODULE = site_of_ours.settings\n")
    assert "4 passed" in run(project.python, "-m", "pytest", folder=project.folder)
    without = run(project.python, "-m", "pytest", "-p", "no:credit-ledger", folder=project.folder, succeeds=False)
    assert "couldn't be flushed" in without


@pytest.mark.slow
def test_a_projects_tests_are_rolled_back(new_project: Callable[..., Project]) -> None:
    project = new_project("ledger", extras=("testing",))
    (project.folder / "tests.py").write_text(ROLLED_BACK)
    assert "Ran 2 tests" in project.manage("test")


@pytest.mark.slow
def test_tests_that_commit_empty_the_tables_where_that_is_allowed(new_project: Callable[..., Project]) -> None:
    """The control: without it, Django cannot empty the tables after the first of them."""
    project = new_project("ledger", "billing", extras=("testing", "billing"))
    (project.folder / "tests.py").write_text(EMPTIED)
    assert "Ran 2 tests" in project.manage("test")
    (project.folder / "tests.py").write_text(EMPTIED.replace("        allow_truncate()\n", ""))
    assert "couldn't be flushed" in project.manage("test", succeeds=False)
    with_real_data = "from ledger.testing import allow_truncate; allow_truncate()"
    assert "is not a test database" in project.manage("shell", "--command", with_real_data, succeeds=False)
