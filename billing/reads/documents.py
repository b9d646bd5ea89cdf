"""Invoices and credit notes with the fields of the REST contract, and the transitions of their states."""

from collections.abc import Collection, Sequence
from datetime import date
from typing import Any

from django.db.models import DateField, DateTimeField, F, Func, OuterRef, Q, QuerySet, Subquery, Value
from django.db.models.functions import Cast, Coalesce
from django.utils import timezone

from billing.errors import NotFound
from billing.models import (
    CREDIT_NOTE,
    INVOICE,
    CreditNote,
    CreditNoteLine,
    CreditNoteTax,
    CreditNoteUse,
    CreditRefund,
    Customer,
    Invoice,
    InvoicedSubscription,
    InvoiceTax,
    Line,
    Subscription,
    Transition,
)
from billing.models.columns import first_of
from billing.reads.document_names import LineTitles, TaxNames, discounts_of, document_language
from billing.reads.document_schemas import (
    CreditNoteLineSerializer,
    CreditNoteSerializer,
    CreditRefundSerializer,
    InvoiceDiscountSerializer,
    InvoiceLineSerializer,
    InvoiceSerializer,
    InvoiceTaxSerializer,
    OpenCreditSerializer,
)
from billing.reads.pages import page
from ledger import conf
from ledger.services import time_of


def invoice_document(invoice_id: int) -> dict[str, Any]:
    """Return an invoice with its lines and taxes, in the form of the REST contract.

    Raises:
        NotFound: the invoice does not exist.
    """
    invoice = first_of(Invoice.objects.filter(pk=invoice_id), INVOICE.word, invoice_id)
    return invoice_documents([invoice])[0]


