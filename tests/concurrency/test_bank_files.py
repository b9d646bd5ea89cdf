"""One bank's file that two workers book at the same time, and a process that is killed between its lines: each books once."""

import os
import signal
import subprocess
import sys
from datetime import date
from typing import Any

import pytest
from django.conf import settings

from billing.models import CreditNote, PaymentIntent, Purchase
from billing.payments.bank_files.booking import book
from billing.payments.bank_files.reading import BankEntry
from billing.payments.collecting import transfers
from billing.payments.providers.manual_transfers import reference_of
from billing.payments.purchases.due import settle_due
from ledger.database.transactions import own_or_joined
from ledger.testing import unique
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.test_payment_intents import bought_without_lock, waiting_for_a_transfer
from tests.concurrency.test_purchases import grants
from tests.conftest import database_url

KILLED = """
import os, signal, sys
from datetime import date
import django
django.setup()
from billing.payments.bank_files import booking
from billing.payments.bank_files.reading import BankEntry
from billing.payments.collecting import transfers

where, lines = sys.argv[1], [each.split("=") for each in sys.argv[2:]]
module, name = (booking, "book_transfer") if where == "between the lines" else (transfers, "apply_under")
real, seen = getattr(module, name), []

def dies(*arguments, **named):
    if where == "between the lines" and seen:
        os.kill(os.getpid(), signal.SIGKILL)
    made = real(*arguments, **named)
    if seen:
        os.kill(os.getpid(), signal.SIGKILL)
    seen.append(made)
    return made

setattr(module, name, dies)
booking.book([BankEntry(payment, date(2026, 1, 5), 2500, "EUR", text) for payment, text in lines], actor="bank-file")
"""


def entry_for(intent: PaymentIntent) -> BankEntry:
    """A line of 25.00 EUR, which is 5.00 EUR more than the pack costs."""
    return BankEntry(unique("line"), date(2026, 1, 5), 2500, "EUR", reference_of(intent.pk))


def deposits(intent: PaymentIntent) -> int:
    """How often the rest became credit of the customer."""
    return CreditNote.objects.filter(customer_id=intent.customer_id).count()


@LOCKED
def test_two_workers_that_book_one_file_buy_the_pack_and_give_the_rest_as_credit_once(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    made = waiting_for_a_transfer()
    entry = entry_for(made)
    if not is_locked:
        monkeypatch.setattr(transfers, "locked_transaction", lambda *names: own_or_joined())
        monkeypatch.setattr(transfers, "apply_under", lambda lock, intent, found: bought_without_lock(intent, found))
    meet(monkeypatch, (transfers, "_is_booked"), is_locked=is_locked, has_read=True)
    found = run_threads(lambda _: book([entry], actor="bank-file"), 2)
    assert [one.left for one in found] == [[], []]
    assert deposits(made) == (1 if is_locked else 2)
    assert Purchase.objects.filter(provider="manual", payment=entry.name).count() == 1


@pytest.mark.parametrize("where", ["between the lines", "before the commit of the second line"])
def test_a_process_that_is_killed_has_booked_the_lines_before_and_the_next_books_the_rest(committed_db: None, where: str) -> None:
    orders = [waiting_for_a_transfer(), waiting_for_a_transfer()]
    lines = [entry_for(order) for order in orders]
    killed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, where, *(f"{line.name}={line.text}" for line in lines)],
        env={
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests",
            "DATABASE_URL": database_url("application"), "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        },
        cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [deposits(order) for order in orders] == [1, 0]
    again = book(lines, actor="bank-file")
    assert (again.known, len(again.booked), again.left) == (1, 1, [])
    settle_due()
    assert [(deposits(order), grants(order.holder_id or "")) for order in orders] == [(1, [1000]), (1, [1000])]
