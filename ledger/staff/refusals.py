"""Refusals: entries that record what was refused, and why."""

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from ledger.errors import RECORDED
from ledger.models import RefusalListing
from ledger.rules.requests import REQUESTS
from ledger.staff.entry_search import BY_KEY, split_entry_id
from ledger.staff.entry_tables import facts
from ledger.staff.history import Conditions, History, merged
from ledger.staff.kit import columns
from ledger.staff.kit.cells import digits, timestamp
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import choice, instant, read_instant, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.staff.links import account_link, entries_url, entry_link
from ledger.staff.refusal_answers import answer_of, context_of
from ledger.units import with_units

AMOUNTS = ("amount", "limit")
"""The names of amounts in a request."""
NAMED_BY = ("spend", "grant", "hold")
"""The names in a request that name an entry."""

HISTORY = History(model=RefusalListing, order=("recorded_at", "holder_id", "credit_type", "sequence"), slot="ledger_slot")

# From account to account of the holder, by the index of kinds.
OF_HOLDER = """
SELECT refusal.*
FROM (SELECT holder_id, credit_type FROM ledger_entry WHERE {by_word} AND sequence = 1) AS account
CROSS JOIN LATERAL (
    SELECT *
    FROM ledger_refusal_listing
    WHERE holder_id = account.holder_id AND credit_type = account.credit_type AND {conditions}
    ORDER BY sequence DESC
    LIMIT {limit}
) AS refusal
ORDER BY {order}
LIMIT {limit}
"""

WITH_KEY = """
SELECT * FROM ledger_refusal_listing WHERE {by_word} AND {conditions} ORDER BY {order} LIMIT {limit}
"""


def search(query: str, values: dict[str, str], cursor: str) -> Page:
    """Return a page of refusals, the newest first.

    Args:
        query: nothing; a holder or an idempotency key in full; or `holder*`, the beginning of a holder's id.
        values: of the filters operation, code, credit_type, since, until.
        cursor: the end of the previous page.

    Raises:
        WrongFilter: a value is not valid for its filter.
    """
    bounds = HISTORY.bounds(
        since=read_instant(values, "since"), until=read_instant(values, "until"), before=HISTORY.read_cursor(cursor)
    )
    filters = Conditions()
    for column in ("operation", "code", "credit_type"):
        if column in values:
            filters.add(f"{column} = %s", values[column])
    if query.endswith("*"):
        filters.add("starts_with(holder_id, %s)", query.removesuffix("*"))
    if not query or query.endswith("*"):
        return HISTORY.page(bounds, filters)
    conditions = Conditions([*bounds.parts, *filters.parts], [*bounds.values, *filters.values])
    of_holder = HISTORY.searched(OF_HOLDER, ["holder_id = %s"], query, conditions)
    return merged(HISTORY, *of_holder, *HISTORY.searched(WITH_KEY, [BY_KEY], query, conditions))


def _target(row: RefusalListing) -> SafeString | str:
    """Return a link to the entry that the request named."""
    named = next(((word, row.request[word]) for word in NAMED_BY if isinstance(row.request.get(word), int)), None)
    return "" if named is None else entry_link(row.holder_id, row.credit_type, named[1], f"{named[0]} #{named[1]}")


def _sentence(row: Any) -> SafeString:
    return format_html('<span title="{}">{}</span>', row.code, answer_of(row, row.unit).removeprefix("Refused: "))


def _request(row: Any) -> SafeString:
    """Return the request, with decimals beside its amounts, which are in the smallest unit."""
    given = [(name, value) for name, value in row.request.items() if value not in (None, "", {})]
    decimals = {name: f", that is {row.unit.amount(value)}" for name, value in given if name in AMOUNTS and row.unit.scale}
    lines = ((name, str(value), decimals.get(name, "")) for name, value in given)
    return format_html_join("", "<div><code>{}</code>: {}{}</div>", lines)


@admin.register(RefusalListing)
class RefusalAdmin(ReadOnlyAdmin):
    """Refused requests, the newest first."""

    holder = Column("Holder", lambda row: account_link(row.holder_id, row.credit_type, row.holder_id))
    account = Column("Account", lambda row: account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}"))
    about = Column("Target entry", _target)
    code_label = Column("Code", "code")
    sentence = Column("Why", _sentence)
    facts_text = Column("Facts", lambda row: facts(row.code, row.facts, row.unit))
    recorded = columns.instant("Recorded", "recorded_at")
    key = columns.code("Idempotency key", "idempotency_key")
    request_text = Column("Request", _request)

    list_display = ("recorded", "holder", "credit_type", "operation", "sentence", "actor", "key")
    list_filter = (
        choice("operation", tuple(REQUESTS)),
        choice("code", sorted(RECORDED)),
        text("credit_type", title="credit type"),
        instant("since", title="recorded from"),
        instant("until", title="recorded before"),
    )
    search_fields = ("holder_id",)
    search_help_text = "Holder, holder* or key"
    change_form_outer_before_template = "admin/ledger/entries/refusal_answer.html"
    fieldsets = (
        (None, {"fields": (("code_label", "operation"), ("account", "about"), "facts_text")}),
        ("The request", {"fields": (("recorded", "actor"), ("key", "request_id"), "request_text")}),
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the page for the word in the search box and the filters; see `search`."""
        return search(cl.query.strip(), cl.values(), cursor)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each refusal its unit."""
        with_units(rows)

    def searched(self, word: str) -> Q:
        """Return all: `read_page` searches."""
        return Q()

    def find(self, request: HttpRequest, key: str) -> RefusalListing | None:
        """Find by the primary key of the table: the view's own key has no index."""
        parts = split_entry_id(key)
        if parts is None:
            return None
        return RefusalListing.objects.filter(holder_id=parts[0], credit_type=parts[1], sequence=parts[2]).first()

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return why it was refused, with the lots and holds behind it."""
        return context_of(request, row, row.unit) | {
            "title": f"Refused: {row.operation} of {row.holder_id}",
            "parts": [("Lots then", _lots_then(row)), ("Open holds then", _holds_then(row))],
            "links": [(entries_url(q=row.holder_id, credit_type=row.credit_type), "All entries of this account")],
        }


def _lots_then(row: Any) -> dict[str, Any]:
    return table_of(
        row.facts.get("lots") or [],
        ("Lot", lambda lot: entry_link(row.holder_id, row.credit_type, lot["grant"])),
        ("Remaining", lambda lot: digits(row.unit.number(lot["remaining"]))),
        ("State", lambda lot: lot["state"].replace("_", " ")),
        ("Effective", lambda lot: timestamp(parse_datetime(lot["effective_at"]))),
        ("Expires", lambda lot: timestamp(parse_datetime(lot["expires_at"])) if lot["expires_at"] else "never"),
    )


def _holds_then(row: Any) -> dict[str, Any]:
    return table_of(
        row.facts.get("holds") or [],
        ("Hold", lambda hold: entry_link(row.holder_id, row.credit_type, hold["hold"])),
        ("Held", lambda hold: digits(row.unit.number(hold["amount"]))),
        ("Expires", lambda hold: timestamp(parse_datetime(hold["expires_at"]))),
    )
