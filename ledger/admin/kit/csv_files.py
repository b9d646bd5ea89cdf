"""CSV files that are safe to open in a spreadsheet, sent while their rows are read."""

import csv
import io
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.http import StreamingHttpResponse

from ledger.database.copies import BYTE_ORDER_MARK, STARTS_A_FORMULA

FileColumn = tuple[str, Callable[[Any], Any]]
"""A column's heading, and its value for a row: text, a whole number, a decimal, a day, an instant, or None."""


def csv_response(file_name: str, columns: Sequence[FileColumn], pages: Iterable[Sequence[Any]]) -> StreamingHttpResponse:
    """Send a file of these columns, page by page: only one page is in memory at a time, however long the file is.

    Args:
        pages: the rows; a page is read after the page before it was sent.
    """
    response = StreamingHttpResponse(_pieces(columns, pages), content_type="text/csv; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response


def _pieces(columns: Sequence[FileColumn], pages: Iterable[Sequence[Any]]) -> Iterator[str]:
    yield BYTE_ORDER_MARK + written([[heading for heading, _ in columns]])
    for rows in pages:
        # Also where a page has no rows: the thread that reads is free between pages.
        yield written([[value(row) for _, value in columns] for row in rows])


def written(rows: Iterable[Sequence[Any]]) -> str:
    """Rows in the format of RFC 4180; `cell` formats each value."""
    target = io.StringIO()
    csv.writer(target).writerows([[cell(value) for value in row] for row in rows])
    return target.getvalue()


def cell(value: Any) -> str:
    """A value for a spreadsheet: numbers as numbers, times in UTC, and text never as a formula.

    Source: OWASP, CSV Injection. Text that begins like a formula, also behind spaces or in wide letters, gets an apostrophe.
    """
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    text = str(value)
    return f"'{text}" if _is_like_a_formula(text) else text


def _is_like_a_formula(text: str) -> bool:
    if text[:1] in ("\t", "\r", "\n"):
        return True
    return unicodedata.normalize("NFKC", text.lstrip()[:1]).startswith(STARTS_A_FORMULA)
