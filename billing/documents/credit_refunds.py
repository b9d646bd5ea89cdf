"""Credit of a customer that does not come from a document, and credit that is paid out in money."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from billing.documents.credit_rests import Rest, account_turn, open_credit
from billing.errors import RefundExceedsCredit
from billing.models import CreditNote, CreditNoteUse, CreditRefund, Customer
from billing.orders.customers import customer_of
from billing.rating.totals import OpenCreditNote, apply_credit_notes
from billing.rating.values import Currency
from billing.request_keys import WriteResult, execute_once, request_digest_of
from ledger.database.transactions import own_or_joined
from ledger.errors import Invalid
from ledger.records import Record
from ledger.values import MAX_REASON_CHARACTERS, MAX_REFERENCE_CHARACTERS, Amount, EntryNumber, Text

COLLECTION: Final = "credit-refund-forms"


@dataclass(frozen=True, kw_only=True)
class NewCreditRefund(Record):
    """Credit of a customer that was paid out in money, outside this system."""

    amount_minor: Annotated[int, Amount("The amount that was paid out, in minor units.")]
    currency: Annotated[
        str | None, Currency("By default, the currency of the credit note, or else that of the customer.", null=True)
    ] = None
    credit_note: Annotated[
        int | None,
        EntryNumber("The id of the credit note or deposit to take it from; by default, the oldest come first.", null=True),
    ] = None
    reason: Annotated[str, Text("The reason, for later questions.", most=MAX_REASON_CHARACTERS, least=1)]
    reference: Annotated[str, Text("The payment, as your bank names it.", most=MAX_REFERENCE_CHARACTERS)] = ""


@dataclass(frozen=True, slots=True)
class RecordedRefund:
    """A recorded refund; `replayed` if an earlier request with the key recorded it."""

    id: int
    replayed: bool


def refund_in(*, customer_ref: str, request: NewCreditRefund, actor: str) -> CreditRefund:
    """Record that credit of a customer was paid out, in the caller's transaction; or raise and write nothing.

    Args:
        actor: the operator or program, such as `admin:mara`.

    Raises:
        NotFound: the customer does not exist.
        Invalid: the reason is empty, the customer has no such credit note, or it is in another currency.
        RefundExceedsCredit: the amount exceeds the rest of the credit.
        HolderBusy: an invoice of the customer uses its credit, for longer than lock_timeout; nothing was written.
    """
    if not request.reason.strip():
        raise Invalid(pointer="/reason", rule="required", detail="is required")
    customer = customer_of(customer_ref)
    with own_or_joined(), account_turn(customer.ref):
        currency = _currency(customer, request)
        rests = open_credit(customer.pk, currency)
        if request.credit_note is not None:
            rests = [rest for rest in rests if rest.note_id == request.credit_note]
        return take(customer, currency, rests, request, actor)


def refund(*, customer_ref: str, request: NewCreditRefund, actor: str, idempotency_key: str) -> RecordedRefund:
    """Record a refund as `refund_in` does, or raise, and only the refusal stays, under the key. Raises: as `refund_in`."""
    facts = {**vars(request), "customer": customer_ref, "actor": actor}

    def act() -> WriteResult:
        return WriteResult(201, {"id": refund_in(customer_ref=customer_ref, request=request, actor=actor).pk})

    result = execute_once(
        collection=COLLECTION, idempotency_key=idempotency_key, request_digest=request_digest_of(facts), act=act
    )
    return RecordedRefund(result.body["id"], result.replayed)


def _currency(customer: Customer, request: NewCreditRefund) -> str:
    if request.credit_note is None:
        return request.currency or customer.currency
    note = CreditNote.objects.filter(pk=request.credit_note, customer_id=customer.pk).first()
    if note is None:
        detail = f"customer {customer.ref!r} has no credit note or deposit with this id"
        raise Invalid(pointer="/credit_note", rule="exists", detail=detail)
    if request.currency not in (None, note.currency):
        raise Invalid(pointer="/currency", rule="other-currency", detail=f"the credit note is in {note.currency}")
    return note.currency


def take(customer: Customer, currency: str, rests: Sequence[Rest], request: NewCreditRefund, actor: str) -> CreditRefund:
    """Write that credit was paid out, taken from these rests in their order, which were read under the lock of the account.

    Raises:
        RefundExceedsCredit: the amount exceeds the rests.
    """
    left_minor = sum(rest.left_minor for rest in rests)
    if request.amount_minor > left_minor:
        raise RefundExceedsCredit(
            customer=customer.ref, currency=currency, left_minor=left_minor, requested_minor=request.amount_minor
        )
    refund = CreditRefund.objects.create(
        customer_id=customer.pk,
        currency=currency,
        amount_minor=request.amount_minor,
        reason=request.reason,
        reference=request.reference,
        actor=actor,
    )
    taken = apply_credit_notes(request.amount_minor, [OpenCreditNote(str(rest.note_id), rest.left_minor) for rest in rests])
    CreditNoteUse.objects.bulk_create(
        CreditNoteUse(credit_note_id=int(one.ref), refund_id=refund.pk, amount_minor=one.amount_minor) for one in taken
    )
    refund.refresh_from_db()
    return refund


def deposit_in(*, customer_id: int, currency: str, amount_minor: int, reference: str, actor: str, reason: str = "") -> CreditNote:
    """Give a customer credit for money that was received beyond what was due, in the caller's transaction.

    It pays for the next invoices of the customer in its currency, like the rest of a credit note, and can be paid out. No lock is
    needed, because nothing is decided on what the customer has.

    Args:
        amount_minor: above 0.
        reference: where the money came from, such as `payment 17`; at most 200 characters.
        actor: the operator or program, such as `key:shop`.
    """
    return CreditNote.objects.create(
        kind=CreditNote.Kind.DEPOSIT,
        customer_id=customer_id,
        currency=currency,
        amount_minor=amount_minor,
        left_minor=amount_minor,
        reference=reference,
        actor=actor,
        reason=reason,
    )
