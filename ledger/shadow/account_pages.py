"""The observed accounts that differ: each with the first decision that does, and what was observed after it."""

from typing import Any, Final

from django.contrib import admin
from django.db.models import F, OuterRef, QuerySet, Subquery
from django.http import HttpRequest

from ledger.shadow.models import Observation
from ledger.shadow.observing import sentence
from ledger.shadow.reads import Observed, observations
from ledger.staff.kit import columns
from ledger.staff.kit.cells import number_text, timestamp
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList

SHOWN: Final = 50


def difference_text(row: Any) -> str:
    """Return how both sides differ, in a sentence."""
    return sentence(
        operation=row.operation, amount=row.amount, is_allowed=row.is_allowed, balance=row.balance, difference=row.difference,
        ledger_allows=row.ledger_allows, ledger_balance=row.ledger_balance, refusal=row.refusal,
    )  # fmt: skip


@admin.register(Observation)
class ObservationAdmin(ReadOnlyAdmin):
    """Observed accounts with differences, by the first one, newest first."""

    holder = columns.code("Holder", "holder_id")
    first = Column("First difference", difference_text)
    occurred = columns.instant("Decided", "occurred_at")
    key = columns.short("Key", "idempotency_key")
    by = Column("Sent by", "actor")

    list_display = ("holder", "credit_type", "first", "occurred", "key")
    list_filter = (text("holder_id", title="holder"), text("credit_type", title="credit type"))
    fields = (("holder", "credit_type"), ("first",), ("occurred", "key"), ("reference", "by"))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Observation]:
        """Return the first difference of each account that has one since its credits last came back."""
        own = Observation.objects.filter(holder_id=OuterRef("holder_id"), credit_type=OuterRef("credit_type"))
        current = Subquery(own.order_by("-number").values("first_difference")[:1])
        firsts = super().get_queryset(request).filter(first_difference=F("number"))
        return firsts.annotate(current_first=current).filter(current_first=F("number"))

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return them with the filters' values."""
        cl.queryset = cl.queryset.filter(**cl.values())
        return super().read_page(request, cl, cursor)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the last observations of the account."""
        found = observations(holder=row.holder_id, credit_type=row.credit_type, limit=SHOWN)
        words = f"The last observations of the account, up to {SHOWN}"
        return {"title": f"First difference of {row.holder_id}", "parts": [(words, _table(found))]}


def _table(found: list[Observed]) -> dict[str, Any]:
    return table_of(
        found,
        ("Number", lambda row: row.number),
        ("Decided", lambda row: timestamp(row.occurred_at)),
        ("Operation", lambda row: row.operation if row.amount is None else f"{row.operation} of {number_text(row.amount)}"),
        ("Other system", lambda row: _side(row.is_allowed, row.balance)),
        ("Ledger", lambda row: "not compared" if row.ledger_balance is None else _side(row.ledger_allows, row.ledger_balance)),
        ("Key", lambda row: row.idempotency_key or ""),
        ("Difference", lambda row: row.difference or ""),
    )


def _side(is_allowed: bool | None, balance: int) -> str:
    return f"{'done' if is_allowed else 'refused'}, {number_text(balance)}"
