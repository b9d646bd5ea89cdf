"""Columns: one declaration for the list, the page and the file. Without a database."""

from datetime import UTC, date, datetime
from decimal import Decimal
from types import SimpleNamespace

import pytest
from django.contrib import admin

from ledger.rules.credit_units import CreditUnit
from ledger.staff.kit import columns
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.saved_lists import SavedList

AT = datetime(2026, 9, 1, 12, 30, 15, tzinfo=UTC)
ROW = SimpleNamespace(
    at=AT, day=date(2026, 9, 1), words="a" * 41, key="k<1>", amount=123456, rows=1234, now=SimpleNamespace(state="open"),
    unit=CreditUnit("usd", "Prepaid", "USD", 2),
)  # fmt: skip


@pytest.mark.parametrize(
    ("column", "on_page", "title", "in_file"),
    [
        (Column("State", "now.state"), "open", "State", "open"),
        (Column("State", "now.state", lambda row: 7, csv_title="Code"), "open", "Code", 7),
        (columns.badge("State", "now.state", {"open": "info"}), "open", "State", "open"),
        (columns.code("Key", "key"), ">k&lt;1&gt;</code>", "Key", "k<1>"),
        (columns.short("Reason", "words"), f">{'a' * 39}…</span>", "Reason", "a" * 41),
        (columns.day("Issued", "day"), "1\u00a0Sep\u00a02026", "Issued", date(2026, 9, 1)),
        (columns.count("Rows", "rows"), ">1,234</span>", "Rows", 1234),
        (columns.amount("Held", "amount"), ">1,234.56</span>", "Held", Decimal("1234.56")),
        (columns.instant("Recorded", "at"), "12:30:15", "Recorded (UTC)", AT),
    ],
)
def test_a_column_has_a_cell_of_pages_and_a_value_of_files(column, on_page, title, in_file):
    assert on_page.replace("\u00a0", " ") in column(ROW).replace("\u00a0", " ")
    heading, value = column.in_file
    assert (heading, value(ROW)) == (title, in_file)


def test_a_text_as_long_as_fits_is_not_shortened():
    assert columns.shortened("b" * 40).endswith(f">{'b' * 40}</span>")
    assert columns.shortened("four", 3, css="faint") == '<span class="faint" title="four">fo…</span>'


def test_a_table_has_the_titles_and_cells_of_its_columns():
    found = table_of([ROW, ROW], columns.count("Rows", "rows"), ("State", "now.state"))
    assert found["headers"] == ["Rows", "State"]
    assert [row[1] for row in found["rows"]] == ["open", "open"]


def test_a_badge_has_the_colours_that_unfold_looks_for():
    assert columns.badge("State", "now.state", {"open": "info"}).label == {"open": "info"}
    assert columns.code("Key", "key").label is None


def test_every_column_that_a_list_names_is_declared_and_every_declared_column_is_named():
    """Django overlooks a column that nobody names."""
    admin.autodiscover()
    lists = [each for each in admin.site._registry.values() if isinstance(each, SavedList)]
    assert len(lists) > 10
    for each in lists:
        named = {*each.list_display, *each.csv_columns}
        shown = [options["fields"] for _, options in each.fieldsets or ((None, {"fields": each.fields or ()}),)]
        for fields in shown:
            named |= {name for field in fields for name in ((field,) if isinstance(field, str) else field)}
        declared = {name for name, value in vars(type(each)).items() if isinstance(value, Column)}
        assert len(each._columns_of_file()) == len(each.csv_columns)
        assert declared - named <= ONLY_OF_SOME_ROWS.get(type(each).__name__, set()), type(each)


ONLY_OF_SOME_ROWS = {
    "EntryAdmin": {
        "hold_state",
        "hold_amounts",
        "hold_expires",
        "rating_cell",
        "requested_cell",
        "overdraft_after",
        "owed_after",
    },
}
