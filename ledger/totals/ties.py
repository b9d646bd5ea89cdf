"""What other applications say about the entries of a month, beside those entries. They register here."""

from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple


class Tie(NamedTuple):
    """What documents of one kind say of a credit type in a month, and what the entries made for them come to.

    Args:
        name: of the documents, such as "invoices paid with credits".
    """

    name: str
    credit_type: str
    documents: int
    entries: int


FindTies = Callable[[datetime, datetime], list[Tie]]

_registered: list[FindTies] = []


def register_ties(find: FindTies) -> None:
    """Have these documents held to the entries recorded in `[start, end)` of each month that is closed."""
    _registered.append(find)


def ties(start: datetime, end: datetime) -> list[Tie]:
    """What all registered applications say of the entries recorded in `[start, end)`."""
    return [tie for find in _registered for tie in find(start, end)]
