"""Reminds customers of overdue invoices, and suspends and resumes the billing of their subscriptions.

A reminder is decided under `payment/<invoice>`: what is read as unpaid there stays unpaid until COMMIT. A reminder's row,
fee, mail and suspension are one transaction, so each step happens once, whatever is repeated or killed.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Final
from uuid import uuid4

from django.db import Error
from django.utils import timezone

from billing.documents.invoice_locks import payment_key, subscriptions_of
from billing.documents.sellers import current_seller, seller_of
from billing.dunning.errors import NotReminded
from billing.dunning.holds import on_hold
from billing.dunning.messages import REMINDER
from billing.dunning.models import Mail, Reminder
from billing.dunning.steps import due_step
from billing.models import INVOICE, Activation, Customer, Invoice, PaymentReturn, Subscription, SuspendedBilling
from billing.models.columns import first_of
from billing.orders.subscriptions import charge_once
from billing.orders.suspension import resume, suspend
from billing.reads.documents import bills, is_overdue, today_of
from ledger.database.lock_names import REMINDER_HOLD, SUBSCRIPTION_INTENT, SUSPENSION
from ledger.database.locks import advisory_lock, lock_number
from ledger.database.transactions import own_or_joined
from ledger.errors import LedgerError, Misuse
from ledger.records import Record, UseCase
from ledger.typesetting.languages import language_of
from ledger.values import MAX_ACTOR_CHARACTERS, EntryNumber, Text

log = logging.getLogger(__name__)

ACTOR: Final = "billing"
OVERDUE: Final = "overdue"
"""The reason of a suspension by a reminder."""
PAGE_ROWS: Final = 500
FEE_TEXTS: Final = {"en": "Reminder {step} of invoice {number}", "de": "Mahnung {step} zur Rechnung {number}"}
OWED: Final = {Invoice.State.OPEN, Invoice.State.UNCOLLECTIBLE}


@dataclass(slots=True)
class Reminded:
    """The counts of one run."""

    reminded: int = 0
    resumed: int = 0
    failed: int = 0


def remind_due(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> Reminded:
    """Remind of each invoice whose next step is due, and resume subscriptions whose invoices are paid; each by a transaction.

    One that fails is counted and left to the next run; the others go on.

    Args:
        dry_run: count, and write nothing.
        stop: called before each; True ends the run.
    """
    counts = Reminded()
    for invoice_id in _due():
        if stop():
            return counts
        with _counting_failures(counts, f"invoice {invoice_id}"):
            counts.reminded += dry_run or remind(invoice_id) is not None
    for ref in _paid_up():
        if stop():
            return counts
        with _counting_failures(counts, f"subscription {ref}"):
            if not dry_run:
                resume(ref=ref, actor=ACTOR, reason="what was overdue is paid")
            counts.resumed += 1
    return counts


@contextmanager
def _counting_failures(counts: Reminded, what: str) -> Iterator[None]:
    """Count and log a failure, and go on."""
    try:
        yield
    except Misuse:
        raise
    except (LedgerError, Error) as error:
        counts.failed += 1
        log.warning("%s: %s: %s", what, type(error).__name__, error)


def remind(invoice_id: int) -> Reminder | None:
    """Remind of an invoice if a step is due, or write nothing and return None.

    Raises:
        NotFound: it does not exist.
        HolderBusy: another process has its payments; nothing was written.
    """
    with own_or_joined():
        invoice, refs = _lock(invoice_id)
        step = _next_steps([invoice]).get(invoice_id)
        return None if step is None else _write(invoice, step, refs)


def _lock(invoice_id: int) -> tuple[Invoice, list[str]]:
    """Lock what a reminder is decided under until COMMIT; return the invoice and the subscriptions that it bills."""
    rows = Invoice.objects.filter(pk=invoice_id)
    ref, customer_ref = first_of(rows.values_list("subscription_ref", "customer_ref"), INVOICE.word, invoice_id)
    # The order of locks: a fee is an order of the subscription.
    refs = [ref] if ref else subscriptions_of(invoice_id)
    if refs:
        with advisory_lock(*map(SUBSCRIPTION_INTENT, refs)):
            pass
    for name in (REMINDER_HOLD(customer_ref), payment_key(invoice_id)):
        with advisory_lock(name):
            pass
    return rows.get(), refs


@dataclass(frozen=True, kw_only=True)
class NewReminder(Record):
    """A reminder of an overdue invoice, at once."""

    invoice: Annotated[int, EntryNumber("The invoice, by its id.")]
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


def _remind_now(request: NewReminder) -> Reminder:
    """Send the next reminder of an overdue invoice at once, also before its day, or raise and write nothing.

    It is the next step of the seller, with the fee and suspension of that step, and the following step keeps its distance from
    it. After the last step, and where the seller has no steps, it has neither.

    Raises:
        NotFound: the invoice does not exist.
        NotReminded: it is not overdue, disputed, on hold, or was reminded of today; or there is no address for the mail.
        HolderBusy: another process has its payments, for longer than lock_timeout.
    """
    with own_or_joined():
        invoice, refs = _lock(request.invoice)
        reminded = list(Reminder.objects.filter(invoice_id=invoice.pk).order_by("step").values_list("reminded_on", flat=True))
        reason = _reason_against(invoice, reminded)
        if reason is not None:
            raise NotReminded(invoice=invoice.pk, reason=reason)
        return _write(invoice, len(reminded) + 1, refs, request.actor)


remind_now = UseCase(NewReminder, _remind_now)


def _reason_against(invoice: Invoice, reminded: Sequence[date]) -> str | None:
    """Return why no reminder can be sent at once, as in `WHY_NOT_REMINDED`; None if it can.

    Args:
        reminded: the days of the reminders so far.
    """
    today = today_of(invoice)
    if invoice.state != Invoice.State.OPEN:
        return str(invoice.state)
    if invoice.due_date is None or today <= invoice.due_date:
        return "not-overdue"
    if _disputed_invoices([invoice.pk]):
        return "disputed"
    if _waiting([invoice.pk]):
        return "first-payment"
    if on_hold([invoice], today=today_of):
        return "on-hold"
    if today in reminded:
        return "reminded-today"
    if "email" not in _terms(invoice.seller_id):
        return "no-sender"
    return None if Customer.objects.filter(pk=invoice.customer_id).exclude(email="").exists() else "no-address"


def _write(invoice: Invoice, step: int, refs: Sequence[str], actor: str = ACTOR) -> Reminder:
    """Write a reminder with what it does. One beyond the last step of the seller has no fee and suspends nothing.

    Args:
        refs: the subscriptions that the invoice bills. The first is charged the fee; all are suspended.
    """
    terms, customer = _terms(invoice.seller_id), Customer.objects.get(pk=invoice.customer_id)
    is_step = step <= len(terms.get("reminder_days", []))
    fee_minor = terms.get("reminder_fee_minor", {}).get(invoice.currency, 0)
    charged = is_step and step > 1 and fee_minor and refs and invoice.currency == customer.currency
    charge = None
    if charged:
        text = FEE_TEXTS[language_of(customer.language).code].format(step=step, number=invoice.number)
        charge = charge_once(ref=refs[0], amount_minor=fee_minor, description=text, actor=actor)
    suspends = bool(refs) and is_step and step == terms.get("suspends_at_reminder")
    reminder = Reminder.objects.create(
        invoice_id=invoice.pk,
        customer_id=invoice.customer_id,
        step=step,
        remaining_minor=invoice.amount_remaining_minor,
        fee_minor=fee_minor if charged else 0,
        charge_id=None if charge is None else charge.pk,
        suspends=suspends,
        reminded_on=today_of(invoice),
        actor=actor,
    )
    if customer.email and "email" in terms:
        Mail.objects.create(
            kind=f"{REMINDER}{step}", invoice_id=invoice.pk, customer_id=customer.pk, identity=uuid4(), recipient=customer.email
        )
    # Locks of a kind are taken in the order of their numbers.
    for ref in sorted(refs, key=lambda ref: lock_number(SUSPENSION(ref))) if suspends else ():
        suspend(ref=ref, reason=OVERDUE, facts={"invoice": invoice.number, "reminder": step})
    reminder.refresh_from_db()
    return reminder


def _terms(seller_id: int | None) -> dict[str, Any]:
    """Return what the seller of a document has now."""
    issuer = seller_of(seller_id)
    seller = None if issuer is None else current_seller(issuer.ref)
    return {} if seller is None else dict(seller.details)


def _next_steps(invoices: Sequence[Invoice]) -> dict[int, int]:
    """Return by invoice the reminder that is due; those that are paid, not overdue, disputed or on hold are left out.

    So is the first invoice of a subscription that waits for its payment: without it the order expires.

    A few queries read what all of them need.
    """
    days = {seller_id: _terms(seller_id).get("reminder_days", []) for seller_id in {one.seller_id for one in invoices}}
    ids = [one.pk for one in invoices if days[one.seller_id] and one.state == Invoice.State.OPEN and one.amount_remaining_minor]
    left = set(ids) - _disputed_invoices(ids)
    left -= _waiting(left)
    left -= on_hold([one for one in invoices if one.pk in left], today=today_of)
    reminded: dict[int, list[date]] = {}
    for invoice_id, day in Reminder.objects.filter(invoice_id__in=left).order_by("step").values_list("invoice_id", "reminded_on"):
        reminded.setdefault(invoice_id, []).append(day)
    due = {}
    for one in invoices:
        if one.pk in left and one.due_date is not None:
            steps, done = days[one.seller_id], reminded.get(one.pk, [])
            if (step := due_step(steps, due_date=one.due_date, reminded=done, today=today_of(one))) is not None:
                due[one.pk] = step
    return due


def _disputed_invoices(ids: Collection[int]) -> set[int]:
    """Return which of these invoices have a payment that the bank took back."""
    disputes = PaymentReturn.objects.filter(kind=PaymentReturn.Kind.DISPUTE, invoice_payment__invoice_id__in=ids)
    return set(disputes.values_list("invoice_payment__invoice_id", flat=True))


def _waiting(ids: Collection[int]) -> set[int]:
    """Return which of these are first invoices of subscriptions that wait for their payment."""
    waiting = Activation.objects.filter(invoice_id__in=ids, state=Activation.State.WAITING)
    return set(waiting.values_list("invoice_id", flat=True))


def _due() -> Iterator[int]:
    """Yield the overdue invoices of which a reminder is due, by keyset on the id."""
    last = 0
    while page := _page(last):
        yield from _next_steps(page)
        last = page[-1].pk


def _page(after: int) -> list[Invoice]:
    return list(Invoice.objects.filter(is_overdue(), pk__gt=after).order_by("pk")[:PAGE_ROWS])


def count_due(after: int) -> tuple[int, int | None]:
    """Return how many of the next PAGE_ROWS overdue invoices have a reminder that is due, and the id of the last of them.

    Args:
        after: the id of the last invoice of the page before; 0 at the beginning.
    """
    page = _page(after)
    return len(_next_steps(page)), page[-1].pk if page else None


def _paid_up() -> Iterator[str]:
    """Yield the suspended subscriptions of which no reminded invoice is owed any more."""
    for row in SuspendedBilling.objects.filter(resumed_at=None, reason=OVERDUE, suspended_at__lt=timezone.now()).order_by("pk"):
        of_it = Invoice.objects.filter(bills(row.subscription_id), state__in=OWED)
        if not Reminder.objects.filter(suspends=True, invoice_id__in=of_it.values("pk")).exists():
            yield Subscription.objects.values_list("ref", flat=True).get(pk=row.subscription_id)
