"""Booking a bank's file: each receipt that names one invoice pays it, once; the others are left for a person."""

import json
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.auditing import consistency
from billing.documents.invoice_payments import record_payment
from billing.models import Invoice, InvoicePayment
from billing.statements_in.formats import check_bank_formats
from billing.statements_in.models import BankReceipt
from billing.statements_in.statements import Statement
from billing.testing import CustomerFactory
from tests.billing.documents.test_one_off_invoices import issued

pytestmark = pytest.mark.django_db

COLUMNS = ["date=date", "amount=amount", "text=text", "currency=currency"]
WITH_ID = [*COLUMNS, "id=id"]


def run(path: Path, content: str, **options: Any) -> dict[str, Any]:
    """Book a file with this content; what the command says."""
    path.write_text(content)
    out = StringIO()
    with suppress(SystemExit):
        call_command("book_bank_file", str(path), format="json", stdout=out, **options)
    return dict(json.loads(out.getvalue()))


def booked(path: Path, *lines: str, columns: list[str] = COLUMNS, **options: Any) -> dict[str, Any]:
    """Book a CSV file of these lines; what the command says."""
    return run(path, "date,amount,text,currency,id\n" + "\n".join(lines) + "\n", columns=columns, **options)


def paid(invoice: Invoice) -> tuple[str, int, int]:
    invoice.refresh_from_db()
    return invoice.state, invoice.amount_paid_minor, invoice.amount_remaining_minor


def test_each_receipt_that_names_one_invoice_pays_it_once(tmp_path: Path) -> None:
    first, second = issued(CustomerFactory(), "19.90"), issued(CustomerFactory(), "10")
    lines = [
        f"2026-01-05,23.88,Thanks for {first.number},EUR,",
        f"2026-01-05,5.00,{second.number.replace('-', ' ').lower()},EUR,",
        f"2026-01-05,5.00,{second.number.replace('-', ' ').lower()},EUR,",
        "2026-01-06,-9.00,rent,EUR,",
        "2026-01-06,7.00,for my account,EUR,",
        f"2026-01-06,7.01,{first.number} and {second.number},EUR,",
        f"2026-01-06,7.02,{second.number},USD,",
        f"2190-01-06,2.00,{second.number},EUR,",
        f"2026-01-06,1.00,PRO{second.number},EUR,",
    ]
    tried = booked(tmp_path / "a.csv", *lines, dry_run=True)
    assert (len(tried["booked"]), InvoicePayment.objects.count(), BankReceipt.objects.count()) == (3, 0, 0)
    found = booked(tmp_path / "a.csv", *lines)
    assert [(one["invoice"], one["amount_minor"]) for one in found["booked"]] == [
        (first.pk, 2388), (second.pk, 500), (second.pk, 500),
    ]  # fmt: skip
    assert [one["why"].split(":")[0] for one in found["left"]] == [
        "it names no invoice", "it names several invoices", f"invoice {second.number} is in EUR", "its day has not begun in UTC",
        "it names no invoice",
    ]  # fmt: skip
    assert found["outgoing"] == 1
    assert (paid(first), paid(second)) == (("paid", 2388, 0), ("open", 1000, 200))
    again = booked(tmp_path / "b.csv", *lines[1:], f"2026-01-20,2.00,{second.number},EUR,")
    assert (len(again["booked"]), again["known"], InvoicePayment.objects.count()) == (1, 2, 4)
    assert consistency.check() == []


def test_received_is_booked_and_left_to_the_cent(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "19.90")
    booked(tmp_path / "a.csv", f"2026-01-05,23.88,{invoice.number},EUR,", "2026-01-05,1.11,x,EUR,", "2026-01-05,-3.00,y,EUR,")
    sums = {
        state: sum(BankReceipt.objects.filter(state=state).values_list("amount_minor", flat=True)) for state in ("booked", "left")
    }
    assert sums == {"booked": 2388, "left": 111}


MT940 = """:20:S{n}
:25:NL91ABNA0417164300
:28C:{n}/1
:60F:C261115EUR{opening},
:61:2601{booked}C{amount}NTRFNONREF//{reference}
:86:/REMI/{number}
:62F:C2611{day}EUR{closing},
"""


def test_equal_receipts_of_two_daily_files_are_two_by_the_banks_references(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "100")
    common = {"amount": "60,00", "number": invoice.number}
    one = run(tmp_path / "1.sta", MT940.format(n=1, opening=0, closing=60, booked="140116", reference="B1", day=16, **common))
    two = run(tmp_path / "2.sta", MT940.format(n=2, opening=60, closing=120, booked="140117", reference="B2", day=17, **common))
    assert [len(each["booked"]) for each in (one, two)] == [1, 1]
    assert paid(invoice) == ("paid", 12000, 0)


