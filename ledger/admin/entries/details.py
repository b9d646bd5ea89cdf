"""What the page of one entry shows besides the entry: its neighbours, lots, holds, and the entries and refusals about it."""

from typing import Any

from ledger import reads
from ledger.admin.entries.holds import holds_table
from ledger.admin.entries.related import Related, arrivals, is_digest_right, previous_digest
from ledger.admin.entries.tables import drawn_table, entries_table, lots_table, refusals_table
from ledger.admin.links import account_link, entries_url, entry_link, refusals_url
from ledger.models import EntryListing
from ledger.rules import KINDS, Entry
from ledger.rules.texts.credit_units import CreditUnit


def entry_details(row: Any, related: Related) -> dict[str, Any]:
    """Add to the row what its columns need, and return the context of admin/ledger/entries/entry_details.html."""
    entry = reads.entry(row.holder_id, row.credit_type, row.sequence)
    assert entry is not None
    arrived = arrivals(row)
    closed = [related.closed] if related.closed else []
    for other in (*related.referring, *closed, *arrived):
        other.unit = row.unit
    row.previous_digest = previous_digest(row, related.previous)
    row.digest_is_right = is_digest_right(row)
    row.closed = related.closed
    row.hold_now = related.hold
    return {
        "title": f"{KINDS[row.kind].title} #{row.sequence} of {row.holder_id}",
        "related": related,
        "referring_sums": related.sums(row.unit),
        "neighbours": _neighbours(row, related),
        "referring_table": entries_table(related.referring),
        "closed_table": entries_table(closed),
        "arrived_table": entries_table(arrived),
        "arrived_title": f"Arrived at {row.counterpart['holder_id']} as" if arrived else "",
        "refusals_table": refusals_table(related.refusals, row.unit),
        "has_refusals": bool(related.refusals),
        "refusals_url": refusals_url(q=row.holder_id),
        "account_link": account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}"),
        "entries_url": entries_url(q=row.holder_id, credit_type=row.credit_type),
    } | _state_after(entry, row.unit)


def _neighbours(row: EntryListing, related: Related) -> list[Any]:
    return [
        entry_link(row.holder_id, row.credit_type, each.sequence, words)
        for each, words in ((related.previous, "‹ previous entry"), (related.following, "next entry ›"))
        if each is not None
    ]


def _state_after(entry: Entry, unit: CreditUnit) -> dict[str, Any]:
    """The lots that the entry drew on, and the lots and open holds of the account after it."""
    account = {"holder_id": entry.holder_id, "credit_type": entry.credit_type}
    lots = reads.lots_in_full(entry.holder_id, entry.credit_type, entry.lots)
    return {
        "drawn_table": drawn_table(entry, unit),
        "drawn_title": "Joined" if entry.kind == "transfer_in" else "Returned to" if entry.amount > 0 else "Taken from",
        "has_drawn": bool(entry.drawn) or entry.kind == "spend",
        "holds_table": holds_table(entry.holds, **account, at=entry.recorded_at, unit=unit),
        "has_holds": bool(entry.holds),
        "lots_table": lots_table(lots, **account, at=entry.recorded_at, unit=unit),
    }