def invoices(
    *,
    subscription: str | None = None,
    customer: str | None = None,
    state: str | None = None,
    number: str | None = None,
    currency: str | None = None,
    since: date | None = None,
    until: date | None = None,
    overdue: bool | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[dict[str, Any]]:
    """Return invoices, the newest first, by keyset on the id.

    Args:
        since, until: issued on a day in `[since, until)`; a draft has no day.
        overdue: True: only those that are overdue; False: only the others.
        before, after: see `pages.page`.
    """
    filters = {
        "customer__in": None if customer is None else Customer.objects.filter(ref=customer).values("pk"),
        "state": state, "number": number, "currency": currency,
        "issue_date__gte": since, "issue_date__lt": until,
    }  # fmt: skip
    rows = Invoice.objects.filter(**{name: value for name, value in filters.items() if value is not None})
    if subscription is not None:
        rows = rows.filter(bills(Subscription.objects.filter(ref=subscription).values("pk")))
    if overdue is not None:
        late = Invoice.objects.filter(is_overdue()).values("pk")
        rows = rows.filter(pk__in=late) if overdue else rows.exclude(pk__in=late)
    return invoice_documents(page(rows, before=before, after=after, limit=limit))


def bills(subscription: Any, invoice: str = "pk") -> Q:
    """Return the condition for invoices that bill a subscription, the consolidated ones among them, or rows about these.

    Args:
        subscription: its id, or a query of ids.
        invoice: the column with the invoice's id.
    """
    ids = {"subscription__in": [subscription] if isinstance(subscription, int) else subscription}
    return Q(**ids) | Q(**{f"{invoice}__in": InvoicedSubscription.objects.filter(**ids).values("invoice_id")})


def transitions(invoice_id: int, *, before: int | None = None, after: int | None = None, limit: int) -> list[Transition]:
    """Return the transitions of an invoice, the newest first, by keyset on the id; also the deletion of a draft.

    Args: `before`, `after` as in `invoices`.

    Raises:
        NotFound: the invoice does not exist, and is not a deleted draft.
    """
    rows = Transition.objects.filter(invoice_id=invoice_id)
    page_rows = page(rows, before=before, after=after, limit=limit)
    if not page_rows and not rows.exists() and not Invoice.objects.filter(pk=invoice_id).exists():
        raise NotFound(resource="invoice", ref=invoice_id)
    return page_rows


def invoice_documents(rows: Sequence[Invoice], *, language: str | None = None) -> list[dict[str, Any]]:
    """Return several invoices with their lines, discounts and taxes, by at most eight queries in all.

    Args:
        language: the code of the language of all names; None: the language of each invoice's buyer.
    """
    ids = [invoice.pk for invoice in rows]
    languages = {invoice.pk: language or document_language(invoice) for invoice in rows}
    found = list(Line.objects.filter(invoice_id__in=ids).order_by("invoice_id", "position"))
    titles, invoices_by_id = LineTitles(found), {invoice.pk: invoice for invoice in rows}
    billed = subscriptions_on(ids)
    lines: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for line in found:
        title = titles.of(line, invoices_by_id[line.invoice_id], languages[line.invoice_id])
        of = billed.get((line.invoice_id, line.subscription_id)) or _own_subscription(invoices_by_id[line.invoice_id])
        lines[line.invoice_id].append(InvoiceLineSerializer.body(line, title=title, subscription=of))
    discounts = discounts_of(rows, languages)
    taxes: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    tax_rows = list(InvoiceTax.objects.filter(invoice_id__in=ids).order_by("invoice_id", "category", "rate", "code"))
    names = TaxNames(tax_rows)
    for tax in tax_rows:
        taxes[tax.invoice_id].append(InvoiceTaxSerializer.body(tax, name=names.of(tax, languages[tax.invoice_id])))
    refunded = dict(CreditRefund.objects.filter(invoice_id__in=ids).values_list("invoice_id", "amount_minor"))
    return [
        InvoiceSerializer.body(
            invoice,
            refunded_minor=refunded.get(invoice.pk, 0),
            lines=lines[invoice.pk],
            discounts=[InvoiceDiscountSerializer.body(discount) for discount in discounts[invoice.pk]],
            taxes=taxes[invoice.pk],
        )
        for invoice in rows
    ]


def subscriptions_on(invoice_ids: Collection[int]) -> dict[tuple[int, int | None], str]:
    """Return the refs of the subscriptions that consolidated invoices bill, by invoice and subscription."""
    billed = InvoicedSubscription.objects.filter(invoice_id__in=invoice_ids)
    return {(one.invoice_id, one.subscription_id): one.subscription_ref for one in billed}


def _own_subscription(invoice: Invoice) -> str | None:
    return invoice.subscription_ref or None


# Credit notes ----------------------------------------------------------------------------------------


def credit_note_document(credit_note_id: int, *, language: str | None = None) -> dict[str, Any]:
    """Return a credit note with its lines and taxes. Args: as in `invoice_documents`.

    Raises:
        NotFound: the credit note does not exist.
    """
    notes = CreditNote.objects.filter(pk=credit_note_id).exclude(kind=CreditNote.Kind.DEPOSIT)
    note = first_of(notes, CREDIT_NOTE.word, credit_note_id)
    return _credit_note_documents([note], language)[0]


def is_overdue() -> Q:
    """What overdue invoices are: open, with an amount due since before today, which is the day of the holder's test clock."""
    today: Any = timezone.now().date()
    if conf.TEST_CLOCKS.value:
        holder = Customer.objects.filter(pk=OuterRef("customer_id")).values("holder_id")[:1]
        clock = Func(Subquery(holder), function="ledger_clock", output_field=DateTimeField())
        today = Cast(Coalesce(clock, Value(timezone.now(), DateTimeField())), DateField())
    return Q(state=Invoice.State.OPEN, amount_due_minor__gt=0, due_date__lt=today)


def today_of(invoice: Invoice) -> date:
    """Return the present day of the invoice's customer: that of the holder's test clock, if there is one."""
    if not conf.TEST_CLOCKS.value:
        return timezone.now().date()
    return time_of(Customer.objects.values_list("holder_id", flat=True).get(pk=invoice.customer_id)).date()


def credit_notes(
    *,
    customer: str | None = None,
    subscription: str | None = None,
    invoice: int | None = None,
    number: str | None = None,
    since: date | None = None,
    until: date | None = None,
    before: int | None = None,
    after: int | None = None,
    limit: int,
) -> list[dict[str, Any]]:
    """Return credit notes, the newest first, by keyset on the id. Args: as in `invoices`."""
    filters = {"number": number, "issue_date__gte": since, "issue_date__lt": until}
    rows: QuerySet[CreditNote] = CreditNote.objects.filter(
        **{name: value for name, value in filters.items() if value is not None}
    )
    rows = rows.exclude(kind=CreditNote.Kind.DEPOSIT)
    if subscription is not None:
        rows = rows.filter(bills(Subscription.objects.filter(ref=subscription).values("pk"), "invoice_id"))
    if customer is not None:
        rows = rows.filter(customer_id__in=Customer.objects.filter(ref=customer).values("pk"))
    if invoice is not None:
        rows = rows.filter(invoice_id=invoice)
    return _credit_note_documents(page(rows, before=before, after=after, limit=limit))


def note_left_minor(note: CreditNote) -> int:
    """Return the rest of a credit note; a void one has none."""
    return 0 if note.released_at else note.left_minor


def _credit_note_documents(rows: Sequence[CreditNote], language: str | None = None) -> list[dict[str, Any]]:
    ids = [note.pk for note in rows]
    invoices = Invoice.objects.in_bulk({note.invoice_id for note in rows if note.invoice_id is not None})
    billed = {(line.invoice_id, line.position): line for line in Line.objects.filter(invoice_id__in=invoices)}
    titles, invoice_of = LineTitles(billed.values()), {note.pk: note.invoice_id for note in rows}
    shared = subscriptions_on(invoices)
    lines: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    for line in CreditNoteLine.objects.filter(credit_note_id__in=ids).order_by("credit_note_id", "position"):
        invoice = invoices[invoice_of[line.credit_note_id]]
        of = billed[invoice.pk, line.position]
        title = titles.of(of, invoice, language or document_language(invoice))
        whose = shared.get((invoice.pk, of.subscription_id)) or _own_subscription(invoice)
        lines[line.credit_note_id].append(CreditNoteLineSerializer.body(line, title=title, subscription=whose))
    taxes: dict[int, list[dict[str, Any]]] = {pk: [] for pk in ids}
    tax_rows = list(CreditNoteTax.objects.filter(credit_note_id__in=ids).order_by("credit_note_id", "category", "rate", "code"))
    names = TaxNames(tax_rows)
    for tax in tax_rows:
        spoken = language or document_language(invoices[invoice_of[tax.credit_note_id]])
        taxes[tax.credit_note_id].append(InvoiceTaxSerializer.body(tax, name=names.of(tax, spoken)))
    lowering = CreditNoteUse.objects.filter(credit_note_id__in=ids, released_at=None, invoice_id=F("credit_note__invoice_id"))
    lowered = dict(lowering.values_list("credit_note_id", "amount_minor"))
    return [
        CreditNoteSerializer.body(
            note,
            invoice_number=invoices[note.invoice_id].number,
            subscription=invoices[note.invoice_id].subscription_ref or None,
            customer=invoices[note.invoice_id].customer_ref,
            lowers_due_minor=lowered.get(note.pk, 0),
            left_minor=note_left_minor(note),
            lines=lines[note.pk],
            taxes=taxes[note.pk],
        )
        for note in rows
    ]


# The credit of a customer ----------------------------------------------------------------------------


def open_credit_of(customer_id: int) -> list[CreditNote]:
    """Return the credit notes and deposits of a customer with a rest, by currency, the oldest first."""
    return list(CreditNote.objects.filter(customer_id=customer_id, released_at=None, left_minor__gt=0).order_by("currency", "id"))


def credit_balance(customer: str) -> dict[str, Any]:
    """Return a customer's credit per currency, with the credit notes and deposits that it consists of.

    Raises:
        NotFound: the customer does not exist.
    """
    open_credit = open_credit_of(first_of(Customer.objects.filter(ref=customer), "customer", customer).pk)
    subscriptions = Subscription.objects.in_bulk(
        {note.subscription_id for note in open_credit if note.subscription_id is not None}
    )
    balances: dict[str, list[CreditNote]] = {}
    for note in open_credit:
        balances.setdefault(note.currency, []).append(note)
    return {
        "customer": customer,
        "balances": [
            {
                "currency": currency,
                "balance_minor": sum(note.left_minor for note in notes),
                "credit": [
                    OpenCreditSerializer.body(note, subscription=getattr(subscriptions.get(note.subscription_id), "ref", None))
                    for note in notes
                ],
            }
            for currency, notes in balances.items()
        ],
    }


def credit_refunds(customer: str, *, before: int | None = None, after: int | None = None, limit: int) -> list[dict[str, Any]]:
    """Return the refunds of a customer's credit, the newest first, by keyset on the id. Args: as in `invoices`.

    Raises:
        NotFound: the customer does not exist.
    """
    owner = first_of(Customer.objects.filter(ref=customer), "customer", customer)
    rows = page(CreditRefund.objects.filter(customer_id=owner.pk), before=before, after=after, limit=limit)
    return credit_refund_documents(rows, customer)


def credit_refund_documents(rows: Sequence[CreditRefund], customer: str) -> list[dict[str, Any]]:
    """Return refunds of a customer with the credit notes and deposits that they were taken from, by one query."""
    parts: dict[int | None, list[dict[str, Any]]] = {}
    taken = CreditNoteUse.objects.filter(refund_id__in=[row.pk for row in rows]).select_related("credit_note").order_by("id")
    for use in taken:
        note = use.credit_note
        part = {"credit_note": note.pk, "kind": note.kind, "number": note.number, "amount_minor": use.amount_minor}
        parts.setdefault(use.refund_id, []).append(part)
    return [CreditRefundSerializer.body(row, customer=customer, taken_from=parts[row.pk]) for row in rows]
