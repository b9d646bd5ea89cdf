"""Compares another application's records with the ledger, for its checks. Reads without a lock, so nothing is decided from it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import connection

CHUNK_ROWS = 5_000

# By the primary key: one index lookup per entry.
THERE = """
    SELECT named.position
    FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[])
        WITH ORDINALITY AS named(holder_id, credit_type, sequence, kind, position)
    JOIN ledger_entry AS entry USING (holder_id, credit_type, sequence)
    WHERE entry.kind = named.kind
"""

REFERENCES = """
    SELECT reference, min(holder_id)
    FROM ledger_entry
    WHERE actor = %s AND starts_with(reference, %s)
    GROUP BY reference
    ORDER BY reference
"""


@dataclass(frozen=True, slots=True)
class EntryRef:
    """A reference to an entry, in another application's record."""

    holder_id: str
    credit_type: str
    sequence: int
    kind: str


def missing_entries(named: Iterable[EntryRef]) -> Iterator[EntryRef]:
    """Yield the references whose entry does not exist in the ledger, or is of another kind."""
    rest = iter(named)
    while chunk := list(islice(rest, CHUNK_ROWS)):
        columns: list[Any] = [
            [one.holder_id for one in chunk],
            [one.credit_type for one in chunk],
            [one.sequence for one in chunk],
            [one.kind for one in chunk],
        ]
        with connection.cursor() as cursor:
            cursor.execute(THERE, columns)
            there = {position for (position,) in cursor.fetchall()}
        yield from [one for position, one in enumerate(chunk, start=1) if position not in there]


def references_of(*, actor: str, prefix: str) -> list[tuple[str, str]]:
    """Return each reference of an actor's entries that begins with the prefix, with a holder; reads the whole ledger."""
    with connection.cursor() as cursor:
        cursor.execute(REFERENCES, [actor, prefix])
        return list(cursor.fetchall())
