"""A row that a caller names: found, or a NotFound that repeats the name."""

from typing import Any, TypeVar

from django.db.models import QuerySet

from billing.errors import NotFound

Row = TypeVar("Row")


def first_of(rows: "QuerySet[Any, Row]", resource: str, ref: str | int) -> Row:
    """Return the first of the rows that a ref names.

    Args:
        resource: what the ref names, such as "invoice".

    Raises:
        NotFound: there is no row.
    """
    row = rows.first()
    if row is None:
        raise NotFound(resource=resource, ref=ref)
    return row
