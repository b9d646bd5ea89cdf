"""Batches, and the outcome of each of their operations."""

from collections import Counter
from operator import itemgetter
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from ledger.admin.entries.tables import facts
from ledger.admin.history import Conditions, History
from ledger.admin.kit import columns
from ledger.admin.kit.cells import instant_words
from ledger.admin.kit.columns import table_of
from ledger.admin.kit.filters import choice, instant, read_instant
from ledger.admin.kit.pages import PAGE_ROWS, Page, ReadOnlyAdmin, UncountedList
from ledger.admin.links import account_link, entries_url, entry_link
from ledger.models import BatchListing
from ledger.rules.texts.credit_units import plain_unit
from ledger.units import units_of

HISTORY = History(model=BatchListing, order=("recorded_at", "confined_to", "idempotency_key"))
WHOLE_NUMBERS = plain_unit("credits")
WRITTEN, REFUSED, REJECTED = "written", "refused", "rejected with the batch"


@admin.register(BatchListing)
class BatchAdmin(ReadOnlyAdmin):
    """Batches, newest first."""

    key = columns.code("Idempotency key", "idempotency_key")
    confined = columns.code("Confined to", "confined_to")
    operations = columns.count("Operations", lambda row: len(row.outcomes))
    written = columns.count("Written", lambda row: _counts(row)[WRITTEN])
    refused = columns.count("Refused", lambda row: _counts(row)[REFUSED])
    recorded = columns.instant("Recorded", "recorded_at")

    list_display = ("key", "confined", "mode", "operations", "written", "refused", "recorded", "actor")
    list_display_links = ("key",)
    list_filter = (
        choice("mode", ("atomic", "each")),
        instant("since", title="recorded from"),
        instant("until", title="recorded before"),
    )
    search_fields = ("idempotency_key",)
    search_help_text = "Idempotency key of a batch"
    fields = (("mode", "operations"), ("written", "refused"), ("recorded", "actor"), ("key", "confined", "request_id"))

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

    def searched(self, word: str) -> Q:
        """All: `read_page` searches."""
        return Q()

    def find(self, request: HttpRequest, key: str) -> BatchListing | None:
        """The batch of that id, `confined to/idempotency key`; a key must not contain NUL."""
        confined_to, slash, idempotency_key = key.partition("/")
        if not slash or "\x00" in key:
            return None
        # By the two columns of the table's key: the view's own has no index.
        return BatchListing.objects.filter(idempotency_key=idempotency_key, confined_to=confined_to).first()

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The batch, operation by operation."""
        return {
            "title": f"Batch of {instant_words(row.recorded_at)}",
            "parts": [("Operations", _operations_table(row))],
            "links": [(_entries_then(row), "Entries recorded at that time")],
        }


def outcome_text(outcome: dict[str, Any]) -> str:
    """Written, refused, or rejected because another operation of the atomic batch was."""
    if "sequence" in outcome:
        return WRITTEN
    return REFUSED if outcome else REJECTED


def _counts(row: BatchListing) -> Counter[str]:
    return Counter(outcome_text(outcome) for outcome in row.outcomes)


def _operations_table(row: BatchListing) -> dict[str, Any]:
    units = units_of(outcome["credit_type"] for outcome in row.outcomes if "credit_type" in outcome)
    return table_of(
        enumerate(row.outcomes),
        ("Operation", itemgetter(0)),
        ("Outcome", lambda each: outcome_text(each[1]) + (", by an earlier request" if each[1].get("replayed") else "")),
        ("Account, entry", lambda each: _entry(each[1])),
        ("Code", lambda each: each[1].get("code", "wrong input" if "result" in each[1] else "")),
        ("Facts", lambda each: facts(each[1].get("facts", {}), units.get(each[1].get("credit_type"), WHOLE_NUMBERS))),
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
