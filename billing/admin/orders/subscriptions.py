"""Pages of subscriptions: the order, its amendments, billed periods and usage."""

from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse
from django.utils.safestring import SafeString
from unfold.decorators import action, display

from billing import reads
from billing.admin.cells import MORE_ROWS, customer_link, list_url
from billing.admin.documents.invoices import invoices_table
from billing.admin.documents.transitions import deletions_table
from billing.admin.order_forms import subscriptions as order_forms
from billing.admin.order_forms.amendments import WAYS, amend_view
from billing.admin.orders import usage
from billing.admin.orders.creatable import CreatableAdmin
from billing.admin.orders.tables import amendments_table, charges_table, claims_table, items_table
from billing.admin.prose import every, number
from billing.admin.search import customers_of
from billing.errors import NotFound
from billing.models import Customer, Invoice, Subscription, SuspendedBilling
from billing.orders import suspension
from billing.rating.periods import Interval, IntervalUnit
from billing.reads.subscriptions import STATES, SubscriptionDetail, SubscriptionRow
from ledger import staff_log
from ledger.admin.kit.cells import contract_time, instant_words
from ledger.admin.kit.csv_files import Column
from ledger.admin.kit.filters import choice, instant, read_instant, read_number, text
from ledger.admin.kit.pages import Page, ReasonForm, UncountedList, actor, said
from ledger.errors import LedgerError
from ledger.typesetting.languages import ENGLISH

WINDOW_ROWS = 1_000
"""How many subscriptions a click looks at if a filter has no index, because it computes the state of each."""
STATE_COLOURS = {"scheduled": "info", "active": "success", "paused": "warning", "ended": "default"}
CSV: Sequence[Column] = (
    ("Subscription", lambda row: row.ref),
    ("Customer", lambda row: row.now.customer),
    ("Customer name", lambda row: row.now.customer_name),
    ("Plan", lambda row: row.now.plan),
    ("Version", lambda row: row.now.plan_version),
    ("Currency", lambda row: row.now.currency),
    ("State", lambda row: row.now.state),
    ("Started (UTC)", lambda row: row.started_at),
    ("Trial ends (UTC)", lambda row: row.trial_end),
    ("Ends (UTC)", lambda row: row.now.ends_at),
    ("Next due (UTC)", lambda row: row.now.due_at),
    ("Billing suspended", lambda row: row.now.suspended_reason),
)


def _amendment(name: str, icon: str) -> Callable[..., HttpResponse]:
    """The action for a kind of amendment."""

    @action(description=WAYS[name].title, icon=icon, permissions=["amend"], url_path=name.replace("_", "-"))
    def amend(self: "SubscriptionAdmin", request: HttpRequest, object_id: str) -> HttpResponse:
        return amend_view(self, request, self._of(request, object_id), name)

    made: Callable[..., HttpResponse] = amend
    return made


