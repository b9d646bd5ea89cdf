"""Rows by name: a query and the class of its rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from django.db import connection

Row = TypeVar("Row")


def fetch_rows(row: Callable[..., Row], sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> list[Row]:
    """Return all rows of a query, each made by `row` from its columns in their order.

    Args:
        row: a NamedTuple, a dataclass, or a function of the columns; for one column also `int` or `str`.
        parameters: None: a `%` in the query is a plain character.
    """
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return [row(*values) for values in cursor.fetchall()]


def fetch_value(value: Callable[[Any], Row], sql: str, parameters: Sequence[Any] | Mapping[str, Any] | None = None) -> Row:
    """Return the only value of a query, made by `value`, such as `int`, `str` or `bool`; the parameters as for `fetch_rows`."""
    [found] = fetch_rows(value, sql, parameters)
    return found
