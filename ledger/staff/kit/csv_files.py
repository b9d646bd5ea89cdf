"""CSV files that are safe to open in a spreadsheet, sent while their rows are read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.http import StreamingHttpResponse

from ledger.database.copies import BYTE_ORDER_MARK, csv_text

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
    yield BYTE_ORDER_MARK + csv_text([[heading for heading, _ in columns]])
    for rows in pages:
        # Also where a page has no rows: the thread that reads is free between pages.
        yield csv_text([[value(row) for _, value in columns] for row in rows])
