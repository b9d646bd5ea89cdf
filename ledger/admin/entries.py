"""Entries: the list with its search, and one entry with all that belongs to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from ledger import selectors
from ledger.admin import operations
from ledger.admin.history import Conditions, History, merged
from ledger.admin.holds import STATE_COLOURS, HoldState, extended_to, holds_table, state_of
from ledger.admin.kit.pages import (
    PAGE_ROWS,
    Page,
    ReadOnlyAdmin,
    UncountedList,
    choice,
    figure,
    instant,
    moment,
    mono,
    number,
    read_instant,
    signed,
    table,
    text,
    told,
)
from ledger.admin.links import account_link, entries_url, entry_link, rate_link, refusal_link, refusals_url
from ledger.admin.operations import taken
from ledger.models import EntryListing
from ledger.rules import KINDS, Entry, Lot
from ledger.rules.entries import GENESIS
from ledger.rules.instants import to_us

ACCOUNTS_SEARCHED = 50
RELATED_ENTRIES = 100
REFUSALS_SEARCHED = 200
ARRIVES_WITHIN = timedelta(seconds=30)
"""No transaction lasts longer: statement_timeout."""

HISTORY = History(model=EntryListing, order=("recorded_at", "holder_id", "credit_type", "sequence"), slot="ledger_slot")

# One look into the primary key per account, whatever its length. Kinds other than spends have an index of their own.
OF_ACCOUNTS = """
SELECT e.*
FROM unnest(%s::text[], %s::text[]) AS account (holder_id, credit_type)
CROSS JOIN LATERAL (
    SELECT *
    FROM ledger_entry_listing
    WHERE holder_id = account.holder_id AND credit_type = account.credit_type AND {conditions}
    ORDER BY sequence DESC
    LIMIT {limit}
) AS e
ORDER BY {order}
LIMIT {limit}
"""

# By reference: a Bloom filter per 64 pages of the table. By key: the unique index of its hash, skipping from holder to holder.
BY_REFERENCE = "reference = %s"
BY_KEY = "ledger_key_hash(idempotency_key) = ledger_key_hash(%s) AND idempotency_key = %s"
BY_WORD = """
SELECT *
FROM ledger_entry_listing
WHERE {wanted} AND {conditions}
ORDER BY {order}
LIMIT {limit}
"""

# What the entry refers to, what refers to it (the latest, where there is much), and its neighbours.
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

# What a transfer became on the other side: recorded in the same transaction, so within seconds of it.
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
SELECT e.digest = ledger_entry_digest(CASE e.sequence WHEN 1 THEN decode(repeat('00', 32), 'hex') ELSE p.digest END, e)
FROM ledger_entry e
LEFT JOIN ledger_entry p ON p.holder_id = e.holder_id AND p.credit_type = e.credit_type AND p.sequence = e.sequence - 1
WHERE e.holder_id = %s AND e.credit_type = %s AND e.sequence = %s
"""

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


def split_entry_id(text: str) -> tuple[str, str, int] | None:
    """Holder, credit type and sequence out of an entry's key; None when it is not one."""
    parts = text.split("/")
    if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdecimal()) or len(parts[2]) > 18 or "\x00" in text:
        return None
    return parts[0], parts[1], int(parts[2])


# The list --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Asked:
    """Which part of the time the list is about: [since, until), and behind a row already shown."""

    since: datetime | None
    until: datetime | None
    before: tuple[Any, ...] | None
    refusals: bool = False
    """Refusals are listed where they are asked for, and then alone."""

    @property
    def bounds(self) -> Conditions:
        found = HISTORY.bounds(since=self.since, until=self.until, before=self.before)
        found.add(f"kind {'=' if self.refusals else '<>'} 'refusal'")
        return found


def search(query: str, values: dict[str, str], cursor: str) -> Page:
    """A page of entries, newest first.

    Args:
        query: nothing; or a holder, a reference or an idempotency key in full; or `holder*`, the beginning of a holder's id; or
            `holder/credit type/number`.
        values: of the filters kind, credit_type, since, until.
        cursor: where the page before ended.

    Raises:
        WrongFilter: a value is not what its filter takes.
    """
    refusals = values.get("kind") == "refusal"
    asked = Asked(read_instant(values, "since"), read_instant(values, "until"), HISTORY.read_cursor(cursor), refusals)
    wanted = Conditions()
    for column in ("credit_type",) if refusals else ("kind", "credit_type"):
        if column in values:
            wanted.add(f"{column} = %s", values[column])
    if not query:
        return HISTORY.page(asked.bounds, wanted)
    if split_entry_id(query):
        return HISTORY.first_page([row for row in [find(query)] if row is not None])
    if query.endswith("*"):
        return _of_accounts_like(query.removesuffix("*"), values, asked)
    accounts = [(found.holder_id, found.credit_type) for found in selectors.holders(prefix=query, limit=ACCOUNTS_SEARCHED)]
    of_holder = _of_accounts([account for account in accounts if account[0] == query], values, asked)
    conditions = Conditions([*asked.bounds.parts, *wanted.parts], [*asked.bounds.values, *wanted.values])
    by_word = HISTORY.searched(BY_WORD, (BY_REFERENCE, BY_KEY), query, conditions)
    return merged(HISTORY, of_holder, *by_word)


