"""The lock under which all billing of a subscription is decided."""

from collections.abc import Iterator
from contextlib import contextmanager

from billing.errors import InvoiceGenerationBusy
from billing.models import INVOICE, Invoice
from billing.models.columns import first_of
from ledger.database.lock_names import INVOICE_GENERATION
from ledger.database.locks import Lock, try_advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import LockBusy


def invoice_key(subscription_ref: str) -> str:
    """Return the name of the lock under which all billing of a subscription is decided."""
    return INVOICE_GENERATION(subscription_ref)


@contextmanager
def locked_invoice(invoice_id: int) -> Iterator[tuple[Lock, Invoice]]:
    """Hold the lock of an invoice's subscription. Yield the invoice as read after the lock was taken.

    Raises:
        NotFound: the invoice does not exist.
        InvoiceGenerationBusy: another process makes invoices of the subscription.
    """
    of_invoice = Invoice.objects.filter(pk=invoice_id)
    with own_or_joined():
        ref = first_of(of_invoice.values_list("subscription_ref", flat=True), INVOICE.word, invoice_id)
        try:
            with try_advisory_lock(invoice_key(ref)) as lock:
                yield lock, first_of(of_invoice.all(), INVOICE.word, invoice_id)
        except InvoiceGenerationBusy:
            raise
        except LockBusy as busy:
            raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
