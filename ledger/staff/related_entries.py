"""The rows around an entry: the entry it refers to, those that refer to it, its neighbours, its other side, and its digest."""

from datetime import timedelta

from django.db import connection
from django.utils import timezone

from ledger import reads
from ledger.models import EntryListing
from ledger.rules.credit_units import CreditUnit
from ledger.rules.entries import GENESIS
from ledger.staff.entry_search import HISTORY
from ledger.staff.holds import state_of

RELATED_ENTRIES = 100
REFUSALS_SEARCHED = 200
ARRIVES_WITHIN = timedelta(seconds=30)
"""The longest duration of a transaction: statement_timeout."""

# The entry that it refers to, those that refer to it (the latest, if there are many), and its neighbours.
RELATED = """
SELECT * FROM ledger_entry_listing WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
UNION ALL
(
    SELECT * FROM ledger_entry_listing
    WHERE holder_id = %s AND credit_type = %s AND refers_to = %s
    ORDER BY sequence DESC
    LIMIT {limit}
)
"""

# The entries that a transfer made on the other side: recorded in the same transaction, so within seconds.
ARRIVALS = """
SELECT *
FROM ledger_entry_listing
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND kind = 'transfer_in'
    AND sequence > ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(since)s)
    AND sequence <= ledger_sequence_at(%(holder_id)s, %(credit_type)s, %(until)s)
    AND counterpart ->> 'holder_id' = %(from)s
    AND counterpart ->> 'sequence' = %(sequence)s
ORDER BY sequence
LIMIT {limit}
"""

DIGEST_IS_RIGHT = """
SELECT e.digest = ledger_entry_digest(
    CASE e.sequence WHEN 1 THEN decode(repeat('00', 32), 'hex') ELSE p.digest END, ROW(e.*)::ledger_entry
)
FROM ledger_entry e
LEFT JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
WHERE e.holder_id = %s AND e.credit_type = %s AND e.sequence = %s
"""


class Related:
    """The rows around an entry: the entry it refers to, those that refer to it, its neighbours, and refusals about it."""

    def __init__(self, entry: EntryListing) -> None:
        account = [entry.holder_id, entry.credit_type]
        numbers = [sequence for sequence in (entry.refers_to, entry.sequence - 1, entry.sequence + 1) if sequence]
        sql = RELATED.format(limit=RELATED_ENTRIES)
        rows = HISTORY.rows(sql, [*account, numbers, *account, entry.sequence])
        by_number = {row.sequence: row for row in rows}
        self.closed = by_number.get(entry.refers_to) if entry.refers_to else None
        self.previous = by_number.get(entry.sequence - 1)
        self.following = by_number.get(entry.sequence + 1)
        self.referring = [row for number_, row in sorted(by_number.items()) if row.refers_to == entry.sequence]
        self.are_all_shown = len(self.referring) < RELATED_ENTRIES
        self.hold = state_of(entry, self.referring, now=timezone.now()) if is_hold(entry) else None
        self.refusals = [
            refusal
            for refusal in reads.refusals(entry.holder_id, limit=REFUSALS_SEARCHED)
            if refusal.credit_type == entry.credit_type
            and entry.sequence in (refusal.request.get(word) for word in ("spend", "grant", "hold", "transfer", "lot"))
        ]

    @property
    def refunded(self) -> int:
        """Return how much of a spend was given back: its latest refund has the sum."""
        return next((row.refunded_total for row in reversed(self.referring) if row.kind == "refund"), 0)

    def sums(self, unit: CreditUnit) -> str:
        """Return the sums of the entries that refer to it."""
        found = {"refunded": self.refunded}
        if self.hold is not None and self.are_all_shown:
            found |= {"captured": self.hold.captured, "released": self.hold.released}
        words = [f"{unit.number(amount)} {what}" for what, amount in found.items() if amount]
        return ", ".join([*words, *([] if self.are_all_shown else [f"the latest {RELATED_ENTRIES}"])])


def is_hold(row: EntryListing) -> bool:
    """Return whether the entry made a hold, and did not extend one."""
    return row.kind == "hold" and row.refers_to is None


def arrivals(row: EntryListing) -> list[EntryListing]:
    """Return the other holder's entries of a transfer, one per lot."""
    if row.kind != "transfer_out" or row.counterpart is None:
        return []
    values = {
        "holder_id": row.counterpart["holder_id"],
        "credit_type": row.credit_type,
        "since": row.recorded_at - ARRIVES_WITHIN,
        "until": row.recorded_at + ARRIVES_WITHIN,
        "from": row.holder_id,
        "sequence": str(row.sequence),
    }
    return list(EntryListing.objects.raw(ARRIVALS.format(limit=RELATED_ENTRIES), values))


def previous_digest(row: EntryListing, previous: EntryListing | None) -> bytes | None:
    """Return the digest of the previous entry; None if that entry does not exist."""
    if row.sequence == 1:
        return GENESIS
    return None if previous is None else bytes(previous.digest)


def is_digest_right(row: EntryListing) -> bool:
    """Return the digest that the server computes: it has the digested text."""
    with connection.cursor() as cursor:
        cursor.execute(DIGEST_IS_RIGHT, [row.holder_id, row.credit_type, row.sequence])
        return cursor.fetchone() == (True,)
