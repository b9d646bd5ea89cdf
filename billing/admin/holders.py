"""Billing's part of a holder's page: the customers with this holder, their subscriptions and invoices."""

from typing import Any

from billing.admin.cells import by_pk, customer_link, list_url, money, pdf_link, subscription_link
from billing.admin.orders.tables import SHORT_HEADERS, short_rows
from billing.models import Customer, Invoice, Subscription
from ledger.admin.kit.cells import day_words, row_link
from ledger.operator_pages import Section
from ledger.units import unit_of

CUSTOMERS_SHOWN = 10
ROWS_SHOWN = 10


def sections(request: Any, holder_id: str) -> list[Section]:
    """The customers that name the holder, with their orders and debts, as far as the operator may see them."""
    may = request.user.has_perm
    if not may("billing.view_customer"):
        return []
    customers = list(Customer.objects.filter(holder_id=holder_id).exclude(holder_id="").order_by("pk")[:CUSTOMERS_SHOWN])
    found = [_customers(customers)]
    if not customers:
        return found
    pks = [customer.pk for customer in customers]
    if may("billing.view_subscription"):
        found.append(_subscriptions(pks))
    if may("billing.view_invoice"):
        found.append(_invoices(pks, customers[0].ref))
    return found


def _customers(customers: list[Customer]) -> Section:
    return Section(
        title="Customer",
        headers=["Customer", "Name", "Currency", "Pays with"],
        rows=[(customer_link(row.pk, row.ref), row.name, row.currency, _pays_with(row)) for row in customers],
        empty="No customer of billing names this holder.",
    )


def _pays_with(customer: Customer) -> str:
    return unit_of(customer.credit_type).name if customer.credit_type else "money only"


def _subscriptions(customers: list[int]) -> Section:
    pks = Subscription.objects.filter(customer_id__in=customers).order_by("-pk").values_list("pk", flat=True)[:ROWS_SHOWN]
    return Section(
        title="Subscriptions",
        headers=SHORT_HEADERS,
        rows=short_rows(list(pks)),
        empty="This customer has no subscription.",
    )


def _invoices(customers: list[int], ref: str) -> Section:
    rows = list(Invoice.objects.filter(customer_id__in=customers).order_by("-pk")[:ROWS_SHOWN])
    subscriptions = by_pk(Subscription, [row.subscription_id for row in rows])
    return Section(
        title="Latest invoices",
        headers=["Invoice", "Subscription", "State", "Total", "Due", "Due date", "File"],
        rows=[
            (
                row_link(Invoice, row.pk, row),
                subscription_link(row.subscription_id, subscriptions[row.subscription_id].ref)
                if row.subscription_id in subscriptions
                else row.subscription_ref,
                row.state,
                money(row.total_minor, row.currency),
                money(row.amount_due_minor, row.currency),
                day_words(row.due_date),
                pdf_link(row),
            )
            for row in rows
        ],
        empty="This customer has no invoice yet.",
        more_url=list_url(Invoice, customer=ref) if len(rows) == ROWS_SHOWN else "",
        more_text="All invoices of this customer",
    )
