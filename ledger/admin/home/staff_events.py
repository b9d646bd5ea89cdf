"""The staff log as a list: who did what, when and from where; read-only."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from ledger.admin.history import Conditions, History
from ledger.admin.kit import columns
from ledger.admin.kit.columns import Column
from ledger.admin.kit.filters import Choice, instant, read_instant, text
from ledger.admin.kit.pages import Page, ReadOnlyAdmin, UncountedList
from ledger.models import StaffEvent
from ledger.staff_log import ACTIONS

HISTORY = History(model=StaffEvent, order=("recorded_at", "id"))


class ActionFilter(Choice):
    """One of the actions, by its words."""

    parameter_name = "action"
    title = "action"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return list(ACTIONS.items())


@admin.register(StaffEvent)
class StaffEventAdmin(ReadOnlyAdmin):
    """What operators did, newest first."""

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
        """By when they were recorded. See Note [Looked at, and found]."""
        values = cl.values()
        bounds = HISTORY.bounds(
            since=read_instant(values, "since"), until=read_instant(values, "until"), before=HISTORY.read_cursor(cursor)
        )
        wanted = Conditions()
        for column in ("action", "actor", "address"):
            if column in values:
                wanted.add(f"{column} = %s", values[column])
        return HISTORY.page(bounds, wanted)
