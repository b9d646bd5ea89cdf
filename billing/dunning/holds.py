"""Puts the reminders of an invoice, or of all invoices of a customer, on hold, and releases them.

A hold is written under the lock that a reminder holds too: `payment/<invoice>`, or `reminder_hold/<customer>`. So a reminder is
decided before the hold, or not at all while it lasts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Annotated

from django.db.models import Q
from django.db.models.functions import Now

from billing.documents.invoice_locks import payment_key
from billing.dunning.models import ReminderHold
from billing.errors import InvalidTransition
from billing.models import INVOICE, Customer, Invoice
from billing.models.columns import first_of
from billing.rating.values import Ref
from ledger.clocks import time_of
from ledger.database.lock_names import REMINDER_HOLD
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_REASON_CHARACTERS, Day, EntryNumber, Text


@dataclass(frozen=True, kw_only=True)
class NewReminderHold(Record):
    """No reminder, no fee and no suspension for an invoice, or for all invoices of a customer."""

    either = (("invoice",), ("customer",))

    invoice: Annotated[int | None, EntryNumber("The invoice, by its id …")] = None
    customer: Annotated[str | None, Ref("… or the customer, for all invoices, also future ones.")] = None
    until: Annotated[date | None, Day("The first day with reminders; null: until it is released.", null=True)] = None
    reason: Annotated[str, Text("Why, such as disputed, or a payment plan.", most=MAX_REASON_CHARACTERS, least=1)]
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class NewHoldRelease(Record):
    """The end of a hold before its day."""

    hold: Annotated[int, EntryNumber("The hold, by its id.")]
    reason: Annotated[str, Text("The reason, for later questions.", most=MAX_REASON_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


def _hold(request: NewReminderHold) -> ReminderHold:
    """Put reminders on hold from now on, or raise and write nothing.

    Raises:
        NotFound: the invoice or the customer does not exist.
        InvalidTransition: the invoice is a draft or void.
        Invalid: the hold would end today or earlier, by the test clock of the customer's holder if there is one.
        HolderBusy: another process has the invoice's payments or reminds the customer, for longer than lock_timeout.
    """
    if request.invoice is not None:
        invoice = first_of(Invoice.objects.filter(pk=request.invoice), INVOICE.word, request.invoice)
        if invoice.state in {Invoice.State.DRAFT, Invoice.State.VOID}:
            raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted="reminders on hold")
        customer = Customer.objects.get(pk=invoice.customer_id)
    else:
        customer = first_of(Customer.objects.filter(ref=request.customer), "customer", request.customer or "")
    if request.until is not None and request.until <= time_of(customer.holder_id).date():
        raise Invalid(pointer="/until", rule="in-the-past", detail="Give a day after today.")
    with locked_transaction(_lock_of(request.invoice, customer.ref)):
        hold = ReminderHold.objects.create(
            invoice_id=request.invoice,
            customer_id=customer.pk,
            until=request.until,
            reason=request.reason,
            actor=request.actor,
        )
        hold.refresh_from_db()
    return hold


hold_reminders = UseCase(NewReminderHold, _hold)


def _release(request: NewHoldRelease) -> ReminderHold:
    """Release a hold. A hold that is released already stays as it is.

    Raises:
        NotFound: it does not exist.
        HolderBusy: as of `hold_reminders`.
    """
    rows = ReminderHold.objects.select_related("customer").filter(pk=request.hold)
    hold = first_of(rows, "hold of reminders", request.hold)
    with locked_transaction(_lock_of(hold.invoice_id, hold.customer.ref)):
        rows.filter(released_at=None).update(released_at=Now(), released_by=request.actor, release_reason=request.reason)
        return rows.get()


release_hold = UseCase(NewHoldRelease, _release)


def _lock_of(invoice_id: int | None, customer_ref: str) -> str:
    return REMINDER_HOLD(customer_ref) if invoice_id is None else payment_key(invoice_id)


def on_hold(invoices: Sequence[Invoice], *, today: Callable[[Invoice], date]) -> set[int]:
    """Return the ids of the invoices that are on hold, by themselves or with their customer; one query.

    Args:
        today: returns the present day of an invoice's customer.
    """
    ids, customers = [one.pk for one in invoices], {one.customer_id for one in invoices}
    of_these = Q(invoice_id__in=ids) | Q(invoice_id=None, customer_id__in=customers)
    holds = list(ReminderHold.objects.filter(of_these, released_at=None))
    by_invoice: dict[int, list[ReminderHold]] = {}
    by_customer: dict[int, list[ReminderHold]] = {}
    for hold in holds:
        if hold.invoice_id is None:
            by_customer.setdefault(hold.customer_id, []).append(hold)
        else:
            by_invoice.setdefault(hold.invoice_id, []).append(hold)
    return {
        one.pk
        for one in invoices
        for hold in (*by_invoice.get(one.pk, ()), *by_customer.get(one.customer_id, ()))
        if hold.until is None or today(one) < hold.until
    }
