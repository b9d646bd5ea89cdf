"""Sellers that are recorded at once: each prefix of numbers has one seller."""

import secrets
import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any
from unittest import mock

import pytest
from django.db import transaction

from billing.documents import sellers
from billing.models import Seller
from ledger.errors import Invalid
from ledger.testing import unique
from tests.billing.documents.issued import SELLER
from tests.concurrency.race_harness import no_lock

pytestmark = pytest.mark.usefixtures("committed_db")

SELLERS = 4


@pytest.fixture
def record() -> Callable[[int], str]:
    """Records a seller with the prefixes of all others of the test; says how that went."""
    name, prefix = unique("seller"), secrets.token_hex(4).upper()

    def one(number: int) -> str:
        given = {"ref": f"{name}-{number}", "invoice_prefix": prefix, "credit_note_prefix": f"{prefix}CN"}
        try:
            return "recorded" if sellers.record_seller({**SELLER, **given}, actor="test").pk else ""
        except Invalid as refused:
            return str(refused.facts["rule"])

    return one


def test_of_sellers_that_want_one_prefix_at_once_one_gets_it(record: Any, run_threads: Callable[..., list[Any]]) -> None:
    before = Seller.objects.count()
    assert sorted(run_threads(record, SELLERS)) == ["recorded", *["taken-by-another-seller"] * (SELLERS - 1)]
    assert Seller.objects.count() == before + 1


def test_control_without_the_lock_each_of_them_gets_it(record: Any, run_threads: Callable[..., list[Any]]) -> None:
    before = Seller.objects.count()
    together = threading.Barrier(SELLERS)
    ensure = sellers._ensure_own_prefixes

    def ensured(seller: sellers.NewSeller) -> None:
        ensure(seller)
        together.wait(30)

    @contextmanager
    def without_lock(*names: str) -> Any:
        with transaction.atomic(), no_lock(*names) as lock:
            yield lock

    with (
        mock.patch.object(sellers, "locked_transaction", without_lock),
        mock.patch.object(sellers, "_ensure_own_prefixes", ensured),
    ):
        assert run_threads(record, SELLERS) == ["recorded"] * SELLERS
    assert Seller.objects.count() == before + SELLERS
