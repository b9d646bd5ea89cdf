"""Holders with balances: the list of accounts, and what can be done about one."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from ledger import reads
from ledger.admin.forms import operations
from ledger.admin.holders import page, statements
from ledger.admin.home import current_locks, month_end
from ledger.admin.kit.cells import digits, number, timestamp
from ledger.admin.kit.csv_files import Column
from ledger.admin.kit.filters import WrongFilter, choice, instant, read_instant, text
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.admin.kit.saved_lists import Totals
from ledger.admin.links import account_id, account_url, holder_link, holder_url
from ledger.models import Account
from ledger.reads import Balance
from ledger.rules.credit_units import CreditUnit
from ledger.rules.requests import HOLDER_ID
from ledger.units import units_of

ACCOUNTS_LOOKED_AT = 2_000
SHOWN_NUMBER = re.compile(r"([0-9]{1,3}(,[0-9]{3})+|[0-9]+)(\.[0-9]+)?", re.ASCII)
"""A number as pages show it, with or without grouped thousands."""
MAX_NUMBER_CHARACTERS = 40

# The account's state, and when it was last touched: one look into the primary key.
LAST_ENTRY = """
SELECT holder_id || '/' || credit_type AS id, e.*
FROM ledger_entry e
WHERE holder_id = %s AND credit_type = %s
ORDER BY sequence DESC
LIMIT 1
"""


def find(key: str) -> Account | None:
    """The account of that key, as its last entry shows it."""
    holder_id, slash, credit_type = key.partition("/")
    if not slash or "\x00" in key:
        return None
    return next(iter(Account.objects.raw(LAST_ENTRY, [holder_id, credit_type])), None)


def row_of(balance: Balance, unit: CreditUnit) -> Account:
    """A row of the list, with amounts as `unit` writes them."""
    row = Account(
        id=account_id(balance.holder_id, balance.credit_type),
        holder_id=balance.holder_id,
        credit_type=balance.credit_type,
        sequence=balance.sequence,
        balance=balance.balance,
        held=balance.held,
    )
    row.now, row.unit = balance, unit  # type: ignore[attr-defined]
    return row


STATES = ("held", "owed", "overdraft")
"""What an account may have beside available credits."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which accounts a list is about."""

    holder: str | None
    credit_type: str | None
    at_most: Decimal | None
    expires_before: datetime | None
    has: str | None

    @classmethod
    def of(cls, values: Mapping[str, str]) -> "Wanted":
        """What the filters are set to; or raise WrongFilter. "At most" is in the unit of each account's credit type."""
        at_most = values.get("at_most", "").strip()
        if at_most and not (SHOWN_NUMBER.fullmatch(at_most) and len(at_most) <= MAX_NUMBER_CHARACTERS):
            raise WrongFilter(f"“{at_most[:40]}” is not a number such as 1,250.50.")
        return cls(
            holder=values.get("holder"),
            credit_type=values.get("credit_type"),
            at_most=Decimal(at_most.replace(",", "")) if at_most else None,
            expires_before=read_instant(values, "expires_before"),
            has=values.get("with"),
        )

    def is_met_by(self, account: Balance, unit: CreditUnit) -> bool:
        """Whether the account is one of them; `unit` is that of its credit type."""
        expiry = account.next_expiry
        return (
            self.holder in (None, account.holder_id)
            and self.credit_type in (None, account.credit_type)
            and (self.at_most is None or unit.decimal(account.available) <= self.at_most)
            and (self.expires_before is None or (expiry is not None and expiry.at < self.expires_before))
            and (self.has is None or bool(getattr(account, self.has)))
        )


def _together(accounts: Sequence[Balance], unit: CreditUnit) -> str:
    noun = "account" if len(accounts) == 1 else "accounts"
    available, held, owed = (sum(getattr(each, name) for each in accounts) for name in ("available", "held", "owed"))
    besides = [f"{unit.number(amount)} {word}" for amount, word in ((held, "held"), (owed, "owed")) if amount]
    return f"{unit.name}: {', '.join([f'{len(accounts):,} {noun} with {unit.amount(available)} available', *besides])}."


