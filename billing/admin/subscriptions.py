"""Pages of subscriptions: the order, its amendments, billed periods and usage."""

from collections.abc import Callable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, reverse

from billing import reads
from billing.admin import upcoming_invoices, usage_events
from billing.admin.cells import MORE_ROWS, customer_link, decimal, ids_of_customer, list_url, money
from billing.admin.customers import coupons_table
from billing.admin.invoices import invoices_table
from billing.admin.order_forms import subscriptions as order_forms
from billing.admin.order_forms.amendments import WAYS, amend_view
from billing.admin.order_forms.customers import give_coupon_view, take_coupon_view
from billing.admin.order_forms.once import OrderPage
from billing.admin.prose import every
from billing.admin.run_sentences import why_not_billed
from billing.admin.search import customers_of
from billing.admin.subscription_tables import (
    amendments_table,
    budgets_table,
    calendar_table,
    charges_table,
    claims_table,
    items_table,
    plan_cell,
)
from billing.admin.transitions import deletions_table
from billing.errors import NotFound
from billing.generator.activations import cancel_order
from billing.models import CustomerCoupon, Invoice, Subscription, SuspendedBilling
from billing.orders import suspension
from billing.permissions import (
    ADD_AMENDMENT,
    ADD_CUSTOMERCOUPON,
    CHANGE_CUSTOMERCOUPON,
    CHANGE_SUSPENDEDBILLING,
    ISSUE_INVOICE,
    VIEW_INVOICE,
)
from billing.rating.periods import Interval, IntervalUnit
from billing.rating.prices.wording import number
from billing.reads.documents import bills
from billing.reads.subscriptions import STATES, ActivationRow, SubscriptionDetail, SubscriptionRow
from ledger.staff.approvals import NoStake
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import NEWEST_FIRST, order_of
from ledger.staff.kit.cells import contract_day, contract_time, instant_words
from ledger.staff.kit.columns import Column
from ledger.staff.kit.filters import choice, instant, read_instant, read_number, text
from ledger.staff.kit.idempotent_forms import DryRun, KeyedForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, guarded, operation
from ledger.typesetting.languages import ENGLISH

WINDOW_ROWS = 1_000
"""How many subscriptions a click looks at if a filter has no index, because it computes the state of each."""
MONTHLY = "monthly"
STATE_COLOURS = {
    "incomplete": "warning", "scheduled": "info", "active": "success", "paused": "warning", "ended": "default",
    "expired": "default",
}  # fmt: skip


def _amendment(name: str, icon: str) -> Callable[..., HttpResponse]:
    """Return the action for a kind of amendment."""

    @operation(WAYS[name].title, icon=icon, permission=ADD_AMENDMENT, url_path=name.replace("_", "-"))
    def amend(self: "SubscriptionAdmin", request: HttpRequest, object_id: str) -> HttpResponse:
        return amend_view(self, request, self.row_of(request, object_id), name)

    return amend


def _contract_time(title: str, value: columns.Value, *, without: str = "") -> Column:
    """Return a column with a time of the subscription, in its zone."""
    get = columns.getter(value)
    return Column(title, lambda row: contract_time(get(row), row.time_zone) or without, value, csv_title=f"{title} (UTC)")


def _contract_day(title: str, value: columns.Value, *, without: str = "", ordering: str | None = None) -> Column:
    """Return a column with the day of a time of the subscription, in its zone."""
    get = columns.getter(value)
    return Column(title, lambda row: contract_day(get(row), row.time_zone) or without, ordering=ordering)


