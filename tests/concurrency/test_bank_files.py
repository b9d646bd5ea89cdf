"""One bank's file that two workers book at the same time, and a process that is killed between its lines: each books once."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.conf import settings

from billing.models import CreditNote
from billing.payments.due_purchases import settle_due
from billing.payments.models import PaymentIntent, Purchase
from billing.payments.providers.manual_transfers import reference_of
from billing.statements_in import booking
from billing.statements_in.booking import book
from billing.statements_in.models import BankReceipt
from billing.statements_in.statements import Statement, StatementEntry
from ledger.database.transactions import own_or_joined
from ledger.testing import unique
from tests.concurrency.meetings import LOCKED, meet
from tests.concurrency.test_payment_intents import waiting_for_a_transfer
from tests.concurrency.test_purchases import grants
from tests.conftest import database_url

KILLED = """
import os, signal, sys
import django
django.setup()
from billing.statements_in import booking
from billing.payments import transfers
from tests.concurrency.test_bank_files import statement_of

where, lines = sys.argv[1], [each.split("=") for each in sys.argv[2:]]
module, name = (booking, "book_receipt") if where == "between the lines" else (transfers, "apply_under")
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
booking.book([statement_of(lines)], b"", actor="bank-file")
"""


def line_for(intent: PaymentIntent) -> tuple[str, str]:
    """A line of 25.00 EUR, which is 5.00 EUR more than the pack costs: the bank's reference and the text."""
    return unique("line"), reference_of(intent.pk)


def statement_of(lines: Iterable[tuple[str, str]], *, day: date = date(2026, 1, 5)) -> Statement:
    """A statement of these lines."""
    facts: dict[str, Any] = {"line": 1, "booked_on": day, "value_on": day, "amount": Decimal(25), "currency": "EUR"}
    return Statement(account="A", entries=tuple(StatementEntry(text=text, bank_reference=name, **facts) for name, text in lines))


def deposits(intent: PaymentIntent) -> int:
    """How often the rest became credit of the customer."""
    return CreditNote.objects.filter(customer_id=intent.customer_id).count()


@LOCKED
def test_two_forms_of_one_receipt_that_are_booked_at_the_same_time_pay_once(
    committed_db: None, run_threads: Any, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    made = waiting_for_a_transfer()
    pending = statement_of([("", reference_of(made.pk))])
    settled = statement_of([("", f"{reference_of(made.pk)} thanks")], day=date(2026, 1, 6))
    if not is_locked:
        monkeypatch.setattr(booking, "locked_transaction", lambda *names: own_or_joined())
    meet(monkeypatch, (booking, "_why_like_another"), is_locked=is_locked, has_read=True)
    outcomes = run_threads(lambda index: book([(pending, settled)[index]], bytes([index]), actor="bank-file"), 2)
    # Without the lock both are tried, and the second finds the order paid: an invoice would take the money twice.
    reasons = [left.why.partition(" of ")[0].split(" ", 4)[0:3] for each in outcomes for left in each.left]
    assert reasons == ([["it", "may", "be"]] if is_locked else [["payment", "intent", str(made.pk)]])
    assert deposits(made) == 1


def test_two_workers_that_book_one_file_book_it_once(committed_db: None, run_threads: Any) -> None:
    made = waiting_for_a_transfer()
    statement = statement_of([line_for(made)])
    outcomes = run_threads(lambda _: book([statement], b"", actor="bank-file"), 2)
    assert sorted((len(each.booked), each.known) for each in outcomes) == [(0, 1), (1, 0)]
    assert (deposits(made), Purchase.objects.filter(provider="manual", holder_id=made.holder_id).count()) == (1, 1)
    assert BankReceipt.objects.filter(payment_intent_id=made.pk, state="booked").count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("where", ["between the lines", "before the commit of the second line"])
def test_a_process_that_is_killed_has_booked_the_lines_before_and_the_next_books_the_rest(committed_db: None, where: str) -> None:
    orders = [waiting_for_a_transfer(), waiting_for_a_transfer()]
    lines = [line_for(order) for order in orders]
    killed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", KILLED, where, *map("=".join, lines)],
        env={
            "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "SECRET_KEY": "only-for-tests",
            "DATABASE_URL": database_url("application"), "DJANGO_SETTINGS_MODULE": "ledger_project.settings",
        },
        cwd=settings.BASE_DIR, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [deposits(order) for order in orders] == [1, 0]
    again = book([statement_of(lines)], b"", actor="bank-file")
    assert (again.known, len(again.booked), again.left) == (1, 1, [])
    settle_due()
    assert [(deposits(order), grants(order.holder_id or "")) for order in orders] == [(1, [1000]), (1, [1000])]
