"""Credit notes on request: they correct a finalised invoice, which itself never changes.

A note gets its number in a separate series, last in the transaction, and is frozen like an invoice. The notes of an invoice never
exceed it: the lock of the subscription protects that decision, and the database checks the sum again with the number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, Final
from zoneinfo import ZoneInfo

from django.db import IntegrityError, connection
from django.db.models import F, Q, QuerySet, Sum
from django.utils import timezone

from billing.documents.credit_note_rules import (
    CashRounding,
    CreditNoteAmounts,
    LineRest,
    NoteSettlement,
    TaxRest,
    creditable,
    given_back,
    nets_of_taxes,
    parts,
    whole_rest,
)
from billing.documents.invoice_locks import key_of, locked_invoice
from billing.documents.sellers import issuing_seller
from billing.errors import CreditExceedsInvoice, InvalidTransition
from billing.models import (
    CREDIT_NOTE,
    DEFAULT_SELLER,
    Claim,
    CreditNote,
    CreditNoteLine,
    CreditNoteTax,
    CreditNoteUse,
    CreditPayment,
    Customer,
    Invoice,
    InvoiceTax,
    Line,
    Seller,
)
from billing.orders.starting import starting_if_paid
from billing.rating.money import round_half_up
from billing.rating.tax_amounts import Treatment, applied_taxes
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock, sqlstate
from ledger.errors import Invalid
from ledger.records import Nested, Record
from ledger.values import MAX_REASON_CHARACTERS, Amount, Integer, ListOf, Text

COLLECTION: Final = "credit-note-forms"
REQUESTED: Final = CreditNote.Kind.REQUESTED
CHECK_VIOLATION: Final = "23514"
CREDITED_STATES: Final = {Invoice.State.OPEN, Invoice.State.PAID, Invoice.State.UNCOLLECTIBLE}
CLAIM_OF: Final = {"recurring": Claim.Kind.RECURRING, "usage": Claim.Kind.USAGE, "late_usage": Claim.Kind.USAGE}

# As for an invoice: from here to COMMIT the row of the series is locked. The seller is the invoice's, in its current version.
NUMBER = f"""
    WITH issuer AS (
        SELECT seller.id, billing_series(
            coalesce(seller.details ->> 'credit_note_prefix', %(prefix)s), seller.details, %(issue_date)s, invoice.customer_ref
        ) AS series
        FROM billing_creditnote AS note
        JOIN billing_invoice AS invoice ON invoice.id = note.invoice_id
        LEFT JOIN billing_seller AS issued_by ON issued_by.id = invoice.seller_id
        LEFT JOIN LATERAL ({issuing_seller(f"coalesce(issued_by.ref, '{DEFAULT_SELLER}')")}) AS seller ON true
        WHERE note.id = %(id)s
    ), taken AS (
        INSERT INTO billing_numberseries AS series (name, last_value) SELECT issuer.series, 1 FROM issuer
        ON CONFLICT (name) DO UPDATE SET last_value = series.last_value + 1
        RETURNING name, last_value
    )
    UPDATE billing_creditnote
    SET series = taken.name, series_value = taken.last_value, issue_date = %(issue_date)s, seller_id = issuer.id,
        number = taken.name || '-' || lpad(taken.last_value::text, greatest(6, length(taken.last_value::text)), '0')
    FROM taken, issuer
    WHERE billing_creditnote.id = %(id)s
    RETURNING number
