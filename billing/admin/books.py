"""The books page: deferred revenue of a month from opening to closing, the types side by side."""

from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html

from billing.admin.cells import money
from billing.books import journal
from billing.books.journal import AccountMap
from billing.books.roll_forward import LINES, Book, Section, book_of
from billing.permissions import VIEW_INVOICE
from ledger.admin.kit.cells import timestamp
from ledger.admin.kit.columns import Column, table_of
from ledger.admin.kit.pages import ReadOnlyAdmin, guarded
from ledger.errors import Invalid
from ledger.operators import staff_log
from ledger.totals.months import month_after, month_before, month_of

FILES = {"csv": Book.as_csv, "journal": lambda book: journal.as_csv(book, AccountMap())}
"""What the page sends as CSV, by `format`."""


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the page."""
    return guarded(model_admin, "books/", partial(page, model_admin), name="billing_books", permission=VIEW_INVOICE)


def page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show a month, by default the last one that has ended; with `format`, send it or its journal as a file."""
    this_month = datetime.now(UTC).date().replace(day=1)
    given = request.GET.get("month", "")
    month = month_of(given) if given else month_before(this_month)
    file_format = request.GET.get("format", "")
    try:
        if month is None:
            raise Invalid(pointer="/month", rule="not-a-month", detail="a month is written as 2026-01")
        book = book_of(month)
        if file_format in FILES:
            return _file(request, book, file_format)
    except Invalid as invalid:
        messages.error(request, f"There are no such books of “{given[:20]}”: {invalid.facts['detail']}.")
        month = month_before(this_month)
        book = Book(month, is_closed=False, as_of=None, sections=())
    context = {
        **model_admin.admin_site.each_context(request),
        "title": f"Books of {book.month:%B %Y}",
        "book": book,
        "as_of": None if book.as_of is None else timestamp(book.as_of),
        "before": f"{month_before(book.month):%Y-%m}",
        "after": f"{month_after(book.month):%Y-%m}" if month_after(book.month) <= this_month else "",
        "month": f"{book.month:%Y-%m}",
        "table": _table(book.sections),
        "by_expiry": _by_expiry(book.sections),
    }
    return TemplateResponse(request, "admin/billing/books.html", context)


def _title(section: Section) -> str:
    return f"{section.credit_type}, {section.currency}"


def _table(sections: tuple[Section, ...]) -> dict[str, Any]:
    """Return the lines of the books as rows, and each credit type and currency as a column."""
    rows: list[tuple[Any, list[int]]] = [(_strong("Deferred at the start"), [each.opening_minor for each in sections])]
    for name, words in LINES.items():
        amounts = [each.lines[name] for each in sections]
        rows += [(words, amounts)] if any(amounts) else []
        late = [each.late.get(name, 0) for each in sections]
        rows += [(f"{words}, late: of closed months", late)] if any(late) else []
    rows.append((_strong("Deferred at the end"), [each.closing_minor for each in sections]))
    return table_of(rows, Column("What", itemgetter(0)), *_columns(sections))


def _by_expiry(sections: tuple[Section, ...]) -> dict[str, Any]:
    """Return what is deferred at the end by month of expiry, in the same columns."""
    found = [{each.expires: each.closing_minor for each in section.by_expiry if each.closing_minor} for section in sections]
    months = sorted({expires for of in found for expires in of}, key=lambda expires: (expires == "never", expires))
    rows = [(expires, [of.get(expires, 0) for of in found]) for expires in months]
    return table_of(rows, Column("Expires", itemgetter(0)), *_columns(sections))


def _columns(sections: tuple[Section, ...]) -> list[Column]:
    def column(place: int, section: Section) -> Column:
        return Column(_title(section), lambda row: money(row[1][place], section.currency))

    return [column(place, section) for place, section in enumerate(sections)]


def _strong(words: str) -> str:
    return format_html("<strong>{}</strong>", words)


def _file(request: HttpRequest, book: Book, file_format: str) -> HttpResponse:
    name = f"{'books' if file_format == 'csv' else 'journal'}-{book.month:%Y-%m}.csv"
    content = FILES[file_format](book)
    staff_log.record(request, "exported", about=name)
    response = HttpResponse(content, content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