def test_one_receipt_with_a_reference_is_booked_once_whatever_its_text_becomes(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "100")
    texts = (invoice.number, f"{invoice.number} Ada Example")
    results = [booked(tmp_path / "k.csv", f"2026-01-18,80.00,{text},EUR,TX-1", columns=WITH_ID) for text in texts]
    assert [(len(each["booked"]), each["known"]) for each in results] == [(1, 0), (0, 1)]
    assert paid(invoice) == ("open", 8000, 4000)


def test_a_reference_that_the_bank_uses_again_for_another_amount_is_left_for_a_person(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "100")
    booked(tmp_path / "k.csv", f"2026-01-18,80.00,{invoice.number},EUR,TX-1", columns=WITH_ID)
    [left] = booked(tmp_path / "k.csv", f"2026-01-18,30.00,{invoice.number},EUR,TX-1", columns=WITH_ID)["left"]
    assert (left["waits_for_person"], left["why"].split(" ", 2)[2]) == (True, "has the same reference, but is another one")
    assert paid(invoice) == ("open", 8000, 4000)


def test_a_receipt_that_comes_again_in_another_form_is_left_for_a_person(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "100")
    booked(tmp_path / "1.csv", f"2026-01-19,80.00,Rechnung {invoice.number},EUR,")
    again = booked(tmp_path / "2.csv", f"2026-01-20,80.00,Rechnung {invoice.number} Ada,EUR,")
    [left] = again["left"]
    assert (again["booked"], left["waits_for_person"]) == ([], True)
    assert left["why"].endswith("of 2026-01-19 in another form")
    assert paid(invoice) == ("open", 8000, 4000)
    other = issued(CustomerFactory(), "100")
    assert len(booked(tmp_path / "3.csv", f"2026-01-20,80.00,Rechnung {other.number},EUR,")["booked"]) == 1
    assert len(booked(tmp_path / "4.csv", f"2026-03-20,40.00,Rechnung {invoice.number},EUR,")["booked"]) == 1


def test_a_pending_entry_is_not_booked_until_the_bank_books_it(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "250")
    heading = '"Buchungstag";"Verwendungszweck";"Betrag";"Waehrung";"Info";"Auftragskonto";"Valutadatum";'
    heading += '"Kundenreferenz (End-to-End)";"Beguenstigter/Zahlungspflichtiger";"Kontonummer/IBAN"\n'
    row = f'"{{day}}";"{invoice.number}";"297,50";"EUR";"{{state}}";"DE89";"{{day}}";"";"Ada";"NL02"\n'
    pending = run(tmp_path / "s.csv", heading + row.format(day="19.11.25", state="Umsatz vorgemerkt"), profile="sparkasse")
    assert (pending["pending"], BankReceipt.objects.count()) == (1, 0)
    again = run(tmp_path / "s.csv", heading + row.format(day="20.11.25", state="Umsatz gebucht"))
    assert (len(again["booked"]), again["pending"]) == (1, 0)


def test_a_receipt_far_above_what_is_due_is_left_for_a_person(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "100")
    [left] = booked(tmp_path / "a.csv", f"2026-01-05,240.01,{invoice.number},EUR,")["left"]
    assert (left["why"], left["waits_for_person"]) == (f"it is far above what is due of invoice {invoice.number}", True)
    assert len(booked(tmp_path / "a.csv", f"2026-01-05,240.00,{invoice.number},EUR,")["booked"]) == 1
    [left] = booked(tmp_path / "a.csv", f"2026-01-06,1.00,{invoice.number},EUR,")["left"]
    assert left["why"] == f"invoice {invoice.number} is paid"


def test_a_receipt_above_the_limit_waits_for_a_second_operator(tmp_path: Path, settings: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["EUR=10000"]}
    invoice = issued(CustomerFactory(), "100")
    found = booked(tmp_path / "a.csv", f"2026-01-05,100.01,{invoice.number},EUR,", f"2026-01-05,10.00,{invoice.number},EUR,")
    assert [one["amount_minor"] for one in found["booked"]] == [1000]
    assert found["left"][0]["why"] == "it is above the amount from which a second operator is needed"


def test_receipts_of_a_day_for_one_invoice_add_up_to_the_limit(tmp_path: Path, settings: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["EUR=10000"]}
    one, other = issued(CustomerFactory(), "100"), issued(CustomerFactory(), "100")
    lines = [f"2026-01-05,60.00,{one.number},EUR,", f"2026-01-06,41.00,{one.number},EUR,", f"2026-01-05,60,{other.number},EUR,"]
    found = booked(tmp_path / "a.csv", *lines, f"2026-01-07,40.00,{one.number},EUR,")
    assert [(each["invoice"], each["amount_minor"]) for each in found["booked"]] == [
        (one.pk, 6000), (other.pk, 6000), (one.pk, 4000),
    ]  # fmt: skip
    assert [each["amount_minor"] for each in found["left"]] == [4100]
    assert (paid(one), InvoicePayment.objects.count()) == (("open", 10000, 2000), 3)


