"""Files of banks: entries with their names, or the line that is wrong. Pure."""

from collections.abc import Callable
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.payments.bank_files.reading import BankFileInvalid, CsvForm, read_csv, read_mt940

STATEMENT = """:20:STARTUMS
:25:12345678/0123456789
:28C:00001/001
:60F:C260101EUR1000,00
:61:2601050105CR23,88NTRFNONREF//BANKREF1
:86:166?00GUTSCHRIFT?20EREF+ORDER-7?21SVWZ+Rechnung INV-00?220012?32Ada Lovelace
:61:2601050105CR23,88NTRFNONREF//BANKREF2
:86:166?00GUTSCHRIFT?20EREF+ORDER-7?21SVWZ+Rechnung INV-00?220012?32Ada Lovelace
:61:2601060106DR10,00NTRFNONREF
:86:Gebuehr
:61:2601060106RCR5,00NTRFNONREF
:86:Storno
:62F:C260106EUR1032,76
-
"""
FORM = CsvForm({"date": "Tag", "amount": "Betrag", "text": "Zweck", "payer": "Name"}, "", ",", "%d.%m.%Y", "EUR")
CSV = "Tag;Betrag;Zweck;Name\r\n05.01.2026;1.023,88;INV-000012;Ada\r\n06.01.2026;-10,00;Miete;Haus\r\n"


def test_an_mt940_file_gives_entries_with_their_text_and_sign() -> None:
    found = read_mt940(STATEMENT.encode())
    assert [(entry.day, entry.amount_minor, entry.currency) for entry in found] == [
        (date(2026, 1, 5), 2388, "EUR"), (date(2026, 1, 5), 2388, "EUR"),
        (date(2026, 1, 6), -1000, "EUR"), (date(2026, 1, 6), -500, "EUR"),
    ]  # fmt: skip
    assert "INV-000012" in found[0].text
    assert "Ada Lovelace" in found[0].text


def test_equal_entries_of_a_day_have_names_of_their_own_and_the_same_names_in_every_file() -> None:
    found = read_mt940(STATEMENT.encode())
    assert len({entry.name for entry in found}) == 4
    assert [entry.name for entry in read_mt940(STATEMENT.encode() * 1)] == [entry.name for entry in found]
    later = STATEMENT.replace(":28C:00001", ":28C:00002")
    assert [entry.name for entry in read_mt940(later.encode())] == [entry.name for entry in found]
    other = STATEMENT.replace("0123456789", "0123456780")
    assert not {entry.name for entry in read_mt940(other.encode())} & {entry.name for entry in found}


def test_two_statements_in_a_file_have_their_accounts() -> None:
    other = STATEMENT.replace("0123456789", "0123456780")
    names = [entry.name for entry in read_mt940((STATEMENT + other).encode())]
    assert names == [entry.name for each in (STATEMENT, other) for entry in read_mt940(each.encode())]


def test_a_csv_file_is_read_by_its_headings_in_both_encodings() -> None:
    found = read_csv(CSV.encode(), FORM)
    assert [(entry.day, entry.amount_minor, entry.text) for entry in found] == [
        (date(2026, 1, 5), 102388, "INV-000012 Ada"), (date(2026, 1, 6), -1000, "Miete Haus"),
    ]  # fmt: skip
    assert read_csv(CSV.replace("Ada", "Jürgen").encode("cp1252"), FORM)[0].text == "INV-000012 Jürgen"
    assert read_csv(b"\xef\xbb\xbf" + CSV.encode(), FORM) == found


@pytest.mark.parametrize(("currency", "amount", "minor"), [("JPY", "1", 1), ("KWD", "1,234", 1234), ("EUR", "0", 0)])
def test_amounts_are_minor_units_of_their_currency(currency: str, amount: str, minor: int) -> None:
    form = CsvForm(FORM.columns, "", ",", "%d.%m.%Y", currency)
    assert read_csv(f"Tag;Betrag;Zweck;Name\n05.01.2026;{amount};x;y\n".encode(), form)[0].amount_minor == minor


@pytest.mark.parametrize(
    ("read", "content", "words"),
    [
        (read_mt940, b"", "not MT940"),
        (read_mt940, b"Tag;Betrag\n", "not MT940"),
        (read_mt940, b"\x00\x01", "no text"),
        (read_mt940, STATEMENT.replace("CR23,88", "CRx").encode(), "not MT940"),
        (lambda content: read_csv(content, FORM), b"Datum;Betrag\n", "no column"),
        (lambda content: read_csv(content, FORM), CSV.replace("05.01", "31.02").encode(), "line 2"),
        (lambda content: read_csv(content, FORM), CSV.replace("1.023,88", "viel").encode(), "line 2"),
        (lambda content: read_csv(content, FORM), CSV.replace("1.023,88", "1,234").encode(), "more decimals"),
        (lambda content: read_csv(content, FORM), CSV.replace("1.023,88", "NaN").encode(), "no amount"),
        (lambda content: read_csv(content, FORM), CSV.replace("1.023,88", "1e400").encode(), "no amount"),
        (lambda content: read_csv(content, CsvForm(FORM.columns, "", ",", "%d.%m.%Y", "XXX")), CSV.encode(), "no currency"),
        (lambda content: read_csv(content, CsvForm({"date": "Tag"})), CSV.encode(), "name the column"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(read: Callable[[bytes], object], content: bytes, words: str) -> None:
    with pytest.raises(BankFileInvalid, match=words):
        read(content)


@given(st.binary(max_size=300))
def test_whatever_the_bytes_they_are_entries_or_refused(content: bytes) -> None:
    for read in (read_mt940, lambda data: read_csv(data, FORM)):
        for start in (b"", STATEMENT[:120].encode(), b"Tag;Betrag;Zweck;Name\n"):
            try:
                read(start + content)
            except BankFileInvalid:
                continue
