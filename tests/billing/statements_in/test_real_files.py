"""Statements as banks write them, with names and accounts replaced: each is read, or refused with the line and what to do."""

from pathlib import Path

import pytest

from billing.statements_in.formats import find_reader, guess_format
from billing.statements_in.statements import BankFileInvalid, check_statements

REAL = Path(__file__).parents[5] / "shared" / "data" / "bank_files"
EXPECTED = {
    "bank2ynab__boi.csv": "line 5: the balance is 100.0, but -402.5 follows",
    "bank2ynab__rabobank.csv": "line 7: the balance is 12334.53",
    "genkgo_camt__camt053.v2.all-balance-types.xml": "line 68: the closing balance",
    "rechnungsfee__ing.csv": "line 22: 6 cells where the headings have 7",
    "rechnungsfee__paypal.csv": "line 5: the state 'Example'",
    "rechnungsfee__sparkasse_camt_v8.csv": 10,
    "wolph_mt940__abnamro.sta": "line 27: the closing balance",
    "wolph_mt940__asnb.txt": 8,
    "wolph_mt940__empty_entry_date.sta": "line 1: the file does not say the currency",
    "wolph_mt940__mbank.sta": 3,
    "wolph_mt940__postfinance.sta": "line 27: the closing balance",
    "wolph_mt940__sberbank_huf.sta": 3,
    "wolph_mt940__sepa_snippet.sta": "line 55: the closing balance",
    "wolph_mt940__sparkassen.sta": "line 1: '1811261126CR' is no entry",
}
"""How many entries a real file has whose names and amounts were replaced, or the sum of it that no longer agrees."""


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items(), ids=EXPECTED)
def test_a_real_file_is_read_or_refused_with_its_line(name: str, expected: int | str) -> None:
    path = REAL / name
    if not path.exists():
        pytest.skip("the files of banks are not beside this checkout")
    content = path.read_bytes()
    reader = find_reader(guess_format(content))
    if isinstance(expected, int):
        statements = reader(content)
        check_statements(statements)
        assert sum(len(statement.entries) for statement in statements) == expected
    else:
        with pytest.raises(BankFileInvalid, match=expected):
            check_statements(reader(content))
