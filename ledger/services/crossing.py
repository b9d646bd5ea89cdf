"""What another room's records and the ledger say of each other, for its checks: lock-free, nothing is decided by it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from django.db import connection

CHUNK_ROWS = 5_000

# By the primary key, so that each name is one look.
MISSING = """
    SELECT named.position
    FROM unnest(%s::text[], %s::text[], %s::bigint[], %s::text[])
        WITH ORDINALITY AS named(holder_id, credit_type, sequence, kind, position)
    WHERE NOT EXISTS (
        SELECT FROM ledger_entry AS entry
        WHERE entry.holder_id = named.holder_id AND entry.credit_type = named.credit_type
            AND entry.sequence = named.sequence AND entry.kind = named.kind)
    ORDER BY named.position
"""

REFERENCES = """
    SELECT reference, min(holder_id)
    FROM ledger_entry
    WHERE actor = %s AND starts_with(reference, %s)
    GROUP BY reference
    ORDER BY reference
"""


@dataclass(frozen=True, slots=True)
class NamedEntry:
    """An entry as somebody else's record names it."""

    holder_id: str
    credit_type: str
    sequence: int
    kind: str


def missing_entries(named: Iterable[NamedEntry]) -> Iterator[NamedEntry]:
    """Those of the named entries that the ledger does not have, or has as another kind."""
    rest = iter(named)
    while chunk := list(islice(rest, CHUNK_ROWS)):
        columns: list[Any] = [
            [one.holder_id for one in chunk],
            [one.credit_type for one in chunk],
            [one.sequence for one in chunk],
            [one.kind for one in chunk],
        ]
        with connection.cursor() as cursor:
            cursor.execute(MISSING, columns)
            yield from [chunk[position - 1] for (position,) in cursor.fetchall()]


def references_of(*, actor: str, prefix: str) -> list[tuple[str, str]]:
    """What an actor's entries refer to by words that begin so, each once, with a holder; reads the whole ledger."""
    with connection.cursor() as cursor:
        cursor.execute(REFERENCES, [actor, prefix])
        return list(cursor.fetchall())
