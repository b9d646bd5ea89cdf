"""Taxes that are declared at once: the same terms make one version."""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from datetime import date
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from django.db import transaction

from billing.models import Tax
from billing.orders import tax_declarations
from ledger.testing import unique
from tests.concurrency.race_harness import no_lock

pytestmark = pytest.mark.usefixtures("committed_db")

OPERATORS = 4


@pytest.fixture
def code() -> str:
    return unique("tax")


@pytest.fixture
def declare(code: str) -> Callable[[int], int]:
    """Declares the tax of the test; returns the id of its version."""
    tax = tax_declarations.NewTax(code=code, name="GST", rate=Decimal(5), category="O", country="CA", valid_from=date(2020, 1, 1))
    return lambda number: tax_declarations.declare(tax, actor=f"test:{number}").pk


def test_a_tax_that_is_declared_at_once_gets_one_version(code: str, declare: Any, run_threads: Callable[..., list[Any]]) -> None:
    assert len(set(run_threads(declare, OPERATORS))) == 1
    assert Tax.objects.filter(code=code).count() == 1


def test_control_without_the_lock_each_declares_a_version(code: str, declare: Any, run_threads: Callable[..., list[Any]]) -> None:
    together = threading.Barrier(OPERATORS)
    newest = tax_declarations.newest_of

    def read(code: str) -> Tax | None:
        found = newest(code)
        together.wait(30)
        return found

    @contextmanager
    def without_lock(*names: str) -> Any:
        with transaction.atomic(), no_lock(*names) as lock:
            yield lock

    with (
        mock.patch.object(tax_declarations, "locked_transaction", without_lock),
        mock.patch.object(tax_declarations, "newest_of", read),
    ):
        assert len(set(run_threads(declare, OPERATORS))) == OPERATORS
    assert Tax.objects.filter(code=code).count() == OPERATORS
