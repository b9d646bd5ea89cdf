"""Finalises a draft: credit notes and prepaid credits pay for it, then it gets its number and is frozen.

The transaction takes the number last. The row of the series stays locked until COMMIT, so all other finalisations wait for
anything that comes after it.
"""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from django.db import connection
from django.utils import timezone

from billing.documents.credit_rests import account_turn, has_kept_credit, set_against
from billing.documents.invoice_locks import document_key
from billing.documents.sellers import issuing_seller
from billing.documents.unused_time import UnusedCredit, is_refunded, refund_unused
from billing.models import INVOICE, CreditNote, CreditPayment, Customer, Invoice, Line, Subscription
from billing.rating.tax_amounts import applied_taxes
from billing.rating.totals import credits_for
from ledger import services as ledger
from ledger.database.locks import Lock, holder_lock
from ledger.database.statements import Statement, integer, parameter


class FinalizedInvoice(NamedTuple):
    """What finalisation made of a draft; in a dry run it has no number."""

    number: str | None
    amount_due_minor: int


MOST_NAMED: Final = 5
"""Subscriptions in the reason of a refund."""

# The seller is the customer's, in its current version; it decides the series and the rounding of the amount due.
# One statement gives the number and freezes all that belongs to it, also for the first number of a series: from here to COMMIT
# the row of the series is locked, and all other finalisations wait.
ISSUER = f"""
    issuer AS (
        SELECT seller.id,
            billing_series(
                coalesce(seller.details ->> 'invoice_prefix', %(prefix)s), seller.details, %(issue_date)s, invoice.customer_ref
            ) AS series,
            billing_cash_rounding(
                invoice.total_minor + invoice.rounding_minor - %(credit_notes_minor)s - %(credits_applied_minor)s,
                seller.details, invoice.currency
            ) + invoice.rounding_minor AS rounding_minor
        FROM billing_invoice AS invoice
        LEFT JOIN billing_customer AS customer ON customer.id = invoice.customer_id
        LEFT JOIN LATERAL ({issuing_seller("customer.seller")}) AS seller ON true
        WHERE invoice.id = %(id)s
    )
"""

FINALIZE = Statement(
    "finalize_invoice",
    f"""
    WITH {ISSUER}, taken AS (
        INSERT INTO billing_numberseries AS series (name, last_value) SELECT issuer.series, 1 FROM issuer
        ON CONFLICT (name) DO UPDATE SET last_value = series.last_value + 1
        RETURNING name, last_value
    )
    UPDATE billing_invoice
    SET state = 'open', series = taken.name, series_value = taken.last_value,
        number = taken.name || '-' || lpad(taken.last_value::text, greatest(6, length(taken.last_value::text)), '0'),
        issue_date = %(issue_date)s, due_date = %(due_date)s,
        credit_notes_minor = %(credit_notes_minor)s, credits_applied_minor = %(credits_applied_minor)s,
        rounding_minor = issuer.rounding_minor,
        amount_due_minor = total_minor - %(credit_notes_minor)s - %(credits_applied_minor)s + issuer.rounding_minor,
        seller_id = issuer.id,
        credit_units = ledger_shown_units(ARRAY(
            SELECT line.rating -> 'covered' ->> 'credit_type' FROM billing_line AS line
            WHERE line.invoice_id = %(id)s AND line.rating ? 'covered'
            UNION
            SELECT payment.credit_type FROM billing_creditpayment AS payment WHERE payment.invoice_id = %(id)s
        )),
        finalized_at = %(finalized_at)s, consolidates_on = NULL, stays_draft = false
    FROM taken, issuer
    WHERE billing_invoice.id = %(id)s
    RETURNING number, amount_due_minor
""",
    [bytes.decode, integer],
    row=FinalizedInvoice._make,
)

PAID = "UPDATE billing_invoice SET state = 'paid', paid_at = %s WHERE id = %s"

