"""MT940 and MT942 as banks write them. Pure."""

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from billing.statements_in import mt940
from billing.statements_in.statements import BankFileInvalid, StatementEntry, check_statements

GERMAN = """:20:STARTUMS
:25:12345678/0123456789
:28C:00001/001
:60F:C260101EUR1000,00
:61:2601050105CR23,88NTRFNONREF//BANKREF1
:86:166?00GUTSCHRIFT?20EREF+ORDER-7?21SVWZ+Rechnung INV-00?220012?32Ada Love
lace
:61:2601060106DR10,00NTRFNONREF
:86:Gebuehr
:61:2601060106RCR5,00NTRFNONREF
:86:Storno
:62F:C260106EUR1008,88
-
"""


def read(text: str) -> list[StatementEntry]:
    statements = mt940.read(text.encode())
    check_statements(statements)
    return [entry for statement in statements for entry in statement.entries]


def one(line: str, details: str = ":86:x") -> StatementEntry:
    (entry,) = mt940.read(f":20:S\n:25:A\n:60F:C260101EUR0,\n{line}\n{details}\n".encode())[0].entries
    return entry


def test_a_german_statement_has_its_parties_references_and_signs() -> None:
    receipt, fee, returned = read(GERMAN)
    assert (receipt.amount, receipt.currency, receipt.line) == (Decimal("23.88"), "EUR", 5)
    assert (receipt.booked_on, receipt.value_on) == (date(2026, 1, 5), date(2026, 1, 5))
    assert (receipt.text, receipt.party) == ("Rechnung INV-000012", "Ada Lovelace")
    assert (receipt.bank_reference, receipt.end_to_end_reference) == ("BANKREF1", "ORDER-7")
    assert (fee.amount, fee.bank_reference, returned.amount) == (Decimal(-10), "", Decimal(-5))


def test_a_dutch_statement_has_its_parties_and_references() -> None:
    details = ":86:/TRTP/SEPA OVERBOEKING/IBAN/NL02RABO0123456789/NAME/A EXAMPLE/EREF/NOTPROVIDED/REMI/INV-0000\n22"
    entry = one(":61:2611141116C50,00NTRFNONREF//B1", details)
    assert (entry.text, entry.party, entry.end_to_end_reference, entry.bank_reference) == ("INV-000022", "A EXAMPLE", "", "B1")
    assert (entry.value_on, entry.booked_on) == (date(2026, 11, 14), date(2026, 11, 16))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # ASN Bank: a reference of 18 characters. PostFinance: its own reference. Sberbank: no kind. ABN AMRO: a number as kind.
        (":61:2001010101D65,00NOVBNL47INGB0000000000\nhr Exam", {"amount": Decimal(-65), "text": "x NL47INGB0000000000 hr Exam"}),
        (
            ":61:1312091209C79,7FMSC01916//NONREF\n2013120900",
            {"amount": Decimal("79.7"), "bank_reference": "", "text": "x 01916 2013120900"},
        ),
        (":61:1710111011DF2402,00S   X", {"amount": Decimal(-2402), "bank_reference": ""}),
        (":61:1105240524D9,N192NONREF", {"amount": Decimal(-9), "text": "x"}),
        (":61:110701CN50,00NZ10NONREF", {"booked_on": date(2011, 7, 1), "amount": Decimal(50)}),
        (":61:2601020102RDR5,00NTRFNONREF", {"amount": Decimal(5)}),
        (":61:2512311231C5,00NMSCINV-000012", {"text": "x INV-000012"}),
        (":61:2601011231C5,00NTRFNONREF", {"booked_on": date(2025, 12, 31), "value_on": date(2026, 1, 1)}),
        (":61:2512310101C5,00NTRFNONREF", {"booked_on": date(2026, 1, 1)}),
    ],
)
def test_an_entry_is_read_in_the_forms_of_banks(line: str, expected: dict[str, Any]) -> None:
    entry = one(line)
    assert {name: getattr(entry, name) for name in expected} == expected


def test_the_currency_comes_from_a_balance_or_from_the_floor_of_an_mt942() -> None:
    without_opening = GERMAN.replace(":60F:C260101EUR1000,00\n", "")
    assert {entry.currency for entry in read(without_opening)} == {"EUR"}
    mt942 = ":20:S\n:25:A\n:34F:EURD0,\n:61:2601050105C1,00NTRFNONREF\n:86:x\n"
    assert [entry.currency for entry in read(mt942)] == ["EUR"]
    with pytest.raises(BankFileInvalid, match="line 3: the file does not say the currency"):
        read(":20:S\n:25:A\n:61:2601050105C1,00NTRFNONREF\n:86:x\n")


def test_each_statement_of_a_file_has_its_account() -> None:
    found = mt940.read((GERMAN + GERMAN.replace("0123456789", "9876543210")).encode())
    assert [statement.account for statement in found] == ["12345678/0123456789", "12345678/9876543210"]


def test_envelopes_and_control_characters_are_left_out() -> None:
    wrapped = "\x01\r\n{1:F01X}{2:O940X}{4:\r\n" + GERMAN.replace("\n-\n", "\n-}{5:}\n").replace("\n", "\r\n") + "ABNANL2A\n940\n"
    assert [entry.amount for entry in read(wrapped)] == [entry.amount for entry in read(GERMAN)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (GERMAN.replace("EUR1008,88", "EUR500,"), "line 12: the closing balance .* is 500"),
        (GERMAN.replace("260105", "261305"), "line 5: '261305' is no day"),
        (GERMAN.replace("CR23,88", "23,88"), "line 5: .* is no entry of MT940"),
        (GERMAN.replace("C260101EUR", "EUR"), "line 4: .* is no balance"),
        ("hello", "not MT940"),
        ("", "not MT940"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(wrong: str, message: str) -> None:
    with pytest.raises(BankFileInvalid, match=message):
        read(wrong)
