"""Payments of invoices with what went back of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billing.models import Customer, Invoice, InvoicePayment, PaymentReturn
from billing.models.columns import first_of
from billing.reads.pages import page, within


@dataclass(frozen=True, slots=True)
class PaymentRow:
    """A payment with its invoice's number and its customer, and what went back of it."""

    row: InvoicePayment
    number: str
    customer: str
    returns: Sequence[PaymentReturn]

    @property
    def pk(self) -> int:
        """The id."""
        return self.row.pk

    @property
    def deposit_minor(self) -> int:
        """What did not pay the invoice."""
        return self.row.amount_minor - self.row.applied_minor

    @property
    def returned_minor(self) -> int:
        """The money that went back."""
        return sum(one.amount_minor for one in self.returns)


def payment(payment_id: int) -> PaymentRow:
    """Return the payment of an invoice of that id.

    Raises:
        NotFound: it does not exist.
    """
    [payment_row] = payment_rows([first_of(InvoicePayment.objects.filter(pk=payment_id), "payment", payment_id)])
    return payment_row


def payments(
    *,
    invoice: int | None = None,
    customer: str | None = None,
    provider: str | None = None,
    payment: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[PaymentRow]:
    """Return payments of invoices, the newest first, by keyset on the id.

    Args:
        since, until: paid in `[since, until)`.
        before, after: see `pages.page`.

    Raises:
        NotFound: the customer does not exist.
    """
    filters: dict[str, Any] = {"invoice_id": invoice, "provider": provider, "payment": payment}
    if customer is not None:
        filters["customer_id"] = first_of(Customer.objects.filter(ref=customer), "customer", customer).pk
    rows = InvoicePayment.objects.filter(**{name: value for name, value in filters.items() if value is not None})
    return payment_rows(page(within(rows, "paid_at", since=since, until=until), before=before, after=after, limit=limit))


def payment_rows(rows: Sequence[InvoicePayment]) -> list[PaymentRow]:
    """Return the payments with what belongs to them, by two queries."""
    invoices = Invoice.objects.in_bulk({row.invoice_id for row in rows})
    returns: dict[int, list[PaymentReturn]] = {}
    for one in PaymentReturn.objects.filter(invoice_payment_id__in=[row.pk for row in rows]).order_by("pk"):
        returns.setdefault(one.invoice_payment_id, []).append(one)
    return [
        PaymentRow(row, str(invoices[row.invoice_id]), invoices[row.invoice_id].customer_ref, returns.get(row.pk, ()))
        for row in rows
    ]
