"""Pages of the invoice generator's runs, with the outcomes that need attention."""

from collections.abc import Callable, Collection
from operator import itemgetter
from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.db.models import Q
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from billing.admin import year
from billing.admin.cells import credits_text, money, pairs, subscription_link
from billing.admin.run_sentences import outcome_words, outcomes_of, run_sentences, why_not_billed, words
from billing.generator.run.outcomes import RunOutcome
from billing.models import Run, RunResult, Subscription
from billing.permissions import VIEW_RUN
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows, ListOrder
from ledger.staff.kit.cells import instant_words, number, number_text, timestamp
from ledger.staff.kit.columns import Column, table_of
from ledger.staff.kit.filters import WrongFilter, choice, instant, read_instant, read_number
from ledger.staff.kit.pages import PAGE_ROWS, Page, ReadOnlyAdmin, UncountedList, guarded

TO_LOOK_AT = ("failed", "conflict", "suspended", "waits_for_taxes", "busy", "deferred")
OUTCOMES_SHOWN = 50
KEPT = tuple(kind.value for kind in RunOutcome if kind != RunOutcome.NOTHING_DUE)
"""Subscriptions without anything due are counted; no row is kept of them."""


BY_START = ListOrder(("started_at", "run_id"))
ENDED = {
    "well": Q(exit_code=0),
    "badly": Q(exit_code__isnull=False) & ~Q(exit_code=0),
    "not yet": Q(finished_at__isnull=True),
}


def _figures(row: Run) -> SafeString:
    figures = {words(name): value for name, value in row.summary.items() if isinstance(value, int | float | str)}
    for name in ("credits_granted", "credits_taken_back", "credits_spent_on_usage"):
        if moved := row.summary.get(name):
            figures[words(name)] = ", ".join(credits_text(amount, one) for one, amount in sorted(moved.items()))
    took = row.summary.get("milliseconds", {})
    return pairs(figures | {f"{name} of an invoice": f"{value} ms" for name, value in sorted(took.items(), reverse=True)})


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs of generate_invoices, the latest first."""

    started = columns.instant("Started", "started_at")
    finished = Column(
        "Finished", lambda row: timestamp(row.finished_at) or "running or killed", "finished_at", csv_title="Finished (UTC)"
    )
    until = columns.instant("Bills up to", "as_of")
    summary_text = Column("Summary", outcome_words, csv_title="Outcomes")
    summary_lines = Column("Outcomes", lambda row: pairs({words(name): number_text(value) for name, value in outcomes_of(row)}))
    figures = Column("Figures", _figures)

    list_display = ("started", "host", "until", "finished", "exit_code", "summary_text")
    starts = "manage.py generate_invoices makes invoices; manage.py work runs it by its timetable."
    csv_columns = ("started", "finished", "host", "until", "exit_code", "summary_text")
    list_filter = (choice("ended", ["well", "badly", "not yet"]), instant("since", title="started from"))
    fieldsets = (
        (None, {"fields": (("started", "finished"),)}),
        ("Figures", {"classes": ("collapse",), "fields": (("summary_lines", "figures"), ("host", "exit_code", "run_id"))}),
    )

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the runs by their start."""
        values = cl.values()
        since = read_instant(values, "since")
        rows = cl.queryset.filter(started_at__gte=since) if since else cl.queryset
        fits = ENDED[values["ended"]] if "ended" in values else Q()
        return FilteredRows(rows=rows, fits=fits, order=BY_START).page(cursor, most=cl.page_rows)

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the run in sentences, and the outcomes that need attention."""
        # By the index on (run_id, outcome, id), in its order.
        outcomes = RunResult.objects.filter(run_id=row.pk, outcome__in=TO_LOOK_AT).order_by("outcome", "pk")[:OUTCOMES_SHOWN]
        return {
            "title": f"Run of {instant_words(row.started_at)}",
            "sentences": run_sentences(row),
            "links": [(reverse("admin:billing_outcomes", args=[row.pk]), "All outcomes")],
            "parts": [
                ("Money", _money_table(row)),
                (
                    "Needs attention: failed, conflict, suspended, waiting for taxes, busy, deferred",
                    _outcomes_table(list(outcomes)),
                ),
                ("Slowest", _slowest_table(row)),
            ],
        }

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses of a run's outcomes."""
        own = guarded(self, "<uuid:pk>/outcomes/", self.outcomes_view, name="billing_outcomes", permission=VIEW_RUN)
        return [own, year.url(self), *super().get_urls()]

    def outcomes_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """Show a page of one kind of outcomes, in the order in which they were recorded."""
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
            "title": f"Outcomes of the run of {instant_words(run.started_at)}",
            "tabs": [
                (
                    f"{own}?{urlencode({'outcome': each})}",
                    f"{words(each)} {number_text(counted[each]) if each in counted else ''}".strip(),
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


def _money_table(run: Run) -> dict[str, Any]:
    return table_of(
        [{"currency": currency, **sums} for currency, sums in sorted(run.summary.get("money", {}).items())],
        ("Currency", itemgetter("currency")),
        ("Invoices", lambda row: number(row["invoices"])),
        ("Total", lambda row: money(row["total_minor"], row["currency"])),
        ("Paid with credits", lambda row: money(row["credits_applied_minor"], row["currency"])),
    )


def _slowest_table(run: Run) -> dict[str, Any]:
    slowest = run.summary.get("slowest", [])
    link = _link_refs({row["subscription"] for row in slowest})
    return table_of(
        slowest,
        ("Subscription", lambda row: link(row["subscription"])),
        ("Took", lambda row: f"{row['milliseconds']:,} ms"),
    )


def _link_refs(refs: Collection[str]) -> Callable[[str], SafeString | str]:
    """Return links for these references, by one query; a reference whose row is gone stays text."""
    pks = dict(Subscription.objects.filter(ref__in=refs).values_list("ref", "pk")) if refs else {}
    return lambda ref: subscription_link(pks[ref], ref) if ref in pks else ref


def _outcomes_page(run: Run, kind: str, cursor: str) -> tuple[list[RunResult], str | None]:
    """Return outcomes of one kind and the cursor of the next page: by the index on run, outcome and id."""
    rows = RunResult.objects.filter(run_id=run.pk, outcome=kind).order_by("pk")
    if cursor:
        rows = rows.filter(pk__gt=read_number(cursor))
    page_rows = list(rows[: PAGE_ROWS + 1])
    shown = page_rows[:PAGE_ROWS]
    return shown, str(shown[-1].pk) if len(page_rows) > PAGE_ROWS else None


def _outcomes_table(outcomes: list[RunResult]) -> dict[str, Any]:
    subscription = _link_refs({row.subscription_ref for row in outcomes})
    return table_of(
        outcomes,
        ("Subscription", lambda row: subscription(row.subscription_ref)),
        ("Outcome", lambda row: words(row.outcome)),
        ("Detail", _detail),
        columns.instant("Recorded", "recorded_at"),
    )


def _detail(row: RunResult) -> SafeString | str:
    """Return why, in words, over the trace of an error."""
    why = why_not_billed(row.detail)
    if not row.traceback:
        return why
    return format_html(
        '<details><summary>{}</summary><pre class="overflow-x-auto text-xs">{}</pre></details>', why, row.traceback
    )
