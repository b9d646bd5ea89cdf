"""Batches, and the outcome of each of their operations."""

from collections import Counter
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import display

from ledger.admin.entries.tables import facts
from ledger.admin.history import Conditions, History
from ledger.admin.kit.cells import instant_words, mono, number, table, timestamp
from ledger.admin.kit.filters import choice, instant, read_instant
from ledger.admin.kit.pages import PAGE_ROWS, Page, ReadOnlyAdmin, UncountedList
from ledger.admin.links import account_link, entries_url, entry_link
from ledger.models import BatchListing
from ledger.rules.credit_units import plain_unit
from ledger.units import units_of

HISTORY = History(model=BatchListing, order=("recorded_at", "confined_to", "idempotency_key"))
WHOLE_NUMBERS = plain_unit("credits")
WRITTEN, REFUSED, REJECTED = "written", "refused", "rejected with the batch"


@admin.register(BatchListing)
class BatchAdmin(ReadOnlyAdmin):
    """Batches, newest first."""

    list_display = ("key", "confined", "mode", "operations", "written", "refused", "recorded", "actor")
    list_display_links = ("key",)
    list_filter = (
        choice("mode", ("atomic", "each")),
        instant("since", title="recorded from"),
        instant("until", title="recorded before"),
    )
    search_fields = ("idempotency_key",)
    search_help_text = "Idempotency key of a batch"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("mode", "operations"),
                    ("written", "refused"),
                    ("recorded", "actor"),
                    ("key", "confined", "request_id"),
                )
            },
        ),
    )
    readonly_fields = ("key", "confined", "operations", "written", "refused", "recorded")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By when they were recorded, or the one of that key."""
        values = cl.values()
        word = cl.query.strip()
        if word:
            return HISTORY.first_page(
                []
                if "\x00" in word
                else list(BatchListing.objects.filter(idempotency_key=word).order_by("confined_to")[: PAGE_ROWS + 1])
            )
        bounds = HISTORY.bounds(
            since=read_instant(values, "since"), until=read_instant(values, "until"), before=HISTORY.read_cursor(cursor)
        )
        wanted = Conditions()
        if "mode" in values:
            wanted.add("mode = %s", values["mode"])
        return HISTORY.page(bounds, wanted)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Leave it to `read_page`."""
        return queryset, False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> BatchListing | None:
        """The batch of that id, `confined to/idempotency key`; a key must not contain NUL."""
        confined_to, slash, key = object_id.partition("/")
        if not slash or "\x00" in object_id:
            return None
        # By the two columns of the table's key: the view's own has no index.
        return BatchListing.objects.filter(idempotency_key=key, confined_to=confined_to).first()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The batch, operation by operation."""
        row = self.get_object(request, unquote(object_id))
        context = {**(extra_context or {}), "title": "Batch", "subtitle": ""}
        if row is not None:
            context |= {
                "title": f"Batch of {instant_words(row.recorded_at)}",
                "parts": [("Operations", _operations_table(row))],
                "links": [(_entries_then(row), "Entries recorded at that time")],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    @display(description="Idempotency key")
    def key(self, row: BatchListing) -> SafeString | str:
        return mono(row.idempotency_key)

    @display(description="Confined to")
    def confined(self, row: BatchListing) -> SafeString | str:
        return mono(row.confined_to)

    @display(description="Operations")
    def operations(self, row: BatchListing) -> SafeString | str:
        return number(len(row.outcomes))

    @display(description="Written")
    def written(self, row: BatchListing) -> SafeString | str:
        return number(_counts(row)[WRITTEN])

    @display(description="Refused")
    def refused(self, row: BatchListing) -> SafeString | str:
        return number(_counts(row)[REFUSED])

    @display(description="Recorded")
    def recorded(self, row: BatchListing) -> SafeString | str:
        return timestamp(row.recorded_at)


def outcome_text(outcome: dict[str, Any]) -> str:
    """Written, refused, or rejected because another operation of the atomic batch was."""
    if "sequence" in outcome:
        return WRITTEN
    return REFUSED if outcome else REJECTED


def _counts(row: BatchListing) -> Counter[str]:
    return Counter(outcome_text(outcome) for outcome in row.outcomes)


def _operations_table(row: BatchListing) -> dict[str, Any]:
    units = units_of(outcome["credit_type"] for outcome in row.outcomes if "credit_type" in outcome)
    return table(
        ["Operation", "Outcome", "Account, entry", "Code", "Facts"],
        [
            (
                place,
                outcome_text(outcome) + (", by an earlier request" if outcome.get("replayed") else ""),
                _entry(outcome),
                outcome.get("code", "wrong input" if "result" in outcome else ""),
                facts(outcome.get("facts", {}), units.get(outcome.get("credit_type"), WHOLE_NUMBERS)),
            )
            for place, outcome in enumerate(row.outcomes)
        ],
    )


def _entry(outcome: dict[str, Any]) -> SafeString | str:
    words = f"#{outcome['sequence']}" if "sequence" in outcome else ""
    if "holder_id" not in outcome:
        # The batches of earlier releases do not say whose.
        return words
    holder_id, credit_type = outcome["holder_id"], outcome["credit_type"]
    if not words:
        return account_link(holder_id, credit_type, f"{holder_id}, {credit_type}")
    return entry_link(holder_id, credit_type, outcome["sequence"], f"{holder_id}, {credit_type} {words}")


def _entries_then(row: BatchListing) -> str:
    """The list of entries up to the second in which the batch was recorded; the list reads it in the operator's zone, too."""
    return entries_url(until=f"{timezone.localtime(row.recorded_at):%Y-%m-%dT%H:%M:%S.999999}")