def _of_accounts_like(prefix: str, values: dict[str, str], asked: Asked) -> Page:
    found = selectors.holders(prefix=prefix, limit=ACCOUNTS_SEARCHED + 1)
    note = ""
    if len(found) > ACCOUNTS_SEARCHED:
        note = f"The search covers only the first {ACCOUNTS_SEARCHED} accounts that begin with “{prefix}”; type a longer prefix."
    accounts = [(each.holder_id, each.credit_type) for each in found[:ACCOUNTS_SEARCHED]]
    return merged(HISTORY, _of_accounts(accounts, values, asked), note=note)


def _of_accounts(accounts: Sequence[tuple[str, str]], values: dict[str, str], asked: Asked) -> list[Any]:
    conditions = Conditions([*asked.bounds.parts], [*asked.bounds.values])
    # The same bounds in time as bounds on the account's numbers, which the primary key serves.
    number_at = "ledger_sequence_at(account.holder_id, account.credit_type, %s)"
    if asked.since is not None:
        conditions.add(f"sequence > {number_at}", asked.since - timedelta(microseconds=1))
    for at in (asked.until, asked.before and asked.before[0]):
        if at is not None:
            conditions.add(f"sequence <= {number_at}", at)
    if "kind" in values:
        conditions.add("kind = %s", values["kind"])
    of_type = [account for account in accounts if values.get("credit_type") in (None, account[1])]
    sql = OF_ACCOUNTS.format(conditions=conditions.sql(), order=HISTORY.newest_first, limit=PAGE_ROWS + 1)
    columns = [[account[place] for account in of_type] for place in (0, 1)]
    return HISTORY.rows(sql, [*columns, *conditions.values])


def find(key: str) -> EntryListing | None:
    """The entry of that key, found by the primary key of its table."""
    parts = split_entry_id(key)
    if parts is None:
        return None
    return EntryListing.objects.filter(holder_id=parts[0], credit_type=parts[1], sequence=parts[2]).first()


# One entry -------------------------------------------------------------------------------------------


class Related:
    """What belongs to an entry: the one that it refers to, those that refer to it, its neighbours, and refusals about it."""

    def __init__(self, entry: EntryListing) -> None:
        account = [entry.holder_id, entry.credit_type]
        numbers = [found for found in (entry.refers_to, entry.sequence - 1, entry.sequence + 1) if found]
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
            for refusal in selectors.refusals(entry.holder_id, limit=REFUSALS_SEARCHED)
            if refusal.credit_type == entry.credit_type
            and entry.sequence in (refusal.request.get(word) for word in ("spend", "grant", "hold"))
        ]

    @property
    def refunded(self) -> int:
        """How much has been given back of a spend: the latest refund says it of all."""
        return next((row.refunded_total for row in reversed(self.referring) if row.kind == "refund"), 0)

    @property
    def sums(self) -> str:
        """What those that refer to it come to."""
        found = {"refunded": self.refunded}
        if self.hold is not None and self.are_all_shown:
            found |= {"captured": self.hold.captured, "released": self.hold.released}
        words = [f"{figure(amount)} {what}" for what, amount in found.items() if amount]
        return ", ".join([*words, *([] if self.are_all_shown else [f"the latest {RELATED_ENTRIES}"])])


def is_hold(row: EntryListing) -> bool:
    """Whether the entry made a hold, rather than extended one."""
    return row.kind == "hold" and row.refers_to is None


def arrivals(row: EntryListing) -> list[EntryListing]:
    """The entries of the other holder that a transfer became, one per lot."""
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


def lots_table(lots: Sequence[Lot], *, holder_id: str, credit_type: str, at: datetime) -> dict[str, Any]:
    """The lots in burn order, with where each came from."""
    return table(
        ["Lot", "Remaining", "Source", "Priority", "Effective", "Expires", "State"],
        [
            (
                entry_link(holder_id, credit_type, lot.grant),
                number(lot.remaining),
                lot.source,
                lot.priority,
                moment(lot.effective_at),
                moment(lot.expires_at) or "never",
                _lot_state(lot, at),
            )
            for lot in lots
        ],
    )


