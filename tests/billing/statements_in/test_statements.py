"""A statement agrees with the bank's own sums, or nothing of it is booked. Pure."""

from dataclasses import replace
from datetime import date
from decimal import Decimal

import pytest

from billing.statements_in.statements import BankFileInvalid, EntryState, Statement, StatementEntry, check_statements, decode

DAY = date(2026, 1, 5)


def entry(amount: str, *, line: int = 1, balance: str | None = None, currency: str = "EUR", day: date = DAY) -> StatementEntry:
    return StatementEntry(
        line=line, booked_on=day, value_on=day, amount=Decimal(amount), currency=currency, text="",
        balance=None if balance is None else Decimal(balance),
    )  # fmt: skip


def test_opening_and_entries_make_the_closing_balance() -> None:
    statement = Statement(
        account="A", opening=Decimal(10), closing=Decimal("13.5"), closing_line=9, entries=(entry("5.00"), entry("-1.50"))
    )
    check_statements([statement])
    with pytest.raises(
        BankFileInvalid,
        match=r"line 9: the closing balance of account A is 14, but the opening balance 10 and the entries 3\.50 make 13\.50",
    ):
        check_statements([replace(statement, closing=Decimal(14))])


def test_pending_entries_are_not_in_the_sum() -> None:
    pending = replace(entry("5.00"), state=EntryState.PENDING)
    check_statements([Statement(account="A", opening=Decimal(10), closing=Decimal(11), entries=(pending, entry("1.00")))])


def test_a_balance_beside_each_entry_follows_in_either_order() -> None:
    rows = (entry("5.00", line=2, balance="15"), entry("-1", line=3, balance="14"), entry("2", line=4, balance="16"))
    check_statements([Statement(account="A", entries=rows)])
    check_statements([Statement(account="A", entries=rows[::-1])])
    with pytest.raises(BankFileInvalid, match="line 4: the balance is 17, but 16 follows"):
        check_statements([Statement(account="A", entries=(*rows[:2], replace(rows[2], balance=Decimal(17))))])


def test_a_missing_entry_shows_in_the_balances() -> None:
    rows = (entry("5.00", line=2, balance="15"), entry("2", line=3, balance="16"))
    with pytest.raises(BankFileInvalid, match="line 3: the balance is 16, but 17"):
        check_statements([Statement(account="A", entries=rows)])


def test_a_balance_that_stands_beside_some_entries_counts_what_is_between() -> None:
    rows = (entry("5", line=2, balance="15"), entry("1", line=3), entry("2", line=4, balance="18"))
    check_statements([Statement(account="A", entries=rows)])
    with pytest.raises(BankFileInvalid, match="line 4"):
        check_statements([Statement(account="A", entries=(*rows[:2], replace(rows[2], balance=Decimal(19))))])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (entry("1.005", line=3), "line 3: 1.005 has more decimals than EUR"),
        (entry("1.5", line=3, currency="JPY"), "line 3: 1.5 has more decimals than JPY"),
        (entry("1", line=3, currency="XXQ"), "line 3: 'XXQ' is no currency"),
        (entry("1", line=3, currency=""), "line 3: the file does not say the currency of the entry: say it with --currency"),
    ],
)
def test_an_amount_that_its_currency_cannot_have_is_refused(wrong: StatementEntry, message: str) -> None:
    with pytest.raises(BankFileInvalid, match=message):
        check_statements([Statement(account="A", entries=(wrong,))])


@pytest.mark.parametrize("day", [date.min, date(1999, 12, 31), date(2201, 1, 1), date.max])
def test_a_day_outside_of_the_years_is_refused(day: date) -> None:
    with pytest.raises(BankFileInvalid, match=f"line 3: the day {day} is not in the years 2000 to 2200"):
        check_statements([Statement(account="A", entries=(entry("1", line=3, day=day),))])


def test_a_file_is_text_of_its_encoding() -> None:
    assert decode("Größe".encode("cp1252"), ("utf-8-sig", "cp1252")) == "Größe"
    assert decode("\ufeffa".encode(), ("utf-8-sig",)) == "a"
    assert decode("Größe".encode("utf-16"), ("utf-8-sig",)) == "Größe"
    for content in (b"\0\1", b"\x81\x8d"):
        with pytest.raises(BankFileInvalid, match="no text"):
            decode(content, ("utf-8-sig", "cp1252"))