CSV: Sequence[Column] = (
    ("Holder", attrgetter("holder_id")),
    ("Credit type", attrgetter("credit_type")),
    ("Available", lambda row: row.unit.decimal(row.now.available)),
    ("Balance", lambda row: row.unit.decimal(row.now.balance)),
    ("Held", lambda row: row.unit.decimal(row.now.held)),
    ("Owed", lambda row: row.unit.decimal(row.now.owed)),
    ("Overdraft limit", lambda row: row.unit.decimal(row.now.overdraft)),
    ("Unit", lambda row: row.unit.unit),
    ("Expires next", lambda row: row.now.next_expiry and row.unit.decimal(row.now.next_expiry.amount)),
    ("Expires next at (UTC)", lambda row: row.now.next_expiry and row.now.next_expiry.at),
    ("Entries", attrgetter("sequence")),
)


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
    list_filter = (
        text("credit_type", title="credit type"),
        text("holder", title="holder"),
        text("at_most", title="available at most"),
        instant("expires_before", title="credits expire before"),
        choice("with", STATES, title="with"),
    )
    list_display_links = None
    csv_columns = CSV
    starts = "A holder comes into being with the first grant."
    nearest = "Beginning"
    further = "Further"
    search_fields = ("holder_id",)
    search_help_text = "Beginning of a holder's id"
    actions_list = ("grant_to_anyone",)
    actions_detail = ("grant", "transfer", "incoming_transfers", "set_overdraft")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By holder, found by skipping from account to account; filters look at ACCOUNTS_LOOKED_AT accounts a click."""
        after = None
        if cursor:
            holder_id, slash, credit_type = cursor.partition("/")
            if not slash or "\x00" in cursor:
                raise WrongFilter("The page link is not valid for this list.")
            after = (holder_id, credit_type)
        values = cl.values()
        wanted = Wanted.of(values)
        # Of all that begin with an id, the holder of just that id comes first.
        prefix = wanted.holder or cl.query.strip().removesuffix("*")
        most = max(ACCOUNTS_LOOKED_AT, cl.page_rows + 1) if values else cl.page_rows + 1
        found = reads.holders(prefix=prefix, after=after, limit=most)
        units = units_of(balance.credit_type for balance in found)
        fitting = [balance for balance in found if wanted.is_met_by(balance, units[balance.credit_type])]
        request.__dict__["_fitting"] = fitting, len(found) < most
        shown = fitting[: cl.page_rows]
        rows = [row_of(balance, units[balance.credit_type]) for balance in shown]
        if len(fitting) > cl.page_rows:
            return Page(rows=rows, older=rows[-1].pk)
        if values and len(found) == most:
            note = f"The search covers {most:,} accounts, up to {found[-1].holder_id}. “Further” continues it."
            return Page(rows=rows, older=account_id(found[-1].holder_id, found[-1].credit_type), note=note)
        return Page(rows=rows)

    def totals(self, request: HttpRequest, cl: Any) -> Totals | None:
        """What the accounts of a filter have together, by credit type; of those that the page looked at."""
        if not cl.values():
            return None
        fitting, is_whole = request.__dict__["_fitting"]
        by_type: dict[str, list[Balance]] = {}
        for balance in fitting:
            by_type.setdefault(balance.credit_type, []).append(balance)
        units = units_of(by_type)
        note = "" if is_whole else f"Of the {ACCOUNTS_LOOKED_AT:,} accounts looked at."
        return Totals(sentences=[_together(by_type[name], units[name]) for name in sorted(by_type)], note=note)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Leave it to `read_page`."""
        return queryset, False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Account | None:
        """By the primary key of the ledger's table; the view's own key has no index."""
        account = find(object_id)
        if account is not None:
            account.now = reads.balance(account.holder_id, account.credit_type)  # type: ignore[attr-defined]
        return account

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The account is shown on its holder's page."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        holder_id, _, credit_type = unquote(object_id).partition("/")
        if not HOLDER_ID.fullmatch(holder_id):
            raise Http404
        return HttpResponseRedirect(account_url(holder_id, credit_type) if credit_type else holder_url(holder_id))

    def get_urls(self) -> list[URLPattern]:
        """With the pages of current locks and of a month's end, and of each holder one and the statements."""
        own = [current_locks.url(self), month_end.url(self), statements.url(self), page.url(self)]
        return [*own, *super().get_urls()]

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

    @action(description="Incoming transfers", icon="block", permissions=["transfer"], url_path="incoming-transfers")
    def incoming_transfers(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say whether others may transfer credits into this account."""
        now = self._state_of(request, object_id)
        return operations.incoming_transfers_view(self, request, holder_id=now.holder_id, credit_type=now.credit_type)

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
    def holder(self, row: Any) -> SafeString:
        return holder_link(row.holder_id, type=row.credit_type)

    @display(description="Available")
    def available(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(row.now.available))

    @display(description="Balance")
    def balance_now(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(row.now.balance))

    @display(description="Held")
    def held_now(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(row.now.held))

    @display(description="Overdraft")
    def overdraft(self, row: Any) -> SafeString | str:
        return digits(row.unit.number(row.now.overdraft)) if row.now.overdraft else ""

    @display(description="Next expiry")
    def next_expiry(self, row: Any) -> SafeString | str:
        found = row.now.next_expiry
        return "" if found is None else SafeString(f"{digits(row.unit.number(found.amount))} at {timestamp(found.at)}")

    @display(description="Open lots")
    def open_lots(self, row: Any) -> int:
        return len(row.now.lots)

    @display(description="Entries")
    def entries(self, row: Any) -> SafeString | str:
        return number(row.sequence)