@admin.register(Subscription)
class SubscriptionAdmin(CreatableAdmin):
    """The subscriptions. The search takes the beginning of a reference, a customer's reference, or words of a customer's name."""

    create_view = order_forms.create_view
    list_display = ("ref", "customer_cell", "plan", "state_label", "started", "next_due", "billing_suspended")
    list_filter = (
        choice("state", STATES),
        choice("suspended", ["yes"], title="suspended billing"),
        text("plan"),
        text("customer"),
        instant("since", title="started from"),
        instant("until", title="started before"),
    )
    search_fields = ("ref__startswith",)
    search_help_text = "Beginning of a subscription's reference, or a customer"
    csv_columns = CSV
    starts = "A subscription is a customer on a plan. Create the plan and the customer first."
    change_form_outer_before_template = "admin/ledger/kit/sentences.html"
    change_form_outer_after_template = "admin/ledger/kit/details.html"
    fieldsets = ((None, {"fields": (("customer_cell", "plan", "state_label"), ("started", "anchor", "next_due"))}),)
    actions_detail = (
        {"title": "Amend", "icon": "edit", "items": ["change_plan", "change_quantities", "extend_trial", "pause", "go_on"]},
        "cancel",
        "withdraw_cancellation",
        "resume_billing",
    )
    readonly_fields = ("customer_cell", "plan", "state_label", "started", "anchor", "next_due", "billing_suspended")

    change_plan = _amendment("change_plan", "sell")
    change_quantities = _amendment("change_quantities", "exposure")
    extend_trial = _amendment("extend_trial", "event")
    pause = _amendment("pause", "pause")
    go_on = _amendment("go_on", "play_arrow")
    cancel = _amendment("cancel", "cancel")
    withdraw_cancellation = _amendment("withdraw_cancellation", "undo")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Newest first, with the state of each; by the index on customers or suspended billing, else WINDOW_ROWS at a time."""
        values = cl.values()
        rows = cl.queryset.order_by("-pk")
        if "customer" in values:
            rows = rows.filter(customer_id__in=Customer.objects.filter(ref=values["customer"]).values("pk"))
        if "suspended" in values:
            rows = rows.filter(pk__in=_suspended(cursor))
        if cursor:
            rows = rows.filter(pk__lt=read_number(cursor))
        fits: dict[str, Any] = {name: values[name] for name in ("state", "plan") if name in values}
        bounds = {name: read_instant(values, name) for name in ("since", "until")}
        fits |= {name: at for name, at in bounds.items() if at is not None}
        looked_at = {row.pk: row for row in rows[: WINDOW_ROWS if fits else cl.page_rows + 1]}
        found = reads.subscriptions(among=list(looked_at), limit=cl.page_rows + 1, **fits)
        shown = [_with(looked_at[row.id], row) for row in found[: cl.page_rows]]
        if len(found) > cl.page_rows:
            return Page(rows=shown, older=str(shown[-1].pk))
        if not fits or len(looked_at) < WINDOW_ROWS:
            return Page(rows=shown)
        last = list(looked_at.values())[-1]
        note = f"The search covers {WINDOW_ROWS:,} subscriptions, back to {last.ref}. “Older” continues it."
        return Page(rows=shown, older=str(last.pk), note=note)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Subscription], search_term: str
    ) -> tuple[QuerySet[Subscription], bool]:
        """Search by the beginning of the reference, or by the customer: each has its index."""
        word = search_term.strip()
        if not word:
            return queryset, False
        return queryset.filter(Q(ref__startswith=word) | Q(customer_id__in=customers_of(word))), False

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Subscription | None:
        """The subscription with its present state and its parts."""
        row: Subscription | None = super().get_object(request, object_id, from_field)
        if row is not None:
            try:
                row.detail = reads.subscription(row.ref)  # type: ignore[attr-defined]
            except NotFound:  # its customer is missing, which the audit says
                return None
            _with(row, row.detail.row)  # type: ignore[attr-defined]
        return row

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the subscription with all tables about it."""
        context = {**(extra_context or {}), "subtitle": ""}
        row: Any = self.get_object(request, unquote(object_id))
        if row is not None:
            may_view_invoices = request.user.has_perm("billing.view_invoice")
            invoices = Invoice.objects.filter(subscription_id=row.pk).order_by("-pk")[:MORE_ROWS]
            context |= {
                "title": f"Subscription {row.ref}",
                "sentences": subscription_sentences(row.detail),
                "parts": [
                    ("Items", items_table(row)),
                    ("Amendments", amendments_table(row)),
                    ("One-off charges", charges_table(row)),
                    *([("Latest invoices", invoices_table(invoices))] if may_view_invoices else []),
                    ("Latest billed periods", claims_table(row)),
                    ("Deleted drafts", deletions_table(row.pk)),
                ],
                "links": [
                    (reverse("admin:billing_usage", args=[row.pk]), "Usage events"),
                    (list_url(Invoice, subscription=row.ref), "All invoices of this subscription"),
                ],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, context)
        return response

    def get_urls(self) -> list[URLPattern]:
        """Add the address of a subscription's usage events."""
        return [usage.url(self), *super().get_urls()]

    # What can be done ---------------------------------------------------------------------------------

    def has_amend_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        """Whether the operator may write amendments."""
        return bool(request.user.has_perm("billing.add_amendment"))

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide the actions that its state does not allow, or that would change nothing."""
        row: Any = self.get_object(request, unquote(object_id))
        return [] if row is None else _impossible(row.detail)

    def has_resume_billing_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        if not request.user.has_perm("billing.change_suspendedbilling"):
            return False
        row: Any = self.get_object(request, unquote(object_id)) if object_id else None
        return row is not None and row.now.suspended_reason is not None

    @action(description="Resume billing", icon="play_arrow", permissions=["resume_billing"], url_path="resume-billing")
    def resume_billing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let the generator bill it again, with a reason."""
        row: Any = self.get_object(request, unquote(object_id))
        back = reverse("admin:billing_subscription_change", args=[row.pk])
        title = f"Resume the billing of {row.ref}"
        form = ReasonForm(request.POST or None)
        if request.method == "POST" and form.is_valid():
            try:
                suspension.resume(ref=row.ref, actor=actor(request), reason=form.cleaned_data["reason"])
            except LedgerError as error:
                messages.error(request, said(error))
            else:
                staff_log.record(request, "form", about=title, details=form.cleaned_data["reason"])
                messages.success(request, f"The next run bills {row.ref}.")
            return HttpResponseRedirect(back)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": title,
            "form": form,
            "button": "Resume billing",
            "explanation": f"The generator suspended billing: “{row.now.suspended_reason}”. "
            "After you resume billing, the next run bills the subscription.",
            "back": back,
        }
        status = 422 if request.method == "POST" else 200
        return TemplateResponse(request, "admin/ledger/kit/operation.html", context, status=status)

    def _of(self, request: HttpRequest, object_id: str) -> Subscription:
        row: Subscription | None = self.get_object(request, unquote(object_id))
        if row is None:
            raise Http404
        return row

    # Columns ------------------------------------------------------------------------------------------

    @display(description="Customer")
    def customer_cell(self, row: Any) -> SafeString | str:
        return customer_link(row.customer_id, row.now.customer, row.now.customer_name)

    @display(description="Plan")
    def plan(self, row: Any) -> str:
        return f"{row.now.plan} v{row.now.plan_version}"

    @display(description="State", label=STATE_COLOURS)
    def state_label(self, row: Any) -> str:
        return str(row.now.state)

    @display(description="Started")
    def started(self, row: Subscription) -> SafeString | str:
        return contract_time(row.started_at, row.time_zone)

    @display(description="Periods count from")
    def anchor(self, row: Subscription) -> SafeString | str:
        return contract_time(row.anchor_at, row.time_zone)

    @display(description="Next due")
    def next_due(self, row: Any) -> SafeString | str:
        return contract_time(row.now.due_at, row.time_zone) or "nothing"

    @display(description="Billing suspended")
    def billing_suspended(self, row: Any) -> str:
        return row.now.suspended_reason or ""


