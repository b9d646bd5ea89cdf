"""Entries: the list with its search, and one entry with all that belongs to it."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from ledger import reads
from ledger.admin.entries.details import entry_details
from ledger.admin.entries.holds import STATE_COLOURS, HoldState, extended_to
from ledger.admin.entries.related import Related, is_hold
from ledger.admin.entries.search import find, search, sums
from ledger.admin.entries.tables import amount_cell, counterpart_cell, owed
from ledger.admin.forms import operations
from ledger.admin.forms.operations import taken
from ledger.admin.history import Sum
from ledger.admin.kit.bounded_reads import WINDOW_ROWS
from ledger.admin.kit.cells import digits, mono, number, timestamp
from ledger.admin.kit.csv_files import Column
from ledger.admin.kit.filters import choice, instant, text
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.admin.kit.saved_lists import Totals
from ledger.admin.links import account_link, entry_link, rate_link
from ledger.models import EntryListing
from ledger.rules import KINDS
from ledger.rules.credit_units import CreditUnit
from ledger.rules.instants import to_us
from ledger.units import unit_of, units_of, with_units

KIND_COLOURS = {
    "grant": "success",
    "refund": "info",
    "spend": "primary",
    "revoke": "warning",
    "expire": "warning",
    "hold": "primary",
    "capture": "primary",
    "release": "info",
    "transfer_in": "success",
    "transfer_out": "primary",
    "adjust": "warning",
    "refusal": "danger",
}


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


CSV: Sequence[Column] = (
    ("Holder", attrgetter("holder_id")),
    ("Credit type", attrgetter("credit_type")),
    ("Number", attrgetter("sequence")),
    ("Kind", attrgetter("kind")),
    ("Amount", lambda row: row.unit.decimal(row.amount)),
    ("Balance after", lambda row: row.unit.decimal(row.balance)),
    ("Held after", lambda row: row.unit.decimal(row.held)),
    ("Unit", lambda row: row.unit.unit),
    ("Refers to", attrgetter("refers_to")),
    ("Recorded (UTC)", attrgetter("recorded_at")),
    ("Effective (UTC)", attrgetter("effective_at")),
    ("Actor", attrgetter("actor")),
    ("Reason", attrgetter("reason")),
    ("Reference", attrgetter("reference")),
    ("Idempotency key", attrgetter("idempotency_key")),
)


@admin.register(EntryListing)
class EntryAdmin(ReadOnlyAdmin):
    """What moved, newest first; searched by holder, reference and key."""

    list_display = (
        "entry",
        "holder",
        "kind_label",
        "signed_amount",
        "balance_after",
        "about",
        "recorded",
        "actor",
        "why",
    )
    list_display_links = ("entry",)
    list_filter = (
        choice("kind", KINDS),
        text("credit_type", title="credit type"),
        instant("since", title="recorded from"),
        instant("until", title="recorded before"),
    )
    search_fields = ("holder_id",)
    search_help_text = "Holder, holder*, reference or key"
    csv_columns = CSV
    starts = "An entry is made by a grant: here, over REST, or by manage.py demo."
    change_form_outer_after_template = "admin/ledger/entries/entry_details.html"
    actions_detail = ("refund", "revoke", "release")
    fieldsets = (
        (None, {"fields": (("kind_words", "signed_amount"), ("balance_after", "held_after"), ("account", "about"))}),
        ("Who, why, when", {"fields": (("actor", "reason"), ("reference", "key"), ("recorded", "effective"), "metadata_text")}),
        ("Chain", {"classes": ("collapse",), "fields": ("digest_hex", "previous_digest_hex", "chain")}),
    )
    readonly_fields = (
        "entry",
        "kind_words",
        "signed_amount",
        "balance_after",
        "held_after",
        "account",
        "about",
        "key",
        "recorded",
        "effective",
        "metadata_text",
        "digest_hex",
        "previous_digest_hex",
        "chain",
        "hold_state",
        "hold_amounts",
        "hold_expires",
        "rating_cell",
        "overdraft_after",
        "owed_after",
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """With what only some entries have."""
        first, *others = self.fieldsets
        more = [] if obj is None else _what_some_have(obj)
        return ((first[0], {"fields": (*first[1]["fields"], *more)}), *others)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By the word in the search box and the filters; see `search`."""
        page = search(cl.query.strip(), cl.values(), cursor, most=cl.page_rows)
        with_units(page.rows)
        return page

    def totals(self, request: HttpRequest, cl: Any) -> Totals | None:
        """What came and went, by credit type, where the list is narrowed."""
        found = sums(cl.query.strip(), cl.values())
        if found is None:
            return None
        rows, is_whole = found
        units = units_of(row.credit_type for row in rows)
        note = "" if is_whole else f"Of the newest {WINDOW_ROWS:,} entries looked at; a shorter time has fewer."
        return Totals(sentences=[_sum_words(row, units[row.credit_type]) for row in rows], note=note)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Leave it to `read_page`."""
        return queryset, False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> EntryListing | None:
        """By the primary key of the table: the view's own key has no index. Read once a request."""
        found: dict[str, EntryListing | None] = request.__dict__.setdefault("_entries_found", {})
        if object_id not in found:
            found[object_id] = find(object_id)
        return found[object_id]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The entry, the lots and entries that belong to it, and what was refused about it."""
        row = self.get_object(request, unquote(object_id))
        context = {**(extra_context or {}), "title": "Entry", "subtitle": ""}
        if row is not None:
            request.__dict__["_related"] = related = Related(row)
            context |= entry_details(row, related)
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    # What can be done about an entry ------------------------------------------------------------------

    def has_refund_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return self._is_kind(request, object_id, "spend", "capture") and request.user.has_perm("ledger.refund_spend")

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
        is_refunded = taken(row) > 0 and related.refunded == taken(row)
        is_closed = related.hold is not None and not related.hold.is_open
        return [name for name, is_over in (("refund", is_refunded), ("release", is_closed)) if is_over]

    @action(description="Refund", icon="undo", permissions=["refund"])
    def refund(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give credits of this spend back."""
        row = self._of(request, object_id)
        return operations.refund_view(self, request, row, refunded=Related(row).refunded)

    @action(description="Revoke the rest", icon="block", permissions=["revoke"])
    def revoke(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take back what is unspent of this grant."""
        row = self._of(request, object_id)
        found = reads.balance(row.holder_id, row.credit_type)
        now_us = to_us(found.as_of)
        unspent = next((lot.remaining for lot in found.lots if lot.grant == row.sequence and not lot.is_expired(now_us)), 0)
        return operations.revoke_view(self, request, row, unspent=unspent)

    @action(description="Release", icon="lock_open", permissions=["release"])
    def release(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give back what this hold sets aside."""
        row = self._of(request, object_id)
        hold = Related(row).hold
        assert hold is not None
        return operations.release_view(self, request, row, how_it_stands=hold.sentence(unit_of(row.credit_type)))

    def _of(self, request: HttpRequest, object_id: str) -> EntryListing:
        row = self.get_object(request, unquote(object_id))
        assert row is not None
        return row

    # Columns ------------------------------------------------------------------------------------------

    @display(description="Entry")
    def entry(self, row: EntryListing) -> str:
        return f"#{row.sequence}"

    @display(description="Holder, credit type")
    def holder(self, row: EntryListing) -> SafeString:
        return format_html(
            '<span class="whitespace-nowrap">{} <span class="text-subtle">{}</span></span>',
            account_link(row.holder_id, row.credit_type),
            row.credit_type,
        )

    @display(description="Account")
    def account(self, row: EntryListing) -> SafeString:
        return account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}")

    @display(description="Kind", label=KIND_COLOURS)
    def kind_label(self, row: EntryListing) -> tuple[str, str]:
        return row.kind, self.kind_words(row)

    @display(description="Kind")
    def kind_words(self, row: EntryListing) -> str:
        return row.kind.replace("_", " ")

    @display(description="Amount")
    def signed_amount(self, row: EntryListing) -> SafeString:
        return amount_cell(row)

    @display(description="Balance after")
    def balance_after(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(row.balance))

    @display(description="Held after")
    def held_after(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(row.held))

    @display(description="Refers to")
    def about(self, row: EntryListing) -> SafeString | str:
        if row.refers_to is None:
            return counterpart_cell(row)
        closed = getattr(row, "closed", None)
        words = f"{closed.kind} #{row.refers_to}" if closed else f"#{row.refers_to}"
        return entry_link(row.holder_id, row.credit_type, row.refers_to, words)

    @display(description="Hold", label=STATE_COLOURS)
    def hold_state(self, row: Any) -> str:
        return str(row.hold_now.state)

    @display(description="Outcome")
    def hold_amounts(self, row: Any) -> str:
        now: HoldState = row.hold_now
        parts = [(now.held, "still held"), (now.captured, "captured"), (now.released, "released")]
        return ", ".join(f"{row.unit.number(amount)} {words}" for amount, words in parts if amount)

    @display(description="Hold expires")
    def hold_expires(self, row: Any) -> SafeString | str:
        return timestamp(row.hold_now.expires_at if is_hold(row) else extended_to(row))

    @display(description="Priced by")
    def rating_cell(self, row: Any) -> SafeString:
        rated = row.rating
        return format_html("{} of {}", number(rated["quantity"]), rate_link(row.credit_type, rated["rate"], rated["version"]))

    @display(description="Overdraft limit")
    def overdraft_after(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(row.overdraft or 0))

    @display(description="Owed after")
    def owed_after(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(owed(row)))

    @display(description="Recorded")
    def recorded(self, row: EntryListing) -> SafeString | str:
        return timestamp(row.recorded_at)

    @display(description="Effective")
    def effective(self, row: EntryListing) -> SafeString | str:
        return timestamp(row.effective_at)

    @display(description="Reason")
    def why(self, row: EntryListing) -> SafeString | str:
        words = row.reason if len(row.reason) <= 40 else f"{row.reason[:39]}…"
        return format_html(
            '<span title="{}">{}</span> <span class="text-subtle" title="{}">{}</span>',
            row.reason,
            words,
            row.reference,
            row.reference if len(row.reference) <= 24 else f"{row.reference[:23]}…",
        )

    @display(description="Idempotency key")
    def key(self, row: EntryListing) -> SafeString | str:
        return mono(row.idempotency_key)

    @display(description="Metadata")
    def metadata_text(self, row: EntryListing) -> SafeString:
        pairs = (row.metadata or {}).items()
        return format_html_join("", "<div><code>{}</code>: {}</div>", ((name, str(value)) for name, value in pairs))

    @display(description="Digest")
    def digest_hex(self, row: EntryListing) -> SafeString | str:
        return mono(bytes(row.digest).hex())

    @display(description="Digest of the previous entry")
    def previous_digest_hex(self, row: Any) -> SafeString | str:
        return "missing" if row.previous_digest is None else mono(row.previous_digest.hex())

    @display(description="Recomputed", label={"right": "success", "WRONG": "danger"})
    def chain(self, row: EntryListing) -> str:
        return "right" if getattr(row, "digest_is_right", False) else "WRONG"
