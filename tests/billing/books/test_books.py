"""The books of a month: worked numbers, the same bytes each time, and journals that other programs read."""

import csv
import io
import json
import re
from collections import Counter
from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest
from beancount import loader
from django.core.management import CommandError, call_command

from billing.books import journal
from billing.books.datev import COLUMNS, as_datev
from billing.books.journal import AccountMap, component, postings
from billing.books.roll_forward import Book, Expiry, RollForwardSection, book_of
from ledger.errors import Invalid
from ledger.totals.closing import close_months
from ledger.totals.counting import count_entries
from tests.ledger.conftest import ledger_clock
from tests.ledger.totals.test_costs import ONE, TWO, at_noon_of, use_case, write_history

__all__ = ["at_noon_of", "ledger_clock"]

OCTOBER = date(2026, 10, 1)
EUR = RollForwardSection(
    "credits", "EUR", 325_000,
    {"sold": 990_000, "recognised": -412_050, "breakage": -1_250, "revoked": -9_900, "transferred": 0}, {"recognised": -100},
    891_700, (Expiry("2027-10", 0, 500_000), Expiry("never", 325_000, 391_700)),
)  # fmt: skip
JPY = RollForwardSection(
    "sms_packs", "JPY", 0, {"sold": 700, "recognised": 0, "breakage": 0, "revoked": 0, "transferred": 0}, {}, 700,
    (Expiry("never", 0, 700),),
)  # fmt: skip
BOOK = Book(OCTOBER, is_closed=True, as_of=None, sections=(EUR, JPY))
NUMBERS = AccountMap(
    clearing="1590", deferred="0990", revenue="8400", breakage="8410", revoked="1700", transferred="1591", opening="9000",
    datev_consultant=1001, datev_client=42, datev_first_month=4,
)  # fmt: skip


# The journal -----------------------------------------------------------------------------------------


def test_each_line_is_a_posting_between_deferred_revenue_and_its_account():
    found = [(each.text, each.debit, each.credit, each.minor, each.currency) for each in postings(BOOK, AccountMap())]
    deferred = "Liabilities:Deferred:Credits"
    assert found == [
        ("Credits sold (credits)", "Assets:Clearing:Credits", deferred, 990_000, "EUR"),
        ("Credits used (credits)", deferred, "Income:Credits:Credits", 412_050, "EUR"),
        ("Credits expired (credits)", deferred, "Income:Breakage:Credits", 1_250, "EUR"),
        ("Credits revoked (credits)", deferred, "Liabilities:Revoked:Credits", 9_900, "EUR"),
        ("Credits used, late: of a closed month (credits)", deferred, "Income:Credits:Credits", 100, "EUR"),
        ("Credits sold (sms_packs)", "Assets:Clearing:Credits", "Liabilities:Deferred:Sms-packs", 700, "JPY"),
    ]


def test_an_open_month_has_no_journal():
    with pytest.raises(Invalid):
        postings(Book(OCTOBER, is_closed=False, as_of=None, sections=(EUR,)), AccountMap())


def test_the_csv_has_major_units():
    rows = list(csv.DictReader(io.StringIO(journal.as_csv(BOOK, AccountMap()), newline="")))
    assert (rows[0]["date"], rows[0]["amount"], rows[0]["currency"]) == ("2026-10-31", "9900.00", "EUR")
    assert (rows[-1]["amount"], rows[-1]["currency"]) == ("700", "JPY")


def test_beancount_reads_the_file_and_it_balances():
    entries, errors, _ = loader.load_string(journal.as_beancount(BOOK, AccountMap()))
    assert errors == []
    balances = [entry for entry in entries if type(entry).__name__ == "Balance"]
    assert [(each.account, each.amount.number, each.amount.currency) for each in balances] == [
        ("Liabilities:Deferred:Credits", Decimal("-8917.00"), "EUR"),
        ("Liabilities:Deferred:Sms-packs", Decimal(-700), "JPY"),
    ]
    assert sum(type(entry).__name__ == "Transaction" for entry in entries) == 7