def _lot_state(lot: Lot, at: datetime) -> str:
    if lot.effective_at > at:
        return "not yet effective"
    return "expired, to be booked" if lot.expires_at is not None and lot.expires_at <= at else "open"


def drawn_table(entry: Entry) -> dict[str, Any]:
    """What the entry took from, or gave back to, which lots; and what a spend took on the overdraft."""
    rows = [(entry_link(entry.holder_id, entry.credit_type, grant), number(amount)) for grant, amount in entry.drawn]
    on_overdraft = -entry.amount - sum(amount for _, amount in entry.drawn) if entry.kind == "spend" else 0
    if on_overdraft:
        rows.append((SafeString("the overdraft"), number(on_overdraft)))
    return table(["Lot", "Credits"], rows)


def entries_table(rows: Sequence[Any]) -> dict[str, Any]:
    """Entries in short, inside another page."""
    return table(
        ["Entry", "Kind", "Amount", "Balance", "Recorded (UTC)", "Actor", "Reason"],
        [
            (
                entry_link(row.holder_id, row.credit_type, row.sequence),
                row.kind,
                amount_cell(row),
                number(row.balance),
                moment(row.recorded_at),
                row.actor,
                row.reason,
            )
            for row in rows
        ],
    )


def refusals_table(refusals: Sequence[selectors.Refusal]) -> dict[str, Any]:
    """Refusals in short, inside another page."""
    return table(
        ["Refused", "Code", "Facts", "Recorded (UTC)", "Actor"],
        [
            (
                refusal_link(refusal.holder_id, refusal.credit_type, refusal.sequence, refusal.operation),
                refusal.code,
                facts(refusal.facts),
                moment(refusal.recorded_at),
                refusal.actor,
            )
            for refusal in refusals
        ],
    )


def facts(found: dict[str, Any]) -> SafeString:
    """The numbers that made it so."""
    return format_html_join(", ", "{}&nbsp;{}", told(found))


def amount_cell(row: Any) -> SafeString:
    """What it did to the balance, and what it did besides."""
    return format_html('{} <span class="text-subtle whitespace-nowrap">{}</span>', signed(row.amount), _besides(row))


def _besides(row: Any) -> SafeString | str:
    if row.kind == "capture":
        return format_html("{} captured", number(taken(row)))
    if row.kind == "hold" and row.refers_to is not None:
        at = extended_to(row)
        return "" if at is None else format_html('<span title="{}">until {}</span>', at.isoformat(), f"{at:%d %b %H:%M}")
    if row.kind == "adjust":
        repaid = sum(amount for _, amount in row.drawn)
        return format_html("{} repaid", number(repaid)) if repaid else format_html("overdraft {}", number(row.overdraft))
    return ""


def _counterpart(row: EntryListing) -> SafeString | str:
    """The other side of a transfer: its entry where that is known, else its account."""
    other = row.counterpart
    if other is None:
        return ""
    if "sequence" not in other:
        return account_link(other["holder_id"], row.credit_type)
    return entry_link(other["holder_id"], row.credit_type, other["sequence"], f"{other['holder_id']} #{other['sequence']}")


def owed(row: Any) -> int:
    """How much of the overdraft was used after that entry: the lots add up to the balance and this."""
    return 0 if row.overdraft is None else sum(lot[1] for lot in row.lots) - int(row.balance)


def _previous_digest(row: EntryListing, previous: EntryListing | None) -> bytes | None:
    """What the entry is chained to; None where the entry before it is not there."""
    if row.sequence == 1:
        return GENESIS
    return None if previous is None else bytes(previous.digest)