@admin.register(Subscription)
class SubscriptionAdmin(ReadOnlyAdmin):
    """The subscriptions. The search takes the beginning of a reference, a customer's reference, or words of a customer's name."""

    create_view = order_forms.create_view
    reference = Column("Subscription", "ref")
    customer_cell = Column(
        "Customer", lambda row: customer_link(row.customer_id, row.now.customer, row.now.customer_name), "now.customer"
    )
    customer_name = Column("Customer name", "now.customer_name")
    plan = Column("Plan", lambda row: f"{row.now.plan} v{row.now.plan_version}", "now.plan")
    plan_cell = Column("Plan", lambda row: plan_cell(row.now, row.plan_name))
    plan_name = Column("Plan name", "plan_name")
    monthly = Column(
        "Monthly amount",
        lambda row: money(row.monthly_minor, row.now.currency),
        lambda row: decimal(row.monthly_minor, row.now.currency),
        csv_title="Monthly amount (MRR)",
        ordering=MONTHLY,
    )
    started_day = _contract_day("Started", "started_at", ordering="started_at")
    due_day = _contract_day("Next due", "now.due_at", without="nothing")
    version = Column("Version", "now.plan_version")
    currency = Column("Currency", "now.currency")
    state_label = columns.badge("State", "now.state", STATE_COLOURS)
    started = _contract_time("Started", "started_at")
    anchor = _contract_time("Periods count from", "anchor_at")
    trial = _contract_time("Trial ends", "trial_end")
    ends = _contract_time("Ends", "now.ends_at")
    next_due = _contract_time("Next due", "now.due_at", without="nothing")
    billing_suspended = Column("Billing suspended", lambda row: why_not_billed(row.now.suspended_reason or ""))

    list_display = (
        "ref", "customer_cell", "plan_cell", "state_label", "monthly", "started_day", "due_day", "billing_suspended",
    )  # fmt: skip
    sortable_by = ("ref", "monthly", "started_day")
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
    csv_columns = (
        "reference", "customer_cell", "customer_name", "plan", "plan_name", "version", "currency", "monthly", "state_label",
        "started",        "trial", "ends", "next_due", "billing_suspended",
    )  # fmt: skip
    starts = "A subscription is a customer on a plan. Create the plan and the customer first."
    fields = (("customer_cell", "plan_cell", "state_label"), ("monthly", "started"), ("anchor", "next_due"))
    actions_detail = (
        {
            "title": "Amend",
            "icon": "edit",
            "items": [
                "change_plan",
                "change_quantities",
                "negotiate",
                "change_phases",
                "withdraw_phases",
                "list_prices",
                "move_trial",
                "move_billing_day",
                "hold_back",
                "consolidate",
                "pause",
                "go_on",
            ],
        },
        "cancel",
        "cancel_order",
        "withdraw_cancellation",
        "resume_billing",
        {"title": "More", "icon": "more_horiz", "items": ["invoice_usage", "give_coupon"]},
    )

    change_plan = _amendment("change_plan", "sell")
    change_quantities = _amendment("change_quantities", "exposure")
    negotiate = _amendment("negotiate", "handshake")
    change_phases = _amendment("change_phases", "stairs")
    withdraw_phases = _amendment("withdraw_phases", "undo")
    list_prices = _amendment("list_prices", "undo")
    move_trial = _amendment("move_trial", "event")
    move_billing_day = _amendment("move_billing_day", "calendar_month")
    hold_back = _amendment("hold_back", "hourglass_empty")
    consolidate = _amendment("consolidate", "merge")
    pause = _amendment("pause", "pause")
    go_on = _amendment("go_on", "play_arrow")
    cancel = _amendment("cancel", "cancel")
    withdraw_cancellation = _amendment("withdraw_cancellation", "undo")

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first, each with its state; by the index on customers or suspended billing, or a window of rows."""
        values = cl.values()
        if cl.sorting is not None:
            return self._sorted_page(cl, cursor, *cl.sorting)
        rows = cl.queryset.order_by("-pk")
        if "customer" in values:
            rows = rows.filter(customer_id__in=ids_of_customer(values["customer"]))
        if "suspended" in values:
            rows = rows.filter(pk__in=_suspended_page(cursor))
        if cursor:
            rows = rows.filter(pk__lt=read_number(cursor))
        fits: dict[str, Any] = {name: values[name] for name in ("state", "plan") if name in values}
        bounds = {name: read_instant(values, name) for name in ("since", "until")}
        fits |= {name: at for name, at in bounds.items() if at is not None}
        looked_at = {row.pk: row for row in rows[: WINDOW_ROWS if fits else cl.page_rows + 1]}
        subscriptions = reads.subscriptions(among=list(looked_at), limit=cl.page_rows + 1, **fits)
        shown = [_with(looked_at[row.id], row) for row in subscriptions[: cl.page_rows]]
        if len(subscriptions) > cl.page_rows:
            return Page(rows=shown, older=str(shown[-1].pk))
        if not fits or len(looked_at) < WINDOW_ROWS:
            return Page(rows=shown)
        last = list(looked_at.values())[-1]
        note = f"The search covers {WINDOW_ROWS:,} subscriptions, back to {last.ref}. “Older” continues it."
        return Page(rows=shown, older=str(last.pk), note=note)

    def _sorted_page(self, cl: UncountedList, cursor: str, field: str, is_descending: bool) -> Page:
        """Return a page in the chosen order: by its index, or what a month brings among the newest WINDOW_ROWS subscriptions."""
        order = NEWEST_FIRST if field == MONTHLY else order_of(cl) or NEWEST_FIRST
        rows = cl.queryset
        values = cl.values()
        if "customer" in values:
            rows = rows.filter(customer_id__in=ids_of_customer(values["customer"]))
        looked_at = {row.pk: row for row in order.sorted(order.behind(rows, cursor))[:WINDOW_ROWS]}
        fits: dict[str, Any] = {name: values[name] for name in ("state", "plan") if name in values}
        fits |= {"suspended": True} if "suspended" in values else {}
        fits |= {name: at for name in ("since", "until") if (at := read_instant(values, name)) is not None}
        subscriptions_by_id = {row.id: row for row in reads.subscriptions(among=list(looked_at), limit=WINDOW_ROWS, **fits)}
        fitting = [_with(row, subscriptions_by_id[pk]) for pk, row in looked_at.items() if pk in subscriptions_by_id]
        if field == MONTHLY:
            monthly = reads.monthly_minor(subscriptions_by_id.values())
            fitting.sort(key=lambda row: monthly[row.pk], reverse=is_descending)
            return Page(rows=fitting[: cl.page_rows], note=f"Sorted: the newest {WINDOW_ROWS:,} subscriptions at most.")
        shown = fitting[: cl.page_rows]
        if len(fitting) > cl.page_rows:
            return Page(rows=shown, older=order.cursor(order.position(shown[-1])))
        if len(looked_at) < WINDOW_ROWS:
            return Page(rows=shown)
        last = list(looked_at.values())[-1]
        note = f"The search covers {WINDOW_ROWS:,} subscriptions, up to {last.ref}. “Older” continues it."
        return Page(rows=shown, older=order.cursor(order.position(last)), note=note)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give the rows the names of their plans, and what each brings a month."""
        known = [row.now for row in rows if hasattr(row, "now")]
        names, monthly = reads.plan_names((row.plan_id for row in known), ENGLISH.code), reads.monthly_minor(known)
        for row in rows:
            if hasattr(row, "now"):
                row.plan_name, row.monthly_minor = names.get(row.now.plan_id, ""), monthly[row.pk]

    def searched(self, word: str) -> Q:
        """Find by the beginning of the reference, or by the customer: each has its index."""
        return Q(ref__startswith=word) | Q(customer_id__in=customers_of(word))

    def find(self, request: HttpRequest, key: str) -> Subscription | None:
        """Return the subscription with its present state and its parts."""
        row: Subscription | None = super().find(request, key)
        if row is not None:
            try:
                row.detail = reads.subscription(row.ref)  # type: ignore[attr-defined]
            except NotFound:  # its customer is missing, which the audit reports
                return None
            _with(row, row.detail.row)  # type: ignore[attr-defined]
        return row

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return the subscription in sentences, with all tables about it."""
        may_view_invoices = request.user.has_perm(VIEW_INVOICE)
        invoices = Invoice.objects.filter(bills(row.pk)).order_by("-pk")[:MORE_ROWS]
        budgets = budgets_table(row)
        return {
            "title": f"Subscription {row.ref}",
            "sentences": subscription_sentences(row.detail),
            "parts": [
                ("Calendar", calendar_table(row)),
                ("Items", items_table(row)),
                *([("Budgets of the plan", budgets)] if budgets["rows"] else []),
                ("Amendments", amendments_table(row)),
                ("One-off charges", charges_table(row)),
                (
                    "Coupons of this subscription",
                    coupons_table(
                        CustomerCoupon.objects.filter(subscription_id=row.pk),
                        may_take=request.user.has_perm(CHANGE_CUSTOMERCOUPON),
                    ),
                ),
                *([("Latest invoices", invoices_table(invoices))] if may_view_invoices else []),
                ("Latest billed periods", claims_table(row)),
                ("Deleted drafts", deletions_table(row)),
            ],
            "links": [
                (reverse("admin:billing_usage", args=[row.pk]), "Usage events"),
                *(
                    [(reverse("admin:billing_next_invoices", args=[row.pk]), "Next invoices, and why they differ")]
                    if may_view_invoices
                    else []
                ),
                (list_url(Invoice, subscription=row.ref), "All invoices of this subscription"),
            ],
        }

    def get_urls(self) -> list[URLPattern]:
        """Add the addresses of a subscription's usage events and next invoices, and of the form that takes a coupon away."""
        route = "<int:pk>/coupons/<str:code>/take/"
        take = guarded(self, route, self.take_coupon, name="billing_take_subscription_coupon", permission=CHANGE_CUSTOMERCOUPON)
        return [usage_events.url(self), upcoming_invoices.url(self), take, *super().get_urls()]

    # What can be done ---------------------------------------------------------------------------------

    def has_nothing_left(self, request: HttpRequest, object_id: str) -> list[str]:
        """Hide the actions that its state does not allow, or that would change nothing."""
        row: Any = self.get_object(request, unquote(object_id))
        return [] if row is None else _impossible(row.detail)

    @operation("Give a coupon", icon="percent", permission=ADD_CUSTOMERCOUPON, url_path="give-coupon")
    def give_coupon(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Give the subscription a coupon that no other subscription uses."""
        return give_coupon_view(self, request, self.row_of(request, object_id))

    def take_coupon(self, request: HttpRequest, pk: int, code: str) -> HttpResponse:
        """Take a coupon away from the subscription."""
        return take_coupon_view(self, request, self.row_of(request, str(pk)), code)

    @operation("Invoice usage so far", icon="receipt_long", permission=ISSUE_INVOICE, url_path="invoice-usage")
    def invoice_usage(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Invoice what is due, and the usage of running periods up to now."""
        return order_forms.running_usage_view(self, request, self.row_of(request, object_id))

    @operation("Cancel the order", icon="cancel", permission=ADD_AMENDMENT, url_path="cancel-order")
    def cancel_order(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Cancel an order that waits for its first payment."""
        row: Any = self.row_of(request, object_id)
        return OrderPage(
            form=CancelOrderForm,
            collection="canceled-orders",
            write=lambda form: cancel_order(ref=row.ref, actor=form.actor, reason=form.cleaned_data["reason"]),
            describe=lambda canceled, form: DryRun(
                sentences=["Its first invoice becomes void. What was paid of it becomes credit of the customer."]
            ),
            done=lambda _, form: (f"The order {row.ref}", "canceled; it never starts"),
            about=row,
            title=f"Cancel the order {row.ref}",
            button="Cancel the order",
            explanation="The subscription waits for its first payment. Canceled, it never starts.",
            back=reverse("admin:billing_subscription_change", args=[row.pk]),
        ).view(self, request)

    @operation("Resume billing", icon="play_arrow", permission=CHANGE_SUSPENDEDBILLING, url_path="resume-billing")
    def resume_billing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let the generator bill it again, with a reason."""
        row: Any = self.row_of(request, object_id)
        return ResumePage(
            form=ResumeForm,
            collection="resume-billing",
            write=lambda form: suspension.resume(ref=row.ref, actor=form.actor, reason=form.cleaned_data["reason"]),
            describe=lambda resumed, form: DryRun(sentences=[]),
            done=lambda row, form: ("The resumption", f"the next run bills {row.ref}"),
            about=row,
            title=f"Resume the billing of {row.ref}",
            button="Resume billing",
            explanation=f"The generator suspended billing: {why_not_billed(row.now.suspended_reason)}. "
            "After you resume billing, the next run bills the subscription."
            if row.now.suspended_reason
            else "Billing is not suspended.",
            back=reverse("admin:billing_subscription_change", args=[row.pk]),
        ).view(self, request)


class CancelOrderForm(KeyedForm):
    """Why an order is canceled."""

    stake = NoStake("It pays nobody: to pay out what was paid has a stake.")


class ResumeForm(KeyedForm):
    """Why billing goes on."""

    stake = NoStake("It moves no money: the next run bills.")


class ResumePage(OrderPage[ResumeForm, SuspendedBilling]):
    """The page that resumes billing: one step, because there is nothing to preview."""

    is_tried = False


def _with(row: Subscription, now: SubscriptionRow) -> Subscription:
    """Return the row with the present state attached."""
    row.now = now  # type: ignore[attr-defined]
    return row


def _suspended_page(cursor: str) -> list[int]:
    """Return the newest subscriptions with suspended billing, by their index; at most WINDOW_ROWS."""
    rows = SuspendedBilling.objects.filter(resumed_at=None)
    if cursor:
        rows = rows.filter(subscription_id__lt=read_number(cursor))
    return list(rows.order_by("-subscription_id").values_list("subscription_id", flat=True)[:WINDOW_ROWS])


def _impossible(detail: SubscriptionDetail) -> list[str]:
    """Return the amendments that would change nothing, or be refused."""
    row = detail.row
    hidden = ["go_on"] if row.state != "paused" else ["pause"]
    if row.trial_end is None or row.trial_end <= detail.as_of:
        hidden.append("move_trial")
    if all(item.negotiated_price is None for item in detail.items):
        hidden.append("list_prices")
    if row.ends_at is None:
        hidden.append("withdraw_cancellation")
    if not any("phase" in one.change and one.effective_at > detail.as_of for one in detail.amendments):
        hidden.append("withdraw_phases")
    if row.suspended_reason is None:
        hidden.append("resume_billing")
    if row.state != "incomplete":
        hidden.append("cancel_order")
    if row.state in ("incomplete", "expired"):
        hidden += ["go_on", "move_trial", "withdraw_cancellation", "give_coupon"]
    if row.state in ("incomplete", "ended", "expired"):
        hidden += [
            "cancel",
            "pause",
            "change_plan",
            "change_quantities",
            "negotiate",
            "list_prices",
            "change_phases",
            "withdraw_phases",
            "move_billing_day",
            "hold_back",
            "consolidate",
            "invoice_usage",
        ]
    return hidden


def subscription_sentences(detail: SubscriptionDetail) -> list[str]:
    """Return the present state of a subscription in sentences: its plan, end, quantities and next billing."""
    row = detail.row
    zone = ZoneInfo(row.time_zone)
    interval = every(Interval(IntervalUnit(row.interval_unit), row.interval_count))
    verbs = {"incomplete": "will be", "scheduled": "will be", "ended": "was", "expired": "was to be", "paused": "is paused,"}
    verb = verbs.get(row.state, "is")
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
    if row.state == "paused" and row.is_active:
        sentences.append("Fees are charged in the pause.")
    if row.hold_days:
        sentences.append(f"Invoices are made {row.hold_days} day{'' if row.hold_days == 1 else 's'} after what they bill is due.")
    if row.consolidated_invoicing:
        sentences.append("It shares one invoice with the other subscriptions of its customer that are invoiced on the same day.")
    if row.activation is not None and row.activation.state != "started":
        sentences.append(_waiting_words(row.activation, zone))
    elif row.ends_at is not None:
        sentences.append(f"It {'ended' if row.state == 'ended' else 'ends'} {instant_words(row.ends_at, zone)}.")
    if row.suspended_reason is not None:
        sentences.append(f"Billing is suspended until a person resumes it: {why_not_billed(row.suspended_reason)}.")
    return sentences


def _waiting_words(activation: ActivationRow, zone: ZoneInfo) -> str:
    """Return a sentence about an order that waits for its first payment, or waited in vain."""
    if activation.state == "waiting":
        return f"It starts when its first invoice is paid, and expires {instant_words(activation.expires_at, zone)}."
    assert activation.settled_at is not None
    when = instant_words(activation.settled_at, zone)
    return f"Its first invoice was not paid, and the order was {activation.state} {when}. It never started."
