"""Runs of the invoice generator, and what each did that somebody should look at."""

from collections.abc import Callable, Collection
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString
from unfold.decorators import display

from billing.admin.cells import money, pairs, subscription_link
from billing.generator.workers import OutcomeKind
from billing.models import Outcome, Run, Subscription
from ledger.admin.kit.pages import (
    PAGE_ROWS,
    Page,
    ReadOnlyAdmin,
    UncountedList,
    WrongFilter,
    figure,
    instant_cursor,
    moment,
    number,
    read_instant_cursor,
    read_number,
    table,
)

TO_LOOK_AT = ("failed", "conflict", "parked", "busy", "deferred")
OUTCOMES_SHOWN = 50
KEPT = tuple(kind.value for kind in OutcomeKind if kind != OutcomeKind.NOTHING_DUE)
"""That nothing was due is counted, not kept."""


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Calls of generate_invoices, latest first."""

    list_display = ("started", "host", "until", "finished", "exit_code", "summary_text")
    change_form_outer_after_template = "admin/ledger/details.html"
    fieldsets = (
        (None, {"fields": (("started", "finished"), ("host", "until"), ("exit_code", "run_id"))}),
        ("Summary", {"fields": (("summary_lines", "figures"), "options_text")}),
    )
    readonly_fields = ("started", "finished", "until", "summary_text", "summary_lines", "figures", "options_text", "run_id")

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
            # By the index on (run_id, outcome, id), in its order.
            looked_for = Outcome.objects.filter(run_id=run.pk, outcome__in=TO_LOOK_AT)
            outcomes = list(looked_for.order_by("outcome", "pk")[:OUTCOMES_SHOWN])
            context |= {
                "title": f"Run of {run.started_at:%Y-%m-%d %H:%M}",
                "links": [(reverse("admin:billing_outcomes", args=[run.pk]), "All outcomes")],
                "parts": [
                    ("Money", _money_table(run)),
                    ("Needs attention: failed, conflict, parked, busy, deferred", _outcomes_table(outcomes)),
                    ("Slowest", _slowest_table(run)),
                ],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    def get_urls(self) -> list[URLPattern]:
        """The outcomes stand behind their run."""
        return [
            path("<uuid:pk>/outcomes/", self.admin_site.admin_view(self.outcomes_view), name="billing_outcomes"),
            *super().get_urls(),
        ]

    def outcomes_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Show a page of one kind of outcomes, in the order in which they were recorded."""
        if not request.user.has_perm("billing.view_run"):
            raise PermissionDenied
        run = Run.objects.filter(pk=pk).first()
        if run is None:
            raise Http404
        counted = run.summary.get("outcomes", {})
        given = request.GET.get("outcome", "")
        kind = given if given in KEPT else next((each for each in KEPT if counted.get(each)), KEPT[0])
        try:
            rows, after = _outcomes_page(run, kind, request.GET.get("p", ""))
        except WrongFilter as error:
            messages.error(request, str(error))
            rows, after = [], None
        own = reverse("admin:billing_outcomes", args=[pk])
        context = {
            **self.admin_site.each_context(request),
            "title": f"Outcomes of the run of {run.started_at:%Y-%m-%d %H:%M}",
            "tabs": [
                (
                    f"{own}?{urlencode({'outcome': each})}",
                    f"{_words(each)} {figure(counted[each]) if each in counted else ''}".strip(),
                    each == kind,
                )
                for each in KEPT
            ],
            "tabs_label": "Outcomes",
            "rows_table": _outcomes_table(rows),
            "first_words": "Beginning",
            "first_link": f"{own}?{urlencode({'outcome': kind})}",
            "next_words": "Further",
            "next_link": f"{own}?{urlencode({'outcome': kind, 'p': after})}" if after else None,
            "back": reverse("admin:billing_run_change", args=[pk]),
            "back_words": "Run",
        }
        return TemplateResponse(request, "admin/billing/rows.html", context)

    @display(description="Started (UTC)")
    def started(self, row: Run) -> SafeString | str:
        return moment(row.started_at)

    @display(description="Finished (UTC)")
    def finished(self, row: Run) -> SafeString | str:
        return moment(row.finished_at) or "running or killed"

    @display(description="Bills up to (UTC)")
    def until(self, row: Run) -> SafeString | str:
        return moment(row.as_of)

    @display(description="Summary")
    def summary_text(self, row: Run) -> str:
        return ", ".join(f"{_words(name)} {figure(value)}" for name, value in _outcomes_of(row) if value)

    @display(description="Outcomes")
    def summary_lines(self, row: Run) -> SafeString:
        return pairs({_words(name): figure(value) for name, value in _outcomes_of(row)})

    @display(description="Figures")
    def figures(self, row: Run) -> SafeString:
        found = {_words(name): value for name, value in row.summary.items() if isinstance(value, int | float | str)}
        for name in ("credits_granted", "credits_spent_on_usage"):
            moved = row.summary.get(name, {})
            found |= (
                {_words(name): ", ".join(f"{figure(amount)} {one}" for one, amount in sorted(moved.items()))} if moved else {}
            )
        took = row.summary.get("milliseconds", {})
        return pairs(found | {f"{name} of an invoice": f"{value} ms" for name, value in sorted(took.items(), reverse=True)})

    @display(description="Options")
    def options_text(self, row: Run) -> SafeString:
        return pairs(row.options)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _outcomes_of(row: Run) -> list[tuple[str, int]]:
    """How many subscriptions came to what, in the order of the kinds."""
    counted = row.summary.get("outcomes", {})
    return [(kind.value, counted[kind.value]) for kind in OutcomeKind if kind.value in counted]


