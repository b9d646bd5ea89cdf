"""CSV files of banks are read by profiles, which say what each column means. Pure."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from billing.statements_in import csv_files, statements
from billing.statements_in.csv_files import Profile, find_profile, make_profile, read, shipped_profiles
from billing.statements_in.statements import BankFileInvalid, EntryState, StatementEntry, check_statements

PLAIN: dict[str, Any] = {
    "title": "A bank", "dates": "%Y-%m-%d", "currency": "EUR",
    "columns": {"date": "Tag", "amount": "Betrag", "text": "Zweck"},
}  # fmt: skip


def profile(columns: Mapping[str, Any] | None = None, **changes: Any) -> Profile:
    return make_profile(PLAIN | {"columns": PLAIN["columns"] | (columns or {})} | changes, name="test")


def entries(text: str, by: Profile | None = None, encoding: str = "utf-8") -> list[StatementEntry]:
    statements = read(text.encode(encoding), by or profile())
    check_statements(statements)
    return [entry for statement in statements for entry in statement.entries]


def amounts(text: str, by: Profile | None = None) -> list[Decimal]:
    return [entry.amount for entry in entries(text, by)]


def test_the_headings_are_found_below_what_a_bank_writes_before_them() -> None:
    text = (
        'Umsatzanzeige;am 09.12.2025\n\nIBAN;DE89\n\n"Tag";"Zweck";Betrag;Rest\n2026-11-20;"a;b";43,00;\n2026-11-21;c;-1,00\n\n'
    )
    found = entries(text)
    assert [(each.line, each.text, each.amount) for each in found] == [(6, "a;b", Decimal(43)), (7, "c", Decimal(-1))]
    assert found[0].booked_on == found[0].value_on == date(2026, 11, 20)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_the_delimiter_is_that_of_the_headings(delimiter: str) -> None:
    assert amounts(delimiter.join(["Tag", "Betrag", "Zweck"]) + "\n" + delimiter.join(["2026-11-20", "7.00", "x"])) == [
        Decimal(7)
    ]


def test_an_amount_is_never_read_a_hundredfold() -> None:
    assert amounts("Tag;Betrag;Zweck\n2026-11-20;119,00;x\n") == [Decimal(119)]
    with pytest.raises(BankFileInvalid, match="line 2: '119,00' has ',' before the decimals, but the file is said"):
        amounts("Tag;Betrag;Zweck\n2026-11-20;119,00;x\n", profile(decimal="."))


def test_a_column_says_whether_money_came_in() -> None:
    by = profile({"direction": "Af Bij"}, direction={"yes": ["Bij"], "no": ["Af"]})
    text = "Tag;Betrag;Zweck;Af Bij\n2026-11-20;75,00;x;Af\n2026-11-20;5,00;x;Bij\n2026-11-20;-4,00;x;Af\n"
    assert amounts(text, by) == [Decimal(-75), Decimal(5), Decimal(-4)]
    with pytest.raises(BankFileInvalid, match="line 2: the direction 'Weg' is none of Bij, Af"):
        amounts(text.replace("x;Af", "x;Weg"), by)


def test_a_file_whose_column_of_the_direction_is_not_read_is_refused() -> None:
    with pytest.raises(BankFileInvalid, match="the column 'af bij' says whether money came in"):
        amounts("Tag;Betrag;Zweck;Af Bij\n2026-11-20;75,00;x;Af\n")


def test_debits_and_credits_stand_in_columns_of_their_own() -> None:
    by = make_profile(PLAIN | {"columns": {"date": "Tag", "text": "Zweck", "credit": "Haben", "debit": "Soll"}}, name="test")
    assert amounts("Tag;Zweck;Soll;Haben\n2026-11-20;x;10,00;\n2026-11-20;x;-3,00;0,00\n2026-11-20;x;;42,00\n", by) == [
        Decimal(-10), Decimal(-3), Decimal(42),
    ]  # fmt: skip
    for cells in (";", "1,00;2,00"):
        with pytest.raises(BankFileInvalid, match="line 2: one of credit and debit"):
            amounts(f"Tag;Zweck;Soll;Haben\n2026-11-20;x;{cells}\n", by)


def test_an_empty_cell_of_a_column_of_credits_is_no_receipt() -> None:
    by = make_profile(PLAIN | {"columns": {"date": "Tag", "text": "Zweck", "amount": "Credit"}}, name="test")
    assert amounts("Tag;Zweck;Debit;Credit\n2026-11-20;x;10,00;\n2026-11-20;x;;42,00\n", by) == [Decimal(0), Decimal(42)]
    with pytest.raises(BankFileInvalid, match="line 2: '' is no amount"):
        amounts("Tag;Betrag;Zweck\n2026-11-20;;x\n")


def test_a_column_says_what_is_pending() -> None:
    by = profile({"state": "Info"}, state={"yes": ["gebucht"], "no": ["vorgemerkt"]})
    text = "Tag;Betrag;Zweck;Info\n2026-11-20;1,00;x;vorgemerkt\n2026-11-20;2,00;x;gebucht\n"
    assert [each.state for each in entries(text, by)] == [EntryState.PENDING, EntryState.BOOKED]
    with pytest.raises(BankFileInvalid, match="line 3: the state 'neu' is none of gebucht, vorgemerkt"):
        entries(text.replace("x;gebucht", "x;neu"), by)


def test_each_account_of_a_file_has_its_balances() -> None:
    by = profile({"account": "Konto", "balance": "Saldo"})
    text = "Tag;Betrag;Zweck;Konto;Saldo\n2026-11-20;1,00;x;A;11,00\n2026-11-20;2,00;x;B;7,00\n2026-11-20;3,00;x;A;14,00\n"
    assert [statement.account for statement in read(text.encode(), by)] == ["A", "B"]
    assert len(entries(text, by)) == 3
    with pytest.raises(BankFileInvalid, match=r"line 4: the balance is 15\.00, but 14\.00 follows"):
        entries(text.replace("14,00", "15,00"), by)


def test_columns_of_a_file_without_headings_have_numbers() -> None:
    by = make_profile(PLAIN | {"columns": {"date": 1, "amount": 2, "text": [3, 4]}, "lines_before": 1}, name="test")
    assert [(each.text, each.line) for each in entries("stand;x\n2026-11-20;1,00;a;b\n", by)] == [("a b", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Tag;Betrag\n2026-11-20;1,00\n", "none of the first 60 lines has the columns Tag, Betrag, Zweck"),
        ("Tag;Betrag;Zweck\n2026-11-20;1,00\n", "line 2: 2 cells where the headings have 3"),
        ("Tag;Betrag;Zweck\n2026-11-20;1,00;x;y\n", "line 2: 4 cells where the headings have 3"),
        ("Tag;Betrag;Zweck\n20.11.2026;1,00;x\n", "line 2: '20.11.2026' is no day of the form %Y-%m-%d"),
        ("Tag;Betrag;Zweck;Tag\n2026-11-20;1,00;x;\n", "line 1: the heading 'tag' stands twice"),
        ('Tag;Betrag;Zweck\n2026-11-20;1,00;"x\n' + "y" * 140_000, "line 3 has more than 100,000 characters"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BankFileInvalid, match=message):
        entries(text)


def test_a_file_with_too_many_entries_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "MAX_ENTRIES", 2)
    with pytest.raises(BankFileInvalid, match="more than 2 entries"):
        entries("Tag;Betrag;Zweck\n" + "2026-11-20;1,00;x\n" * 4)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"colour": "red"}, "unknown key colour"),
        ({"columns": {"amount": "B", "text": "Z"}}, "name the column date"),
        ({"columns": {"date": "T", "text": "Z"}}, "name the column amount"),
        ({"columns": {"date": "T", "amount": "B"}}, "name the column text"),
        ({"columns": {"date": "T", "amount": ["B", "C"], "text": "Z"}}, "amount takes one column"),
        ({"columns": {"date": "T", "amount": "B", "text": "Z", "odd": "O"}}, "unknown column odd"),
        ({"columns": {"date": "T", "amount": "B", "text": "Z", "state": "S"}}, "state needs a column and its words"),
    ],
)
def test_a_wrong_profile_is_refused_with_its_key(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(BankFileInvalid, match=message):
        make_profile(PLAIN | declared, name="test")


def test_a_file_finds_its_profile_and_each_profile_finds_itself() -> None:
    profiles = shipped_profiles()
    assert len(profiles) >= 20
    for each in profiles:
        if not each.has_headings:
            continue
        headings = dict.fromkeys(heading for columns in each.columns.values() for heading in columns)
        line = (each.delimiter or ",").join(f'"{heading}"' for heading in headings)
        assert find_profile((line + "\n").encode(each.encoding)) == replace(each, name=""), each.name
    with pytest.raises(BankFileInvalid, match="no profile fits"):
        find_profile(b"a,b,c\n")


def test_a_profile_is_read_as_it_stands_in_its_file() -> None:
    for path in sorted(csv_files.PROFILES.glob("*.toml")):
        assert set(tomllib.loads(path.read_text())) <= {each for each in Profile.__dataclass_fields__ if each != "name"}
