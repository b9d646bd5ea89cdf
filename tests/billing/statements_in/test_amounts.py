"""Amounts of a bank's file have one number form, which is known for certain. Pure."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from billing.statements_in.amounts import find_decimal_sign, read_amount, read_written
from billing.statements_in.statements import BankFileInvalid


def read_cells(*cells: str, declared: str = "") -> list[Decimal]:
    written = [read_written(cell, line) for line, cell in enumerate(cells, start=2)]
    sign = find_decimal_sign(written, declared)
    return [read_amount(each, sign) for each in written]


@pytest.mark.parametrize(
    ("cell", "amount"),
    [
        ("119,00", "119.00"), ("119.00", "119.00"), ("1.190,00", "1190.00"), ("1,190.00", "1190.00"), ("1.190.000", "1190000"),
        ("1'045.00", "1045.00"), ("1 045,00", "1045.00"), ("1\u00a0045,00", "1045.00"), ("45,00 €", "45.00"),
        ("EUR 45,00", "45.00"),
        ("45,00-", "-45.00"), ("-45,00", "-45.00"), ("\N{MINUS SIGN}45,00", "-45.00"), ("(45.00)", "-45.00"), ("+50,00", "50.00"),
        ("0,125", "0.125"), ("1190", "1190"), ("12345,678", "12345.678"), ("£1,234,567.8", "1234567.8"), ("5.", "5"),
    ],
)  # fmt: skip
def test_an_amount_that_says_its_form_is_read(cell: str, amount: str) -> None:
    assert read_cells(cell) == [Decimal(amount)]


@pytest.mark.parametrize(
    "cell", ["", "-", "x", "1,2,3.4.5", "12,34 USD EUR x", "1e5", "NaN", "٣", "1" * 19, "--5", "5 000 0 0,0"]
)
def test_what_is_no_amount_is_refused_with_its_line(cell: str) -> None:
    with pytest.raises(BankFileInvalid, match="line 2: "):
        read_cells(cell)


def test_an_uncertain_amount_takes_the_form_of_the_others() -> None:
    assert read_cells("1.190", "3,50") == [Decimal(1190), Decimal("3.5")]
    assert read_cells("3.50", "1,190") == [Decimal("3.5"), Decimal(1190)]
    assert read_cells("1.190", declared=",") == [Decimal(1190)]
    assert read_cells("1.190", declared=".") == [Decimal("1.19")]


def test_a_file_that_does_not_say_its_form_is_refused_with_the_option() -> None:
    with pytest.raises(BankFileInvalid, match=r"line 3: '1,190' may be a thousand times more or less.*--decimal"):
        read_cells("100", "1,190")


def test_a_file_of_two_forms_is_refused_with_both_lines() -> None:
    with pytest.raises(BankFileInvalid, match=r"line 3: '3\.50' has '\.' before the decimals, but line 2 .*--decimal"):
        read_cells("3,50", "3.50")
    with pytest.raises(BankFileInvalid, match=r"line 2: '119,00' has ',' before the decimals, but the file is said to have '\.'"):
        read_cells("119,00", declared=".")


@pytest.mark.parametrize("cell", ["1.19,00", "1190.00,5", "12.34.567,00", "1.190'000,00"])
def test_a_grouping_sign_stands_before_three_digits_and_never_behind_the_decimals(cell: str) -> None:
    with pytest.raises(BankFileInvalid, match=r"line 2: .*--decimal"):
        read_cells(cell, declared=",")


@given(st.integers(0, 10**15 - 1), st.sampled_from([".,", ",.", ".'", ", ", "."]), st.booleans())
def test_each_amount_written_with_decimals_is_read_back(minor: int, signs: str, is_negative: bool) -> None:
    decimal, grouping = signs[0], signs[1:]
    whole = f"{minor // 100:,}".replace(",", grouping)
    written = f"{'-' if is_negative else ''}{whole}{decimal}{minor % 100:02}"
    assert read_cells(written) == [Decimal(-minor if is_negative else minor) / 100]
