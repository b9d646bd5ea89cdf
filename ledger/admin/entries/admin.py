"""Entries: the list with its search, and one entry with all that belongs to it."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action

from ledger import reads
from ledger.admin.entries.details import entry_details
from ledger.admin.entries.holds import HoldState, extended_to
from ledger.admin.entries.related import Related, is_hold
from ledger.admin.entries.search import find, search, sums
from ledger.admin.entries.tables import amount_cell, counterpart_cell, kind_words, owed
from ledger.admin.forms import operations
from ledger.admin.history import Sum
from ledger.admin.kit import columns
from ledger.admin.kit.bounded_reads import WINDOW_ROWS
from ledger.admin.kit.cells import mono, number
from ledger.admin.kit.columns import Column, shortened
from ledger.admin.kit.filters import choice, instant, text
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.admin.kit.saved_lists import Totals
from ledger.admin.links import account_link, entry_link, rate_link
from ledger.models import EntryListing
from ledger.rules import KINDS
from ledger.rules.instants import to_us
from ledger.rules.kinds import REFUNDABLE, taken_by
from ledger.rules.texts.credit_units import CreditUnit
from ledger.units import unit_of, units_of, with_units


def _what_some_have(row: EntryListing) -> list[Any]:
    fields: list[Any] = []
    if is_hold(row):
        fields += [("hold_state", "hold_amounts"), "hold_expires"]
    elif row.kind == "hold":
        fields.append("hold_expires")
    if row.rating is not None:
        fields.append("rating_cell")
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
    return format_html("{} of {}", number(rated["quantity"]), rate_link(row.credit_type, rated["rate"], rated["version"]))


def _reason(row: EntryListing) -> SafeString:
    return format_html("{} {}", shortened(row.reason), shortened(row.reference, 24, css="text-subtle"))


def _metadata(row: EntryListing) -> SafeString:
    pairs = (row.metadata or {}).items()
    return format_html_join("", "<div><code>{}</code>: {}</div>", ((name, str(value)) for name, value in pairs))


def _previous_digest(row: Any) -> SafeString | str:
    return "missing" if row.previous_digest is None else mono(row.previous_digest.hex())


@admin.register(EntryListing)
class EntryAdmin(ReadOnlyAdmin):
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
    )
    search_fields = ("holder_id",)
    search_help_text = "Holder, holder*, reference or key"
    csv_columns = (
        "holder", "credit_type", "entry", "kind_label", "signed_amount", "balance_after", "held_after", "unit_name", "about",
        "recorded", "effective", "actor", "why", "reference", "key",
    )  # fmt: skip
    starts = "An entry is made by a grant: here, over REST, or by manage.py demo."
    change_form_outer_after_template = "admin/ledger/entries/entry_details.html"
    actions_detail = ("refund", "revoke", "release")
    fieldsets = (
        (None, {"fields": (("kind_name", "signed_amount"), ("balance_after", "held_after"), ("account", "about"))}),
        ("Who, why, when", {"fields": (("actor", "reason"), ("reference", "key"), ("recorded", "effective"), "metadata_text")}),
        ("Chain", {"classes": ("collapse",), "fields": ("digest_hex", "previous_digest_hex", "chain")}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """With what only some entries have."""
        first, *others = self.fieldsets
        more = [] if obj is None else _what_some_have(obj)
        return ((first[0], {"fields": (*first[1]["fields"], *more)}), *others)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By the word in the search box and the filters; see `search`."""
        return search(cl.query.strip(), cl.values(), cursor, most=cl.page_rows)

    def prepare(self, rows: Sequence[Any]) -> None:
        """With the unit of each."""
        with_units(rows)

    def totals(self, request: HttpRequest, cl: Any) -> Totals | None:
        """What came and went, by credit type, where the list is narrowed."""
        found = sums(cl.query.strip(), cl.values())
        if found is None:
            return None
        rows, is_whole = found
        units = units_of(row.credit_type for row in rows)
        note = "" if is_whole else f"Of the newest {WINDOW_ROWS:,} entries looked at; a shorter time has fewer."
        return Totals(sentences=[_sum_words(row, units[row.credit_type]) for row in rows], note=note)

    def searched(self, word: str) -> Q:
        """All: `read_page` searches."""
        return Q()

    def find(self, request: HttpRequest, key: str) -> EntryListing | None:
        """By the primary key of the table: the view's own key has no index."""
        return find(key)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The lots and entries that belong to it, and what was refused about it."""
        request.__dict__["_related"] = related = Related(row)
        return entry_details(row, related)

    # What can be done about an entry ------------------------------------------------------------------

    def has_refund_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_kind(request, object_id, *REFUNDABLE) and request.user.has_perm("ledger.refund_spend")

    def has_revoke_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_kind(request, object_id, "grant") and request.user.has_perm("ledger.revoke_grant")

    def has_release_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        row = self.get_object(request, unquote(object_id)) if object_id else None
        return row is not None and is_hold(row) and request.user.has_perm("ledger.release_hold")

    def _is_kind(self, request: HttpRequest, object_id: str | None, *kinds: str) -> bool:
        row = self.get_object(request, unquote(object_id)) if object_id else None
        return row is not None and row.kind in kinds

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """A hold that is closed cannot be released, a spend that was given back in whole not refunded."""
        row: Any = self.get_object(request, unquote(object_id))
        related: Related | None = request.__dict__.get("_related")
        if row is None or related is None:
            return []
        is_refunded = taken_by(row) > 0 and related.refunded == taken_by(row)
        is_closed = related.hold is not None and not related.hold.is_open
        return [name for name, is_over in (("refund", is_refunded), ("release", is_closed)) if is_over]

    @action(description="Refund", icon="undo", permissions=["refund"])
    def refund(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give credits of this spend back."""
        row = self.row_of(request, object_id)
        return operations.refund_view(self, request, row, refunded=Related(row).refunded)

    @action(description="Revoke the rest", icon="block", permissions=["revoke"])
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take back what is unspent of this grant."""
        row = self.row_of(request, object_id)
        found = reads.balance(row.holder_id, row.credit_type)
        now_us = to_us(found.as_of)
        unspent = next((lot.remaining for lot in found.lots if lot.grant == row.sequence and not lot.is_expired(now_us)), 0)
        return operations.revoke_view(self, request, row, unspent=unspent)

    @action(description="Release", icon="lock_open", permissions=["release"])
    def release(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give back what this hold sets aside."""
        row = self.row_of(request, object_id)
        hold = Related(row).hold
        assert hold is not None
        return operations.release_view(self, request, row, how_it_stands=hold.sentence(unit_of(row.credit_type)))
