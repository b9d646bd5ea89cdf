"""Holders with balances: the list of accounts, and the operations on one."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString

from ledger import conf, reads
from ledger.models import Account
from ledger.operators import additions
from ledger.operators.permissions import (
    FREEZE_HOLDER,
    GRANT_CREDITS,
    REVOKE_GRANT,
    SET_BUDGET,
    SET_OVERDRAFT,
    SET_RECURRING_GRANT,
    SET_TEST_CLOCK,
    TRANSFER_CREDITS,
)
from ledger.reads import Balance
from ledger.rules.credit_units import CreditUnit
from ledger.staff import current_locks, holder_page, operations, references
from ledger.staff.kit import columns
from ledger.staff.kit.cells import digits, timestamp
from ledger.staff.kit.columns import Column
from ledger.staff.kit.filters import WrongFilter, choice, instant, read_instant, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.kit.saved_lists import ListTotals
from ledger.staff.links import account_id, account_url, holder_link, holder_url
from ledger.units import units_of
from ledger.values import CREDIT_TYPE, HOLDER_ID

ACCOUNTS_LOOKED_AT = 2_000
SHOWN_NUMBER = re.compile(r"([0-9]{1,3}(,[0-9]{3})+|[0-9]+)(\.[0-9]+)?", re.ASCII)
"""The form of a number on pages, with or without grouped thousands."""
MAX_NUMBER_CHARACTERS = 40

# The account's state, and the time of its last entry: one read of the primary key.
LAST_ENTRY = """
SELECT holder_id || '/' || credit_type AS id, e.*
FROM ledger_entry e
WHERE holder_id = %s AND credit_type = %s
ORDER BY sequence DESC
LIMIT 1
"""


def find(key: str) -> Account | None:
    """Return the account of that key, as its last entry has it."""
    holder_id, slash, credit_type = key.partition("/")
    if not slash or "\x00" in key:
        return None
    return next(iter(Account.objects.raw(LAST_ENTRY, [holder_id, credit_type])), None)


def row_of(balance: Balance, unit: CreditUnit) -> Account:
    """Return a row of the list, with amounts as `unit` writes them."""
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
class AccountFilter:
    """The filters of the list."""

    holder: str | None
    credit_type: str | None
    at_most: Decimal | None
    expires_before: datetime | None
    has: str | None

    @classmethod
    def of(cls, values: Mapping[str, str]) -> "AccountFilter":
        """Return the filters' values; or raise WrongFilter. "At most" is in the unit of each account's credit type."""
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
        """Return whether the account passes the filters; `unit` is that of its credit type."""
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


def _next_expiry(row: Any) -> SafeString | str:
    next_expiry = row.now.next_expiry
    return (
        ""
        if next_expiry is None
        else format_html("{} at {}", digits(row.unit.number(next_expiry.amount)), timestamp(next_expiry.at))
    )


@admin.register(Account)
class AccountAdmin(ReadOnlyAdmin):
    """Credits by holder and credit type."""

    holder = Column("Holder", lambda row: holder_link(row.holder_id, type=row.credit_type), "holder_id")
    available = columns.amount("Available", "now.available")
    balance_now = columns.amount("Balance", "now.balance")
    held_now = columns.amount("Held", "now.held")
    owed = columns.amount("Owed", "now.owed")
    overdraft = Column("Overdraft", lambda row: digits(row.unit.number(row.now.overdraft)) if row.now.overdraft else "")
    overdraft_limit = columns.amount("Overdraft limit", "now.overdraft")
    unit_name = Column("Unit", "unit.unit")
    next_expiry = Column(
        "Next expiry",
        _next_expiry,
        lambda row: row.now.next_expiry and row.unit.decimal(row.now.next_expiry.amount),
        csv_title="Expires next",
    )
    expires_at = columns.instant("Expires next at", lambda row: row.now.next_expiry and row.now.next_expiry.at)
    open_lots = Column("Open lots", lambda row: len(row.now.lots))
    entries = columns.count("Entries", "sequence")

    list_display = (
        "holder", "credit_type", "available", "balance_now", "held_now", "overdraft", "next_expiry", "open_lots", "entries",
    )  # fmt: skip
    list_filter = (
        text("credit_type", title="credit type"),
        text("holder", title="holder"),
        text("at_most", title="available at most"),
        instant("expires_before", title="credits expire before"),
        choice("with", STATES, title="with"),
    )
    list_display_links = None
    csv_columns = (
        "holder", "credit_type", "available", "balance_now", "held_now", "owed", "overdraft_limit", "unit_name", "next_expiry",
        "expires_at", "entries",
    )  # fmt: skip
    starts = "The first grant creates a holder."
    nearest = "Beginning"
    further = "Further"
    search_fields = ("holder_id",)
    search_help_text = "Beginning of a holder's id"
    actions_list = ("grant_to_anyone",)
    actions_detail = (
        "grant", "transfer", "incoming_transfers", "set_overdraft", "set_budget", "end_budget", "set_recurring_grant",
        "end_recurring_grant", "freeze", "void", *(form.name for form in additions.account_forms()), "test_clock",
    )  # fmt: skip

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return a page by holder, skipping from account to account; filters read ACCOUNTS_LOOKED_AT accounts a click."""
        after = None
        if cursor:
            holder_id, slash, credit_type = cursor.partition("/")
            if not slash or "\x00" in cursor:
                raise WrongFilter("The page link is not valid for this list.")
            after = (holder_id, credit_type)
        values = cl.values()
        criteria = AccountFilter.of(values)
        # The holder of exactly that id comes before all ids that begin with it.
        prefix = criteria.holder or cl.query.strip().removesuffix("*")
        most = max(ACCOUNTS_LOOKED_AT, cl.page_rows + 1) if values else cl.page_rows + 1
        holders = reads.holders(prefix=prefix, after=after, limit=most)
        units = units_of(balance.credit_type for balance in holders)
        fitting = [balance for balance in holders if criteria.is_met_by(balance, units[balance.credit_type])]
        request.__dict__["_fitting"] = fitting, len(holders) < most
        shown = fitting[: cl.page_rows]
        rows = [row_of(balance, units[balance.credit_type]) for balance in shown]
        if len(fitting) > cl.page_rows:
            return Page(rows=rows, older=rows[-1].pk)
        if values and len(holders) == most:
            note = f"The search covers {most:,} accounts, up to {holders[-1].holder_id}. “Further” continues it."
            return Page(rows=rows, older=account_id(holders[-1].holder_id, holders[-1].credit_type), note=note)
        return Page(rows=rows)

    def totals(self, request: HttpRequest, cl: Any) -> ListTotals | None:
        """Return the sums of the filtered accounts, by credit type; of those that the page read."""
        if not cl.values():
            return None
        fitting, is_whole = request.__dict__["_fitting"]
        by_type: dict[str, list[Balance]] = {}
        for balance in fitting:
            by_type.setdefault(balance.credit_type, []).append(balance)
        units = units_of(by_type)
        note = "" if is_whole else f"The sums cover {ACCOUNTS_LOOKED_AT:,} accounts."
        return ListTotals(sentences=[_together(by_type[name], units[name]) for name in sorted(by_type)], note=note)

    def searched(self, word: str) -> Q:
        """Return all: `read_page` searches."""
        return Q()

    def find(self, request: HttpRequest, key: str) -> Account | None:
        """Find by the primary key of the ledger's table; the view's own key has no index."""
        account = find(key)
        if account is not None:
            account.now = reads.balance(account.holder_id, account.credit_type)  # type: ignore[attr-defined]
        return account

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Go to the account on its holder's page."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        holder_id, _, credit_type = unquote(object_id).partition("/")
        if not HOLDER_ID.fullmatch(holder_id):
            raise Http404
        return HttpResponseRedirect(account_url(holder_id, credit_type) if credit_type else holder_url(holder_id))

    def get_urls(self) -> list[URLPattern]:
        """Add the pages of current locks and of a month's end, those of other applications, and each holder's."""
        # A holder's page comes last: its path takes everything that follows.
        own = [current_locks.url(self), references.url(self), *additions.account_pages(self), holder_page.url(self)]
        return [*own, *super().get_urls()]

    def balance_of(self, request: HttpRequest, object_id: str, *, needs_entries: bool) -> reads.Balance:
        """Return the balance of an account, or raise Http404 without one; an account without entries has 0 if it needs none."""
        holder_id, _, credit_type = unquote(object_id).partition("/")
        if needs_entries or not HOLDER_ID.fullmatch(holder_id) or not CREDIT_TYPE.fullmatch(credit_type):
            balance: reads.Balance = self.row_of(request, object_id).now
            return balance
        return reads.balance(holder_id, credit_type)

    # What can be done ---------------------------------------------------------------------------------

    @operation("Grant credits", icon="add", permission=GRANT_CREDITS, url_path="grant-credits")
    def grant_to_anyone(self, request: HttpRequest) -> HttpResponse:
        """Give credits to a holder, also to a new one."""
        return operations.grant_view(self, request)

    @operation("Grant credits", icon="add", permission=GRANT_CREDITS)
    def grant(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give credits to this holder."""
        holder_id, _, credit_type = unquote(object_id).partition("/")
        return operations.grant_view(self, request, holder_id=holder_id, credit_type=credit_type)

    @operation("Transfer", icon="swap_horiz", permission=TRANSFER_CREDITS)
    def transfer(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Move credits of this holder to another."""
        return operations.transfer_view(self, request, self.row_of(request, object_id).now)

    @operation("Incoming transfers", icon="block", permission=TRANSFER_CREDITS, url_path="incoming-transfers")
    def incoming_transfers(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Accept or refuse transfers from others into this account."""
        return operations.incoming_transfers_view(self, request, self.row_of(request, object_id).now)

    @operation("Set overdraft", icon="money_off", permission=SET_OVERDRAFT, url_path="set-overdraft")
    def set_overdraft(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Set how far spends may take this account below 0."""
        return operations.overdraft_view(self, request, self.row_of(request, object_id).now)

    @operation("Freeze", icon="ac_unit", permission=FREEZE_HOLDER)
    def freeze(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Say whether the holder of this account is frozen."""
        return operations.freeze_view(self, request, self.row_of(request, object_id).now)

    @operation("Test clock", icon="schedule", permission=SET_TEST_CLOCK, url_path="test-clock")
    def test_clock(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Move the time of this account's holder, in a deployment for tests."""
        if not conf.TEST_CLOCKS.value:
            raise Http404
        return operations.clock_view(self, request, self.row_of(request, object_id).now)

    @operation("Revoke all", icon="delete_sweep", permission=REVOKE_GRANT)
    def void(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Take back all unspent credits of this account."""
        return operations.void_view(self, request, self.row_of(request, object_id).now)

    @operation("Set budget", icon="speed", permission=SET_BUDGET, url_path="set-budget")
    def set_budget(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Limit what may be spent of this account in a window of time."""
        return operations.budget_view(self, request, self.row_of(request, object_id).now)

    @operation("End budget", icon="close", permission=SET_BUDGET, url_path="end-budget")
    def end_budget(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a budget of this account."""
        return operations.end_budget_view(self, request, self.row_of(request, object_id).now)

    @operation("Set recurring grant", icon="event_repeat", permission=SET_RECURRING_GRANT, url_path="set-recurring-grant")
    def set_recurring_grant(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Grant credits to this account every day, week, month or year."""
        return operations.recurring_grant_view(self, request, self.row_of(request, object_id).now)

    @operation("End recurring grant", icon="event_busy", permission=SET_RECURRING_GRANT, url_path="end-recurring-grant")
    def end_recurring_grant(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a recurring grant of this account."""
        return operations.end_recurring_grant_view(self, request, self.row_of(request, object_id).now)


def _operation_of(form: additions.AccountForm) -> Callable[..., HttpResponse]:
    """Return a form of another application as an operation."""

    @operation(form.title, icon=form.icon, permission=form.permission, url_path=form.url_path)
    def show(self: AccountAdmin, request: HttpRequest, object_id: str) -> HttpResponse:
        response: HttpResponse = form.view(self, request, self.balance_of(request, object_id, needs_entries=form.needs_entries))
        return response

    return show


for added_form in additions.account_forms():
    AccountAdmin.add_operation(added_form.name, _operation_of(added_form))
