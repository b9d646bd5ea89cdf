"""Books the entries of a bank's file: money that came in and names one open invoice is recorded as its payment.

Each entry is one transaction, named for good, so a file may be booked again, and a process may end anywhere.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from typing import Final

from django.utils import timezone

from billing.documents.invoice_payments.matching import invoices_named_in
from billing.documents.invoice_payments.recording import record_payment
from billing.models import InvoicePayment, Purchase
from billing.payments.bank_files.reading import BankEntry
from billing.rating.limits import EARLIEST, MAX_MINOR
from ledger.errors import Invalid, Retryable
from ledger.values import MAX_REFERENCE_CHARACTERS

PROVIDER: Final = "bank"


@dataclass(frozen=True, slots=True)
class Unbooked:
    """An entry that a person has to look at, and why."""

    entry: BankEntry
    why: str


@dataclass(slots=True)
class BookedFile:
    """What became of the entries of a file."""

    booked: list[InvoicePayment] = field(default_factory=list)
    known: int = 0
    outgoing: int = 0
    """Entries by which money left the account; they are booked by hand if they return a payment."""
    left: list[Unbooked] = field(default_factory=list)


def book(entries: Iterable[BankEntry], *, actor: str, dry_run: bool = False) -> BookedFile:
    """Record a payment for each entry that names one invoice, once; name all others with the reason.

    Args:
        dry_run: only say what would become of them.
    """
    found = BookedFile()
    for entry in entries:
        if entry.amount_minor < 1:
            found.outgoing += 1
        elif any(model.objects.filter(provider=PROVIDER, payment=entry.name).exists() for model in (InvoicePayment, Purchase)):
            found.known += 1
        else:
            _book(entry, found, actor, dry_run)
    return found


def _book(entry: BankEntry, found: BookedFile, actor: str, dry_run: bool) -> None:
    paid_at = datetime.combine(entry.day, time(), UTC)
    invoices = invoices_named_in(entry.text)
    if len(invoices) != 1:
        numbers = ", ".join(str(invoice.number) for invoice in invoices)
        why = f"it names several invoices: {numbers}" if invoices else "it names no invoice"
    elif invoices[0].currency != entry.currency:
        why = f"invoice {invoices[0].number} is in {invoices[0].currency}"
    elif paid_at > timezone.now():
        why = "its day has not begun in UTC: book the file again tomorrow"
    elif paid_at < EARLIEST or entry.amount_minor > MAX_MINOR:
        why = "its day or amount is beyond what billing records"
    else:
        try:
            payment = InvoicePayment(invoice_id=invoices[0].pk, amount_minor=entry.amount_minor, currency=entry.currency)
            if not dry_run:
                payment = record_payment(
                    invoice=invoices[0].pk,
                    provider=PROVIDER,
                    payment=entry.name,
                    amount_minor=entry.amount_minor,
                    currency=entry.currency,
                    paid_at=paid_at,
                    reference=entry.text[:MAX_REFERENCE_CHARACTERS],
                    actor=actor,
                )
        except (Retryable, Invalid) as error:
            why = f"{error.title}: book the file again"
        else:
            found.booked.append(payment)
            return
    found.left.append(Unbooked(entry, why))
