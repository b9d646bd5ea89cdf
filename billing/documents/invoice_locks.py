"""The locks under which all billing of a subscription, and the invoices of a customer without one, are decided."""

from collections.abc import Iterator
from contextlib import contextmanager

from billing.errors import InvoiceGenerationBusy
from billing.models import INVOICE, Invoice, InvoicedSubscription
from billing.models.columns import first_of
from ledger.database.lock_names import CUSTOMER_INVOICES, INVOICE_GENERATION, PAYMENT
from ledger.database.locks import Lock, advisory_lock, try_advisory_lock
from ledger.database.transactions import own_or_joined
from ledger.errors import LockBusy


def invoice_key(subscription_ref: str) -> str:
    """Return the name of the lock under which all billing of a subscription is decided."""
    return INVOICE_GENERATION(subscription_ref)


def key_of(invoice: Invoice) -> str:
    """Return the name of the lock of an invoice: that of its subscription, or of its customer's invoices without one."""
    return document_key(invoice.subscription_ref, invoice.customer_ref)


def payment_key(invoice_id: int) -> str:
    """Return the name of the lock under which payments of an invoice are recorded, and its state changes."""
    return PAYMENT(str(invoice_id))


def document_key(subscription_ref: str, customer_ref: str) -> str:
    """Return the name of the lock of documents of a subscription, or of a customer, without one."""
    return invoice_key(subscription_ref) if subscription_ref else CUSTOMER_INVOICES(customer_ref)


def subscriptions_of(invoice_id: int) -> list[str]:
    """Return the subscriptions that a consolidated invoice bills, in the order of its lines; empty for every other."""
    billed = InvoicedSubscription.objects.filter(invoice_id=invoice_id).order_by("subscription_id")
    return list(billed.values_list("subscription_ref", flat=True))


@contextmanager
def locked_invoice(invoice_id: int) -> Iterator[tuple[Lock, Invoice]]:
    """Hold the lock of an invoice. Yield the invoice as read after the lock was taken.

    The locks of subscriptions are only tried: of a consolidated invoice those of all that it bills, because it has claims of
    each. The lock of a customer's invoices without a subscription is waited for. Then comes the lock of the invoice's payments.

    Raises:
        NotFound: the invoice does not exist.
        InvoiceGenerationBusy: another process makes invoices of the subscription, or of one of them.
        HolderBusy: another process changes such invoices of the customer, or records payments, for longer than lock_timeout.
    """
    of_invoice = Invoice.objects.filter(pk=invoice_id)
    with own_or_joined():
        ref, customer_ref = first_of(of_invoice.values_list("subscription_ref", "customer_ref"), INVOICE.word, invoice_id)
        names = [document_key(ref, customer_ref)]
        if not ref:
            with advisory_lock(*names):
                pass
            names += [invoice_key(one) for one in subscriptions_of(invoice_id)]
        try:
            with try_advisory_lock(*names) as lock, advisory_lock(payment_key(invoice_id)):
                yield lock, first_of(of_invoice.all(), INVOICE.word, invoice_id)
        except InvoiceGenerationBusy:
            raise
        except LockBusy as busy:
            raise InvoiceGenerationBusy(**busy.facts, subscription=ref or customer_ref) from busy
