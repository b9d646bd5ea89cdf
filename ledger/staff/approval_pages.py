"""Forms that wait for a second operator: the list, and the page on which one is approved or declined. docs/how-to/admin.md."""

from collections.abc import Sequence
from copy import copy
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import Resolver404, resolve

from ledger.operators import staff_log
from ledger.staff.approvals import APPROVED, DECLINED, decide
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows, ListOrder
from ledger.staff.kit.cells import instant_words, row_url
from ledger.staff.kit.columns import Column
from ledger.staff.kit.filters import text
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, actor, operation
from ledger.staff.models import Approval, ApprovalDecision
from ledger.staff.permissions import VIEW_APPROVAL

BY_TIME = ListOrder(("requested_at", "id"))
WAITS = "waits"
COLOURS = {WAITS: "warning", APPROVED: "success", DECLINED: "danger"}


def _requested(row: Any) -> str:
    return instant_words(row.requested_at)


def _state(row: Any) -> str:
    decided = row.decided
    return WAITS if decided is None else str(decided.decision)


@admin.register(Approval)
class ApprovalAdmin(ReadOnlyAdmin):
    """Forms that wait, or waited, the newest first."""

    state = columns.badge("State", _state, COLOURS)
    requested = columns.instant("Requested", "requested_at")
    by = Column("Requested by", "requested_by")
    amount_text = Column("Amount", lambda row: ", ".join(f"{amount:,} {unit}" for unit, amount in row.stakes.items()))
    decided_by = Column("Decided by", lambda row: row.decided.decided_by if row.decided else "")
    decided_at = Column("Decided", lambda row: instant_words(row.decided.decided_at) if row.decided else "")

    list_display = ("title", "state", "amount_text", "by", "requested", "decided_by", "reason")
    list_display_links = ("title",)
    list_filter = (text("requested_by"),)
    fields = (("state", "amount_text"), ("by", "requested"), ("decided_by", "decided_at"), ("reason",))
    actions_detail = ("judge",)
    starts = "A form waits here when its amount is above the limit of SECOND_OPERATOR_ABOVE."

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return them by their time."""
        fits = Q(**cl.values())
        return FilteredRows(rows=cl.queryset, fits=fits, order=BY_TIME, words=_requested).page(cursor, most=cl.page_rows)

    def prepare(self, rows: Sequence[Any]) -> None:
        """With the decision of each, by one query."""
        decisions = ApprovalDecision.objects.in_bulk([row.pk for row in rows])
        for row in rows:
            row.decided = decisions.get(row.pk)

    @operation("Open", icon="how_to_reg", permission=VIEW_APPROVAL, url_path="judge")
    def judge(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Show what the form would do now, and approve or decline it."""
        row: Any = self.row_of(request, object_id)
        self.prepare([row])
        row.url, row.requested_words = request.path, instant_words(row.requested_at)
        row.may_decide = row.requested_by != actor(request) and _state(row) != DECLINED
        decision = request.POST.get("decision")
        if request.method != "POST" or decision not in (APPROVED, DECLINED):
            try:
                return _sent(request, row, is_confirmed=False)
            except PermissionDenied:
                messages.error(request, "You lack the permission for this form. Somebody who has it must decide.")
                return HttpResponseRedirect(row_url(Approval, row.pk))
        if not row.may_decide:
            raise PermissionDenied
        # An operator who may not open the form may not decide about it.
        _sent(request, row, is_confirmed=False)
        is_late = row.decided is not None and decision == DECLINED
        if is_late or (row.decided is None and not decide(row.pk, decision=decision, decided_by=actor(request))):
            messages.error(request, "Another operator has decided it in the meantime.")
            return HttpResponseRedirect(row_url(Approval, row.pk))
        if decision == DECLINED:
            staff_log.record(request, "approval-declined", about=row.title, details=f"approval {row.pk}")
            messages.success(request, f"{row.title}: declined. Nothing was done.")
            return HttpResponseRedirect(row_url(Approval, row.pk))
        staff_log.record(request, "approval-given", about=row.title, details=f"approval {row.pk} of {row.requested_by}")
        return _sent(request, row, is_confirmed=True)


def _sent(request: HttpRequest, row: Any, *, is_confirmed: bool) -> HttpResponse:
    """Send the form to its page again, with the permissions of the second operator; see Note [A second operator]."""
    try:
        page = resolve(row.path)
    except Resolver404:
        raise PermissionDenied from None
    again: Any = copy(request)
    again.path, again.path_info = request.path.removesuffix(request.path_info) + row.path, row.path
    again.method = "POST"
    again.META = {**request.META, "REQUEST_METHOD": "POST"}
    again.GET = QueryDict(row.query)
    values = QueryDict(mutable=True)
    values.update({name: value for name, value in row.form.items() if is_confirmed or name != "confirmed"})
    again.POST = values
    again.approval = row
    # Its own form was checked; this one comes from the database.
    again._dont_enforce_csrf_checks = True
    response: HttpResponse = page.func(again, *page.args, **page.kwargs)
    return response
