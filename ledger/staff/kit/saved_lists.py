"""Lists that show the sums of their rows, and that operators can save as CSV."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from operator import attrgetter
from typing import Any, ClassVar

from django.contrib.admin.options import IncorrectLookupParameters
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path, reverse
from django.utils import timezone

from ledger.operators import staff_log
from ledger.staff.kit.columns import Column, NamedColumns
from ledger.staff.kit.csv_files import FileColumn, csv_response

ROWS_PER_PIECE = 1_000


@dataclass(frozen=True, kw_only=True)
class ListTotals:
    """The sums of a list's rows, a sentence each; `note` says how many rows the sums cover if not all."""

    sentences: Sequence[str]
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Beside:
    """The parts of a list beside its rows, as far as the operator may use them; an address is empty if there is no such page."""

    totals: ListTotals | None = None
    csv_url: str = ""
    add_url: str = ""


class SavedList(NamedColumns):
    """A list that every operator who may see it can save as CSV, and that shows the sums of its rows."""

    list_before_template = "admin/ledger/kit/list_head.html"
    csv_columns: ClassVar[Sequence[str | Column]] = ()
    """The columns of the file, or their names, fields of the model among them; without columns the list cannot be saved."""
    starts = ""
    """The sentence of an empty list about how to make the first row."""

    def totals(self, request: HttpRequest, cl: Any) -> ListTotals | None:
        """The sums of the filtered rows, over a bounded number of them; None for a list without sums."""
        return None

    def beside(self, request: HttpRequest, cl: Any) -> Beside:
        """The parts beside these rows; empty if the rows are read for a file."""
        if cl.page_rows == ROWS_PER_PIECE:
            return Beside()
        add_url = reverse(self._address("add")) if self.has_add_permission(request) else ""
        if not cl.result_list:
            return Beside(add_url=add_url)
        csv_url = f"{reverse(self._address('csv'))}{cl.newest_link}" if self.csv_columns else ""
        is_narrowed = bool(cl.values() or cl.query)
        return Beside(totals=self.totals(request, cl) if is_narrowed else None, csv_url=csv_url, add_url=add_url)

    def _address(self, name: str) -> str:
        return f"admin:{self.opts.app_label}_{self.opts.model_name}_{name}"

    def get_urls(self) -> list[URLPattern]:
        """Add the address of the file."""
        if not self.csv_columns:
            return list(super().get_urls())
        name = self._address("csv").removeprefix("admin:")
        return [path("csv/", self.admin_site.admin_view(self.csv_view), name=name), *super().get_urls()]

    def csv_view(self, request: HttpRequest) -> HttpResponseBase:
        """Send the filtered rows as a file, and record that; redirect to the list if a filter is invalid or unknown."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        request.rows_per_page = ROWS_PER_PIECE  # type: ignore[attr-defined]
        try:
            cl: Any = self.get_changelist_instance(request)
        except IncorrectLookupParameters:
            # The list, too, leaves out what it does not know.
            return HttpResponseRedirect(reverse(self._address("changelist")))
        if cl.is_refused:
            return HttpResponseRedirect(f"{reverse(self._address('changelist'))}{cl.newest_link}")
        name = str(self.opts.verbose_name_plural)
        file_name = f"{name.replace(' ', '-')}-{timezone.now():%Y-%m-%d}.csv"
        staff_log.record(request, "exported", about=file_name, details=_describe_filters(cl))
        return csv_response(file_name, self._columns_of_file(), self._pages(request, cl, timezone.get_current_timezone()))

    def _columns_of_file(self) -> Sequence[FileColumn]:
        return [self._column_of_file(each) for each in self.csv_columns]

    def _column_of_file(self, named: str | Column) -> FileColumn:
        column = getattr(self, named, None) if isinstance(named, str) else named
        if isinstance(column, Column):
            return column.in_file
        name = str(named)
        return str(self.opts.get_field(name).verbose_name), attrgetter(name)

    def _pages(self, request: HttpRequest, cl: Any, zone: tzinfo) -> Iterator[Sequence[Any]]:
        """Yield the rows; pages after the first are read after the view and its middleware, so `zone` is the operator's."""
        page = cl.page
        yield page.rows
        while page.older:
            with timezone.override(zone):
                page = self.read_page(request, cl, page.older)
                self.prepare(page.rows)
            yield page.rows


def _describe_filters(cl: Any) -> str:
    """Return the filters in words; empty without filters."""
    filters = [f"{name.replace('_', ' ')} is {value[:60]}" for name, value in cl.values().items()]
    filters += [f"“{cl.query[:60]}” is searched"] if cl.query else []
    return ", ".join(filters)
