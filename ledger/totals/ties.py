"""The credits of other applications' documents in a month, beside the entries made for them. The applications register here."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from ledger.database.statements import fetch_rows

SUMS: Final = "SELECT credit_type, sum(documents), sum(entries) FROM ({}) AS part GROUP BY 1 ORDER BY 1"
PARTS: Final = """
    SELECT document, documents, entries FROM ({}) AS part
    WHERE credit_type = %(credit_type)s AND (documents <> 0 OR entries <> 0) ORDER BY document
"""


class Tie(NamedTuple):
    """The sum of one kind of documents for a credit type in a month, and the sum of the entries made for them.

    Args:
        name: the kind of documents, such as "invoices paid with credits".
    """

    name: str
    credit_type: str
    documents: int
    entries: int


class TiePart(NamedTuple):
    """What one document adds to a tie: by itself, and by its entries."""

    document: str
    documents: int
    entries: int


@dataclass(frozen=True)
class TieSource:
    """A kind of documents that have entries.

    Args:
        name: as in `Tie`.
        sql: `credit_type, document, documents, entries` of the entries recorded in `[%(start)s, %(end)s)`, by document.
        page: the operators' page of a document, without "admin:".
        numbers: the numbers of documents that exist, by their ids.
    """

    name: str
    sql: str
    page: str
    numbers: Callable[[Collection[int]], Mapping[int, str]]

    def ties(self, start: datetime, end: datetime) -> list[Tie]:
        """Return the sums of each credit type."""
        rows = fetch_rows(lambda *row: row, SUMS.format(self.sql), {"start": start, "end": end})
        return [Tie(self.name, credit_type, int(documents), int(entries)) for credit_type, documents, entries in rows]

    def parts(self, start: datetime, end: datetime, credit_type: str) -> list[TiePart]:
        """Return what the sums of a credit type consist of."""
        facts = {"start": start, "end": end, "credit_type": credit_type}
        rows = fetch_rows(lambda *row: row, PARTS.format(self.sql), facts)
        return [TiePart(document, int(documents), int(entries)) for document, documents, entries in rows]


_registered: list[TieSource] = []


def register_ties(source: TieSource) -> None:
    """Compare these documents with the entries recorded in each month that is closed."""
    if source not in _registered:
        _registered.append(source)


def source_of(name: str) -> TieSource | None:
    """Return the documents of that name."""
    return next((source for source in _registered if source.name == name), None)


def ties(start: datetime, end: datetime) -> list[Tie]:
    """Return the sums of all registered applications for the entries recorded in `[start, end)`."""
    return [tie for source in _registered for tie in source.ties(start, end)]
