"""Two processes at one purchase, and one that is killed between the money and the credits: the credits come once."""

import os
import signal
import subprocess
import sys
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.db import IntegrityError, connection

from billing.payments import purchase_recording, purchase_settling
from billing.payments.due_purchases import settle_due
from billing.payments.errors import ReturnExceedsPurchase
from billing.payments.models import DuePurchase, Purchase, PurchaseGrant, PurchaseReturn
from billing.payments.purchase_recording import record_purchase, record_return
from billing.payments.testing import PackFactory, PurchaseFactory
from ledger.database.transactions import outermost
from ledger.testing import unique
from tests.concurrency.meetings import LOCKED, meet
from tests.conftest import database_url
from tests.parts import spread

KILLED = """
import os, signal, sys
import django
django.setup()
from billing.payments import purchase_recording, purchase_settling
where, pack, payment = sys.argv[1:4]

def die(*arguments, **named):
    os.kill(os.getpid(), signal.SIGKILL)

if where == "before the second step":
    purchase_recording.attempt = die
elif where == "after the grant":
    purchase_settling.PurchaseGrant.objects.create = die
elif where == "before the commit of the second step":
    purchase_settling.DuePurchase.objects.filter = die
purchase_recording.record_purchase(pack=pack, holder_id=payment, payment=payment)
"""


def grants(holder: str) -> list[int]:
    """What was granted to a holder."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT amount FROM ledger_entry WHERE holder_id = %s AND kind = 'grant' ORDER BY sequence", [holder])
        return [amount for (amount,) in cursor.fetchall()]


def purchase_without_credits() -> Purchase:
    """A committed purchase whose second step is still to be done."""
    with mock.patch.object(purchase_recording, "attempt"):
        return record_purchase(pack=PackFactory(bonus=0).code, holder_id=unique("holder"), payment=unique("payment"))


# Races -----------------------------------------------------------------------------------------------


def test_two_workers_add_the_credits_once(committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    purchase = purchase_without_credits()
    meet(monkeypatch, (purchase_settling, "holder_lock"), is_locked=True)
    results = run_threads(lambda _: purchase_settling.settle(purchase.pk), 2)
    assert results == [None, None]
    assert grants(purchase.holder_id) == [1000]
    assert PurchaseGrant.objects.filter(purchase_id=purchase.pk).count() == 1


def test_control_without_the_lock_two_workers_collide_in_the_table(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    purchase = purchase_without_credits()
    monkeypatch.setattr(purchase_settling, "locked_transaction", _unlocked)
    monkeypatch.setattr(purchase_settling.ledger, "grant_under", _another_grant)
    meet(monkeypatch, (purchase_settling, "holder_lock"), is_locked=False)
    results = run_threads(lambda _: purchase_settling.settle(purchase.pk), 2)
    assert {type(each) for each in results} == {type(None), IntegrityError}
    assert PurchaseGrant.objects.filter(purchase_id=purchase.pk).count() == 1


def _unlocked(*names: str, **options: Any) -> Any:
    return outermost()


def _another_grant(*arguments: Any, **named: Any) -> Any:
    return mock.Mock(sequence=1)


def test_one_payment_that_arrives_twice_at_the_same_time_is_one_purchase(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, payment = PackFactory(bonus=0).code, unique("payment")
    meet(monkeypatch, (purchase_recording, "pack_on_sale"), is_locked=True)
    first, second = run_threads(lambda _: record_purchase(pack=pack, holder_id=payment, payment=payment), 2)
    assert first.pk == second.pk
    assert grants(payment) == [1000]


def test_control_without_the_lock_the_second_payment_collides_in_the_table(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, payment = PackFactory(bonus=0).code, unique("payment")
    monkeypatch.setattr(purchase_recording, "locked_transaction", _unlocked)
    meet(monkeypatch, (purchase_recording, "pack_on_sale"), is_locked=False)
    results = run_threads(lambda _: record_purchase(pack=pack, holder_id=payment, payment=payment), 2)
    assert {type(each) for each in results} == {Purchase, IntegrityError}
    assert grants(payment) == [1000]


@LOCKED
def test_two_refunds_at_the_same_time_return_no_more_than_was_paid(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    purchase = PurchaseFactory()
    monkeypatch.setattr(purchase_recording, "attempt", lambda purchase_id: None)
    if not is_locked:
        monkeypatch.setattr(purchase_recording, "locked_transaction", _unlocked)
    meet(monkeypatch, (purchase_recording, "left_minor"), is_locked=is_locked)
    results = run_threads(
        lambda number: record_return(purchase=purchase.pk, kind="refund", payment=f"r-{number}", amount_minor=1500), 2
    )
    expected = {PurchaseReturn, ReturnExceedsPurchase} if is_locked else {PurchaseReturn}
    assert {type(each) for each in results} == expected
    assert PurchaseReturn.objects.filter(purchase_id=purchase.pk).count() == (1 if is_locked else 2)


# Kill -9 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where",
    spread(
        ["before the second step", "after the grant", "before the commit of the second step"], test=(), check=["after the grant"]
    ),
)
def test_a_process_killed_after_the_money_was_recorded_leaves_the_credits_to_a_worker(committed_db: None, where: str) -> None:
    pack, payment = PackFactory(bonus=0).code, unique("payment")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, where, pack, payment],
        env={
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests",
            "DATABASE_URL": database_url("application"), "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        },
        cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    purchase = Purchase.objects.get(payment=payment)
    assert (grants(payment), DuePurchase.objects.filter(purchase_id=purchase.pk).count()) == ([], 1)
    settle_due()
    assert (grants(payment), DuePurchase.objects.filter(purchase_id=purchase.pk).count()) == ([1000], 0)
    assert record_purchase(pack=pack, holder_id=payment, payment=payment).pk == purchase.pk
    settle_due()
    assert grants(payment) == [1000]