def _money_table(run: Run) -> dict[str, Any]:
    return table(
        ["Currency", "Invoices", "Total", "Paid with credits"],
        [
            (
                currency,
                number(sums["invoices"]),
                money(sums["total_minor"], currency),
                money(sums["credits_applied_minor"], currency),
            )
            for currency, sums in sorted(run.summary.get("money", {}).items())
        ],
    )


def _slowest_table(run: Run) -> dict[str, Any]:
    found = run.summary.get("slowest", [])
    link = _linked({row["subscription"] for row in found})
    return table(["Subscription", "Took"], [(link(row["subscription"]), f"{row['milliseconds']:,} ms") for row in found])


def _linked(refs: Collection[str]) -> Callable[[str], SafeString | str]:
    """Makes links of these references, by one query; of what is gone, its reference remains."""
    pks = dict(Subscription.objects.filter(ref__in=refs).values_list("ref", "pk")) if refs else {}
    return lambda ref: subscription_link(pks[ref], ref) if ref in pks else ref


def _outcomes_page(run: Run, kind: str, cursor: str) -> tuple[list[Outcome], str | None]:
    """Outcomes of one kind and the cursor of the next page: by the index on run, outcome and id."""
    rows = Outcome.objects.filter(run_id=run.pk, outcome=kind).order_by("pk")
    if cursor:
        rows = rows.filter(pk__gt=read_number(cursor))
    found = list(rows[: PAGE_ROWS + 1])
    shown = found[:PAGE_ROWS]
    return shown, str(shown[-1].pk) if len(found) > PAGE_ROWS else None


def _outcomes_table(outcomes: list[Outcome]) -> dict[str, Any]:
    subscription = _linked({row.subscription_ref for row in outcomes})
    return table(
        ["Subscription", "Outcome", "Detail", "Recorded (UTC)"],
        [(subscription(row.subscription_ref), _words(row.outcome), _detail(row), moment(row.recorded_at)) for row in outcomes],
    )


def _detail(row: Outcome) -> SafeString | str:
    if not row.traceback:
        return row.detail
    return format_html(
        '<details><summary>{}</summary><pre class="overflow-x-auto text-xs">{}</pre></details>', row.detail, row.traceback
    )
