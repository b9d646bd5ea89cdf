"""Subscriptions that start when their first invoice is paid: ordered with that invoice, canceled, and expired.

The payment itself starts them, by a trigger of the invoice: docs/explanation/billing.md. Whatever ends the waiting holds
`payment/<invoice>`.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from django.db import Error
from django.utils import timezone

from billing.documents import credit_notes, transitions
from billing.documents.invoice_locks import invoice_key, payment_key
from billing.errors import BillingWouldBeSuspended, InvoiceGenerationBusy, SubscriptionNotIncomplete
from billing.generator.difference.run_limits import OutOfBounds
from billing.generator.options import Options
from billing.generator.run.generate import generate_under
from billing.models import Activation, CouponUse, Invoice, Subscription
from billing.orders.subscriptions import NewSubscription, create_subscription, never_start, present, subscription_of
from billing.rating.values import Ref
from billing.tax_asking import asks_taxes
from ledger import conf, previews
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.locks import advisory_lock, try_advisory_lock
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction, own_or_joined
from ledger.errors import LedgerError, LockBusy, Misuse
from ledger.records import Record, UseCase
from ledger.typesetting.languages import language_of
from ledger.values import MAX_REASON_CHARACTERS, Text

log = logging.getLogger(__name__)

State = Activation.State
BILLING: Final = "billing"
NOT_IN_TIME: Final = "Not paid in time"
CANCELED: Final = "Order canceled"
NOT_STARTED: Final = {"en": "The subscription was not started", "de": "Das Abonnement wurde nicht begonnen"}
"""The reason on the credit note of an invoice of which a part was paid."""
PAGE_ROWS: Final = 500
NOW: Final = "statement_timestamp()"
NOW_BY_CLOCK: Final = f"coalesce(ledger_clock(c.holder_id), {NOW})"

# By the partial index on what waits; a test clock may have moved on further than the present.
OVERDUE: Final = """
    SELECT s.id, s.ref
    FROM billing_activation AS activation
    JOIN billing_subscription AS s ON s.id = activation.subscription_id
    JOIN billing_customer AS c ON c.id = s.customer_id
    WHERE activation.state = 'waiting' AND activation.expires_at <= {now} AND s.id > %(after)s
    ORDER BY s.id
    LIMIT %(rows)s
