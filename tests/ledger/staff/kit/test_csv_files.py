"""CSV files: quoted, safe in spreadsheets, sent page by page. Without a database."""

import csv
import io
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from operator import itemgetter

import pytest

from ledger.database.copies import BYTE_ORDER_MARK, cell, csv_text
from ledger.staff.kit.csv_files import csv_response


@pytest.mark.parametrize(
    "text",
    [
        '=HYPERLINK("https://evil.example","x")',
        "+1+1",
        "-2+3",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        "\n=1",
        "  =1+1",
        "\u00a0=1",
        "＝1+1",
        "＠SUM(A1)",
    ],
)
def test_what_begins_like_a_formula_is_text(text):
    assert cell(text) == f"'{text}"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("acme-gmbh", "acme-gmbh"),
        ("a=b", "a=b"),
        ("", ""),
        (None, ""),
        (-1200, "-1200"),
        (Decimal("-12.50"), "-12.50"),
        (Decimal("1E+3"), "1000"),
        (date(2026, 1, 31), "2026-01-31"),
        (datetime(2026, 1, 31, 14, 3, tzinfo=UTC), "2026-01-31 14:03:00"),
        (datetime(2026, 1, 31, 14, 3, tzinfo=timezone(timedelta(hours=2))), "2026-01-31 12:03:00"),
    ],
)
def test_numbers_and_times_stay_what_they_are(value, expected):
    assert cell(value) == expected


def test_quotes_commas_and_lines_come_back_as_they_were():
    rows = [['He said "no"', "a,b;c", "two\r\nlines", "Zoë 🦆"]]
    assert list(csv.reader(io.StringIO(csv_text(rows), newline=""))) == rows


def test_a_page_is_read_when_the_one_before_has_been_sent():
    read = []

    def pages():
        for number in range(3):
            read.append(number)
            yield [{"n": number}]

    response = csv_response("numbers.csv", [("Number", itemgetter("n"))], pages())
    pieces = iter(response)
    assert next(pieces).decode() == f"{BYTE_ORDER_MARK}Number\r\n"
    assert read == []
    assert next(pieces) == b"0\r\n"
    assert read == [0]
    assert b"".join(pieces) == b"1\r\n2\r\n"
    assert response["Content-Disposition"] == 'attachment; filename="numbers.csv"'