def _with(row: Subscription, now: SubscriptionRow) -> Subscription:
    """Return the row with the present state attached."""
    row.now = now  # type: ignore[attr-defined]
    return row


def _suspended(cursor: str) -> list[int]:
    """The newest subscriptions whose billing is suspended, by the index on those; at most WINDOW_ROWS."""
    rows = SuspendedBilling.objects.filter(resumed_at=None)
    if cursor:
        rows = rows.filter(subscription_id__lt=read_number(cursor))
    return list(rows.order_by("-subscription_id").values_list("subscription_id", flat=True)[:WINDOW_ROWS])


def _impossible(detail: SubscriptionDetail) -> list[str]:
    """The amendments that would change nothing, or be refused."""
    row = detail.row
    hidden = ["go_on"] if row.state != "paused" else ["pause"]
    if row.trial_end is None or row.trial_end <= detail.as_of:
        hidden.append("extend_trial")
    if row.ends_at is None:
        hidden.append("withdraw_cancellation")
    if row.state == "ended":
        hidden += ["cancel", "pause", "change_plan", "change_quantities"]
    return hidden


def subscription_sentences(detail: SubscriptionDetail) -> list[str]:
    """The present state of a subscription in sentences: its plan, end, quantities and next billing."""
    row = detail.row
    zone = ZoneInfo(row.time_zone)
    interval = every(Interval(IntervalUnit(row.interval_unit), row.interval_count))
    verb = {"scheduled": "will be", "ended": "was", "paused": "is paused,"}.get(row.state, "is")
    customer = f"{row.customer} ({row.customer_name})"
    sentences = [f"{customer} {verb} on {row.plan} v{row.plan_version}, billed every {interval} in {row.currency}."]
    current = [item for item in detail.items if item.starts_at <= detail.as_of and item.quantity != 1]
    if current:
        sentences.append(f"Quantities: {', '.join(f'{item.price_key} {number(item.quantity)}' for item in current)}.")
    period = row.current_period(detail.as_of)
    if period is not None:
        sentences.append(f"The current period is {ENGLISH.period(period.full_start, period.full_end, zone)}, in {row.time_zone}.")
    if row.trial_end is not None and row.trial_end > detail.as_of:
        sentences.append(f"The trial ends {instant_words(row.trial_end, zone)}.")
    if row.ends_at is not None:
        sentences.append(f"It {'ended' if row.state == 'ended' else 'ends'} {instant_words(row.ends_at, zone)}.")
    if row.suspended_reason is not None:
        sentences.append(f"Billing is suspended until somebody resumes it: {row.suspended_reason}.")
    return sentences