"""


class _Overdue(NamedTuple):
    """A row of OVERDUE."""

    id: int
    ref: str


@asks_taxes
def _order(request: NewSubscription) -> Subscription:
    """Write a subscription, with its first invoice if it starts when that is paid; or raise and write nothing.

    Without anything to pay it starts at once. In a preview the invoice gets no number.

    Raises: as `create_subscription`, and
        BillingWouldBeSuspended: the first invoice exceeds a limit.
        HolderBusy: another process has the customer's account or credits; nothing was written.
        TaxesUnavailable, TaxesRefused: the seller's provider of taxes has no answer for the first invoice; nothing was written.
    """
    with own_or_joined():
        subscription = create_subscription.execute(request)
        if request.starts_when_paid:
            options = Options(as_of=subscription.started_at, dry_run=previews.current() is not None)
            try:
                with try_advisory_lock(invoice_key(request.ref)) as lock:
                    generate_under(lock, ref=request.ref, options=options)
            except OutOfBounds as beyond:
                raise BillingWouldBeSuspended(subscription=request.ref, reason=beyond.reason, **beyond.facts) from None
    return subscription


order_subscription = UseCase(NewSubscription, _order)


@dataclass(frozen=True, kw_only=True)
class CanceledOrder(Record):
    """The order of a subscription that waits for its first payment."""

    ref: Annotated[str, Ref()]
    reason: Annotated[str, Text("Why, for people.", most=MAX_REASON_CHARACTERS)] = ""
    actor: str = ""


def _cancel(request: CanceledOrder) -> Activation:
    """Cancel an order that waits for its first payment, and void its invoice; or raise and write nothing.

    Raises:
        NotFound: the subscription does not exist.
        SubscriptionNotIncomplete: it does not wait.
        InvoiceGenerationBusy, HolderBusy: another process is at it; nothing was written.
    """
    subscription_of(request.ref)
    settled = _settle(request.ref, State.CANCELED, actor=request.actor, reason=request.reason or CANCELED)
    if settled is None:
        raise SubscriptionNotIncomplete(subscription=request.ref)
    return settled


cancel_order = UseCase(CanceledOrder, _cancel)


@dataclass(slots=True)
class Expired:
    """The counts of one run."""

    expired: int = 0
    failed: int = 0


def expire_due(*, dry_run: bool = False, stop: Callable[[], bool] = lambda: False) -> Expired:
    """Expire each subscription whose first invoice was not paid in time, each in a transaction; any number of workers may do so.

    One that fails is counted and left to the next run; the others go on.

    Args:
        dry_run: count, and write nothing.
        stop: called before each; True ends the run.
    """
    expired = Expired()
    for ref in _overdue():
        if stop():
            return expired
        try:
            expired.expired += dry_run or expire(ref) is not None
        except Misuse:
            raise
        except (LedgerError, Error) as error:
            expired.failed += 1
            log.warning("subscription %s: %s: %s", ref, type(error).__name__, error)
    return expired


def expire(ref: str) -> Activation | None:
    """Expire a subscription if its time to be paid is over, and void its invoice; otherwise write nothing and return None.

    Raises:
        InvoiceGenerationBusy, HolderBusy: another process is at it; nothing was written.
    """
    return _settle(ref, State.EXPIRED, actor=BILLING, reason=NOT_IN_TIME)


def _overdue() -> Iterator[str]:
    sql = OVERDUE.format(now=NOW_BY_CLOCK if conf.TEST_CLOCKS.value else NOW)
    after = 0
    while rows := fetch_rows(_Overdue, sql, {"after": after, "rows": PAGE_ROWS}):
        yield from (row.ref for row in rows)
        after = rows[-1].id


def _settle(ref: str, state: Activation.State, *, actor: str, reason: str) -> Activation | None:
    """End the waiting of a subscription, with its invoice and its order, once; return None if it does not wait any more.

    The order of locks: what is ordered, the documents, then the payments of the invoice. After the last one is taken, nobody
    pays the invoice, and what is read is what is paid.
    """
    with locked_transaction(SUBSCRIPTION_INTENT(ref)) as intent:
        subscription = subscription_of(ref)
        try:
            with try_advisory_lock(invoice_key(ref)):
                waiting = Activation.objects.filter(subscription_id=subscription.pk, state=State.WAITING)
                invoice_id = waiting.values_list("invoice_id", flat=True).first()
                if invoice_id is not None:
                    with advisory_lock(payment_key(invoice_id)):
                        pass  # it is held until the transaction ends
                activation = waiting.first()
                if activation is None or (state == State.EXPIRED and activation.expires_at > present(subscription)):
                    return None
                waiting.update(state=state, settled_at=timezone.now(), settled_by="" if state == State.EXPIRED else actor)
                never_start(intent, subscription, actor)
                if invoice_id is not None:
                    _take_back(invoice_id, actor=actor, reason=reason)
        except InvoiceGenerationBusy:
            raise
        except LockBusy as busy:
            raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
        activation.refresh_from_db()
    return activation


def _take_back(invoice_id: int, *, actor: str, reason: str) -> None:
    """Void the first invoice. If a part of it is paid, a credit note for all of it makes that part credit of the customer."""
    if not Invoice.objects.filter(pk=invoice_id, amount_paid_minor__gt=0).exists():
        transitions.apply_in(invoice_id=invoice_id, kind="void", actor=actor, reason=reason)
        return
    language = Invoice.objects.values_list("buyer__language", flat=True).get(pk=invoice_id)
    printed = NOT_STARTED[language_of(language or "").code]
    credit_notes.issue_in(invoice_id=invoice_id, reason=printed, actor=actor)
    CouponUse.objects.filter(invoice_id=invoice_id, released_at=None).update(released_at=timezone.now())
