"""The staff log as a list: who did what, when and from where; read-only."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.safestring import SafeString
from unfold.decorators import display

from ledger.admin.history import Conditions, History
from ledger.admin.kit.cells import mono, timestamp
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

    @display(description="Recorded")
    def recorded(self, row: StaffEvent) -> SafeString | str:
        return timestamp(row.recorded_at)

    @display(description="Action")
    def action_words(self, row: StaffEvent) -> str:
        return ACTIONS.get(row.action, row.action)

    @display(description="Request")
    def request_text(self, row: StaffEvent) -> SafeString | str:
        return mono(row.request_id)
