"""Who owes most: what each customer still owes, and how much of it is overdue, for each currency."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern
from django.utils.html import format_html
from django.utils.safestring import SafeString

from billing.admin.cells import customer_link, list_url, money
from billing.models import Customer, Invoice
from billing.permissions import VIEW_CUSTOMER, VIEW_INVOICE
from billing.rating.money import money_text
from billing.reads.money_at_a_glance import MOST_INVOICES, CustomerDebt, debts
from ledger.staff.kit.cells import day_words, link
from ledger.staff.kit.columns import table_of
from ledger.staff.kit.pages import ReadOnlyAdmin, guarded

NAME: Final = "billing_debts"
CUSTOMERS_SHOWN: Final = 100


def url(model_admin: ReadOnlyAdmin) -> URLPattern:
    """Return the address of the page."""
    return guarded(model_admin, "debts/", partial(_page, model_admin), name=NAME, permission=VIEW_INVOICE)


def _page(model_admin: ReadOnlyAdmin, request: HttpRequest) -> HttpResponse:
    """Show the debts, a section for each currency."""
    found = debts()
    currencies = sorted({debt.currency for debt in found.rows})
    owed = {currency: [debt for debt in found.rows if debt.currency == currency] for currency in currencies}
    shown = [debt.customer_id for rows in owed.values() for debt in rows[:CUSTOMERS_SHOWN]]
    customers = Customer.objects.in_bulk(shown)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": "Debts",
        "sections": [
            _section(currency, rows, customers, may_see_customers=request.user.has_perm(VIEW_CUSTOMER))
            for currency, rows in owed.items()
        ],
        "is_whole": found.is_whole,
        "most": f"{MOST_INVOICES:,}",
    }
    return TemplateResponse(request, "admin/billing/debts.html", context)


def _section(
    currency: str, rows: Sequence[CustomerDebt], customers: Mapping[int, Customer], *, may_see_customers: bool
) -> dict[str, Any]:
    late = sum(debt.overdue_minor for debt in rows)
    left_out = rows[CUSTOMERS_SHOWN:]
    return {
        "currency": currency,
        "text": (
            f"{money_text(sum(debt.minor for debt in rows), currency)} owed by {len(rows):,} "
            f"customer{'' if len(rows) == 1 else 's'}"
            + (f", {money_text(late, currency)} of it overdue." if late else "; nothing is overdue.")
            + (
                f" Not shown: {len(left_out):,} customers with smaller debts, "
                f"{money_text(sum(debt.minor for debt in left_out), currency)} in all."
                if left_out
                else ""
            )
        ),
        "is_bad": late > 0,
        "table": table_of(
            [debt for debt in rows[:CUSTOMERS_SHOWN] if debt.customer_id in customers],
            ("Customer", lambda debt: _customer(customers[debt.customer_id], may_see=may_see_customers)),
            ("Owes", lambda debt: money(debt.minor, currency)),
            ("Overdue", _overdue),
            ("Open invoices", lambda debt: _invoices(debt, customers[debt.customer_id].ref)),
            ("First due", _first_due),
        ),
    }


def _customer(customer: Customer, *, may_see: bool) -> SafeString | str:
    return customer_link(customer.pk, customer.ref, customer.name) if may_see else f"{customer.name} ({customer.ref})"


def _overdue(debt: CustomerDebt) -> SafeString | str:
    """Return what is overdue, red; nothing if nothing is."""
    return format_html('<span class="overdue">{}</span>', money(debt.overdue_minor, debt.currency)) if debt.overdue_minor else ""


def _invoices(debt: CustomerDebt, ref: str) -> SafeString:
    address = list_url(Invoice, customer=ref, state="open", currency=debt.currency)
    overdue = f"{debt.overdue_invoices:,} overdue" if debt.overdue_invoices else ""
    return link(
        address, overdue if debt.overdue_invoices == debt.invoices else ", ".join(filter(None, (f"{debt.invoices:,}", overdue)))
    )


def _first_due(debt: CustomerDebt) -> SafeString | str:
    words = "" if debt.first_due is None else day_words(debt.first_due)
    return format_html('<span class="overdue">{}</span>', words) if debt.overdue_minor else words
