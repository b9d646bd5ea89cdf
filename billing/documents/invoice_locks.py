"""The locks under which all billing of a subscription, and the one-off invoices of a customer, are decided."""

from collections.abc import Iterator
from contextlib import contextmanager

from billing.errors import InvoiceGenerationBusy
from billing.models import INVOICE, Invoice
from billing.models.columns import first_of
from ledger.database.lock_names import CUSTOMER_INVOICES, INVOICE_GENERATION, PAYMENT
from ledger.database.locks import Lock, advisory_lock, try_advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import LockBusy


def invoice_key(subscription_ref: str) -> str:
    """Return the name of the lock under which all billing of a subscription is decided."""
    return INVOICE_GENERATION(subscription_ref)


def key_of(invoice: Invoice) -> str:
    """Return the name of the lock of an invoice: that of its subscription, or of its customer's one-off invoices."""
    return document_key(invoice.subscription_ref, invoice.customer_ref)


def payment_key(invoice_id: int) -> str:
    """Return the name of the lock under which payments of an invoice are recorded, and its state changes."""
    return PAYMENT(str(invoice_id))


def document_key(subscription_ref: str, customer_ref: str) -> str:
    """Return the name of the lock of documents of a subscription, or of one-off documents of a customer, without one."""
    return invoice_key(subscription_ref) if subscription_ref else CUSTOMER_INVOICES(customer_ref)


@contextmanager
def locked_invoice(invoice_id: int) -> Iterator[tuple[Lock, Invoice]]:
    """Hold the lock of an invoice. Yield the invoice as read after the lock was taken.

    The lock of a subscription is only tried; that of a customer's one-off invoices is waited for. Then comes the lock of the
    invoice's payments.

    Raises:
        NotFound: the invoice does not exist.
        InvoiceGenerationBusy: another process makes invoices of the subscription.
        HolderBusy: another process changes one-off invoices of the customer, or records payments, for longer than lock_timeout.
    """
    of_invoice = Invoice.objects.filter(pk=invoice_id)
    with own_or_joined():
        ref, customer_ref = first_of(of_invoice.values_list("subscription_ref", "customer_ref"), INVOICE.word, invoice_id)
        if not ref:
            with advisory_lock(CUSTOMER_INVOICES(customer_ref)) as lock, advisory_lock(payment_key(invoice_id)):
                yield lock, first_of(of_invoice.all(), INVOICE.word, invoice_id)
            return
        try:
            with try_advisory_lock(invoice_key(ref)) as lock, advisory_lock(payment_key(invoice_id)):
                yield lock, first_of(of_invoice.all(), INVOICE.word, invoice_id)
        except InvoiceGenerationBusy:
            raise
        except LockBusy as busy:
            raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
