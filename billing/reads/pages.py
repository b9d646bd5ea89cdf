"""Rows by keyset on the id: a page, the newest first, or all of them, page after page."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final, TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)
WALKED_ROWS: Final = 500


def page(rows: QuerySet[Row], *, before: int | None = None, after: int | None = None, limit: int) -> list[Row]:
    """Return at most `limit` of the rows, the newest first.

    Args:
        before: only rows older than this id.
        after: the next rows newer than this id, still with the newest first.
    """
    if after is not None:
        return list(rows.filter(pk__gt=after).order_by("pk")[:limit])[::-1]
    return list((rows if before is None else rows.filter(pk__lt=before)).order_by("-pk")[:limit])


def walked(rows: QuerySet[Any], column: str = "pk") -> Iterator[int]:
    """Yield a column of all of the rows, in the order of their ids; each page is read when the one before it is done."""
    last = 0
    while read := list(rows.filter(pk__gt=last).order_by("pk").values_list("pk", column)[:WALKED_ROWS]):
        yield from (value for _, value in read)
        last = read[-1][0]


def within(rows: QuerySet[Row], column: str, *, since: datetime | None = None, until: datetime | None = None) -> QuerySet[Row]:
    """Return the rows whose `column` lies in `[since, until)`."""
    if since is not None:
        rows = rows.filter(**{f"{column}__gte": since})
    return rows if until is None else rows.filter(**{f"{column}__lt": until})