"""

# The amounts that credit notes have credited of lines, less the part that later invoices have taken into account: so much of the
# credit does not come from claims that no longer bill the line. They are amounts of the price, which may include tax.
NOTED = """
    SELECT noted.invoice_id, noted.position, (noted.minor - coalesce(used.minor, 0))::bigint
    FROM (
        SELECT coalesce(note.subscription_id, line.subscription_id) AS subscription_id, note.invoice_id, part.position,
            CASE WHEN line.rating ? 'included_tax'
            THEN round(sum(part.amount_minor) * billing_priced_minor(line) / (line.amount_minor - line.discount_minor))
            ELSE sum(part.amount_minor) END AS minor
        FROM billing_creditnote AS note
        JOIN billing_creditnoteline AS part ON part.credit_note_id = note.id
        JOIN billing_line AS line ON line.invoice_id = note.invoice_id AND line.position = part.position
        WHERE note.released_at IS NULL AND note.invoice_id = ANY(%(invoices)s)
        GROUP BY note.subscription_id, note.invoice_id, part.position, line.id
    ) AS noted
    LEFT JOIN LATERAL (
        SELECT sum(CASE
            WHEN c.made_by = c.invoice_id AND c.restores IS NULL THEN c.amount_minor ELSE 0 END
            - CASE WHEN c.released_at IS NULL THEN c.amount_minor ELSE 0 END
            + coalesce((
                SELECT sum(billing_priced_minor(credit))
                FROM billing_line AS credit JOIN billing_invoice AS later ON later.id = credit.invoice_id
                WHERE credit.invoice_id = c.released_by AND credit.kind = 'credit' AND credit.item_id = c.item_id
                    AND credit.starts_at >= c.starts_at AND credit.ends_at <= c.ends_at AND later.state <> 'void'), 0)) AS minor
        FROM billing_claim AS c
        WHERE c.subscription_id = noted.subscription_id AND c.invoice_id = noted.invoice_id
            AND c.line_position = noted.position AND c.kind = 1
    ) AS used ON true
"""

LOWER_DUE = """
    UPDATE billing_invoice
    SET credit_notes_minor = credit_notes_minor + %(amount)s, amount_due_minor = amount_due_minor - %(amount)s,
        state = CASE WHEN amount_due_minor - amount_paid_minor = %(amount)s THEN 'paid' ELSE state END,
        paid_at = CASE WHEN amount_due_minor - amount_paid_minor = %(amount)s THEN %(now)s ELSE paid_at END
    WHERE id = %(id)s
"""


@dataclass(frozen=True, kw_only=True)
class CreditLine(Record):
    """The amount to credit of a line."""

    position: Annotated[int, Integer("The position of the line on the invoice.", least=1, most=2**31 - 1)]
    amount_minor: Annotated[int, Amount("In minor units, after discounts, before tax.")]


@dataclass(frozen=True, kw_only=True)
class NewCreditNote(Record):
    """The credit note to issue, and its reason."""

    lines: Annotated[
        list[CreditLine] | None,
        ListOf(
            Nested(CreditLine),
            "The lines to credit; the whole rest of the invoice by default.",
            least=1,
            most=1000,
            null=True,
        ),
    ] = None
    reason: Annotated[str, Text("As printed on the credit note.", most=MAX_REASON_CHARACTERS, least=1)]


@dataclass(frozen=True, slots=True)
class IssuedNote:
    """An issued credit note; `replayed` if an earlier request with the key issued it."""

    id: int
    number: str
    replayed: bool


def issue(
    *, invoice_id: int, reason: str, actor: str, idempotency_key: str, lines: Sequence[CreditLine] | None = None
) -> IssuedNote:
    """Credit an invoice; or raise, and only the refusal stays, under the key.

    Args:
        lines: the amounts to credit; None: the whole rest of the invoice.
        reason: 1 to 500 characters.
        actor: the operator or program, such as `admin:mara`.

    Raises:
        Invalid: the reason is missing, or a position is not a line of the invoice or is named twice.
        NotFound, InvalidTransition: the invoice does not exist, or is a draft or void.
        CreditExceedsInvoice: the amounts exceed the rest of the invoice.
        InvoiceGenerationBusy, HolderBusy: nothing was written; repeat it with the same key.
        IdempotencyKeyReused: the key belongs to another request.
    """
    requested = None if lines is None else [[one.position, one.amount_minor] for one in lines]
    facts = {"invoice": invoice_id, "lines": requested, "reason": reason, "actor": actor}

    def act() -> WriteResult:
        note = issue_in(invoice_id=invoice_id, lines=lines, reason=reason, actor=actor)
        return WriteResult(201, {"id": note.pk, "number": note.number})

    result = execute_once(
        collection=COLLECTION,
        idempotency_key=idempotency_key,
        request_digest=request_digest_of(facts),
        act=act,
    )
    return IssuedNote(result.body["id"], result.body["number"], result.replayed)


def issue_in(*, invoice_id: int, reason: str, actor: str, lines: Sequence[CreditLine] | None = None) -> CreditNote:
    """Credit as `issue` does, in the transaction of a caller that stores the key."""
    if not reason.strip():
        raise Invalid(pointer="/reason", rule="required", detail="is required")
    try:
        with locked_invoice(invoice_id) as (lock, invoice):
            return _issue_under(lock, invoice, lines, reason, actor)
    except IntegrityError as error:
        if sqlstate(error) != CHECK_VIOLATION:
            raise
        # Another process credited first, without the lock.
        raise _exceeds(invoice_id, _lines_left(Invoice.objects.get(pk=invoice_id))) from error


def left_of(invoice: Invoice) -> tuple[int, dict[int, int]]:
    """Return the creditable rest of an invoice, with tax, and that of each line, before tax. Without a lock, for display only."""
    if invoice.state not in CREDITED_STATES:
        return 0, {}
    lines = _lines_left(invoice)
    return whole_rest(lines, _taxes_left(invoice.pk, lines)).total_minor, creditable(lines)


def _issue_under(lock: Lock, invoice: Invoice, requested: Sequence[CreditLine] | None, reason: str, actor: str) -> CreditNote:
    """Lock order: the caller has the subscription's lock; then the holder's, then the row of the series."""
    lock.ensure_held(key_of(invoice))
    if invoice.state not in CREDITED_STATES:
        raise InvalidTransition(invoice=invoice.pk, state=invoice.state, wanted="credited")
    lines = _lines_left(invoice)
    credited = _credit_amounts(invoice, lines, requested)
    credited = replace(credited, rounding_minor=_rounding(invoice).of(credited.total_minor))
    back = _given_back(invoice, credited.total_minor)
    note = _write(invoice, credited, reason, actor)
    if back.lowers_due_minor:
        _lower_due(invoice, note, back.lowers_due_minor)
    if back.credits:
        _give_credits_back(invoice, note, back)
    _number(invoice, note)
    note.refresh_from_db()
    return note


# What is left ----------------------------------------------------------------------------------------


def noted_minor(invoice_ids: Sequence[int]) -> dict[tuple[int, int], int]:
    """Return by invoice and position what credit notes credited of lines, less what later invoices gave back."""
    with connection.cursor() as cursor:
        cursor.execute(NOTED, {"invoices": list(invoice_ids)})
        return {(invoice_id, position): minor for invoice_id, position, minor in cursor.fetchall()}


def _lines_left(invoice: Invoice) -> list[LineRest]:
    """Return the invoice's lines, each less the amounts of credit notes and later invoices."""
    noted = noted_minor([invoice.pk])
    lines = list(Line.objects.filter(invoice_id=invoice.pk).order_by("position"))
    claims = _claims_of(invoice, lines)
    return [
        LineRest(
            line.position,
            line.description,
            line.tax_category,
            line.tax_rate,
            line.amount_minor - line.discount_minor,
            _without_tax(line, _claimed_minor(line, claims) - noted.get((invoice.pk, line.position), 0)),
            line.item_id,
            applied_taxes(line.taxes),
        )
        for line in lines
    ]


