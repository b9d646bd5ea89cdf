"""Runs of the invoice generator, and what each did that somebody should look at."""

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.http import HttpRequest, HttpResponse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.decorators import display

from billing.admin.cells import pairs, subscription_link
from billing.models import Outcome, Run, Subscription
from ledger.admin.pages import PAGE_ROWS, Page, ReadOnlyAdmin, UncountedList, instant_cursor, moment, read_instant_cursor, table

TO_LOOK_AT = ("failed", "conflict", "parked", "busy", "deferred")
OUTCOMES_SHOWN = 200


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Calls of generate_invoices, latest first."""

    list_display = ("started", "host", "until", "finished", "exit_code", "summary_text")
    change_form_outer_after_template = "admin/billing/details.html"
    fieldsets = (
        (None, {"fields": (("started", "finished", "exit_code"), ("host", "until", "run_id"))}),
        ("Summary", {"fields": (("summary_lines", "options_text"),)}),
    )
    readonly_fields = ("started", "finished", "until", "summary_text", "summary_lines", "options_text", "run_id")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """By when they started."""
        rows = cl.queryset.order_by("-started_at")
        if cursor:
            rows = rows.filter(started_at__lt=read_instant_cursor(cursor))
        found = list(rows[: PAGE_ROWS + 1])
        shown = found[:PAGE_ROWS]
        return Page(rows=shown, older=instant_cursor(shown[-1].started_at) if len(found) > PAGE_ROWS else None)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The run, and the outcomes that are not simply done."""
        context = {**(extra_context or {}), "subtitle": ""}
        run = self.get_object(request, unquote(object_id))
        if run is not None:
            # By the index on (run_id, outcome), in its order.
            outcomes = list(Outcome.objects.filter(run_id=run.pk, outcome__in=TO_LOOK_AT).order_by("outcome")[:OUTCOMES_SHOWN])
            context |= {
                "title": f"Run of {run.started_at:%Y-%m-%d %H:%M}",
                "parts": [("To look at: failed, conflict, parked, busy, deferred", _outcomes_table(outcomes))],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    @display(description="Started (UTC)")
    def started(self, row: Run) -> SafeString | str:
        return moment(row.started_at)

    @display(description="Finished (UTC)")
    def finished(self, row: Run) -> SafeString | str:
        return moment(row.finished_at) or "not yet, or killed"

    @display(description="Bills up to (UTC)")
    def until(self, row: Run) -> SafeString | str:
        return moment(row.as_of)

    @display(description="Summary")
    def summary_text(self, row: Run) -> str:
        simple = {name: value for name, value in row.summary.items() if isinstance(value, int | float | str)}
        return ", ".join(f"{name} {value}" for name, value in list(simple.items())[:8])

    @display(description="Summary")
    def summary_lines(self, row: Run) -> SafeString:
        return pairs(row.summary)

    @display(description="Options")
    def options_text(self, row: Run) -> SafeString:
        return pairs(row.options)


def _outcomes_table(outcomes: list[Outcome]) -> dict[str, Any]:
    refs = {row.subscription_ref for row in outcomes}
    pks = dict(Subscription.objects.filter(ref__in=refs).values_list("ref", "pk"))

    def subscription(ref: str) -> SafeString | str:
        return subscription_link(pks[ref], ref) if ref in pks else ref

    return table(
        ["Subscription", "Outcome", "Detail", "Recorded (UTC)"],
        [(subscription(row.subscription_ref), row.outcome, _detail(row), moment(row.recorded_at)) for row in outcomes],
    )


def _detail(row: Outcome) -> SafeString | str:
    if not row.traceback:
        return row.detail
    return format_html(
        '<details><summary>{}</summary><pre class="overflow-x-auto text-xs">{}</pre></details>', row.detail, row.traceback
    )