def test_beancount_finds_a_closing_that_is_wrong():
    wrong = journal.as_beancount(BOOK, AccountMap()).replace("-8917.00", "-8917.05")
    _, errors, _ = loader.load_string(wrong)
    assert len(errors) == 1


@pytest.mark.parametrize(("credit_type", "name"), [("credits", "Credits"), ("a_b", "A-b"), ("_", "Type"), ("2x", "2x")])
def test_a_credit_type_becomes_a_part_of_an_accounts_name(credit_type, name):
    assert component(credit_type) == name


def test_the_batch_for_datev_has_its_header_columns_and_amounts():
    text = as_datev(BOOK, NUMBERS).decode("cp1252")
    header, columns, *lines = text.removesuffix("\r\n").split("\r\n")
    assert header.startswith(
        '"EXTF";700;21;"Buchungsstapel";13;20261031235959000;;"";"";"";1001;42;20260401;4;20261001;20261031;'
    )
    assert len(header.split(";")) == 31
    assert (len(COLUMNS), columns.split(";")) == (125, list(COLUMNS))
    first = lines[0].split(";")
    assert len(first) == 125
    assert (first[0], first[1], first[2], first[6], first[7]) == ("9900,00", '"S"', '"EUR"', "1590", "0990")
    assert (first[9], first[13]) == ("3110", '"Credits sold (credits)"')
    assert [line.split(";")[0] for line in lines][-1] == "700,00"


FIELD_RULES = {
    "Umsatz (ohne Soll/Haben-Kz)": r"(?!0{1,10},00)\d{1,10},\d{2}", "Soll/Haben-Kennzeichen": '"[SH]"',
    "WKZ Umsatz": '"[A-Z]{3}"',
    "Konto": r"(?!0{1,9}$)\d{1,9}", "Gegenkonto (ohne BU-Schlüssel)": r"(?!0{1,9}$)\d{1,9}", "Belegdatum": r"\d{4}",
    "Belegfeld 1": r'"[\w$%&*+/-]{0,36}"', "Buchungstext": '"[^"]{0,60}"', "Festschreibung": "[01]",
}  # fmt: skip
"""Of DATEV's description of the batch of postings; all other fields are empty."""


def test_each_field_for_datev_keeps_its_rule():
    _, _, *lines = as_datev(BOOK, NUMBERS).decode("cp1252").removesuffix("\r\n").split("\r\n")
    for line in lines:
        for name, value in zip(COLUMNS, line.split(";"), strict=True):
            assert re.fullmatch(FIELD_RULES.get(name, ""), value), (name, value)


def test_datev_takes_debtors_accounts_which_have_one_digit_more():
    text = as_datev(BOOK, AccountMap(**{**vars(NUMBERS), "clearing": "10000"})).decode("cp1252")
    assert text.split("\r\n")[2].split(";")[6:8] == ["10000", "0990"]


@pytest.mark.parametrize(("currency", "minor"), [("EUR", 10**12), ("KWD", 1_005)])
def test_an_amount_that_datev_has_no_field_for_is_refused(currency, minor):
    section = replace(JPY, currency=currency, lines={**JPY.lines, "sold": minor})
    with pytest.raises(Invalid, match="DATEV takes amounts of 10 digits and two decimals"):
        as_datev(replace(BOOK, sections=(section,)), NUMBERS)


def test_datev_takes_numbers_only():
    with pytest.raises(Invalid, match="4 digits"):
        as_datev(BOOK, AccountMap())
    with pytest.raises(Invalid, match="4 digits"):
        as_datev(BOOK, AccountMap(**{**vars(NUMBERS), "revenue": "84000"}))


def test_all_journals_come_to_the_change_of_deferred_revenue():
    change = Counter()
    for each in postings(BOOK, NUMBERS):
        change[each.currency] += each.minor if each.credit == "0990" else -each.minor
    assert change == {"EUR": EUR.closing_minor - EUR.opening_minor, "JPY": 700}