def _is_claimed(line: Line) -> bool:
    """Return whether claims bill the line: it is a charge for a period of an item."""
    net = line.amount_minor - line.discount_minor
    return net > 0 and line.kind in CLAIM_OF and None not in (line.item_id, line.starts_at, line.ends_at)


def _claims_of(invoice: Invoice, lines: Sequence[Line]) -> list[Claim]:
    """Return the open claims of the subscription that may bill a part of these lines, by one query."""
    claimed = [line for line in lines if _is_claimed(line)]
    if not claimed:
        return []
    claims = Claim.objects.filter(
        subscription_id__in={line.subscription_id or invoice.subscription_id for line in claimed},
        item_id__in={line.item_id for line in claimed},
        kind__in={CLAIM_OF[line.kind] for line in claimed},
        released_at=None,
        starts_at__lt=max(line.ends_at for line in claimed if line.ends_at is not None),
        ends_at__gt=min(line.starts_at for line in claimed if line.starts_at is not None),
    )
    # Recurring prices have separate claims on each invoice; a later invoice may claim usage again.
    return list(claims.filter(~Q(kind=CLAIM_OF["recurring"]) | Q(invoice_id=invoice.pk)))


def _claimed_minor(line: Line, claims: Sequence[Claim]) -> int:
    """Return what open claims still bill of a line, after discounts, as priced: a later invoice may have given a part back."""
    priced = priced_minor(line)
    if not _is_claimed(line):
        return priced
    assert line.starts_at is not None
    assert line.ends_at is not None
    there = [
        claim
        for claim in claims
        if (claim.item_id, claim.kind) == (line.item_id, CLAIM_OF[line.kind])
        and claim.starts_at < line.ends_at
        and claim.ends_at > line.starts_at
        and (line.kind != "recurring" or claim.line_position == line.position)
    ]
    claimed = sum(claim.amount_minor for claim in there)
    if "group" in line.rating:
        groups = [one for claim in there for one in claim.snapshot.get("groups", ())]
        claimed = sum(one["amount_minor"] for one in groups if one["group"] == line.rating["group"])
    return min(priced, max(claimed, 0))