def test_what_a_person_records_with_its_name_is_known_to_the_next_file(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "10")
    [left] = booked(tmp_path / "a.csv", "2026-01-05,12.00,no number,EUR,")["left"]
    record_payment(invoice=invoice.pk, provider="manual", payment=left["payment"], amount_minor=1200)
    again = booked(tmp_path / "a.csv", "2026-01-05,12.00,no number,EUR,")
    assert (again["known"], again["left"]) == (1, [])


def test_the_summary_shows_what_was_read_and_is_for_people(tmp_path: Path) -> None:
    invoice = issued(CustomerFactory(), "19.90")
    path = tmp_path / "statement.csv"
    path.write_text(f"date,amount,text,currency\n2026-01-05,23.88,{invoice.number},EUR\n2026-01-06,1190.00,thanks,EUR\n")
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("book_bank_file", str(path), columns=COLUMNS, stdout=out)
    assert ended.value.code == 3
    lines = out.getvalue().splitlines()
    assert lines[:3] == [
        "The first entries as they were read:",
        f"  line 2: 2026-01-05  23.88 EUR  {invoice.number} (no account)",
        "  line 3: 2026-01-06  1190.00 EUR  thanks (no account)",
    ]
    assert lines[3] == "1 booked: 23.88 EUR. 0 booked before, 0 outgoing, 0 pending, 1 for a person."
    assert "  2026-01-06  1,190.00 EUR  thanks: it names no invoice. Payment bank-" in lines[4]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("date,amount,text\n2026-01-05,1,x\n", {"columns": ["when=date"]}, "MEANING=HEADING"),
        ("date,amount,text\n2026-01-05,1,x\n", {"columns": ["date"]}, "MEANING=HEADING"),
        ("date,amount,text\n2026-01-05,1,x\n", {}, "no profile fits"),
        ("date,amount,text\n2026-01-05,1,x\n", {"profile": "none.toml"}, "none.toml is no profile"),
        ("date,amount,text\n2026-01-05,1,x\n", {"columns": COLUMNS[:3], "delimiter": "--"}, "one character"),
        ("date,amount,text\n2026-01-05,1,x\n", {"columns": COLUMNS[:3]}, "say it with --currency"),
        (":20:S\n:25:A\n:60F:C260101EUR0,\n:61:2601050105C5,00NTRFX\n:86:x\n:62F:C260101EUR9,\n", {}, "line 6: the closing"),
    ],
)  # fmt: skip
def test_a_file_that_is_refused_books_nothing(tmp_path: Path, content: str, options: dict[str, Any], message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content)
    with pytest.raises(CommandError, match=message):
        call_command("book_bank_file", str(path), **options)
    assert (InvoicePayment.objects.count(), BankReceipt.objects.count()) == (0, 0)


def test_a_file_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        call_command("book_bank_file", str(tmp_path / "none.sta"))


def read_nothing(content: bytes) -> list[Statement]:
    """The reader of a project's own form."""
    return [Statement(account=content.decode())]


def test_a_project_adds_a_form_by_a_dotted_path(tmp_path: Path, settings: Any) -> None:
    settings.BANK_FORMATS = {"ours": f"{__name__}.read_nothing"}
    assert check_bank_formats(None) == []
    assert run(tmp_path / "a", "x", form="ours")["booked"] == []
    settings.BANK_FORMATS = {"ours": "shop.banks.read", "mine": f"{__name__}.COLUMNS"}
    reported: list[CheckMessage] = check_bank_formats(None)
    assert [each.id for each in reported] == ["billing.E006", "billing.E006"]


def texts_read(path: Path, line: str) -> int:
    """In how many texts the booking of one new line looks for invoices: for each it reads the prefixes of the sellers."""
    with CaptureQueriesContext(connection) as queries:
        booked(path, line)
    return sum('SELECT "billing_seller"."details"' in query["sql"] for query in queries)


def test_what_an_entry_names_is_read_once_however_many_receipts_are_near(tmp_path: Path) -> None:
    first, second = issued(CustomerFactory(), "100"), issued(CustomerFactory(), "100")
    days = range(1, 5)
    counts = []
    for others in (2, 6):
        # Receipts of the same amount that name another invoice.
        booked(tmp_path / f"{others}.csv", *(f"2026-01-0{day},1.0{others},{first.number} part {day}a,EUR," for day in days[:2]))
        if others > 2:
            booked(tmp_path / "more.csv", *(f"2026-01-0{day},1.0{others},{first.number} part {day}b,EUR," for day in days))
        named = texts_read(tmp_path / f"named-{others}.csv", f"2026-01-03,1.0{others},{second.number},EUR,")
        unnamed = texts_read(tmp_path / f"unnamed-{others}.csv", f"2026-01-03,1.0{others},many thanks,EUR,")
        counts.append((named, unnamed))
    (named, unnamed), (more_named, more_unnamed) = counts
    # Of the four receipts more, each is read once. An entry that names nothing is like them by its words or not at all.
    assert (more_named - named, more_unnamed - unnamed) == (4, 0)
