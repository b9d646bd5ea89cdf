"""Decides when the consolidated invoice of a customer's day is made, and makes it.

Runs write the drafts of subscriptions, each under the lock of its subscription. Once no subscription of the customer is due any
more on that day, the process that looks first makes one document of the drafts. See docs/explanation/billing.md.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from django.db import transaction

from billing.documents.finalisation import finalizing, number_under, settle_under, show_settlement
from billing.documents.invoice_locks import document_key, invoice_key
from billing.errors import InvoiceGenerationBusy
from billing.generator.options import Options, Scope
from billing.generator.run.due import DueFilter, is_waited_for
from billing.generator.run.merging import Part, merge_under
from billing.generator.run.steps import GenerationResult, InvoiceSummary
from billing.models import Invoice, Line
from billing.rating.limits import MAX_MINOR
from ledger import previews
from ledger.database.locks import Lock, advisory_lock, try_advisory_lock
from ledger.database.statements import fetch_rows
from ledger.errors import LockBusy

MOST_SUBSCRIPTIONS: Final = 1_000
"""On one document: each has a lock until COMMIT, and the server has room for some thousand locks."""
MOST_LINES: Final = 10_000

DAYS: Final = """
    SELECT DISTINCT part.customer_id, part.consolidates_on FROM billing_invoice AS part
    WHERE part.customer_ref = %(customer)s AND part.state = 'draft' AND part.consolidates_on IS NOT NULL
    ORDER BY part.consolidates_on
"""
PARTS: Final = """
    SELECT part.id, part.customer_id, part.customer_ref, part.subscription_id, part.subscription_ref, part.consolidates_on,
        part.stays_draft, part.scope, part.currency,
        row_number() OVER (PARTITION BY part.subscription_id, part.consolidates_on, part.stays_draft, part.scope, part.currency
            ORDER BY part.id) AS place,
        part.as_of, part.amendments_seen, part.buyer::text, part.note, line.many, line.charged,
        EXISTS (SELECT FROM billing_claim AS claim JOIN billing_invoice AS later ON later.id = claim.released_by
            WHERE claim.made_by = part.id AND later.id <> part.id AND later.state NOT IN ('draft', 'void')) AS is_corrected
    FROM billing_invoice AS part
    CROSS JOIN LATERAL (
        SELECT count(*) AS many, coalesce(sum(abs(l.amount_minor) + l.discount_minor), 0)::bigint AS charged
        FROM billing_line AS l WHERE l.invoice_id = part.id
    ) AS line
    WHERE part.customer_ref = %(customer)s AND part.state = 'draft' AND part.consolidates_on = %(day)s
    ORDER BY part.stays_draft, part.scope, part.currency, place, part.subscription_id
