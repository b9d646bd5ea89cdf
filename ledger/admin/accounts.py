"""Holders with balances: the list of accounts, and one account with its balance line, lots and latest entries."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db import connection
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils import timezone
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from ledger import selectors
from ledger.admin import current_locks, operations
from ledger.admin.balance_line import Point, balance_line
from ledger.admin.entries import entries_table, lots_table, owed
from ledger.admin.holds import holds_on, holds_table
from ledger.admin.kit.pages import PAGE_ROWS, Page, ReadOnlyAdmin, UncountedList, WrongFilter, moment, number, text
from ledger.admin.links import account_id, accounts_url, entries_url, entry_link, refusals_url
from ledger.models import Account, EntryListing
from ledger.rules.lots import decode
from ledger.rules.requests import HOLDER_ID
from ledger.selectors import Balance

LINE_POINTS = 200
LATEST_ENTRIES = 10
ACCOUNTS_LOOKED_AT = 2_000

# The account's state, and when it was last touched: one look into the primary key.
LAST_ENTRY = """
SELECT holder_id || '/' || credit_type AS id, e.*
FROM ledger_entry e
WHERE holder_id = %s AND credit_type = %s
ORDER BY sequence DESC
LIMIT 1
"""

# At most LINE_POINTS entries, evenly over the numbers, which have no gaps: one look into the primary key each.
LINE = """
SELECT recorded_at, balance
FROM ledger_entry
WHERE holder_id = %s AND credit_type = %s AND sequence = ANY(%s)
ORDER BY sequence
"""

LATEST = """
SELECT *
FROM ledger_entry_listing
WHERE holder_id = %(holder_id)s
    AND credit_type = %(credit_type)s
    AND sequence = ANY(ledger_movements(%(holder_id)s, %(credit_type)s, 0, %(last)s + 1, %(limit)s, true))
ORDER BY sequence DESC
"""


def find(key: str) -> Account | None:
    """The account of that key, as its last entry shows it."""
    holder_id, slash, credit_type = key.partition("/")
    if not slash or "\x00" in key:
        return None
    return next(iter(Account.objects.raw(LAST_ENTRY, [holder_id, credit_type])), None)


def sampled(last: int, most: int = LINE_POINTS) -> list[int]:
    """Numbers out of 1 .. last, evenly spread, the first and the last among them; all where there are no more than `most`."""
    if last <= most:
        return list(range(1, last + 1))
    return sorted({1 + round(step * (last - 1) / (most - 1)) for step in range(most)})


def line_of(account: Account, *, now: Any) -> SafeString:
    """The picture of the account's balance over time."""
    numbers = sampled(account.sequence)
    with connection.cursor() as cursor:
        cursor.execute(LINE, [account.holder_id, account.credit_type, numbers])
        points = [Point(at, balance) for at, balance in cursor.fetchall()]
    note = "" if len(numbers) == account.sequence else f"{len(numbers)} of {account.sequence:,} entries, evenly chosen"
    return balance_line(points, now=now, title=f"Balance of {account.holder_id} in {account.credit_type}", note=note)


def row_of(balance: Balance) -> Account:
    """A row of the list."""
    row = Account(
        id=account_id(balance.holder_id, balance.credit_type),
        holder_id=balance.holder_id,
        credit_type=balance.credit_type,
        sequence=balance.sequence,
        balance=balance.balance,
        held=balance.held,
    )
    row.now = balance  # type: ignore[attr-defined]
    return row


