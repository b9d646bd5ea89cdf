"""Batches, and the outcome of each of their operations."""

from collections import Counter
from operator import itemgetter
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils import timezone
from django.utils.safestring import SafeString

from ledger.models import BatchListing
from ledger.rules.credit_units import CreditUnit, plain_unit
from ledger.staff.entry_tables import facts
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows, ListOrder, recorded_at, recorded_within
from ledger.staff.kit.cells import instant_words
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.filters import choice, instant
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.staff.links import account_link, entries_url, entry_link
from ledger.units import units_of

BY_TIME = ListOrder(("recorded_at", "confined_to", "idempotency_key"))
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
        """Return them by their time of recording, or the one with that key."""
        values, word = cl.values(), cl.query.strip()
        rows = recorded_within(cl.queryset, values)
        if word:
            rows = rows.none() if "\x00" in word else rows.filter(idempotency_key=word)
        fits = Q(mode=values["mode"]) if "mode" in values else Q()
        return FilteredRows(rows=rows, fits=fits, order=BY_TIME, words=recorded_at).page(cursor, most=cl.page_rows)

    def searched(self, word: str) -> Q:
        """Return all: `read_page` searches."""
        return Q()

    def find(self, request: HttpRequest, key: str) -> BatchListing | None:
        """Return the batch of that id, `confined to/idempotency key`; a key must not contain NUL."""
        confined_to, slash, idempotency_key = key.partition("/")
        if not slash or "\x00" in key:
            return None
        # Found by the two columns of the table's key: the view's own key has no index.
        return BatchListing.objects.filter(idempotency_key=idempotency_key, confined_to=confined_to).first()

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the batch, operation by operation."""
        return {
            "title": f"Batch of {instant_words(row.recorded_at)}",
            "parts": [("Operations", _operations_table(row))],
            "links": [(_entries_then(row), "Entries recorded at that time")],
        }


def outcome_text(outcome: dict[str, Any]) -> str:
    """Return whether it was written, refused, or rejected because another operation of the atomic batch failed."""
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
        ("Facts", lambda each: _facts(each[1], units.get(each[1].get("credit_type"), WHOLE_NUMBERS))),
    )


def _facts(outcome: dict[str, Any], unit: CreditUnit) -> SafeString:
    return facts(outcome.get("code", ""), outcome.get("facts", {}), unit)


def _entry(outcome: dict[str, Any]) -> SafeString | str:
    words = f"#{outcome['sequence']}" if "sequence" in outcome else ""
    if "holder_id" not in outcome:
        # Batches of earlier releases do not name the holder.
        return words
    holder_id, credit_type = outcome["holder_id"], outcome["credit_type"]
    if not words:
        return account_link(holder_id, credit_type, f"{holder_id}, {credit_type}")
    return entry_link(holder_id, credit_type, outcome["sequence"], f"{holder_id}, {credit_type} {words}")


def _entries_then(row: BatchListing) -> str:
    """Return the address of the entries up to the second in which the batch was recorded, in the operator's zone."""
    return entries_url(until=f"{timezone.localtime(row.recorded_at):%Y-%m-%dT%H:%M:%S.999999}")
