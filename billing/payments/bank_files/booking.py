"""Books the entries of a bank's file: money that came in pays the one invoice, or buys the one pack order, that its text names.

Each entry is one transaction, named for good, so a file may be booked again, and a process may end anywhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from typing import Any

from django.utils import timezone

from billing.documents.invoice_payments.matching import invoices_named_in
from billing.documents.invoice_payments.recording import record_payment
from billing.errors import PaymentIntentClosed, TransferTooSmall
from billing.models import Invoice, InvoicePayment, PaymentIntent, Purchase
from billing.payments.bank_files.reading import BankEntry
from billing.payments.collecting.transfers import book_transfer, ensure_buys
from billing.payments.providers.manual_transfers import intents_in
from billing.rating.limits import EARLIEST, MAX_MINOR
from billing.rating.values import MANUAL
from ledger.errors import Invalid, Retryable
from ledger.values import MAX_REFERENCE_CHARACTERS


@dataclass(frozen=True, slots=True)
class Unbooked:
    """An entry that a person has to look at, and why."""

    entry: BankEntry
    why: str


@dataclass(frozen=True, slots=True)
class Booked:
    """An entry that was booked, or would be: for an invoice, or for the pack of a payment intent, by their ids."""

    entry: BankEntry
    invoice: int | None
    payment_intent: int | None


@dataclass(slots=True)
class BookedFile:
    """What became of the entries of a file."""

    booked: list[Booked] = field(default_factory=list)
    known: int = 0
    outgoing: int = 0
    """Entries by which money left the account; they are booked by hand if they return a payment."""
    left: list[Unbooked] = field(default_factory=list)


def book(entries: Iterable[BankEntry], *, actor: str, dry_run: bool = False) -> BookedFile:
    """Book each entry that names one invoice or one order of a pack, once; name all others with the reason.

    Args:
        dry_run: only say what would become of them.
    """
    found = BookedFile()
    for entry in entries:
        if entry.amount_minor < 1:
            found.outgoing += 1
        elif any(model.objects.filter(provider=MANUAL, payment=entry.name).exists() for model in (InvoicePayment, Purchase)):
            found.known += 1
        else:
            _book(entry, found, actor, dry_run)
    return found


def _book(entry: BankEntry, found: BookedFile, actor: str, dry_run: bool) -> None:
    named: list[Invoice | PaymentIntent] = [*invoices_named_in(entry.text)]
    for intent in PaymentIntent.objects.filter(pk__in=intents_in(entry.text), provider=MANUAL).order_by("pk"):
        invoice = Invoice.objects.filter(pk=intent.invoice_id or 0).first()
        if invoice is None or invoice not in named:
            named.append(invoice or intent)
    why = _why_not(entry, named)
    if not why:
        try:
            if not dry_run:
                _write(entry, named[0], actor)
            elif isinstance(named[0], PaymentIntent):
                ensure_buys(named[0], entry.amount_minor)
        except PaymentIntentClosed as error:
            why = f"{named[0]} is {error.facts['state']}"
        except TransferTooSmall:
            why = f"it is less than the pack of {named[0]} costs"
        except (Retryable, Invalid) as error:
            why = f"{error.title}: book the file again"
    if why:
        found.left.append(Unbooked(entry, why))
    elif isinstance(named[0], Invoice):
        found.booked.append(Booked(entry, named[0].pk, None))
    else:
        found.booked.append(Booked(entry, None, named[0].pk))


def _why_not(entry: BankEntry, named: Sequence[Invoice | PaymentIntent]) -> str:
    """Return why an entry is left for a person; empty if it is to be booked for the one that it names."""
    paid_at = _paid_at(entry)
    if len(named) != 1:
        names = ", ".join(map(_name, named))
        if all(isinstance(each, Invoice) for each in named):
            return f"it names several invoices: {names}" if named else "it names no invoice"
        return f"it names several: {names}"
    if named[0].currency != entry.currency:
        return f"{_name(named[0], 'invoice ')} is in {named[0].currency}"
    if paid_at > timezone.now():
        return "its day has not begun in UTC: book the file again tomorrow"
    return "its day or amount is beyond what billing records" if paid_at < EARLIEST or entry.amount_minor > MAX_MINOR else ""


def _name(named: Invoice | PaymentIntent, word: str = "") -> str:
    return f"{word}{named.number}" if isinstance(named, Invoice) else str(named)


def _paid_at(entry: BankEntry) -> datetime:
    return datetime.combine(entry.day, time(), UTC)


def _write(entry: BankEntry, named: Invoice | PaymentIntent, actor: str) -> None:
    fields: dict[str, Any] = {
        "payment": entry.name, "amount_minor": entry.amount_minor, "currency": entry.currency, "paid_at": _paid_at(entry),
        "reference": entry.text[:MAX_REFERENCE_CHARACTERS], "actor": actor,
    }  # fmt: skip
    if isinstance(named, Invoice):
        record_payment(invoice=named.pk, provider=MANUAL, **fields)
    else:
        book_transfer(intent=named.pk, **fields)
