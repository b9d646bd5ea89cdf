"""Pages and sums of a table that may be large: a click reads WINDOW_ROWS rows at most, in the order of an index.

Note [Looked at, and found, by a query set]
    Filters with an index select the rows; filters without an index are compared among the first WINDOW_ROWS of these. The page
    says how far the search went, and "older" continues there, so it omits no row, and no click costs more with a longer history.
    `ledger.staff.history` does the same for entries.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.core.exceptions import EmptyResultSet, ValidationError
from django.db import connection
from django.db.models import Aggregate, Count, F, Func, Model, Q, QuerySet, TextField, Value
from django.db.models.lookups import GreaterThan, LessThan

from ledger.staff.kit.cells import instant_words
from ledger.staff.kit.filters import WrongFilter, read_instant
from ledger.staff.kit.pages import Page, UncountedList

WINDOW_ROWS = 10_000


@dataclass(frozen=True)
class ListOrder:
    """The order of a list, which is the order of an index; the last column makes it unique."""

    columns: tuple[str, ...] = ("id",)
    is_descending: bool = True

    def sorted(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """The rows in this order."""
        return rows.order_by(*(f"-{column}" if self.is_descending else column for column in self.columns))

    def behind(self, rows: QuerySet[Any], cursor: str) -> QuerySet[Any]:
        """The rows after the one that the cursor names; all rows without a cursor; or raise WrongFilter."""
        if not cursor:
            return rows
        position = self._read(rows.model, cursor)
        if len(position) == 1:
            return rows.filter(**{f"{self.columns[0]}__{'lt' if self.is_descending else 'gt'}": position[0]})
        compare = LessThan if self.is_descending else GreaterThan
        fields = [rows.model._meta.get_field(column) for column in self.columns]
        values = [Value(value, output_field=field) for value, field in zip(position, fields, strict=True)]
        return rows.filter(compare(_row(*map(F, self.columns)), _row(*values)))

    def cursor(self, position: Sequence[Any]) -> str:
        """A row's position as text for an address."""
        return "/".join(value.isoformat() if hasattr(value, "isoformat") else str(value) for value in position)

    def position(self, row: Any) -> tuple[Any, ...]:
        """The row's position in this order."""
        return tuple(getattr(row, column) for column in self.columns)

    def _read(self, model: type[Model], cursor: str) -> tuple[Any, ...]:
        # The last column may have slashes.
        parts = cursor.split("/", len(self.columns) - 1)
        try:
            if "\x00" in cursor:
                raise ValueError(cursor)
            return tuple(
                "" if not part and field.empty_strings_allowed else field.clean(part, None)  # type: ignore[union-attr]
                for field, part in zip(map(model._meta.get_field, self.columns), parts, strict=True)
            )
        except (ValidationError, ValueError, OverflowError) as error:
            raise WrongFilter(f"“{cursor[:40]}” is not a valid page link for this list.") from error


NEWEST_FIRST = ListOrder()


def order_of(cl: UncountedList) -> ListOrder | None:
    """The order that the operator has chosen by a column, which an index serves; None: the list's own."""
    if cl.sorting is None:
        return None
    field, is_descending = cl.sorting
    is_unique = cl.model._meta.get_field(field).unique
    return ListOrder((field,) if is_unique else (field, "id"), is_descending)


def recorded_within(rows: QuerySet[Any], values: Mapping[str, str]) -> QuerySet[Any]:
    """The rows recorded in [since, until), as far as these filters are set; or raise WrongFilter."""
    since, until = read_instant(values, "since"), read_instant(values, "until")
    rows = rows.filter(recorded_at__gte=since) if since else rows
    return rows.filter(recorded_at__lt=until) if until else rows


def recorded_at(row: Any) -> str:
    """When the row was recorded, in words."""
    return instant_words(row.recorded_at)


def _row(*parts: Any) -> Func:
    """Several values that are compared as one row, in the order of an index on several columns."""
    return Func(*parts, function="ROW", output_field=TextField())


@dataclass(frozen=True, kw_only=True)
class FilteredRows:
    """Filtered rows: `rows` by the filters that the order's index serves, `fits` by filters without an index.

    `words` names a row for "the search covers … rows, back to …".
    """

    rows: QuerySet[Any]
    fits: Q = field(default_factory=Q)
    order: ListOrder = NEWEST_FIRST
    words: Callable[[Any], str] = str

    def page(self, cursor: str, *, most: int) -> Page:
        """A page of at most `most` rows. See Note [Looked at, and found, by a query set]."""
        behind = self.order.sorted(self.order.behind(self.rows, cursor))
        try:
            return self._page(behind, most)
        except EmptyResultSet:
            return Page(rows=[])

    def _page(self, behind: QuerySet[Any], most: int) -> Page:
        if not self.fits:
            found = list(behind[: most + 1])
            return Page(rows=found[:most], older=self._cursor_of(found, most))
        sql, values = _among(behind[:WINDOW_ROWS], self.order.sorted(self._fitting())[: most + 1])
        found = list(self.rows.model._default_manager.raw(sql, values))
        if len(found) > most:
            return Page(rows=found[:most], older=self._cursor_of(found, most))
        last = next(iter(behind[WINDOW_ROWS - 1 : WINDOW_ROWS]), None)
        if last is None:
            return Page(rows=found)
        note = f"The search covers {WINDOW_ROWS:,} rows, back to {self.words(last)}. “Older” continues it."
        return Page(rows=found, older=self.order.cursor(self.order.position(last)), note=note)

    def _cursor_of(self, found: Sequence[Any], most: int) -> str | None:
        return self.order.cursor(self.order.position(found[most - 1])) if len(found) > most else None

    def _fitting(self) -> QuerySet[Any]:
        return self.rows.model._default_manager.filter(self.fits)

    def sums(self, *, by: str, of: Sequence[Aggregate]) -> "Sums":
        """How many rows there are for each value of `by`, and the aggregates `of` them; over the first WINDOW_ROWS rows."""
        first = self.order.sorted(self.rows)
        sums = {f"sum_{number}": aggregate for number, aggregate in enumerate(of)}
        grouped = self._fitting().order_by(by).values(by).annotate(rows=Count("pk"), **sums).values_list(by, "rows", *sums)
        try:
            sql, values = _among(first[:WINDOW_ROWS], grouped)
        except EmptyResultSet:
            return Sums(rows=[], is_whole=True)
        with connection.cursor() as cursor:
            cursor.execute(sql, values)
            rows = [tuple(int(value) if index else value for index, value in enumerate(row)) for row in cursor.fetchall()]
        return Sums(rows=rows, is_whole=not first[WINDOW_ROWS : WINDOW_ROWS + 1].exists())


@dataclass(frozen=True, kw_only=True)
class Sums:
    """For each value: the value, its number of rows, and its sums; `is_whole` if the sums cover all rows."""

    rows: Sequence[tuple[Any, ...]]
    is_whole: bool


def _among(looked_at: QuerySet[Any], filtered: QuerySet[Any]) -> tuple[str, tuple[Any, ...]]:
    """The SQL of `filtered` over the rows of `looked_at` instead of the whole table."""
    table = connection.ops.quote_name(looked_at.model._meta.db_table)
    inner, inner_values = looked_at.query.sql_with_params()
    outer, outer_values = filtered.query.sql_with_params()
    before, separator, behind = outer.partition(f"FROM {table}")
    assert separator
    # Aggregates have parameters, which come before those of the rows.
    own = before.count("%s")
    return f"{before}FROM ({inner}) AS {table}{behind}", (*outer_values[:own], *inner_values, *outer_values[own:])
