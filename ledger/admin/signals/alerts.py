"""The alerts that have not ended, each with the accounts that have crossed it."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from ledger.admin.kit import columns
from ledger.admin.kit.cells import timestamp
from ledger.admin.kit.columns import Column, table_of
from ledger.admin.kit.filters import text
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.admin.links import account_link
from ledger.models import Alert
from ledger.signals.alerts.watching import crossed

LIMITS = {
    "below": "below {below:,} credits",
    "below_percent": "below {below_percent} % of the most since the last grant",
    "days_left": "less than {days_left} days left at the rate of {rate_days} days",
    "expiring_days": "credits expire within {expiring_days} days",
}
ACCOUNTS_SHOWN = 50


def limit_text(row: Alert) -> str:
    """Return when the alert reports an account, in words."""
    return next(words.format(**vars(row)) for name, words in LIMITS.items() if getattr(row, name) is not None)


@admin.register(Alert)
class AlertAdmin(ReadOnlyAdmin):
    """The alerts, those that were declared last first."""

    limit = Column("Reports", limit_text)
    holder = Column("Holder", lambda row: row.holder_id or "all holders")
    counted_in = Column("Credit type", lambda row: row.credit_type or "all types")
    declared = columns.instant("Declared", "recorded_at")
    by = Column("By", "actor")

    list_display = ("name", "limit", "holder", "counted_in", "declared", "by")
    list_filter = (text("name"), text("holder_id", title="holder"))
    fields = (("name", "limit"), ("holder", "counted_in"), ("declared", "by"), ("reason",))

    def get_queryset(self, request: HttpRequest) -> QuerySet[Alert]:
        """Return the last row of each name and scope, unless it ends the alert."""
        scope = ("holder_id", "name", "credit_type")
        latest = Alert.objects.order_by(*scope, "-pk").distinct(*scope).values("pk")
        return super().get_queryset(request).filter(pk__in=latest, is_ended=False)

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return them with the filters' values."""
        cl.queryset = cl.queryset.filter(**cl.values())
        return super().read_page(request, cl, cursor)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the accounts that have crossed it and not recovered."""
        found = crossed(row.name, row.holder_id, row.credit_type, limit=ACCOUNTS_SHOWN)
        words = f"Accounts that have crossed an alert of this name, up to {ACCOUNTS_SHOWN}"
        return {"title": f"Alert {row.name}", "parts": [(words, _crossed_table(found))]}


def _crossed_table(found: list[Any]) -> dict[str, Any]:
    return table_of(
        found,
        ("Account", lambda row: account_link(row.holder_id, row.credit_type, f"{row.holder_id}, {row.credit_type}")),
        ("Crossed", lambda row: timestamp(row.crossed_at)),
        ("Crossing", lambda row: row.crossings),
        ("Nothing left", lambda row: "yes" if row.is_depleted else "no"),
    )
