"""Columns of operators' lists: each is declared once, for the list, for the page of a row, and for the file.

A list has its columns as attributes; `list_display`, `fieldsets` and `csv_columns` name them.
"""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

from django.contrib.admin import AdminSite
from django.db import transaction
from django.db.models import Model
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from unfold.admin import ModelAdmin

from ledger.staff.kit.cells import day_words, digits, mono, number, timestamp

Value = str | Callable[[Any], Any]
"""The value of a column for a row: an attribute by its path, such as now.plan, or a function's result."""


class Column:
    """The cells of pages and files under one title. Django's admin calls a column with the row.

    Args:
        html: the content of a cell of a page.
        csv: the content in a file, see `csv_files.cell`; by default that of a page.
        csv_title: the heading in a file, if it differs.
        colours: makes a badge of the cell; maps its text to unfold's name of a colour, or is one for all.
        ordering: the column of the table that sorts the list by this one.
        boolean: shows a tick or a cross.
    """

    def __init__(
        self,
        title: str,
        html: Value,
        csv: Value | None = None,
        *,
        csv_title: str = "",
        colours: Mapping[str, str] | str | None = None,
        ordering: str | None = None,
        boolean: bool = False,
    ) -> None:
        self._html = getter(html)
        self.in_file = csv_title or title, getter(html if csv is None else csv)
        # The names under which Django and unfold look for them.
        self.short_description = title
        self.label = colours
        self.admin_order_field = ordering
        self.boolean = boolean

    def __call__(self, row: Any) -> Any:
        return self._html(row)


def getter(value: Value) -> Callable[[Any], Any]:
    """The function of a row that gives the value."""
    return attrgetter(value) if isinstance(value, str) else value


def _written_column(title: str, value: Value, write: Callable[[Any], Any], **more: Any) -> Column:
    get = getter(value)
    return Column(title, lambda row: write(get(row)), value, **more)


def code(title: str, value: Value) -> Column:
    """An id, key or digest."""
    return _written_column(title, value, mono)


def short(title: str, value: Value) -> Column:
    """The beginning of a text; all of it when pointed at, and in a file."""
    return _written_column(title, value, shortened)


def shortened(text: str, most: int = 40, css: str = "") -> SafeString:
    """The first characters of a text, up to a limit; pointing at it shows the whole text."""
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return format_html('<span{} title="{}">{}</span>', format_html(' class="{}"', css) if css else "", text, shown)


def instant(title: str, value: Value) -> Column:
    """A time: in the operator's zone on pages, in UTC in a file."""
    return _written_column(title, value, timestamp, csv_title=f"{title} (UTC)")


def day(title: str, value: Value) -> Column:
    """A day of the calendar."""
    return _written_column(title, value, day_words)


def count(title: str, value: Value) -> Column:
    """A whole number."""
    return _written_column(title, value, number)


def amount(title: str, value: Value) -> Column:
    """An amount in the row's `unit`, with its decimals."""
    get = getter(value)
    return Column(title, lambda row: digits(row.unit.number(get(row))), lambda row: row.unit.decimal(get(row)))


def badge(title: str, value: Value, colours: Mapping[str, str] | str) -> Column:
    """A state, in its colour."""
    return Column(title, value, colours=colours)


def table_of(rows: Iterable[Any], *columns: Column | tuple[str, Value]) -> dict[str, Any]:
    """What unfold's table component takes: these columns of the rows. A column may be a title and a value."""
    shown = [each if isinstance(each, Column) else Column(*each) for each in columns]
    return {"headers": [each.short_description for each in shown], "rows": [[each(row) for each in shown] for row in rows]}


class NamedColumns(ModelAdmin):
    """A list whose columns' names begin with a capital, also on a narrow page, which names the column in each cell."""

    def __init__(self, model: type[Model], admin_site: AdminSite) -> None:
        super().__init__(model, admin_site)
        for field in model._meta.fields:
            # Migrations do not know this name, but the one that the field was given.
            field.verbose_name = capfirst(str(field.verbose_name))

    @property
    def urls(self) -> list[URLPattern]:
        """The pages, which manage their own transactions even where the project has ATOMIC_REQUESTS."""
        pages: list[URLPattern] = self.get_urls()
        for page in pages:
            page.callback = transaction.non_atomic_requests(page.callback)
        return pages
