"""Billing's part of a holder's page: the customers with this holder, their subscriptions and invoices."""

from collections.abc import Mapping
from typing import Any

from django.utils.safestring import SafeString

from billing.admin.cells import by_pk, customer_link, list_url, money_column, pdf_link, subscription_link
from billing.admin.invoice_lists import due_cell, state_cell, with_lateness
from billing.admin.subscription_tables import subscriptions_table
from billing.models import Customer, Invoice, Subscription
from billing.permissions import VIEW_CUSTOMER, VIEW_INVOICE, VIEW_SUBSCRIPTION
from ledger.operators.additions import PageSection
from ledger.staff.kit.cells import row_link
from ledger.staff.kit.columns import table_of
from ledger.units import unit_of

CUSTOMERS_SHOWN = 10
ROWS_SHOWN = 10


def sections(request: Any, holder_id: str) -> list[PageSection]:
    """Return the customers that name the holder, with their orders and debts, as far as the operator may see them."""
    may = request.user.has_perm
    if not may(VIEW_CUSTOMER):
        return []
    customers = list(Customer.objects.filter(holder_id=holder_id).exclude(holder_id="").order_by("pk")[:CUSTOMERS_SHOWN])
    found = [_customers(customers)]
    if not customers:
        return found
    pks = [customer.pk for customer in customers]
    if may(VIEW_SUBSCRIPTION):
        found.append(_subscriptions(pks))
    if may(VIEW_INVOICE):
        found.append(_invoices(pks, customers[0].ref))
    return found


def _customers(customers: list[Customer]) -> PageSection:
    return PageSection(
        title="Customer",
        table=table_of(
            customers,
            ("Customer", lambda row: customer_link(row.pk, row.ref)),
            ("Name", "name"),
            ("Currency", "currency"),
            ("Pays with", _pays_with),
        ),
        empty="No customer of billing names this holder.",
    )


def _pays_with(customer: Customer) -> str:
    return unit_of(customer.credit_type).name if customer.credit_type else "money only"


def _subscriptions(customers: list[int]) -> PageSection:
    pks = Subscription.objects.filter(customer_id__in=customers).order_by("-pk").values_list("pk", flat=True)[:ROWS_SHOWN]
    return PageSection(
        title="Subscriptions",
        table=subscriptions_table(list(pks)),
        empty="This customer has no subscription.",
    )


def _invoices(customers: list[int], ref: str) -> PageSection:
    rows = list(Invoice.objects.filter(customer_id__in=customers).order_by("-pk")[:ROWS_SHOWN])
    with_lateness(rows)
    subscriptions = by_pk(Subscription, [row.subscription_id for row in rows])
    return PageSection(
        title="Latest invoices",
        table=table_of(
            rows,
            ("Invoice", lambda row: row_link(Invoice, row.pk, row)),
            ("Subscription", lambda row: _subscription(row, subscriptions)),
            ("State", state_cell),
            money_column("Total", "total_minor"),
            money_column("Amount due", "amount_remaining_minor"),
            ("Due", due_cell),
            ("File", pdf_link),
        ),
        empty="This customer has no invoice yet.",
        more_url=list_url(Invoice, customer=ref) if len(rows) == ROWS_SHOWN else "",
        more_text="All invoices of this customer",
    )


def _subscription(invoice: Invoice, known: Mapping[int, Subscription]) -> SafeString | str:
    subscription = known.get(invoice.subscription_id or 0)
    return invoice.subscription_ref if subscription is None else subscription_link(subscription.pk, subscription.ref)
