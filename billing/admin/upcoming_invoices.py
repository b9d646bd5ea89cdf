"""The next invoices of a subscription, and why each differs from the one before it: a page, and a table beside order forms."""

from collections.abc import Iterator, Sequence
from datetime import tzinfo
from functools import partial
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, reverse

from billing.admin.document_tables import notation_in
from billing.errors import BillingSuspended, InvoiceGenerationBusy, TaxesRefused, TaxesUnavailable
from billing.generator.run.differences import Because
from billing.generator.run.preview import UpcomingInvoice, next_invoices_apart, preview_next_invoices
from billing.models import Subscription
from billing.orders.subscriptions import present
from billing.permissions import VIEW_INVOICE
from ledger.staff.kit.cells import instant_words
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.pages import ReadOnlyAdmin, describe, guarded

INVOICES: Final = 3
TITLE: Final = "The next three invoices"
REASONS: Final = {
    Because.NEW: "new",
    Because.GONE: "no longer charged",
    Because.ONE_OFF: "one-off charge",
    Because.CORRECTION: "correction",
    Because.PLAN: "another plan",
    Because.PRICE: "another price",
    Because.QUANTITY: "another quantity",
    Because.USAGE: "other usage",
    Because.PRORATION: "another part of the period",
    Because.COUPON: "another discount",
    Because.TAX: "another tax",
}


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """The address of the page."""
    return guarded(
        model_admin, "<int:pk>/next-invoices/", partial(_page, model_admin), name="billing_next_invoices", permission=VIEW_INVOICE
    )


def _page(model_admin: ReadOnlyAdmin, request: HttpRequest, pk: int) -> HttpResponse:
    """Show the next three invoices line by line, as a preview makes them."""
    subscription = Subscription.objects.filter(pk=pk).first()
    if subscription is None:
        raise Http404
    upcoming_invoices: Sequence[UpcomingInvoice] = ()
    try:
        upcoming_invoices = preview_next_invoices([subscription.ref], as_of=present(subscription), most=INVOICES)
    except (BillingSuspended, InvoiceGenerationBusy, TaxesRefused, TaxesUnavailable) as refusal:
        messages.error(request, f"{describe(refusal)}.")
    context = {
        **model_admin.admin_site.each_context(request),
        "title": f"Next invoices of {subscription.ref}",
        "rows_table": upcoming_table(upcoming_invoices, ZoneInfo(subscription.time_zone)),
        "first_words": "Compute again",
        "first_link": reverse("admin:billing_next_invoices", args=[pk]),
        "back": reverse("admin:billing_subscription_change", args=[pk]),
        "back_words": "Subscription",
    }
    return TemplateResponse(request, "admin/billing/rows.html", context)


def upcoming_part(ref: str, as_of: Any, zone: tzinfo) -> tuple[str, dict[str, Any]]:
    """Return the next three invoices from an instant on, within the preview of an order form, which forgets them."""
    return TITLE, upcoming_table(next_invoices_apart([ref], as_of=as_of, most=INVOICES), zone)


class _UpcomingLine(NamedTuple):
    """A line of an upcoming invoice."""

    made_at: str
    total: str
    title: str
    before: str
    after: str
    because: str


def upcoming_table(found: Sequence[UpcomingInvoice], zone: tzinfo) -> dict[str, Any]:
    """Return a table of upcoming invoices: each line that differs from the invoice before, with the reasons."""
    return table_of(
        [row for one in found for row in _rows(one, zone)],
        ("Made", "made_at"),
        ("Total", "total"),
        ("Line", "title"),
        ("Invoice before", "before"),
        ("This invoice", "after"),
        ("Because", "because"),
    )


def _rows(one: UpcomingInvoice, zone: tzinfo) -> Iterator[_UpcomingLine]:
    document = one.document
    money = notation_in(document["currency"]).money
    made_at, total = instant_words(one.as_of, zone), f"{money(document['total_minor'])} {document['currency']}"
    if one.is_first:
        for line in document["lines"]:
            yield _UpcomingLine(
                made_at, total, line["title"], "", money(line["amount_minor"] - line["discount_minor"]), "first invoice"
            )
        return
    for line in one.different:
        reasons = ", ".join(REASONS[reason] for reason in line.because)
        yield _UpcomingLine(made_at, total, line.title, money(line.before_minor), money(line.after_minor), reasons)
    if not one.different:
        yield _UpcomingLine(made_at, total, "all lines", "", "", "as the invoice before")
