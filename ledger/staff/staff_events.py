"""The staff log as a list: who did what, when and from where; read-only."""

from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest

from ledger.models import StaffEvent
from ledger.operators.staff_log import ACTIONS
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows, ListOrder, recorded_at, recorded_within
from ledger.staff.kit.columns import Column
from ledger.staff.kit.filters import ChoiceFilter, instant, text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList

BY_TIME = ListOrder(("recorded_at", "id"))


class ActionFilter(ChoiceFilter):
    """The filter by action."""

    parameter_name = "action"
    title = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(ACTIONS.items())


@admin.register(StaffEvent)
class StaffEventAdmin(ReadOnlyAdmin):
    """The actions of operators, the newest first."""

    recorded = columns.instant("Recorded", "recorded_at")
    action_words = Column("Action", lambda row: ACTIONS.get(row.action, row.action))
    request_text = columns.code("Request", "request_id")

    list_display = ("recorded", "actor", "action_words", "object", "details", "address", "request_text")
    list_display_links = None
    list_filter = (
        ActionFilter,
        text("actor"),
        text("address"),
        instant("since", title="recorded from"),
        instant("until", title="recorded before"),
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return them by their time of recording. See Note [Looked at, and found, by a query set]."""
        values = cl.values()
        fits = Q(**{column: values[column] for column in ("action", "actor", "address") if column in values})
        return FilteredRows(rows=recorded_within(cl.queryset, values), fits=fits, order=BY_TIME, words=recorded_at).page(
            cursor, most=cl.page_rows
        )