def priced_minor(line: Line) -> int:
    """Return the amount of a line after discounts as priced: with the tax that its price includes."""
    included = line.rating.get("included_tax")
    priced: int = included["amount_minor"] - included["discount_minor"] if included else line.amount_minor - line.discount_minor
    return priced


def _without_tax(line: Line, amount_minor: int) -> int:
    """Return the net part of an amount as priced: its share of the line's."""
    net, priced = line.amount_minor - line.discount_minor, priced_minor(line)
    return amount_minor if net == priced else round_half_up(Fraction(amount_minor * net, priced))


def _taxes_left(invoice_id: int, lines: Sequence[LineRest]) -> list[TaxRest]:
    credited = nets_of_taxes(
        (Treatment(line.tax_category, line.tax_rate, applied_taxes(line.taxes)), line.amount_minor)
        for line in CreditNoteLine.objects.filter(credit_note__invoice_id=invoice_id, credit_note__released_at=None)
    )
    nets = nets_of_taxes((line.treatment, line.net_minor) for line in lines)
    return [
        TaxRest(
            tax.category, tax.rate, tax.base_minor, tax.amount_minor, credited.get((tax.category, tax.rate, tax.code), 0),
            tax.code, tax.tax_id, nets[tax.category, tax.rate, tax.code],
        )
        for tax in InvoiceTax.objects.filter(invoice_id=invoice_id)
    ]  # fmt: skip


def _credit_amounts(invoice: Invoice, lines: Sequence[LineRest], requested: Sequence[CreditLine] | None) -> CreditNoteAmounts:
    taxes = _taxes_left(invoice.pk, lines)
    if requested is None:
        rest = whole_rest(lines, taxes)
        if rest.total_minor <= 0:
            raise _exceeds(invoice.pk, lines)
        return rest
    part = parts(lines, taxes, _by_position(lines, requested))
    if part is None:
        raise _exceeds(invoice.pk, lines)
    return part


def _by_position(lines: Sequence[LineRest], requested: Sequence[CreditLine]) -> Mapping[int, int]:
    known, found = {line.position for line in lines}, dict[int, int]()
    for index, one in enumerate(requested):
        pointer = f"/lines/{index}/position"
        if one.position not in known:
            raise Invalid(pointer=pointer, rule="unknown-line", detail="the invoice has no line at this position")
        if one.position in found:
            raise Invalid(pointer=pointer, rule="duplicate", detail="another line names this position")
        found[one.position] = one.amount_minor
    return found


def _exceeds(invoice_id: int, lines: Sequence[LineRest]) -> CreditExceedsInvoice:
    return CreditExceedsInvoice(
        invoice=invoice_id,
        creditable_minor=whole_rest(lines, _taxes_left(invoice_id, lines)).total_minor,
        lines=[{"position": position, "creditable_minor": left} for position, left in creditable(lines).items()],
    )


def _earlier(invoice: Invoice) -> QuerySet[CreditNote]:
    return CreditNote.objects.filter(invoice_id=invoice.pk, kind=REQUESTED, released_at=None)


def _lowered_minor(invoice: Invoice) -> int:
    """Return by how much notes have lowered the amount due of the invoice."""
    used = CreditNoteUse.objects.filter(credit_note__in=_earlier(invoice), invoice_id=invoice.pk, released_at=None)
    return used.aggregate(minor=Sum("amount_minor"))["minor"] or 0


def _rounding(invoice: Invoice) -> CashRounding:
    """Return the rounding of the invoice, by its seller at the issue."""
    issuer = None if invoice.seller_id is None else Seller.objects.get(pk=invoice.seller_id)
    steps = issuer.details.get("cash_rounding_minor", {}) if issuer else {}
    sums = _earlier(invoice).aggregate(worth=Sum("amount_minor"), rounding=Sum("rounding_minor"))
    return CashRounding(
        step_minor=steps.get(invoice.currency, 1),
        rounding_minor=invoice.rounding_minor,
        in_money_minor=invoice.amount_due_minor + _lowered_minor(invoice) - invoice.rounding_minor,
        credited_minor=(sums["worth"] or 0) - (sums["rounding"] or 0),
    )


