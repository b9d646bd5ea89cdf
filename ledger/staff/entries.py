"""Entries: the list with its search, and the page of one entry with all related rows."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger import reads
from ledger.models import EntryListing
from ledger.rules.credit_units import CreditUnit
from ledger.rules.entries import Entry
from ledger.rules.kinds import KINDS
from ledger.rules.rates import quantity_words
from ledger.staff.entry_operations import EntryOperations
from ledger.staff.entry_search import find, search, sums
from ledger.staff.entry_tables import (
    amount_cell,
    counterpart_cell,
    drawn_table,
    entries_table,
    kind_words,
    lots_table,
    owed,
    refusals_table,
)
from ledger.staff.history import Sum
from ledger.staff.holds import HoldState, extended_to, holds_table
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import WINDOW_ROWS
from ledger.staff.kit.cells import digits, mono
from ledger.staff.kit.columns import Column, shortened
from ledger.staff.kit.filters import choice, instant, text
from ledger.staff.kit.pages import Page, UncountedList
from ledger.staff.kit.saved_lists import ListTotals
from ledger.staff.links import account_link, entries_url, entry_link, rate_link, refusals_url
from ledger.staff.related_entries import Related, arrivals, is_digest_right, is_hold, previous_digest
from ledger.units import units_of, with_units


def _what_some_have(row: EntryListing) -> list[Any]:
    fields: list[Any] = []
    if is_hold(row):
        fields += [("hold_state", "hold_amounts"), "hold_expires"]
    elif row.kind == "hold":
        fields.append("hold_expires")
    if row.rating is not None:
        fields.append("rating_cell")
    if row.requested is not None:
        fields.append("requested_cell")
    if row.overdraft is not None:
        fields.append(("overdraft_after", "owed_after"))
    return fields


def _sum_words(row: Sum, unit: CreditUnit) -> str:
    noun = "entry" if row.rows == 1 else "entries"
    together = f"{unit.signed_amount(row.plus + row.minus)}"
    return f"{unit.name}: {row.rows:,} {noun}, {unit.signed(row.plus)} and {unit.number(row.minus)}, together {together}."


def _holder(row: EntryListing) -> SafeString:
    return format_html(
        '<span class="whitespace-nowrap">{} <span class="text-subtle">{}</span></span>',
        account_link(row.holder_id, row.credit_type),
        row.credit_type,
    )


def _refers_to(row: EntryListing) -> SafeString | str:
    if row.refers_to is None:
        return counterpart_cell(row)
    closed = getattr(row, "closed", None)
    words = f"{closed.kind} #{row.refers_to}" if closed else f"#{row.refers_to}"
    return entry_link(row.holder_id, row.credit_type, row.refers_to, words)


def _hold_amounts(row: Any) -> str:
    now: HoldState = row.hold_now
    parts = [(now.held, "still held"), (now.captured, "captured"), (now.released, "released")]
    return ", ".join(f"{row.unit.number(amount)} {words}" for amount, words in parts if amount)


def _rating(row: Any) -> SafeString:
    rated = row.rating
    return format_html("{} of {}", digits(quantity_words(rated)), rate_link(row.credit_type, rated["rate"], rated["version"]))


def _reason(row: EntryListing) -> SafeString:
    return format_html("{} {}", shortened(row.reason), shortened(row.reference, 24, css="text-subtle"))


def _metadata(row: EntryListing) -> SafeString:
    pairs = (row.metadata or {}).items()
    return format_html_join("", "<div><code>{}</code>: {}</div>", ((name, str(value)) for name, value in pairs))


def _previous_digest(row: Any) -> SafeString | str:
    return "missing" if row.previous_digest is None else mono(row.previous_digest.hex())


@admin.register(EntryListing)
class EntryAdmin(EntryOperations):
    """What moved, newest first; searched by holder, reference and key."""

    entry = Column("Entry", lambda row: f"#{row.sequence}", "sequence", csv_title="Number")
    holder = Column("Holder, credit type", _holder, "holder_id", csv_title="Holder")
    account = Column("Account", lambda row: account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}"))
    kind_label = Column(
        "Kind", lambda row: (row.kind, kind_words(row)), "kind", colours={kind.name: kind.colour for kind in KINDS.values()}
    )
    kind_name = Column("Kind", kind_words)
    signed_amount = Column("Amount", amount_cell, lambda row: row.unit.decimal(row.amount))
    balance_after = columns.amount("Balance after", "balance")
    held_after = columns.amount("Held after", "held")
    unit_name = Column("Unit", "unit.unit")
    about = Column("Refers to", _refers_to, "refers_to")
    recorded = columns.instant("Recorded", "recorded_at")
    effective = columns.instant("Effective", "effective_at")
    why = Column("Reason", _reason, "reason")
    key = columns.code("Idempotency key", "idempotency_key")
    metadata_text = Column("Metadata", _metadata)
    digest_hex = columns.code("Digest", lambda row: bytes(row.digest).hex())
    previous_digest_hex = Column("Digest of the previous entry", _previous_digest)
    chain = Column("Recomputed", lambda row: "right" if row.digest_is_right else "WRONG")
    hold_state = Column("Hold", "hold_now.state")
    hold_amounts = Column("Outcome", _hold_amounts)
    hold_expires = columns.instant("Hold expires", lambda row: row.hold_now.expires_at if is_hold(row) else extended_to(row))
    rating_cell = Column("Priced by", _rating)
    requested_cell = columns.amount("Requested, as a partial spend", "requested")
    overdraft_after = columns.amount("Overdraft limit", lambda row: row.overdraft or 0)
    owed_after = columns.amount("Owed after", owed)

    list_display = (
        "entry", "holder", "kind_label", "signed_amount", "balance_after", "about", "recorded", "actor", "why",
    )  # fmt: skip
    list_display_links = ("entry",)
    list_filter = (
        choice("kind", tuple(KINDS)),
        text("credit_type", title="credit type"),
        instant("since", title="recorded from"),
        instant("until", title="recorded before"),
        text("actor"),
        text("metadata", title="metadata, as order:7781"),
    )
    search_fields = ("holder_id",)
    search_help_text = "Holder, holder*, reference or key"
    csv_columns = (
        "holder", "credit_type", "entry", "kind_label", "signed_amount", "balance_after", "held_after", "unit_name", "about",
        "recorded", "effective", "actor", "why", "reference", "key",
    )  # fmt: skip
    starts = "A grant makes the first entry: here, over REST, or by manage.py demo."
    change_form_outer_after_template = "admin/ledger/entries/entry_details.html"
    fieldsets = (
        (None, {"fields": (("kind_name", "signed_amount"), ("balance_after", "held_after"), ("account", "about"))}),
        ("Source and time", {"fields": (("actor", "reason"), ("reference", "key"), ("recorded", "effective"), "metadata_text")}),
        ("Chain", {"classes": ("collapse",), "fields": ("digest_hex", "previous_digest_hex", "chain")}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields with those that only some entries have."""
        first, *others = self.fieldsets
        more = [] if obj is None else _what_some_have(obj)
        return ((first[0], {"fields": (*first[1]["fields"], *more)}), *others)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the page for the word in the search box and the filters; see `search`."""
        return search(cl.query.strip(), cl.values(), cursor, most=cl.page_rows)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each entry its unit."""
        with_units(rows)

    def totals(self, request: HttpRequest, cl: Any) -> ListTotals | None:
        """Return the sums by credit type, if filters narrow the list."""
        found = sums(cl.query.strip(), cl.values())
        if found is None:
            return None
        rows, is_whole = found
        units = units_of(row.credit_type for row in rows)
        note = "" if is_whole else f"The sums cover the newest {WINDOW_ROWS:,} entries; narrow the time to cover all."
        return ListTotals(sentences=[_sum_words(row, units[row.credit_type]) for row in rows], note=note)

    def searched(self, word: str) -> Q:
        """Return all: `read_page` searches."""
        return Q()

    def find(self, request: HttpRequest, key: str) -> EntryListing | None:
        """Find by the primary key of the table: the view's own key has no index."""
        return find(key)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the lots and entries that belong to it, and the refusals about it."""
        request.__dict__["_related"] = related = Related(row)
        return entry_details(row, related)


def entry_details(row: Any, related: Related) -> dict[str, Any]:
    """Give the row the values of its columns, and return the context of admin/ledger/entries/entry_details.html."""
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


def _drawn_title(entry: Entry) -> str:
    if entry.kind == "transfer_in" and entry.refers_to is None:
        return "Joined"
    return "Returned to" if entry.amount > 0 else "Taken from"


def _state_after(entry: Entry, unit: CreditUnit) -> dict[str, Any]:
    """Return the lots from which the entry drew, and the lots and open holds of the account after it."""
    account = {"holder_id": entry.holder_id, "credit_type": entry.credit_type}
    lots = reads.lots_in_full(entry.holder_id, entry.credit_type, entry.lots)
    return {
        "drawn_table": drawn_table(entry, unit),
        "drawn_title": "Joined"
        if entry.kind == "transfer_in" and entry.refers_to is None
        else "Returned to"
        if entry.amount > 0
        else "Taken from",
        "has_drawn": bool(entry.drawn or entry.cost_changes) or entry.kind == "spend",
        "holds_table": holds_table(entry.holds, **account, at=entry.recorded_at, unit=unit),
        "has_holds": bool(entry.holds),
        "lots_table": lots_table(lots, **account, at=entry.recorded_at, unit=unit, costs=entry.costs),
    }
