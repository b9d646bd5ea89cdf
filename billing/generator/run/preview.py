"""The next invoices of subscriptions, made by the generator itself in a preview: nothing is written, and no holder waits.

The steps follow each other in one preview, each at the next due instant, so each finds what the steps before it have billed.
Runs at these instants make the same invoices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from billing import reads
from billing.documents.invoice_locks import invoice_key
from billing.errors import BillingWouldBeSuspended, InvoiceGenerationBusy, PeriodAlreadyBilled
from billing.generator.difference.run_limits import OutOfBounds
from billing.generator.options import Options
from billing.generator.run.differences import LineDifference, differences
from billing.generator.run.due import DueFilter, due_among
from billing.generator.run.generate import generate_under
from billing.models import Customer, Invoice, Subscription
from ledger.database.locks import try_advisory_lock
from ledger.database.statements import fetch_rows
from ledger.entries import previews
from ledger.errors import LockBusy
from ledger.services import preview

MAX_INVOICES = 12
MAX_STEPS = 400
"""How many due instants a preview looks at: those of usage without events make no invoice."""

# The next instants at which a run would make or finalise invoices of the subscriptions.
DUE_AFTER = """
    SELECT s.ref, least(cursor.recurring_due_at, cursor.usage_due_at)
        + make_interval(hours => 24 * coalesce(s.hold_days, c.hold_days)) AS due_at
    FROM billing_subscription AS s
    JOIN billing_customer AS c ON c.id = s.customer_id
    JOIN billing_cursor AS cursor ON cursor.subscription_id = s.id
    WHERE s.ref = ANY(%(refs)s) AND least(cursor.recurring_due_at, cursor.usage_due_at) IS NOT NULL
    UNION ALL
    SELECT i.subscription_ref, i.grace_ends_at FROM billing_invoice AS i
    WHERE i.subscription_ref = ANY(%(refs)s) AND i.state = 'draft' AND i.grace_ends_at IS NOT NULL
"""


class _Due(NamedTuple):
    """A row of DUE_AFTER."""

    ref: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class UpcomingInvoice:
    """An invoice that a run would make, and how it differs from the subscription's invoice before it.

    Args:
        as_of: when the run would make it.
        document: as a dry run shows it, with the issue date of that day.
        is_first: there is no invoice before it.
        before: the number of the invoice before it; None: the one before is a preview itself, or there is none.
        different: line by line; empty if there is no invoice before it.
    """

    as_of: datetime
    document: dict[str, Any]
    is_first: bool
    before: str | None
    different: tuple[LineDifference, ...]


def next_invoices(refs: Sequence[str], *, as_of: datetime, most: int) -> list[UpcomingInvoice]:
    """Return what runs from an instant on would make, in the order of time. Only in a preview of the caller.

    A subscription that waits for its first payment is shown as if it was paid.

    Args:
        as_of: the first run; what is due by then comes first.
        most: how many invoices, 1 to MAX_INVOICES.

    Raises:
        InvoiceGenerationBusy: another process makes invoices of one of the subscriptions, or has made one since the preview's
            snapshot.
        BillingSuspended, BillingWouldBeSuspended: no run would bill one of them.
    """
    shown = previews.current()
    assert shown is not None, "next_invoices needs the preview of its caller"
    found: list[UpcomingInvoice] = []
    latest: dict[str, dict[str, Any] | None] = {}
    # As a run does, it locks only those that may be due: the server has room for some thousand locks.
    due = due_among(refs, DueFilter(as_of=as_of, suspended=True, as_if_paid=True))
    for _ in range(MAX_STEPS):
        for ref in due:
            if len(found) >= most:
                break
            for document in _made(ref, as_of):
                before = latest[ref] if ref in latest else _latest(ref)
                different = differences(before, document) if before is not None else ()
                found.append(
                    UpcomingInvoice(as_of, document, before is None, None if before is None else before["number"], different)
                )
                latest[ref] = document
            shown.rows_stay()
        later = [one for one in fetch_rows(_Due, DUE_AFTER, {"refs": list(refs)}) if one.due_at > as_of]
        if len(found) >= most or not later:
            break
        as_of = min(one.due_at for one in later)
        due = [ref for ref in refs if any(one == (ref, as_of) for one in later)]
    return found[:most]


def next_invoices_apart(refs: Sequence[str], *, as_of: datetime, most: int) -> list[UpcomingInvoice]:
    """Return what `next_invoices` does; the caller's preview forgets the rows, and what was decided about credits."""
    found: list[UpcomingInvoice] = []
    try:
        with preview():
            found = next_invoices(refs, as_of=as_of, most=most)
            raise _Forgotten
    except _Forgotten:
        return found


class _Forgotten(Exception):
    """Ends a part of a preview whose decisions about credits must not stay."""


def _made(ref: str, as_of: datetime) -> list[dict[str, Any]]:
    """Return the finalised invoices of a run, as documents; a draft in its grace comes when that is over."""
    options = Options(as_of=as_of, dry_run=True, as_if_paid=True, render=lambda invoice_id: _document(invoice_id, as_of))
    try:
        with try_advisory_lock(invoice_key(ref)) as lock:
            made = generate_under(lock, ref=ref, options=options)
    except LockBusy as busy:
        raise InvoiceGenerationBusy(**busy.facts, subscription=ref) from busy
    except PeriodAlreadyBilled as billed:
        raise InvoiceGenerationBusy(key=invoice_key(ref), subscription=ref) from billed
    except OutOfBounds as out_of_bounds:
        raise BillingWouldBeSuspended(subscription=ref, reason=out_of_bounds.reason, **out_of_bounds.facts) from None
    return [document for one, document in zip(made.invoices, made.documents, strict=True) if not one.is_draft]


def _document(invoice_id: int, as_of: datetime) -> dict[str, Any]:
    document = reads.invoice_document(invoice_id)
    customer = Customer.objects.get(ref=document["customer"])
    issued_on: date = as_of.astimezone(ZoneInfo(customer.time_zone)).date()
    due_on = issued_on + timedelta(days=customer.terms_days)
    return document | {"issue_date": issued_on.isoformat(), "due_date": due_on.isoformat()}


def _latest(ref: str) -> dict[str, Any] | None:
    """Return the subscription's last invoice that stands."""
    states = [Invoice.State.DRAFT, Invoice.State.VOID]
    row = Invoice.objects.filter(subscription_ref=ref).exclude(state__in=states).order_by("-id").first()
    return None if row is None else reads.invoice_documents([row])[0]


def subscriptions_of(customer: Customer) -> list[str]:
    """Return the refs of a customer's subscriptions, in the order in which a run bills them."""
    return list(Subscription.objects.filter(customer_id=customer.pk).order_by("id").values_list("ref", flat=True))