def _given_back(invoice: Invoice, total_minor: int) -> NoteSettlement:
    earlier, lowered_minor = _earlier(invoice), _lowered_minor(invoice)
    sums = earlier.aggregate(worth=Sum("amount_minor"), credits=Sum("credits_returned"), minor=Sum("credits_returned_minor"))
    left_minor = (sums["worth"] or 0) - (sums["minor"] or 0) - lowered_minor
    payment = CreditPayment.objects.filter(invoice_id=invoice.pk, refund_sequence=None).first()
    return given_back(
        total_minor,
        due_minor=invoice.amount_remaining_minor,
        paid_minor=max(invoice.amount_paid_minor - left_minor, 0),
        credits_left=payment.credits - (sums["credits"] or 0) if payment else 0,
        credits_left_minor=payment.amount_minor - (sums["minor"] or 0) if payment else 0,
    )


# Writing ---------------------------------------------------------------------------------------------


def _write(invoice: Invoice, credited: CreditNoteAmounts, reason: str, actor: str) -> CreditNote:
    note = CreditNote.objects.create(
        kind=REQUESTED,
        customer_id=invoice.customer_id,
        subscription_id=invoice.subscription_id,
        invoice_id=invoice.pk,
        currency=invoice.currency,
        subtotal_minor=credited.subtotal_minor,
        tax_minor=credited.tax_minor,
        rounding_minor=credited.rounding_minor,
        amount_minor=credited.total_minor,
        left_minor=credited.total_minor,
        reason=reason,
        actor=actor,
    )
    CreditNoteLine.objects.bulk_create(
        CreditNoteLine(
            credit_note=note,
            position=line.position,
            description=line.description,
            amount_minor=line.amount_minor,
            tax_category=line.category,
            tax_rate=line.rate,
            taxes=[tax.as_dict() for tax in line.taxes],
        )
        for line in credited.lines
    )
    CreditNoteTax.objects.bulk_create(
        CreditNoteTax(
            credit_note=note,
            category=tax.category,
            rate=tax.rate,
            code=tax.code,
            tax_id=tax.tax_id,
            base_minor=tax.base_minor,
            amount_minor=tax.tax_minor,
        )
        for tax in credited.taxes
    )
    return note


def _lower_due(invoice: Invoice, note: CreditNote, amount_minor: int) -> None:
    """Lower the amount due of the invoice; when nothing is left to be paid, the invoice becomes paid."""
    CreditNoteUse.objects.create(credit_note=note, invoice_id=invoice.pk, amount_minor=amount_minor)
    with starting_if_paid(invoice.pk), connection.cursor() as cursor:
        cursor.execute(LOWER_DUE, {"id": invoice.pk, "amount": amount_minor, "now": timezone.now()})


def _give_credits_back(invoice: Invoice, note: CreditNote, back: NoteSettlement) -> None:
    payment = CreditPayment.objects.get(invoice_id=invoice.pk)
    with holder_lock(payment.holder_id) as holder:
        entry = ledger.refund_under(
            holder,
            holder_id=payment.holder_id,
            spend=payment.spend_sequence,
            amount=back.credits,
            credit_type=payment.credit_type,
            idempotency_key=f"credit-note/{note.pk}",
            reason="Invoice credited",
            reference=f"invoice {invoice.pk}",
            actor="billing",
        )
    CreditNote.objects.filter(pk=note.pk).update(
        credits_returned=back.credits,
        credits_returned_minor=back.credits_minor,
        left_minor=F("left_minor") - back.credits_minor,
        refund_sequence=entry.sequence,
    )


def _number(invoice: Invoice, note: CreditNote) -> None:
    customer: Any = Customer.objects.filter(pk=invoice.customer_id).values_list("time_zone", "holder_id").first()
    time_zone, holder_id = customer or ("UTC", "")
    issue_date = ledger.time_of(holder_id).astimezone(ZoneInfo(time_zone or "UTC")).date()
    with connection.cursor() as cursor:
        cursor.execute(NUMBER, {"id": note.pk, "prefix": CREDIT_NOTE.series, "issue_date": issue_date})
