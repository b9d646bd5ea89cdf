"""Pages of automatic top-ups: their terms, their payments, and the forms that resume and end them."""

from collections.abc import Callable, Sequence
from typing import Any

from django.contrib import admin
from django.db.models import Q
from django.http import HttpRequest, HttpResponse

from billing.admin.cells import credits_text, customer_link, ids_of_customer, list_url
from billing.admin.order_forms.fields import REASON, OrderForm
from billing.admin.order_forms.once import OrderPage
from billing.payments import topup_reads
from billing.payments.models import Pack, PaymentIntent, TopUp
from billing.payments.permissions import CHANGE_TOPUP
from billing.payments.topup_declarations import NewTopUpChange, end_top_up, resume_top_up
from billing.rating.money import money_text
from ledger.staff.approvals import NoStake
from ledger.staff.kit import columns
from ledger.staff.kit.bounded_reads import FilteredRows
from ledger.staff.kit.cells import row_url
from ledger.staff.kit.columns import Column
from ledger.staff.kit.filters import choice, text
from ledger.staff.kit.idempotent_forms import DryRun, RequestForm
from ledger.staff.kit.pages import Page, ReadOnlyAdmin, UncountedList, operation
from ledger.staff.links import holder_link

STATES = {
    "active": Q(ended_at=None, paused_at=None), "paused": Q(ended_at=None, paused_at__isnull=False),
    "ended": Q(ended_at__isnull=False),
}  # fmt: skip


@admin.register(TopUp)
class TopUpAdmin(ReadOnlyAdmin):
    """The top-ups, newest first."""

    number = Column("Top-up", "pk")
    state = columns.badge("State", lambda row: row.top_up.state, {"active": "success", "paused": "warning", "ended": "info"})
    holder = Column("Holder", lambda row: holder_link(row.holder_id), "holder_id")
    customer_cell = Column(
        "Customer", lambda row: customer_link(row.customer_id, row.top_up.customer), lambda row: row.top_up.customer
    )
    below = Column("Below", lambda row: credits_text(row.threshold, row.credit_type), "threshold")
    buys = Column("Buys", lambda row: what_is_bought(row))  # noqa: PLW0108 – defined below
    cap = Column(
        "At most",
        lambda row: "" if row.cap_minor is None else f"{money_text(row.cap_minor, row.currency)} a {row.cap_period}",
        "cap_minor",
    )
    recorded = columns.instant("Declared", "recorded_at")
    paused = columns.instant("Paused", "paused_at")
    ended = columns.instant("Ended", "ended_at")

    list_display = ("number", "state", "holder", "customer_cell", "below", "buys", "cap", "recorded")
    list_display_links = ("number",)
    list_filter = (choice("state", list(STATES), title="state"), text("holder"), text("customer"))
    csv_columns = (
        "number", "state", "holder", "customer_cell", "credit_type", "below", "pack_ref", "packs", "up_to", "cap", "provider",
        "recorded", "paused", "ended", "actor",
    )  # fmt: skip
    starts = "An account is topped up when it runs low: POST /v1/top-ups."
    actions_detail = ("resume", "end")
    fields = (("state", "holder", "customer_cell"), ("provider", "method", "cap"), ("recorded", "paused", "ended", "actor"))

    def read_page(self, request: HttpRequest, cl: UncountedList, cursor: str) -> Page:
        """Return the newest first."""
        values = cl.values()
        fits = STATES[values["state"]] if "state" in values else Q()
        fits &= Q(holder_id=values["holder"]) if "holder" in values else Q()
        if "customer" in values:
            fits &= Q(customer_id__in=ids_of_customer(values["customer"]))
        return FilteredRows(rows=cl.queryset, fits=fits).page(cursor, most=cl.page_rows)

    def prepare(self, rows: Sequence[Any]) -> None:
        """Give each row its customer, its payment, and the currency of its pack."""
        packs = Pack.objects.filter(code__in={row.pack_ref for row in rows}).order_by("version")
        currencies = dict(packs.values_list("code", "currency"))
        top_ups = {each.pk: each for each in topup_reads.top_up_rows(list(rows))}
        for row in rows:
            row.top_up, row.currency = top_ups[row.pk], currencies.get(row.pack_ref, "")

    def details(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """The terms in a sentence, and what is under way."""
        low = f"fewer than {credits_text(row.threshold, row.credit_type)} are available"
        sentences = [f"When {low}, {row.provider} is asked for {what_is_bought(row)}."]
        if row.top_up.state == "paused":
            sentences.append(f"It is paused after {row.declines} declines in a row, or because the customer was erased.")
        if row.top_up.under_way is not None:
            intent = row.top_up.under_way
            sentences.append(f"A payment of {money_text(intent.amount_minor, intent.currency)} is under way: {intent}.")
        payments = list_url(PaymentIntent, holder=row.holder_id)
        return {"title": f"Top-up {row.pk}", "sentences": sentences, "links": [(payments, "Payment intents of this holder")]}

    @operation("Resume", icon="play_arrow", permission=CHANGE_TOPUP, url_path="resume")
    def resume(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Let a paused top-up go on."""
        row = self.row_of(request, object_id)
        return _change_view(self, request, row, "Resume", resume_top_up.execute, "Declines before now no longer count.")

    @operation("End", icon="stop", permission=CHANGE_TOPUP, url_path="end")
    def end(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """End a top-up."""
        row = self.row_of(request, object_id)
        return _change_view(self, request, row, "End", end_top_up.execute, "A payment that is under way goes on.")


def what_is_bought(row: TopUp) -> str:
    """Return the packs of a top-up in words."""
    if row.packs is None:
        return f"packs {row.pack_ref} until {credits_text(row.up_to or 0, row.credit_type)} are available"
    return f"{row.packs} × pack {row.pack_ref}"


class TopUpChangeForm(OrderForm, RequestForm[NewTopUpChange]):
    """A top-up to resume or to end."""

    stake = NoStake("It moves no money: it lets a declared top-up go on, or ends it.")
    declared = NewTopUpChange
    shows = {"reason": REASON}


def _change_view(
    model_admin: ReadOnlyAdmin,
    request: HttpRequest,
    row: TopUp,
    verb: str,
    change: Callable[[NewTopUpChange], TopUp],
    effect: str,
) -> HttpResponse:
    """Show the form, then its effect, then write it."""
    return OrderPage(
        form=TopUpChangeForm,
        collection=f"top-up-{verb.lower()}s",
        about=row,
        pointer="/top_up",
        write=lambda form: change(form.request),
        describe=lambda _, form: DryRun(sentences=[effect]),
        done=lambda _, form: (verb, f"of {row}"),
        fixed={"top_up": row.pk},
        title=f"{verb} {row}",
        button=f"{verb} the top-up",
        explanation=effect,
        back=row_url(TopUp, row.pk),
    ).view(model_admin, request)