def _is_digest_right(row: EntryListing) -> bool:
    """By the server, which has the text that was digested."""
    with connection.cursor() as cursor:
        cursor.execute(DIGEST_IS_RIGHT, [row.holder_id, row.credit_type, row.sequence])
        return cursor.fetchone() == (True,)


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
        instant("since", title="recorded from (UTC)"),
        instant("until", title="recorded before (UTC)"),
    )
    search_fields = ("holder_id",)
    search_help_text = "Holder, holder*, reference or key"
    change_form_outer_after_template = "admin/ledger/entry_details.html"
    actions_detail = ("refund", "revoke", "release")
    fieldsets = (
        (None, {"fields": (("kind_label", "signed_amount"), ("balance_after", "held_after"), ("account", "about"))}),
        ("Who, why, when", {"fields": (("actor", "reason"), ("reference", "key"), ("recorded", "effective"), "metadata_text")}),
        ("Chain", {"classes": ("collapse",), "fields": ("digest_hex", "previous_digest_hex", "chain")}),
    )
    readonly_fields = (
        "entry",
        "kind_label",
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
        return search(cl.query.strip(), cl.values(), cursor)

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
            entry = selectors.entry(row.holder_id, row.credit_type, row.sequence)
            related = Related(row)
            assert entry is not None
            request.__dict__["_entry"], request.__dict__["_related"] = entry, related
            row.previous_digest = _previous_digest(row, related.previous)  # type: ignore[attr-defined]
            row.digest_is_right = _is_digest_right(row)  # type: ignore[attr-defined]
            row.closed = related.closed  # type: ignore[attr-defined]
            row.hold_now = related.hold  # type: ignore[attr-defined]
            arrived = arrivals(row)
            context |= {
                "title": f"{row.kind.replace('_', ' ').capitalize()} #{row.sequence} of {row.holder_id}",
                "related": related,
                "neighbours": [
                    entry_link(row.holder_id, row.credit_type, each.sequence, words)
                    for each, words in ((related.previous, "‹ previous entry"), (related.following, "next entry ›"))
                    if each is not None
                ],
                "referring_table": entries_table(related.referring),
                "closed_table": entries_table([related.closed] if related.closed else []),
                "drawn_table": drawn_table(entry),
                "drawn_title": "Returned to" if entry.amount > 0 else "Taken from",
                "has_drawn": bool(entry.drawn) or entry.kind == "spend",
                "arrived_table": entries_table(arrived),
                "arrived_title": f"Arrived at {row.counterpart['holder_id']} as" if arrived else "",
                "holds_table": holds_table(
                    entry.holds, holder_id=entry.holder_id, credit_type=entry.credit_type, at=entry.recorded_at
                ),
                "has_holds": bool(entry.holds),
                "lots_table": lots_table(
                    selectors.lots_in_full(entry.holder_id, entry.credit_type, entry.lots),
                    holder_id=entry.holder_id,
                    credit_type=entry.credit_type,
                    at=entry.recorded_at,
                ),
                "refusals_table": refusals_table(related.refusals),
                "has_refusals": bool(related.refusals),
                "refusals_url": refusals_url(q=row.holder_id),
                "account_link": account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}"),
                "entries_url": entries_url(q=row.holder_id, credit_type=row.credit_type),
            }
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
        found = selectors.balance(row.holder_id, row.credit_type)
        now_us = to_us(found.as_of)
        unspent = next((lot.remaining for lot in found.lots if lot.grant == row.sequence and not lot.is_expired(now_us)), 0)
        return operations.revoke_view(self, request, row, unspent=unspent)

    @action(description="Release", icon="lock_open", permissions=["release"])
    def release(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give back what this hold sets aside."""
        row = self._of(request, object_id)
        hold = Related(row).hold
        assert hold is not None
        return operations.release_view(self, request, row, how_it_stands=hold.sentence())

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
    def kind_label(self, row: EntryListing) -> str:
        return row.kind

    @display(description="Amount")
    def signed_amount(self, row: EntryListing) -> SafeString:
        return amount_cell(row)

    @display(description="Balance after")
    def balance_after(self, row: EntryListing) -> SafeString | str:
        return number(row.balance)

    @display(description="Held after")
    def held_after(self, row: EntryListing) -> SafeString | str:
        return number(row.held)

    @display(description="Refers to")
    def about(self, row: EntryListing) -> SafeString | str:
        if row.refers_to is None:
            return _counterpart(row)
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
        return ", ".join(f"{figure(amount)} {words}" for amount, words in parts if amount)

    @display(description="Hold expires (UTC)")
    def hold_expires(self, row: Any) -> SafeString | str:
        return moment(row.hold_now.expires_at if is_hold(row) else extended_to(row))

    @display(description="Priced by")
    def rating_cell(self, row: Any) -> SafeString:
        rated = row.rating
        return format_html("{} of {}", number(rated["quantity"]), rate_link(row.credit_type, rated["rate"], rated["version"]))

    @display(description="Overdraft limit")
    def overdraft_after(self, row: EntryListing) -> SafeString | str:
        return number(row.overdraft)

    @display(description="Owed after")
    def owed_after(self, row: EntryListing) -> SafeString | str:
        return number(owed(row))

    @display(description="Recorded (UTC)")
    def recorded(self, row: EntryListing) -> SafeString | str:
        return moment(row.recorded_at)

    @display(description="Effective (UTC)")
    def effective(self, row: EntryListing) -> SafeString | str:
        return moment(row.effective_at)

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
