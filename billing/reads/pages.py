"""A page of rows by keyset on the id, the newest first."""

from datetime import datetime
from typing import TypeVar

from django.db.models import Model, QuerySet

Row = TypeVar("Row", bound=Model)


def page(rows: QuerySet[Row], *, before: int | None = None, after: int | None = None, limit: int) -> list[Row]:
    """Return at most `limit` of the rows, the newest first.

    Args:
        before: only rows older than this id.
        after: the next rows newer than this id, still with the newest first.
    """
    if after is not None:
        return list(rows.filter(pk__gt=after).order_by("pk")[:limit])[::-1]
    return list((rows if before is None else rows.filter(pk__lt=before)).order_by("-pk")[:limit])


def within(rows: QuerySet[Row], column: str, *, since: datetime | None = None, until: datetime | None = None) -> QuerySet[Row]:
    """Return the rows whose `column` lies in `[since, until)`."""
    if since is not None:
        rows = rows.filter(**{f"{column}__gte": since})
    return rows if until is None else rows.filter(**{f"{column}__lt": until})
