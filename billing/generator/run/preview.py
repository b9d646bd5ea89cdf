"""The next invoices of subscriptions, made by the generator itself in a preview: nothing is written, and no holder waits.

The steps follow each other in one preview, each at the next due instant, so each finds what the steps before it have billed.
Runs at these instants make the same invoices.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from billing import reads
from billing.generator.options import Options
from billing.generator.run.differences import LineDifference, differences
from billing.generator.run.due import DueFilter, consolidating, due_among
from billing.generator.run.gathering import Turns, consolidate
from billing.generator.run.generate import dry_run_staying
from billing.generator.run.steps import AllowanceMove, GenerationResult
from billing.models import Customer, Invoice, InvoicedSubscription, Subscription
from billing.tax_asking import asks_taxes
from ledger import previews
from ledger.database.statements import fetch_rows
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


_Whose = tuple[str, str | None]
"""The customer, and the subscription or, of a consolidated invoice, None."""


class _DueAfter(NamedTuple):
    """A row of DUE_AFTER."""

    ref: str
    due_at: datetime


@dataclass(frozen=True, slots=True)
class UpcomingInvoice:
    """An invoice that a run would make, and how it differs from the one before it.

    The one before a consolidated invoice is the customer's last consolidated one.

    Args:
        as_of: when the run would make it.
        document: as a dry run shows it, with the issue date of that day.
        is_first: there is no invoice before it.
        before: the number of the invoice before it; None: the one before is a preview itself, or there is none.
        different: line by line; empty if there is no invoice before it.
        allowances: what the same run, and those since the invoice before it, would grant and give back.
    """

    as_of: datetime
    document: dict[str, Any]
    is_first: bool
    before: str | None
    different: tuple[LineDifference, ...]
    allowances: tuple[AllowanceMove, ...] = ()


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
    upcoming_invoices: list[UpcomingInvoice] = []
    latest: dict[_Whose, dict[str, Any] | None] = {}
    moved: list[AllowanceMove] = []

    def show(made: GenerationResult) -> None:
        moved.extend(made.allowances)
        for one, document in zip(made.invoices, made.documents, strict=True):
            if one.is_draft:
                # A draft in its grace comes when that is over, and one that waits for others on their invoice.
                continue
            whose = document["customer"], document["subscription"]
            before = latest[whose] if whose in latest else _latest(*whose)
            different = differences(before, document) if before is not None else ()
            upcoming_invoices.append(
                UpcomingInvoice(
                    as_of, document, before is None, None if before is None else before["number"], different, tuple(moved)
                )
            )
            moved.clear()
            latest[whose] = document

    for _ in range(MAX_STEPS):
        due_filter = DueFilter(as_of=as_of, suspended=True, as_if_paid=True)
        options = Options(as_of=as_of, dry_run=True, as_if_paid=True, render=partial(_document, as_of=as_of))
        waiting, had_turn = False, set[str]()
        # As a run does, it locks only those that may be due: the server has room for some thousand locks.
        for ref in due_among(refs, due_filter):
            if len(upcoming_invoices) >= most and not waiting:
                break
            made = dry_run_staying(ref=ref, options=options)
            if not made.invoices:
                had_turn.add(ref)
            waiting = waiting or any(one.is_part for one in made.invoices)
            show(made)
        for customer_ref in list(consolidating(due_filter, refs)):
            show(consolidate(customer_ref, Turns(due_filter, had_turn, among=refs), options))
            shown.rows_stay()
        later = [one for one in fetch_rows(_DueAfter, DUE_AFTER, {"refs": list(refs)}) if one.due_at > as_of]
        if len(upcoming_invoices) >= most or not later:
            break
        as_of = min(one.due_at for one in later)
    return upcoming_invoices[:most]


@asks_taxes
def preview_next_invoices(refs: Sequence[str], *, as_of: datetime, most: int) -> list[UpcomingInvoice]:
    """Return what `next_invoices` does, in a separate preview on one snapshot.

    Raises: as `next_invoices`, and
        TaxesUnavailable, TaxesRefused: the seller's provider of taxes has no answer.
    """
    upcoming_invoices: list[UpcomingInvoice] = []
    with preview(one_snapshot=True):
        upcoming_invoices += next_invoices(refs, as_of=as_of, most=most)
    return upcoming_invoices


def next_invoices_apart(refs: Sequence[str], *, as_of: datetime, most: int) -> list[UpcomingInvoice]:
    """Return what `next_invoices` does; the caller's preview forgets the rows, and what was decided about credits."""
    upcoming_invoices: list[UpcomingInvoice] = []
    try:
        with preview():
            upcoming_invoices = next_invoices(refs, as_of=as_of, most=most)
            raise _Forgotten
    except _Forgotten:
        return upcoming_invoices


class _Forgotten(Exception):
    """Ends a part of a preview whose decisions about credits must not stay."""


def _document(invoice_id: int, as_of: datetime) -> dict[str, Any]:
    document = reads.invoice_document(invoice_id)
    customer = Customer.objects.get(ref=document["customer"])
    issued_on: date = as_of.astimezone(ZoneInfo(customer.time_zone)).date()
    due_on = issued_on + timedelta(days=customer.terms_days)
    return document | {"issue_date": issued_on.isoformat(), "due_date": due_on.isoformat()}


def _latest(customer_ref: str, subscription_ref: str | None) -> dict[str, Any] | None:
    """Return the last invoice of a subscription that stands; without one, the customer's last consolidated invoice."""
    states = [Invoice.State.DRAFT, Invoice.State.VOID]
    rows = Invoice.objects.filter(customer_ref=customer_ref, subscription_ref=subscription_ref or "").exclude(state__in=states)
    if subscription_ref is None:
        rows = rows.filter(pk__in=InvoicedSubscription.objects.values("invoice_id"))
    row = rows.order_by("-id").first()
    return None if row is None else reads.invoice_documents([row])[0]


def subscriptions_of(customer: Customer) -> list[str]:
    """Return the refs of a customer's subscriptions, in the order in which a run bills them."""
    return list(Subscription.objects.filter(customer_id=customer.pk).order_by("id").values_list("ref", flat=True))
