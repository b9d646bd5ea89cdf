"""Booking a bank's file: each transfer that names one invoice pays it, once; the others are left for a person."""

import json
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from billing import auditing
from billing.documents.invoice_payments.recording import record_payment
from billing.models import Invoice, InvoicePayment
from billing.testing import CustomerFactory
from tests.billing.documents.test_one_off_invoices import issued

pytestmark = pytest.mark.django_db

COLUMNS = ["date=date", "amount=amount", "text=text", "currency=currency"]


def booked(path: Path, *lines: str, **options: Any) -> dict[str, Any]:
    """Book a CSV file of these lines; what the command says."""
    path.write_text("date,amount,text,currency\n" + "\n".join(lines) + "\n")
    out = StringIO()
    with suppress(SystemExit):
        call_command("book_bank_file", str(path), columns=COLUMNS, format="json", stdout=out, **options)
    return dict(json.loads(out.getvalue()))


def test_each_transfer_that_names_one_invoice_pays_it_once(tmp_path: Path) -> None:
    first, second = issued(CustomerFactory(), "19.90"), issued(CustomerFactory(), "10")
    lines = [
        f"2026-01-05,23.88,Thanks for {first.number},EUR",
        f"2026-01-05,5.00,{second.number.replace('-', ' ').lower()},EUR",
        f"2026-01-05,5.00,{second.number.replace('-', ' ').lower()},EUR",
        "2026-01-06,-9.00,rent,EUR",
        "2026-01-06,7.00,for my account,EUR",
        f"2026-01-06,7.00,{first.number} and {second.number},EUR",
        f"2026-01-06,7.00,{second.number},USD",
        f"2190-01-06,7.00,{second.number},EUR",
    ]
    tried = booked(tmp_path / "a.csv", *lines, dry_run=True)
    assert (len(tried["booked"]), InvoicePayment.objects.count()) == (3, 0)
    found = booked(tmp_path / "a.csv", *lines)
    assert [(one["invoice"], one["amount_minor"]) for one in found["booked"]] == [
        (first.pk, 2388), (second.pk, 500), (second.pk, 500),
    ]  # fmt: skip
    assert [one["why"].split(":")[0] for one in found["left"]] == [
        "it names no invoice", "it names several invoices", f"invoice {second.number} is in EUR", "its day has not begun in UTC",
    ]  # fmt: skip
    assert found["outgoing"] == 1
    states = {invoice.pk: (invoice.state, invoice.amount_remaining_minor) for invoice in Invoice.objects.all()}
    assert states == {first.pk: ("paid", 0), second.pk: ("open", 200)}
    again = booked(tmp_path / "b.csv", *lines[1:], f"2026-01-07,2.00,{second.number},EUR")
    assert (len(again["booked"]), again["known"], InvoicePayment.objects.count()) == (1, 2, 4)
    assert auditing.check() == []


def test_what_a_person_records_with_its_name_is_known_to_the_next_file(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "10")
    [left] = booked(tmp_path / "a.csv", "2026-01-05,12.00,no number,EUR")["left"]
    record_payment(invoice=invoice.pk, provider="manual", payment=left["payment"], amount_minor=1200)
    again = booked(tmp_path / "a.csv", "2026-01-05,12.00,no number,EUR")
    assert (again["known"], again["left"]) == (1, [])


def test_the_summary_is_for_people(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "19.90")
    path = tmp_path / "statement.csv"
    path.write_text(f"date,amount,text,currency\n2026-01-05,23.88,{invoice.number},EUR\n2026-01-06,1190.00,thanks,EUR\n")
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("book_bank_file", str(path), columns=COLUMNS, stdout=out)
    assert ended.value.code == 3
    assert out.getvalue().startswith("1 booked: 23.88 EUR. 0 booked before, 0 outgoing, 1 for a person.\n")
    assert "2026-01-06  1,190.00 EUR  thanks: it names no invoice. Payment 20260106-" in out.getvalue()


@pytest.mark.parametrize("columns", [["when=date"], ["date"], None])
def test_a_file_that_cannot_be_read_books_nothing(tmp_path: Path, columns: list[str] | None) -> None:
    path = tmp_path / "a.csv"
    path.write_text("date,amount,text\n2026-01-05,1,x\n")
    with pytest.raises(CommandError):
        call_command("book_bank_file", str(path), columns=columns)
    with pytest.raises(CommandError):
        call_command("book_bank_file", str(tmp_path / "none.sta"))
    with pytest.raises(CommandError, match="one character"):
        call_command("book_bank_file", str(path), columns=["date=date", "amount=amount", "text=text"], delimiter="--")
    assert not InvoicePayment.objects.exists()