# The finalisation that a dry run shows, of a draft that is rolled back afterwards.
SETTLE = Statement(
    "settle_draft",
    f"""
    WITH {ISSUER}
    UPDATE billing_invoice
    SET issue_date = %(issue_date)s, due_date = %(due_date)s,
        credit_notes_minor = %(credit_notes_minor)s, credits_applied_minor = %(credits_applied_minor)s,
        rounding_minor = issuer.rounding_minor,
        amount_due_minor = total_minor - %(credit_notes_minor)s - %(credits_applied_minor)s + issuer.rounding_minor
    FROM issuer
    WHERE billing_invoice.id = %(id)s
    RETURNING number, amount_due_minor
""",
    [bytes.decode, integer],
    row=FinalizedInvoice._make,
)


@dataclass(frozen=True, slots=True)
class InvoiceDraft:
    """The fields of a draft and its customer that finalisation needs.

    Args:
        refunded_refs: the subscriptions whose unused time it pays out, for people.
    """

    invoice_id: int
    subscription_id: int | None
    subscription_ref: str
    refunded_refs: str
    customer_id: int
    customer_ref: str
    currency: str
    payable_minor: int
    own_note_minor: int
    refunds: tuple[UnusedCredit, ...]
    terms_days: int
    time_zone: str
    holder_id: str
    credit_type: str
    credit_unit_value: Decimal | None
    has_credit: bool = True
    """False if the customer has no credit in money: then the lock of its account is not needed."""

    @property
    def lock_key(self) -> str:
        """The name of the lock under which it is finalised."""
        return document_key(self.subscription_ref, self.customer_ref)


@dataclass(frozen=True, slots=True)
class Settlement:
    """The payments of a draft and its dates: everything but the number and the rounding, which follow from the seller."""

    draft: InvoiceDraft
    credit_notes_minor: int
    credits_applied_minor: int
    issue_date: date
    finalized_at: datetime


def finalize_under(lock: Lock, draft: InvoiceDraft) -> FinalizedInvoice:
    """Settle a draft, give it its number and freeze it, or raise and change nothing."""
    return number_under(lock, settle_under(lock, draft))


def settle_under(lock: Lock, draft: InvoiceDraft) -> Settlement:
    """Pay a draft with credit of its customer and prepaid credits, or raise and change nothing.

    Lock order: the caller has the subscription's lock; then the customer's account, then the holder's. A caller that finalises
        several drafts settles all of them before it takes the first number, so that it never waits while it holds the series.
    """
    lock.ensure_held(draft.lock_key)
    notes_minor = _apply_credit(draft)
    credits_minor = _pay_with_credits(draft, draft.payable_minor - notes_minor)
    issued_at = ledger.time_of(draft.holder_id)
    issue_date = issued_at.astimezone(ZoneInfo(draft.time_zone)).date()
    return Settlement(draft, notes_minor, credits_minor, issue_date, timezone.now())


def number_under(lock: Lock, settled: Settlement) -> FinalizedInvoice:
    """Round what is due of a settled draft, give it its number and freeze it; only COMMIT should follow."""
    lock.ensure_held(settled.draft.lock_key)
    issued: FinalizedInvoice = FINALIZE.execute(_facts(settled))
    if not issued.amount_due_minor:
        with connection.cursor() as cursor:
            cursor.execute(PAID, [settled.finalized_at, settled.draft.invoice_id])
    return issued


def show_settlement(lock: Lock, settled: Settlement) -> FinalizedInvoice:
    """Write the settlement into the draft of a dry run, without a number: other finalisations would wait for the series."""
    lock.ensure_held(settled.draft.lock_key)
    shown: FinalizedInvoice = SETTLE.execute(_facts(settled))
    return shown


def _facts(settled: Settlement) -> dict[str, bytes | None]:
    facts: dict[str, Any] = {
        "id": settled.draft.invoice_id,
        "prefix": INVOICE.series,
        "credit_notes_minor": settled.credit_notes_minor,
        "credits_applied_minor": settled.credits_applied_minor,
        "issue_date": settled.issue_date,
        "due_date": settled.issue_date + timedelta(days=settled.draft.terms_days),
        "finalized_at": settled.finalized_at,
    }
    return {name: parameter(value) for name, value in facts.items()}