@admin.register(Account)
class AccountAdmin(ReadOnlyAdmin):
    """Who has how many, by holder and credit type."""

    list_display = (
        "holder",
        "credit_type",
        "available",
        "balance_now",
        "held_now",
        "overdraft",
        "next_expiry",
        "open_lots",
        "entries",
    )
    list_filter = (text("credit_type", title="credit type"), text("holder", title="holder"))
    nearest = "Beginning"
    further = "Further"
    search_fields = ("holder_id",)
    search_help_text = "Beginning of a holder's id"
    change_form_outer_before_template = "admin/ledger/account_line.html"
    change_form_outer_after_template = "admin/ledger/account_details.html"
    fieldsets = (
        (
            None,
            {
                "fields": (
                    ("available", "balance_now", "held_now"),
                    ("overdraft_now", "owed_now", "entries"),
                    ("next_expiry", "latest"),
                )
            },
        ),
    )
    readonly_fields = (
        "available",
        "balance_now",
        "held_now",
        "next_expiry",
        "entries",
        "latest",
        "overdraft_now",
        "owed_now",
    )
    actions_list = ("grant_to_anyone",)
    actions_detail = ("grant", "transfer", "set_overdraft")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By holder, found by skipping from account to account."""
        after = None
        if cursor:
            holder_id, slash, credit_type = cursor.partition("/")
            if not slash or "\x00" in cursor:
                raise WrongFilter("The page link is not valid for this list.")
            after = (holder_id, credit_type)
        values = cl.values()
        wanted, holder = values.get("credit_type"), values.get("holder")
        # Of all that begin with an id, the holder of just that id comes first.
        prefix = holder or cl.query.strip().removesuffix("*")
        found = selectors.holders(prefix=prefix, after=after, limit=ACCOUNTS_LOOKED_AT if wanted else PAGE_ROWS + 1)
        if holder is not None:
            found = [balance for balance in found if balance.holder_id == holder]
        fitting = [balance for balance in found if wanted in (None, balance.credit_type)]
        rows = [row_of(balance) for balance in fitting[:PAGE_ROWS]]
        if len(fitting) > PAGE_ROWS:
            return Page(rows=rows, older=rows[-1].pk)
        if wanted and len(found) == ACCOUNTS_LOOKED_AT:
            note = f"The search covers {ACCOUNTS_LOOKED_AT:,} accounts, up to {found[-1].holder_id}. “Further” continues it."
            return Page(rows=rows, older=account_id(found[-1].holder_id, found[-1].credit_type), note=note)
        return Page(rows=rows)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Leave it to `read_page`."""
        return queryset, False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Account | None:
        """By the primary key of the ledger's table; the view's own key has no index."""
        account = find(object_id)
        if account is not None:
            account.now = selectors.balance(account.holder_id, account.credit_type)  # type: ignore[attr-defined]
        return account

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The account as it stands now; for one that never was, the holder's other accounts."""
        account = find(unquote(object_id))
        context = {**(extra_context or {}), "title": "Account", "subtitle": ""}
        holder_id, slash, credit_type = unquote(object_id).partition("/")
        if account is None and slash and HOLDER_ID.fullmatch(holder_id):
            messages.info(request, f"{holder_id} has no account in {credit_type or 'any credit type'} yet.")
            return HttpResponseRedirect(accounts_url(holder=holder_id))
        if account is not None:
            key = [account.holder_id, account.credit_type]
            wanted = {"holder_id": key[0], "credit_type": key[1], "last": account.sequence, "limit": LATEST_ENTRIES}
            latest = list(EntryListing.objects.raw(LATEST, wanted))
            now = timezone.now()
            context |= {
                "title": f"{account.holder_id}: {account.credit_type}",
                "balance_line": line_of(account, now=now),
                "lots_table": lots_table(
                    selectors.lots_in_full(account.holder_id, account.credit_type, decode_lots(account.lots)),
                    holder_id=account.holder_id,
                    credit_type=account.credit_type,
                    at=now,
                ),
                "holds_table": holds_table(
                    holds_on(account), holder_id=account.holder_id, credit_type=account.credit_type, at=now
                ),
                "has_holds": account.holds is not None,
                "latest_table": entries_table(latest),
                "entries_url": entries_url(q=account.holder_id, credit_type=account.credit_type),
                "refusals_url": refusals_url(q=account.holder_id),
                "holder_url": accounts_url(q=account.holder_id),
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    def get_urls(self) -> list[URLPattern]:
        """The page of current locks stands beside."""
        return [current_locks.url(self), *super().get_urls()]

    # What can be done ---------------------------------------------------------------------------------

    def has_grant_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("ledger.grant_credits"))

    @action(description="Grant credits", icon="add", permissions=["grant"], url_path="grant-credits")
    def grant_to_anyone(self, request: HttpRequest) -> HttpResponse:
        """Give credits to a holder, also to a new one."""
        return operations.grant_view(self, request)

    @action(description="Grant credits", icon="add", permissions=["grant"])
    def grant(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give credits to this holder."""
        holder_id, _, credit_type = unquote(object_id).partition("/")
        return operations.grant_view(self, request, holder_id=holder_id, credit_type=credit_type)

    def has_transfer_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("ledger.transfer_credits"))

    @action(description="Transfer", icon="swap_horiz", permissions=["transfer"])
    def transfer(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Move credits of this holder to another."""
        now = self._state_of(request, object_id)
        return operations.transfer_view(
            self, request, holder_id=now.holder_id, credit_type=now.credit_type, available=now.available
        )

    def has_set_overdraft_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(request.user.has_perm("ledger.set_overdraft"))

    @action(description="Set overdraft", icon="money_off", permissions=["set_overdraft"], url_path="set-overdraft")
    def set_overdraft(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Agree how far below 0 spends may take this account."""
        now = self._state_of(request, object_id)
        return operations.overdraft_view(
            self, request, holder_id=now.holder_id, credit_type=now.credit_type, overdraft=now.overdraft
        )

    def _state_of(self, request: HttpRequest, object_id: str) -> Balance:
        account: Any = self.get_object(request, unquote(object_id))
        if account is None:
            raise Http404
        found: Balance = account.now
        return found

    # Columns ------------------------------------------------------------------------------------------

    @display(description="Holder")
    def holder(self, row: Any) -> str:
        return str(row.holder_id)

    @display(description="Available")
    def available(self, row: Any) -> SafeString | str:
        return number(row.now.available)

    @display(description="Balance")
    def balance_now(self, row: Any) -> SafeString | str:
        return number(row.now.balance)

    @display(description="Held")
    def held_now(self, row: Any) -> SafeString | str:
        return number(row.now.held)

    @display(description="Overdraft limit")
    def overdraft_now(self, row: Any) -> SafeString | str:
        return number(row.now.overdraft)

    @display(description="Owed")
    def owed_now(self, row: Any) -> SafeString | str:
        return number(owed(row))

    @display(description="Overdraft")
    def overdraft(self, row: Any) -> SafeString | str:
        return number(row.now.overdraft or None)

    @display(description="Next expiry (UTC)")
    def next_expiry(self, row: Any) -> SafeString | str:
        found = row.now.next_expiry
        return "" if found is None else SafeString(f"{number(found.amount)} at {moment(found.at)}")

    @display(description="Open lots")
    def open_lots(self, row: Any) -> int:
        return len(row.now.lots)

    @display(description="Entries")
    def entries(self, row: Any) -> SafeString | str:
        return number(row.sequence)

    @display(description="Latest entry")
    def latest(self, row: Any) -> SafeString:
        return SafeString(f"{entry_link(row.holder_id, row.credit_type, row.sequence)} {row.kind} {moment(row.recorded_at)}")


def decode_lots(stored: Any) -> Any:
    """Lots out of the column as the driver gives it."""
    import json

    return decode(json.dumps(stored))
