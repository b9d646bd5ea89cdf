"""Payment intents, for showing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

from billing.documents.sellers import current_seller, seller_of
from billing.models import Customer, Invoice, InvoicePayment
from billing.models.columns import first_of
from billing.payments.models import OPEN_INTENT, Pack, PaymentIntent, ProviderRefund, Purchase
from billing.payments.providers.manual_transfers import reference_of
from billing.rating.values import MANUAL
from billing.reads.pages import page


@dataclass(frozen=True, slots=True)
class TransferInstructions:
    """What the customer of an intent of the provider `manual` is to transfer, and to whom."""

    reference: str
    amount_minor: int
    currency: str
    seller: Mapping[str, str]
    due_date: date | None


@dataclass(frozen=True, slots=True)
class IntentRow:
    """A payment intent with what it is for, and what became of it."""

    row: PaymentIntent
    pack_row: Pack | None
    customer: str | None
    purchase: int | None
    invoice_payment: int | None
    refunds: Sequence[ProviderRefund]
    transfer: TransferInstructions | None = None

    @property
    def pk(self) -> int:
        """The id."""
        return self.row.pk

    @property
    def pack(self) -> str | None:
        """The ref of the pack."""
        return self.pack_row.code if self.pack_row else None

    @property
    def version(self) -> int | None:
        """The version of the pack."""
        return self.pack_row.version if self.pack_row else None


def payment_intent(intent_id: int) -> IntentRow:
    """Return the payment intent of that id.

    Raises:
        NotFound: it does not exist.
    """
    [row] = intent_rows([first_of(PaymentIntent.objects.filter(pk=intent_id), "payment intent", intent_id)])
    return row


def payment_intents(
    *,
    holder: str | None = None,
    customer: str | None = None,
    invoice: int | None = None,
    pack: str | None = None,
    state: str | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[IntentRow]:
    """Return payment intents, the newest first, by keyset on the id.

    Raises:
        NotFound: the customer does not exist.
    """
    filters: dict[str, Any] = {"holder_id": holder, "invoice_id": invoice, "state": state}
    if customer is not None:
        filters["customer_id"] = first_of(Customer.objects.filter(ref=customer), "customer", customer).pk
    rows = PaymentIntent.objects.filter(**{name: value for name, value in filters.items() if value is not None})
    if pack is not None:
        rows = rows.filter(pack_id__in=Pack.objects.filter(code=pack).values("pk"))
    return intent_rows(page(rows, before=before, after=after, limit=limit))


def intent_rows(rows: Sequence[PaymentIntent]) -> list[IntentRow]:
    """Return the payment intents with what became of them, by a few queries."""
    packs: dict[int | None, Pack] = dict(Pack.objects.in_bulk({row.pack_id for row in rows if row.pack_id}))
    customers: dict[int | None, str] = dict(
        Customer.objects.filter(pk__in={row.customer_id for row in rows}).values_list("pk", "ref")
    )
    bought = Purchase.objects.filter(payment__in={row.payment for row in rows if row.payment})
    purchases = {(provider, payment): pk for pk, provider, payment in bought.values_list("pk", "provider", "payment")}
    paid = InvoicePayment.objects.filter(payment__in={row.payment for row in rows if row.payment})
    payments = {(provider, payment): pk for pk, provider, payment in paid.values_list("pk", "provider", "payment")}
    refunds: dict[int, list[ProviderRefund]] = {}
    for refund in ProviderRefund.objects.filter(intent_id__in=[row.pk for row in rows]).order_by("pk"):
        refunds.setdefault(refund.intent_id, []).append(refund)
    transfers = _transfers([row for row in rows if row.provider == MANUAL and row.state in OPEN_INTENT and not row.is_canceled])
    return [
        IntentRow(
            row,
            packs.get(row.pack_id),
            customers.get(row.customer_id),
            purchases.get((row.provider, row.payment)),
            payments.get((row.provider, row.payment)),
            refunds.get(row.pk, ()),
            transfers.get(row.pk),
        )
        for row in rows
    ]


def _transfers(rows: Sequence[PaymentIntent]) -> dict[int, TransferInstructions]:
    """Return what is still to be transferred for open intents, by the intent, with a query or two for each seller."""
    invoices: dict[int | None, Invoice] = dict(Invoice.objects.in_bulk({row.invoice_id for row in rows if row.invoice_id}))
    sellers = dict(Customer.objects.filter(pk__in={row.customer_id for row in rows}).values_list("pk", "seller"))
    by_version, by_ref = cache(seller_of), cache(current_seller)
    orders = {}
    for row in rows:
        invoice = invoices.get(row.invoice_id)
        if invoice is None:
            assert row.customer_id is not None
            seller, amount_minor, due_date = by_ref(sellers[row.customer_id]), row.amount_minor, None
        else:
            seller, amount_minor, due_date = by_version(invoice.seller_id), invoice.amount_remaining_minor, invoice.due_date
        details = seller.details if seller else {}
        orders[row.pk] = TransferInstructions(reference_of(row.pk), amount_minor, row.currency, details, due_date)
    return orders