"""


@dataclass(frozen=True, slots=True)
class Turns:
    """For which subscriptions a run waits; see `due.is_waited_for`."""

    due_filter: DueFilter
    had_turn: Collection[str] = ()
    among: Sequence[str] | None = None


class _Day(NamedTuple):
    """A row of DAYS."""

    customer_id: int
    day: date


def consolidate_next(customer_ref: str, turns: Turns, options: Options) -> GenerationResult | None:
    """Make the next consolidated invoice of a customer in the caller's transaction; None: there is none, or it waits.

    A draft that is alone on its document stays the document of its subscription.

    Raises:
        InvoiceGenerationBusy: another process has one of the subscriptions; nothing was written.
        HolderBusy: another process has a lock for longer than lock_timeout; nothing was written.
    """
    with _customers_turn(customer_ref):
        found = next(_documents(customer_ref, turns), None)
        if found is None:
            return None
        names = [document_key("", customer_ref), *(invoice_key(part.subscription_ref) for part in found)]
        try:
            with try_advisory_lock(*names) as lock:
                return _make_documents(lock, customer_ref, _still_there(found), options)
        except InvoiceGenerationBusy:
            raise
        except LockBusy as busy:
            raise InvoiceGenerationBusy(**busy.facts, subscription=found[0].subscription_ref) from busy


def consolidate(customer_ref: str, turns: Turns, options: Options) -> GenerationResult:
    """Make all consolidated invoices of a customer that wait for nobody. Raises: as `consolidate_next`."""
    made = GenerationResult(customer_ref)
    while (one := consolidate_next(customer_ref, turns, options)) is not None:
        made.invoices += one.invoices
        made.documents += one.documents
        made.replaced |= one.replaced
        if (shown := previews.current()) is not None:
            # The next document finds the rows of this one.
            shown.rows_stay()
    return made


def with_consolidated(generated: GenerationResult, options: Options) -> GenerationResult:
    """Make the consolidated invoices that waited for this subscription only, and put them in the place of its drafts.

    If another process has one of the other subscriptions, the drafts wait for the next run.
    """
    parts = [one.invoice_id for one in generated.invoices if one.is_part]
    if not parts:
        return generated
    customer_ref = Invoice.objects.values_list("customer_ref", flat=True).get(pk=parts[0])
    turns = Turns(DueFilter(as_of=options.as_of, recurring=options.only != Scope.USAGE, usage=options.only != Scope.RECURRING))
    try:
        with transaction.atomic():
            made = consolidate(customer_ref, turns, options)
    except InvoiceGenerationBusy:
        return generated
    stay = [index for index, one in enumerate(generated.invoices) if one.invoice_id not in made.replaced]
    documents = [generated.documents[index] for index in stay] if generated.documents else []
    invoices = [generated.invoices[index] for index in stay]
    return replace(generated, invoices=[*invoices, *made.invoices], documents=[*documents, *made.documents])


@contextmanager
def _customers_turn(customer_ref: str) -> Iterator[None]:
    """Hold the lock of the customer's documents: who is due, and which drafts there are, is read under it.

    A preview takes long, so it only tries it.
    """
    key = document_key("", customer_ref)
    if previews.current() is None:
        with advisory_lock(key):
            yield
        return
    try:
        with try_advisory_lock(key):
            yield
    except InvoiceGenerationBusy:
        raise
    except LockBusy as busy:
        raise InvoiceGenerationBusy(**busy.facts, subscription=customer_ref) from busy


def _documents(customer_ref: str, turns: Turns) -> Iterator[list[Part]]:
    """Yield the parts of each document that waits for nobody."""
    for customer_id, day in fetch_rows(_Day, DAYS, {"customer": customer_ref}):
        # Who is due is read before the drafts: a draft that was committed since is among them.
        if not is_waited_for(turns.due_filter, customer_id, day, had_turn=turns.had_turn, among=turns.among):
            parts = fetch_rows(Part, PARTS, {"customer": customer_ref, "day": day})
            for _, of_document in groupby(parts, key=attrgetter("stays_draft", "scope", "currency", "place")):
                yield from _within_limits(of_document)


def _within_limits(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the parts in as few documents as the limits allow."""
    document: list[Part] = []
    lines = charged_minor = 0
    for part in parts:
        if part.is_corrected:
            yield [part]
            continue
        lines, charged_minor = lines + part.lines, charged_minor + part.charged_minor
        if document and (len(document) == MOST_SUBSCRIPTIONS or lines > MOST_LINES or charged_minor > MAX_MINOR // 2):
            yield document
            document, lines, charged_minor = [], part.lines, part.charged_minor
        document.append(part)
    if document:
        yield document


def _still_there(parts: Sequence[Part]) -> list[Part]:
    """Return the parts that nobody has finalised or deleted before their locks were taken."""
    waiting = Invoice.objects.filter(pk__in=[part.id for part in parts], state=Invoice.State.DRAFT, consolidates_on__isnull=False)
    known = set(waiting.values_list("pk", flat=True))
    return [part for part in parts if part.id in known]


def _make_documents(lock: Lock, customer_ref: str, parts: Sequence[Part], options: Options) -> GenerationResult:
    made = GenerationResult(customer_ref, replaced={part.id for part in parts})
    if not parts:
        return made
    invoice_id = merge_under(lock, parts, options.run_id) if len(parts) > 1 else parts[0].id
    Invoice.objects.filter(pk=invoice_id).update(consolidates_on=None, stays_draft=False)
    invoice = Invoice.objects.get(pk=invoice_id)
    settled = None if parts[0].stays_draft else settle_under(lock, finalizing(invoice))
    number = None
    if settled is not None:
        number = (show_settlement if options.dry_run else number_under)(lock, settled).number
    invoice.refresh_from_db()
    made.invoices.append(
        InvoiceSummary(
            invoice_id=invoice_id,
            number=number,
            currency=invoice.currency,
            total_minor=invoice.total_minor,
            credits_applied_minor=invoice.credits_applied_minor,
            amount_due_minor=invoice.amount_due_minor,
            lines=Line.objects.filter(invoice_id=invoice_id).count(),
            is_draft=settled is None,
        )
    )
    if options.render is not None:
        made.documents.append(options.render(invoice_id))
    return made
