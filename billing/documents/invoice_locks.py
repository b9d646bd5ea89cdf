"""The lock under which everything that is billed to a subscription is decided."""

from collections.abc import Iterator
from contextlib import contextmanager

from billing.errors import InvoiceGenerationBusy
from billing.models import Invoice
from billing.models.columns import first_of
from ledger.database.lock_names import INVOICE_GENERATION
from ledger.database.locks import Lock, try_advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import LockBusy


def invoice_key(subscription_ref: str) -> str:
    """The name of the lock under which everything that is billed to a subscription is decided."""
    return INVOICE_GENERATION(subscription_ref)


@contextmanager
def locked_invoice(invoice_id: int) -> Iterator[tuple[Lock, Invoice]]:
    """Hold the lock of an invoice's subscription. Yields it with the invoice as read after the lock was taken.

    Raises:
        NotFound: there is no such invoice.
        InvoiceGenerationBusy: invoices of the subscription are being made.
    """
    ref = first_of(Invoice.objects.filter(pk=invoice_id).values_list("subscription_ref", flat=True), "invoice", invoice_id)
    try:
        with own_or_joined(), try_advisory_lock(invoice_key(ref)) as lock:
            invoice = first_of(Invoice.objects.filter(pk=invoice_id), "invoice", invoice_id)
            yield lock, invoice
    except InvoiceGenerationBusy:
        raise
    except LockBusy as busy:
        raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
