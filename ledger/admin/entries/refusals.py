"""Refusals: entries that say what was refused, and why."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.utils.dateparse import parse_datetime
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import display

from ledger.admin.entries.refusal_answers import answer_of, context_of
from ledger.admin.entries.search import BY_KEY, split_entry_id
from ledger.admin.entries.tables import facts
from ledger.admin.history import Conditions, History, merged
from ledger.admin.kit.cells import digits, mono, table, timestamp
from ledger.admin.kit.filters import choice, instant, read_instant, text
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.admin.links import account_link, entries_url, entry_link
from ledger.errors import RECORDED
from ledger.models import RefusalListing
from ledger.rules.credit_units import CreditUnit
from ledger.units import units_of, with_units

OPERATIONS = (
    "grant", "spend", "refund", "revoke", "hold", "capture", "release", "extend", "transfer", "overdraft", "incoming_transfers",
)  # fmt: skip
ASKED_AMOUNTS = ("amount", "limit")
"""Which words of a request are amounts."""
NAMED_BY = ("spend", "grant", "hold")
"""Which words of a request name an entry."""

HISTORY = History(model=RefusalListing, order=("recorded_at", "holder_id", "credit_type", "sequence"), slot="ledger_slot")

# From account to account of the holder, by the index of kinds.
OF_HOLDER = """
SELECT refusal.*
FROM (SELECT holder_id, credit_type FROM ledger_entry WHERE {wanted} AND sequence = 1) AS account
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
SELECT * FROM ledger_refusal_listing WHERE {wanted} AND {conditions} ORDER BY {order} LIMIT {limit}
"""


def search(query: str, values: dict[str, str], cursor: str) -> Page:
    """A page of refusals, newest first.

    Args:
        query: nothing; a holder or an idempotency key in full; or `holder*`, the beginning of a holder's id.
        values: of the filters operation, code, credit_type, since, until.
        cursor: where the page before ended.

    Raises:
        WrongFilter: a value is not what its filter takes.
    """
    bounds = HISTORY.bounds(
        since=read_instant(values, "since"), until=read_instant(values, "until"), before=HISTORY.read_cursor(cursor)
    )
    wanted = Conditions()
    for column in ("operation", "code", "credit_type"):
        if column in values:
            wanted.add(f"{column} = %s", values[column])
    if query.endswith("*"):
        wanted.add("starts_with(holder_id, %s)", query.removesuffix("*"))
    if not query or query.endswith("*"):
        return HISTORY.page(bounds, wanted)
    conditions = Conditions([*bounds.parts, *wanted.parts], [*bounds.values, *wanted.values])
    of_holder = HISTORY.searched(OF_HOLDER, ["holder_id = %s"], query, conditions)
    return merged(HISTORY, *of_holder, *HISTORY.searched(WITH_KEY, [BY_KEY], query, conditions))


@admin.register(RefusalListing)
class RefusalAdmin(ReadOnlyAdmin):
    """What was refused, newest first."""

    list_display = ("recorded", "holder", "credit_type", "operation", "sentence", "actor", "key")
    list_filter = (
        choice("operation", OPERATIONS),
        choice("code", sorted(RECORDED)),
        text("credit_type", title="credit type"),
        instant("since", title="recorded from"),
        instant("until", title="recorded before"),
    )
    search_fields = ("holder_id",)
    search_help_text = "Holder, holder* or key"
    change_form_outer_before_template = "admin/ledger/entries/refusal_answer.html"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = (
        (None, {"fields": (("code_label", "operation"), ("account", "about"), "facts_text")}),
        ("The request", {"fields": (("recorded", "actor"), ("key", "request_id"), "request_text")}),
    )
    readonly_fields = ("code_label", "account", "about", "facts_text", "recorded", "key", "request_text")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By the word in the search box and the filters; see `search`."""
        page = search(cl.query.strip(), cl.values(), cursor)
        units = units_of(row.credit_type for row in page.rows)
        for row in page.rows:
            row.answer = answer_of(row, units[row.credit_type])
        return page

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Leave it to `read_page`."""
        return queryset, False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> RefusalListing | None:
        """By the primary key of the table: the view's own key has no index. Read once a request, with its unit."""
        found: dict[str, RefusalListing | None] = request.__dict__.setdefault("_refusals_found", {})
        if object_id not in found:
            found[object_id] = _find(object_id)
        return found[object_id]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The refusal, with the lots and holds that made it so."""
        row = self.get_object(request, unquote(object_id))
        context = {**(extra_context or {}), "title": "Refusal", "subtitle": ""}
        if row is not None:
            unit: CreditUnit = row.unit  # type: ignore[attr-defined]
            context |= context_of(request, row, unit) | {
                "title": f"Refused: {row.operation} of {row.holder_id}",
                "parts": [("Lots then", _lots_then(row, unit)), ("Open holds then", _holds_then(row, unit))],
                "links": [(entries_url(q=row.holder_id, credit_type=row.credit_type), "All entries of this account")],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    # Columns ------------------------------------------------------------------------------------------

    @display(description="Holder")
    def holder(self, row: RefusalListing) -> SafeString:
        return account_link(row.holder_id, row.credit_type, row.holder_id)

    @display(description="Account")
    def account(self, row: RefusalListing) -> SafeString:
        return account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}")

    @display(description="Target entry")
    def about(self, row: RefusalListing) -> SafeString | str:
        named = next(((word, row.request[word]) for word in NAMED_BY if isinstance(row.request.get(word), int)), None)
        return "" if named is None else entry_link(row.holder_id, row.credit_type, named[1], f"{named[0]} #{named[1]}")

    @display(description="Code", label="warning")
    def code_label(self, row: RefusalListing) -> str:
        return row.code

    @display(description="Why")
    def sentence(self, row: Any) -> SafeString:
        return format_html('<span title="{}">{}</span>', row.code, row.answer.removeprefix("Refused: "))

    @display(description="Facts")
    def facts_text(self, row: Any) -> SafeString:
        return facts(row.facts, row.unit)

    @display(description="Recorded")
    def recorded(self, row: RefusalListing) -> SafeString | str:
        return timestamp(row.recorded_at)

    @display(description="Idempotency key")
    def key(self, row: RefusalListing) -> SafeString | str:
        return mono(row.idempotency_key)

    @display(description="Request")
    def request_text(self, row: Any) -> SafeString:
        asked = [(name, value) for name, value in row.request.items() if value not in (None, "", {})]
        lines = ((name, str(value), _amount_asked(name, value, row.unit)) for name, value in asked)
        return format_html_join("", "<div><code>{}</code>: {}{}</div>", lines)


def _find(object_id: str) -> RefusalListing | None:
    parts = split_entry_id(object_id)
    if parts is None:
        return None
    row = RefusalListing.objects.filter(holder_id=parts[0], credit_type=parts[1], sequence=parts[2]).first()
    with_units([] if row is None else [row])
    return row


def _amount_asked(name: str, value: Any, unit: CreditUnit) -> str:
    """What a number of the request is with its decimals: the request itself is in the smallest unit."""
    return f", that is {unit.amount(value)}" if name in ASKED_AMOUNTS and unit.scale else ""


def _lots_then(row: RefusalListing, unit: CreditUnit) -> dict[str, Any]:
    lots = row.facts.get("lots") or []
    return table(
        ["Lot", "Remaining", "State", "Effective", "Expires"],
        [
            (
                entry_link(row.holder_id, row.credit_type, lot["grant"]),
                digits(unit.number(lot["remaining"])),
                lot["state"].replace("_", " "),
                timestamp(parse_datetime(lot["effective_at"])),
                timestamp(parse_datetime(lot["expires_at"])) if lot["expires_at"] else "never",
            )
            for lot in lots
        ],
    )


def _holds_then(row: RefusalListing, unit: CreditUnit) -> dict[str, Any]:
    holds = row.facts.get("holds") or []
    return table(
        ["Hold", "Held", "Expires"],
        [
            (
                entry_link(row.holder_id, row.credit_type, hold["hold"]),
                digits(unit.number(hold["amount"])),
                timestamp(parse_datetime(hold["expires_at"])),
            )
            for hold in holds
        ],
    )