# From the entries ------------------------------------------------------------------------------------


@pytest.fixture
def closed(db, at_noon_of):
    """The history of tests/ledger/totals/test_costs.py, with all its months closed."""
    write_history(at_noon_of)
    count_entries()
    close_months()


def test_the_book_of_a_month_ties_to_its_entries(closed):
    euro, yen = book_of(TWO).sections
    assert (euro.opening_minor, euro.closing_minor) == (3_250, 2_745)
    assert euro.lines == {"sold": 0, "recognised": -5, "breakage": 0, "revoked": -500, "transferred": 0}
    assert yen.lines == {"sold": 100, "recognised": 0, "breakage": -100, "revoked": 0, "transferred": 0}
    for section in (euro, yen):
        assert section.opening_minor + sum(section.lines.values()) + sum(section.late.values()) == section.closing_minor
    assert book_of(ONE).sections[0].opening_minor == euro.closing_minor


def test_a_closed_month_has_the_same_bytes_whatever_comes_later(closed, at_noon_of):
    def files():
        book = book_of(TWO)
        made = book.as_json(), book.as_csv(), journal.as_csv(book, AccountMap()), journal.as_beancount(book, AccountMap())
        return *made, as_datev(book, NUMBERS)

    before = files()
    use_case("spend", "bob", "now", amount=1)
    at_noon_of(TWO, 27)
    use_case("grant", "cy", "late", amount=1, paid_minor=5, currency="EUR")
    count_entries()
    assert files() == before
    _, errors, _ = loader.load_string(before[3])
    assert errors == []


def test_the_command_shows_books_and_writes_journals(closed, capsys, tmp_path):
    month = f"{TWO:%Y-%m}"
    call_command("books", "--month", month)
    text = capsys.readouterr().out
    assert f"Books of {month}, closed" in text
    assert "Deferred at the end" in text
    assert "27.45 EUR" in text
    call_command("books", "--month", month, "--format", "json")
    assert json.loads(capsys.readouterr().out)["sections"][0]["closing_minor"] == 2_745
    accounts, file = tmp_path / "accounts.json", tmp_path / "EXTF.csv"
    accounts.write_text(json.dumps(vars(NUMBERS)))
    call_command("books", "--month", month, "--format", "datev", "--accounts", str(accounts), "--output", str(file))
    assert file.read_bytes() == as_datev(book_of(TWO), NUMBERS)
    for instant in (f"{TWO}T00:00:00Z", f"{TWO}T02:00:00+02:00", str(TWO)):
        call_command("books", "--at", instant)
        shown = capsys.readouterr().out
        assert f"Deferred at {TWO} 00:00:00 UTC" in shown
        assert "32.50 EUR" in shown


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (["--month", "2999-01"], "month: entries are counted"),
        (["--month", f"{TWO:%Y-%m}", "--format", "datev"], "accounts: the account"),
        (["--month", "2026-13"], "is not a month"),
        (["--at", "2026-01-01T00:00:00"], "needs Z"),
        (["--at", "0001-01-01T00:00:00+05:00"], "is neither a day"),
        (["--at", "9999-12-31T23:00:00-05:00"], "is neither a day"),
        (["--at", "9999-12-31"], "must be in the years 2000 to 2200"),
        (["--month", "0001-01"], "is not a month"),
        (["--month", "9998-12"], "month: entries are counted"),
        (["--format", "journal", "--accounts", "/nowhere.json"], "cannot be read"),
    ],
)
def test_the_command_says_what_is_wrong(closed, given, complaint):
    with pytest.raises(CommandError, match=complaint):
        call_command("books", *given)


def test_a_wrong_map_of_accounts_names_the_member(closed, tmp_path):
    accounts = tmp_path / "accounts.json"
    accounts.write_text('{"revenue": "a b", "late": "1"}')
    with pytest.raises(CommandError, match="revenue"):
        call_command("books", "--format", "journal", "--accounts", str(accounts))
