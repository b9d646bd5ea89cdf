"""Explains an entry by the entries around it."""

from collections.abc import Iterable
from itertools import count, takewhile
from typing import Any

from ledger.database.statements import Statement, parameter
from ledger.entry_rows import LOADERS, READ_COLUMNS, entry_of
from ledger.reads.account_state import lots_in_full
from ledger.reads.history import entry
from ledger.rules.entries import Entry
from ledger.rules.explanations import explain, is_booked_by_itself
from ledger.rules.holds import MAX_HOLD_PARTS
from ledger.rules.lots import MAX_OPEN_LOTS, MAX_RECEIVED_LOTS, in_full

__all__ = ["explanation"]

MAX_BOOKED_TOGETHER = 2 * MAX_OPEN_LOTS + MAX_HOLD_PARTS + 3 * MAX_RECEIVED_LOTS
"""More entries than a writer can have to book before or after its own."""

# The entry of that number, and the previous one.
WITH_THE_ONE_BEFORE = Statement(
    "with_the_one_before",
    f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND sequence BETWEEN %(sequence)s::bigint - 1 AND %(sequence)s::bigint
ORDER BY sequence
""",
    LOADERS,
    row=entry_of,
)

# The entries that the ledger booked itself at the same instant, without a key. Entries of one instant have consecutive numbers.
BOOKED_BESIDE = Statement(
    "booked_beside",
    f"""
SELECT {READ_COLUMNS}
FROM ledger_entry
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND idempotency_key IS NULL
    AND sequence > GREATEST(
        %(sequence)s::bigint - {MAX_BOOKED_TOGETHER},
        ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(at)s::timestamptz - interval '1 microsecond')
    )
    AND sequence <= LEAST(
        %(sequence)s::bigint + {MAX_BOOKED_TOGETHER}, ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(at)s::timestamptz)
    )
ORDER BY sequence
""",
    LOADERS,
    row=entry_of,
)


def explanation(holder_id: str, credit_type: str, sequence: int) -> dict[str, Any] | None:
    """Return the explanation of the entry of that number as plain JSON, or None: see `rules.explanations`."""
    parameters = {"holder_id": parameter(holder_id), "credit_type": parameter(credit_type), "sequence": parameter(sequence)}
    entries: list[Entry] = WITH_THE_ONE_BEFORE.read(parameters)
    if not entries or entries[-1].sequence != sequence:
        return None
    entries = _with_lots_in_full(entries)
    explained = entries[-1]
    beside = {each.sequence: each for each in BOOKED_BESIDE.read(parameters | {"at": parameter(explained.recorded_at)})}
    earlier = _booked_entries(beside.get(number) for number in count(sequence - 1, -1))
    later = _booked_entries(beside.get(number) for number in count(sequence + 1))
    return explain(
        explained,
        entries[0] if entries[0].sequence < sequence else None,
        booked_before=earlier[::-1],
        booked_after=later,
        referred=None if explained.refers_to is None else entry(holder_id, credit_type, explained.refers_to),
    )


def _booked_entries(neighbours: Iterable[Entry | None]) -> list[Entry]:
    """Return the first of them, up to an entry that a client requested."""
    return [
        each for each in takewhile(lambda each: each is not None and is_booked_by_itself(each), neighbours) if each is not None
    ]


def _with_lots_in_full(entries: list[Entry]) -> list[Entry]:
    """Return entries of one account, each with its full lots, by one query for all of them."""
    first = entries[0]
    by_grant = {lot.grant: lot for entry in entries for lot in entry.lots}
    in_full_lots = lots_in_full(first.holder_id, first.credit_type, tuple(by_grant.values()))
    times = {lot.grant: lot.effective_us for lot in in_full_lots}
    return [entry._replace(lots=in_full(entry.lots, times)) for entry in entries]