def _apply_credit(draft: InvoiceDraft) -> int:
    """Set credit of the customer against a draft: first the invoice's own note, then the oldest credit."""
    own = None
    if draft.own_note_minor:
        own = CreditNote.objects.create(
            customer_id=draft.customer_id,
            subscription_id=draft.subscription_id,
            invoice_id=draft.invoice_id,
            currency=draft.currency,
            amount_minor=draft.own_note_minor,
            left_minor=draft.own_note_minor,
        )
    has_earlier = draft.has_credit or has_kept_credit(draft.customer_id)
    if own is None and not has_earlier:
        return 0
    # A note of this transaction is invisible to others, so without earlier credit no lock is needed.
    with account_turn(draft.customer_ref) if has_earlier else nullcontext():
        applied_minor = set_against(
            customer_id=draft.customer_id,
            subscription_id=draft.subscription_id,
            invoice_id=draft.invoice_id,
            currency=draft.currency,
            total_minor=draft.payable_minor,
            own=own,
            has_earlier=has_earlier,
        )
        if own is not None and draft.refunds:
            refund_unused(own, draft.refunds, subscription_ref=draft.refunded_refs)
    return applied_minor


def _pay_with_credits(draft: InvoiceDraft, due_minor: int) -> int:
    """Spend the holder's credits on the amount due, as far as they suffice. The balance is read under the holder's lock."""
    if not (draft.holder_id and draft.credit_type and draft.credit_unit_value) or due_minor <= 0:
        return 0
    with holder_lock(draft.holder_id) as holder:
        available = ledger.available_under(holder, holder_id=draft.holder_id, credit_type=draft.credit_type)
        used = credits_for(due_minor, available_units=available, unit_value=draft.credit_unit_value, currency=draft.currency)
        if not used.amount_minor:
            return 0
        entry = ledger.spend_under(
            holder,
            holder_id=draft.holder_id,
            amount=used.units,
            credit_type=draft.credit_type,
            idempotency_key=f"invoice/{draft.invoice_id}/pay",
            reason="Invoice payment",
            reference=f"invoice {draft.invoice_id}",
            actor="billing",
        )
    CreditPayment.objects.create(
        invoice_id=draft.invoice_id,
        holder_id=draft.holder_id,
        credit_type=draft.credit_type,
        credits=used.units,
        amount_minor=used.amount_minor,
        spend_sequence=entry.sequence,
    )
    return used.amount_minor


def finalizing(invoice: Invoice) -> InvoiceDraft:
    """Return what finalisation needs of a draft."""
    customer = Customer.objects.get(pk=invoice.customer_id)
    carried = Line.objects.filter(invoice_id=invoice.pk, kind="carried")
    given_back = Line.objects.filter(invoice_id=invoice.pk, kind="credit").order_by("position")
    refunded = [line for line in given_back if is_refunded(line.rating)]
    return InvoiceDraft(
        invoice_id=invoice.pk,
        subscription_id=invoice.subscription_id,
        subscription_ref=invoice.subscription_ref,
        refunded_refs=invoice.subscription_ref or _refs({line.subscription_id for line in refunded if line.subscription_id}),
        customer_id=invoice.customer_id,
        customer_ref=invoice.customer_ref,
        currency=invoice.currency,
        payable_minor=invoice.total_minor + invoice.rounding_minor,
        own_note_minor=sum(line.amount_minor + int(line.rating["tax_minor"]) for line in carried),
        refunds=tuple(
            UnusedCredit(
                line.rating["credits"]["invoice"], -line.amount_minor, line.tax_category, line.tax_rate, applied_taxes(line.taxes)
            )
            for line in refunded
        ),
        terms_days=customer.terms_days,
        time_zone=customer.time_zone,
        holder_id=customer.holder_id,
        credit_type=customer.credit_type,
        # A credit has a worth in the customer's currency; an invoice in another currency is paid in money.
        credit_unit_value=customer.credit_unit_value if invoice.currency == customer.currency else None,
    )


def _refs(subscription_ids: Collection[int]) -> str:
    """Return the refs of some subscriptions; of many, the first ones and how many more there are."""
    refs = sorted(Subscription.objects.filter(pk__in=subscription_ids).values_list("ref", flat=True))
    shown = ", ".join(refs[:MOST_NAMED])
    return shown if len(refs) <= MOST_NAMED else f"{shown} and {len(refs) - MOST_NAMED} more"
