"""The sums of other applications' documents over the entries of a month, beside those entries. The applications register here."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple


class Tie(NamedTuple):
    """The sum of one kind of documents for a credit type in a month, and the sum of the entries made for them.

    Args:
        name: the kind of documents, such as "invoices paid with credits".
    """

    name: str
    credit_type: str
    documents: int
    entries: int


FindTies = Callable[[datetime, datetime], list[Tie]]

_registered: list[FindTies] = []


def register_ties(find: FindTies) -> None:
    """Compare these documents with the entries recorded in `[start, end)` of each month that is closed."""
    _registered.append(find)


def ties(start: datetime, end: datetime) -> list[Tie]:
    """Return the sums of all registered applications for the entries recorded in `[start, end)`."""
    return [tie for find in _registered for tie in find(start, end)]
