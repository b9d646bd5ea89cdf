"""Credit notes for one invoice at the same time: together they never exceed the invoice."""

import threading
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
import pytest
from django.db import connection, transaction

from billing.documents import credit_notes, invoice_locks, invoice_payments
from billing.documents.credit_notes import CreditLine
from billing.errors import CreditExceedsInvoice, InvoiceGenerationBusy
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import CreditNote, Invoice
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, recurring
from tests.concurrency.race_harness import no_lock

Connect = Callable[..., psycopg.Connection[Any]]


def invoice_of_ten(*, is_paid: bool) -> int:
    """Return the id of an invoice of 10.00 without tax."""
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code)
    [made] = generate.generate(ref=subscription.ref, options=Options(as_of=at(1, 1))).invoices
    if is_paid:
        invoice_payments.pay_rest(made.invoice_id)
    return made.invoice_id


def issue_note_of_six(invoice_id: int) -> CreditNote:
    """Issue a credit note of 6.00."""
    with transaction.atomic():
        return credit_notes.issue_in(
            invoice_id=invoice_id, lines=[CreditLine(position=1, amount_minor=600)], reason="race", actor="test"
        )


def credited_minor(invoice_id: int) -> int:
    """How much of the invoice is credited."""
    return sum(CreditNote.objects.filter(invoice_id=invoice_id).values_list("amount_minor", flat=True))


@contextmanager
def without_locks() -> Any:
    """Credit without the lock of the subscription and that of the invoice's payments."""
    with (
        mock.patch.object(invoice_locks, "try_advisory_lock", no_lock),
        mock.patch.object(invoice_locks, "advisory_lock", no_lock),
    ):
        yield


@contextmanager
def both_have_looked() -> Any:
    """Stop each writer of a note until two have read how much of the invoice can be credited."""
    barrier, real = threading.Barrier(2), credit_notes._write

    def together(*arguments: Any) -> CreditNote:
        barrier.wait(30)
        return real(*arguments)

    with mock.patch.object(credit_notes, "_write", together):
        yield


@pytest.mark.parametrize("is_paid", [False, True])
def test_of_two_credit_notes_at_the_same_time_one_is_busy(committed_db: None, run_threads: Any, is_paid: bool) -> None:
    invoice_id = invoice_of_ten(is_paid=is_paid)
    first_has_written, second_is_done = threading.Event(), threading.Event()
    real = credit_notes._write

    def slowly(*arguments: Any) -> CreditNote:
        note = real(*arguments)
        first_has_written.set()
        assert second_is_done.wait(30)
        return note

    def one(index: int) -> CreditNote:
        if index == 0:
            return issue_note_of_six(invoice_id)
        assert first_has_written.wait(30)
        try:
            return issue_note_of_six(invoice_id)
        finally:
            second_is_done.set()

    with mock.patch.object(credit_notes, "_write", slowly):
        results = run_threads(one, 2)
    assert [type(each) for each in results] == [CreditNote, InvoiceGenerationBusy]
    with pytest.raises(CreditExceedsInvoice):
        issue_note_of_six(invoice_id)
    assert credited_minor(invoice_id) == 600


@pytest.mark.parametrize("is_paid", [False, True])
def test_without_the_lock_the_database_refuses_the_second(committed_db: None, run_threads: Any, is_paid: bool) -> None:
    invoice_id = invoice_of_ten(is_paid=is_paid)
    with without_locks(), both_have_looked():
        results = run_threads(lambda index: issue_note_of_six(invoice_id), 2)
    assert sorted(type(each).__name__ for each in results) == ["CreditExceedsInvoice", "CreditNote"], results
    [refused] = [each for each in results if isinstance(each, CreditExceedsInvoice)]
    assert refused.facts == {
        "invoice": invoice_id, "creditable_minor": 400, "lines": [{"position": 1, "creditable_minor": 400}],
    }  # fmt: skip
    assert credited_minor(invoice_id) == 600
    assert Invoice.objects.get(pk=invoice_id).amount_due_minor == (1000 if is_paid else 400)


def test_control_without_lock_and_trigger_more_is_credited_than_was_billed(
    committed_db: None, run_threads: Any, raw_connection: Connect
) -> None:
    """In a separate schema, whose tables have no triggers."""
    invoice_id = invoice_of_ten(is_paid=True)
    schema = f"race_note_{invoice_id}"
    owner = raw_connection(autocommit=True)
    owner.execute(f"CREATE SCHEMA {schema}")
    for table in ("creditnote", "creditnoteline", "creditnotetax", "creditnoteuse"):
        owner.execute(
            f"CREATE TABLE {schema}.billing_{table} (LIKE public.billing_{table} INCLUDING IDENTITY INCLUDING DEFAULTS)"
        )

    def credit(index: int) -> CreditNote:
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path = {schema}, public")
        return issue_note_of_six(invoice_id)

    try:
        with without_locks(), both_have_looked():
            results = run_threads(credit, 2)
        assert [type(each).__name__ for each in results] == ["CreditNote", "CreditNote"], results
        (credited,) = owner.execute(f"SELECT sum(amount_minor) FROM {schema}.billing_creditnote").fetchone() or (0,)
        assert credited == 1200
    finally:
        # Without this the numbers of the notes in this schema would be gaps in the numbering of the other tests.
        owner.execute(
            "UPDATE billing_numberseries SET last_value = (SELECT count(*) FROM billing_creditnote WHERE series = 'CN')"
            " WHERE name = 'CN'"
        )
        owner.execute(f"DROP SCHEMA {schema} CASCADE")


def test_the_numbers_of_credit_notes_have_no_gap_although_many_are_refused(committed_db: None, run_threads: Any) -> None:
    invoices = [invoice_of_ten(is_paid=bool(index % 2)) for index in range(4)]

    def credit_all(index: int) -> int:
        made = 0
        for invoice_id in invoices:
            for _ in range(3):
                try:
                    issue_note_of_six(invoice_id)
                    made += 1
                except (CreditExceedsInvoice, InvoiceGenerationBusy):
                    continue
        return made

    assert sum(run_threads(credit_all, 4)) == 4
    values = sorted(CreditNote.objects.filter(series="CN").values_list("series_value", flat=True))
    assert values == list(range(1, len(values) + 1))
    assert [credited_minor(invoice_id) for invoice_id in invoices] == [600] * 4
