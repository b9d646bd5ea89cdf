"""What is left of a customer's credit, and what invoices take from it, under the lock of the customer's account.

A preview takes no such lock. It remembers what its parts made and took, because their rows are rolled back.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from billing.models import CreditNote, CreditNoteUse
from billing.orders.customers import account_key
from billing.rating.totals import OpenCreditNote, apply_credit_notes
from ledger import previews
from ledger.database.locks import Lock, advisory_lock
from ledger.database.statements import fetch_rows

# The oldest first.
OPEN_CREDIT = """
    SELECT note.id, note.left_minor FROM billing_creditnote AS note
    WHERE note.customer_id = %s AND note.currency = %s AND note.left_minor > 0 AND note.released_at IS NULL
    ORDER BY note.id
"""


class Rest(NamedTuple):
    """A row of OPEN_CREDIT: what is left of a credit note or deposit."""

    note_id: int
    left_minor: int


class _Kept(NamedTuple):
    """A change of credit in a part of a preview: a new note with its amount, or what was taken of a note, below 0.

    Args:
        subscription_id: the subscription of that part; None: the part bills a customer without one.
    """

    subscription_id: int | None
    customer_id: int
    currency: str
    note_id: int
    change_minor: int


@contextmanager
def account_turn(customer_ref: str) -> Iterator[Lock | None]:
    """Hold the lock of a customer's coupons and credit to the end of the transaction; a preview takes no lock."""
    if previews.current() is not None:
        yield None
        return
    with advisory_lock(account_key(customer_ref)) as lock:
        yield lock


def set_against(
    *,
    customer_id: int,
    subscription_id: int | None,
    invoice_id: int,
    currency: str,
    total_minor: int,
    own: CreditNote | None,
    has_earlier: bool,
) -> int:
    """Pay a draft with credit of its customer, the draft's own note first, then the oldest; return the amount.

    Args:
        has_earlier: the customer may have other credit; then the caller has had its `account_turn`.
    """
    rests = [Rest(own.pk, own.amount_minor)] if own is not None else []
    if has_earlier:
        earlier = _rests(customer_id, subscription_id, currency)
        rests += [rest for rest in earlier if own is None or rest.note_id != own.pk]
    applied = apply_credit_notes(total_minor, [OpenCreditNote(str(rest.note_id), rest.left_minor) for rest in rests])
    CreditNoteUse.objects.bulk_create(
        CreditNoteUse(credit_note_id=int(one.ref), invoice_id=invoice_id, amount_minor=one.amount_minor) for one in applied
    )
    made = [_Kept(subscription_id, customer_id, currency, own.pk, own.amount_minor)] if own is not None else []
    used = [_Kept(subscription_id, customer_id, currency, int(one.ref), -one.amount_minor) for one in applied]
    _keep_in_preview([*made, *used])
    return sum(one.amount_minor for one in applied)


def take_out(note: CreditNote, amount_minor: int, refund_id: int) -> None:
    """Take an amount that is paid out from the note of an invoice at hand."""
    CreditNoteUse.objects.create(credit_note_id=note.pk, refund_id=refund_id, amount_minor=amount_minor)
    _keep_in_preview([_Kept(note.subscription_id, note.customer_id, note.currency, note.pk, -amount_minor)])


def has_kept_credit(customer_id: int) -> bool:
    """Return whether an earlier part of the preview made or used credit of the customer."""
    return any(kept.customer_id == customer_id for kept in _read_kept())


def open_credit(customer_id: int, currency: str) -> list[Rest]:
    """Return what is left of the customer's credit, the oldest first."""
    return fetch_rows(Rest, OPEN_CREDIT, [customer_id, currency])


def _rests(customer_id: int, subscription_id: int | None, currency: str) -> list[Rest]:
    left = dict(open_credit(customer_id, currency))
    # The rows of the subscription at hand are not rolled back yet.
    for kept in _read_kept():
        if (kept.customer_id, kept.currency) == (customer_id, currency) and kept.subscription_id != subscription_id:
            left[kept.note_id] = left.get(kept.note_id, 0) + kept.change_minor
    return [Rest(note_id, minor) for note_id, minor in sorted(left.items()) if minor > 0]


def _read_kept() -> tuple[_Kept, ...]:
    shown = previews.current()
    kept: tuple[_Kept, ...] = shown.kept.get(_Kept, ()) if shown is not None else ()
    return kept


def _keep_in_preview(changes: Sequence[_Kept]) -> None:
    shown = previews.current()
    if shown is not None and changes:
        shown.kept[_Kept] = (*_read_kept(), *changes)
