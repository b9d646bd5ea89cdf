"""Books the receipts of bank statements: money that came in pays the one invoice, or buys the one pack order, that it names.

Each receipt is one transaction and becomes a row: booked, or left for a person with the reason. So a file may be booked again,
files may overlap, and a process may end anywhere: what came in is booked or left, and nothing counts twice.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from functools import cache
from typing import Any, Final

from django.db import transaction
from django.utils import timezone

from billing import additions
from billing.additions import TransferOrder
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_matching import invoices_named_in
from billing.models import Invoice, InvoicePayment
from billing.rating.limits import EARLIEST, MAX_MINOR
from billing.rating.values import MANUAL
from billing.statements_in.models import BankReceipt
from billing.statements_in.names import NEAR_DAYS, NamedEntry, are_texts_alike, name_entries, other_name
from billing.statements_in.orders import ids_named_in, orders_named_in
from billing.statements_in.statements import Statement, check_statements
from ledger import conf
from ledger.database.lock_names import BANK_RECEIPTS
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid, Refused, Retryable
from ledger.values import MAX_REFERENCE_CHARACTERS

Target = Invoice | TransferOrder
"""What a receipt pays."""
FAR_ABOVE: Final = 2
"""How many times what is due a receipt may be, before a person has to look at it."""
MAX_WHY: Final = 500


class _NeedsSecond(Exception):
    """The receipt is above a limit, alone or with others of the day for the same invoice or order."""


@dataclass(frozen=True, slots=True)
class Left:
    """Why a receipt is left for a person.

    Args:
        waits_for_person: no later file books it; otherwise it is tried again when its file is booked again.
    """

    why: str
    waits_for_person: bool = False


@dataclass(slots=True)
class BookedFile:
    """What became of the entries of a file."""

    booked: list[BankReceipt] = field(default_factory=list)
    known: int = 0
    """Receipts that were settled before: booked, put aside, or recorded as a payment by hand."""
    outgoing: int = 0
    """Entries by which money left the account; they are booked by hand if they return a payment."""
    pending: int = 0
    """Entries that the bank has not booked: they come again when it has."""
    left: list[BankReceipt] = field(default_factory=list)


def book(
    statements: Sequence[Statement],
    content: bytes,
    *,
    actor: str,
    dry_run: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> BookedFile:
    """Book each receipt that names one invoice or one order of a pack, once; leave all others with the reason.

    Args:
        content: the file that the statements were read from.
        dry_run: only say what would become of them.
        progress: takes how many entries are done, and of how many; called after each.

    Raises:
        BankFileInvalid: the sums of the file do not agree; nothing of it was booked.
    """
    check_statements(statements)
    file = hashlib.sha256(content).hexdigest()
    entries = name_entries(statements)
    outcome = BookedFile(pending=sum(len(statement.entries) for statement in statements) - len(entries))
    for number, named in enumerate(entries, 1):
        if named.entry.amount < 0:
            outcome.outgoing += 1
        elif named.entry.amount > 0:
            _settle(named, file, outcome, actor=actor, dry_run=dry_run)
        progress(number, len(entries))
    return outcome


def _settle(named: NamedEntry, file: str, outcome: BookedFile, *, actor: str, dry_run: bool) -> None:
    with locked_transaction(BANK_RECEIPTS()), transaction.atomic():
        receipt = _receipt_of(named, file, actor)
        is_open = receipt.state == BankReceipt.State.LEFT and not _is_recorded(receipt)
        if is_open and not receipt.waits_for_person:
            _try_to_book(receipt, actor=actor)
        transaction.set_rollback(dry_run)
    if not is_open:
        outcome.known += 1
    elif receipt.state == BankReceipt.State.BOOKED:
        outcome.booked.append(receipt)
    else:
        outcome.left.append(receipt)


def _is_recorded(receipt: BankReceipt) -> bool:
    """Return whether somebody has recorded the receipt as a payment by its name."""
    of_invoice = InvoicePayment.objects.filter(provider=MANUAL, payment=receipt.name)
    return of_invoice.exists() or additions.find_payment(MANUAL, receipt.name) is not None


def _receipt_of(named: NamedEntry, file: str, actor: str) -> BankReceipt:
    """Return the row of an entry, which is written if the entry is new."""
    known = BankReceipt.objects.filter(name=named.name).first()
    if known is None:
        return _record(named, named.name, file, actor, why=_why_like_another(named, file))
    is_equal = (known.amount_minor, known.currency) == (named.entry.amount_minor, named.entry.currency)
    if is_equal and (named.entry.bank_reference or _likeness_to(named)(known)):
        return known
    name = other_name(named)
    if (other := BankReceipt.objects.filter(name=name).first()) is not None:
        return other
    repeated = f"{known} has the same reference, but is another one" if named.entry.bank_reference else ""
    return _record(named, name, file, actor, why=repeated or _why_like_another(named, file))


def _likeness_to(named: NamedEntry) -> Callable[[BankReceipt], bool]:
    """Return a function that says whether a receipt of an equal amount may be the entry: by its words, or by the invoice or order
    that both name. What the entry names is read once, and nothing of the receipts if it names nothing.
    """
    text = named.entry.words
    orders = set(ids_named_in(text))

    @cache
    def invoices() -> set[int]:
        return {invoice.pk for invoice in invoices_named_in(text)}

    def is_alike(receipt: BankReceipt) -> bool:
        if are_texts_alike(receipt.text, text) or set(ids_named_in(receipt.text)) & orders:
            return True
        return bool(invoices()) and any(invoice.pk in invoices() for invoice in invoices_named_in(receipt.text))

    return is_alike


def _record(named: NamedEntry, name: str, file: str, actor: str, *, why: str) -> BankReceipt:
    entry = named.entry
    return BankReceipt.objects.create(
        name=name, account=named.account[:64], bank_reference=entry.bank_reference[:200],
        end_to_end_reference=entry.end_to_end_reference[:200], booked_on=entry.booked_on, value_on=entry.value_on,
        currency=entry.currency, amount_minor=entry.amount_minor, text=entry.words, party=entry.party[:500], file=file,
        actor=actor, why=why[:MAX_WHY] or "it is new", waits_for_person=bool(why),
    )  # fmt: skip


def _why_like_another(named: NamedEntry, file: str) -> str:
    """Return why an entry may be one that is recorded already, from another file and in another form; empty if there is none.

    Two entries with references of the bank that differ are two; equal entries within one file are two as well.
    """
    entry = named.entry
    days = (entry.booked_on - NEAR_DAYS, entry.booked_on + NEAR_DAYS)
    equal = BankReceipt.objects.filter(amount_minor=entry.amount_minor, currency=entry.currency, booked_on__range=days)
    # A file without an account may be of any.
    near = equal.filter(account__in=("", named.account)) if named.account else equal
    is_alike = _likeness_to(named)
    for other in near.exclude(file=file).order_by("-pk")[:100]:
        has_two_references = entry.bank_reference and other.bank_reference
        if not has_two_references and is_alike(other):
            return f"it may be {other} of {other.booked_on} in another form"
    return ""


def _try_to_book(receipt: BankReceipt, *, actor: str) -> None:
    """Book the receipt for what its text names, or write why it is left."""
    target = find_target(receipt)
    if isinstance(target, Left):
        left = target
    else:
        try:
            with transaction.atomic():
                _admit(receipt, target, actor)
                book_receipt(receipt, target, actor=actor)
            return
        except _NeedsSecond:
            left = Left("it is above the amount from which a second operator is needed", waits_for_person=True)
        except Refused as refusal:
            left = Left(_explain(target, refusal), waits_for_person=True)
        except (Retryable, Invalid) as error:
            left = Left(f"{error.title}: book the file again")
    receipt.refresh_from_db()
    receipt.why, receipt.waits_for_person = left.why[:MAX_WHY], left.waits_for_person
    receipt.save(update_fields=["why", "waits_for_person"])


def _explain(target: Target, refusal: Refused) -> str:
    """Return why an order cannot be paid by a receipt; raise any other refusal."""
    orders = additions.transfer_orders()
    why = None if orders is None or isinstance(target, Invoice) else orders.explain(target, refusal)
    if why is None:
        raise refusal
    return why


def find_target(receipt: BankReceipt) -> Target | Left:
    """Return the one invoice or order that a receipt is to be booked for without a person, or why there is none."""
    named: list[Target] = [*invoices_named_in(receipt.text)]
    for order in orders_named_in(receipt.text):
        invoice = Invoice.objects.filter(pk=order.invoice_id or 0).first()
        if invoice is None or invoice not in named:
            named.append(invoice or order)
    if len(named) != 1:
        return Left(_why_not_one(named))
    [target] = named
    if target.currency != receipt.currency:
        return Left(f"{_name(target, 'invoice ')} is in {target.currency}")
    if _paid_at(receipt) > timezone.now():
        return Left("its day has not begun in UTC: book the file again tomorrow")
    if _paid_at(receipt) < EARLIEST or receipt.amount_minor > MAX_MINOR:
        return Left("its day or amount is beyond what billing records", waits_for_person=True)
    return _why_too_much(receipt, target) or target


def _why_not_one(named: Sequence[Target]) -> str:
    names = ", ".join(map(_name, named))
    if all(isinstance(each, Invoice) for each in named):
        return f"it names several invoices: {names}" if named else "it names no invoice"
    return f"it names several: {names}"


def _why_too_much(receipt: BankReceipt, target: Target) -> Left | None:
    due_minor = target.amount_remaining_minor if isinstance(target, Invoice) else target.amount_minor
    if receipt.amount_minor > FAR_ABOVE * due_minor:
        what = (
            f"{_name(target, 'invoice ')} is paid"
            if due_minor == 0
            else f"it is far above what is due of {_name(target, 'invoice ')}"
        )
        return Left(what, waits_for_person=True)
    return None


def _admit(receipt: BankReceipt, target: Target, actor: str) -> None:
    """Record what the receipt moves, or raise `_NeedsSecond`. Receipts of a day for one invoice or order add up.

    The lock of receipts makes it one after the other; see Note [The sum of a day] in `ledger.staff.approvals`.
    """
    if not conf.SECOND_OPERATOR_ABOVE.value:
        return
    from ledger.staff import approvals  # without limits, `ledger.staff` may be left out

    stakes = [approvals.Stake(receipt.currency, receipt.amount_minor)]
    orders = additions.transfer_orders()
    if orders is not None and isinstance(target, orders.model) and (bought := orders.bought_by(target)) is not None:
        stakes.append(approvals.Stake(*bought))
    operator = f"{actor} for {_name(target)}"
    content = {"receipt": receipt.name, "amount_minor": receipt.amount_minor}
    if not approvals.admit(
        key=f"bank-receipt {receipt.name}",
        form_digest=approvals.digest_of("bank-receipt", operator, content),
        totals=approvals.totals_of(stakes),
        operator=operator,
    ):
        raise _NeedsSecond


def _name(named: Target, word: str = "") -> str:
    return f"{word}{named.number}" if isinstance(named, Invoice) else str(named)


def _paid_at(receipt: BankReceipt) -> datetime:
    return datetime.combine(receipt.booked_on, time(), UTC)


def book_receipt(receipt: BankReceipt, target: Target, *, actor: str) -> None:
    """Record the receipt as a payment of the invoice, or as the transfer of the order; or raise and write nothing.

    Args:
        target: an invoice, or an order of `billing.additions.transfer_orders`.

    Raises: what `record_payment`, or `book` of the orders, raises.
    """
    fields: dict[str, Any] = {
        "payment": receipt.name, "amount_minor": receipt.amount_minor, "currency": receipt.currency,
        "paid_at": min(_paid_at(receipt), timezone.now()), "reference": receipt.text[:MAX_REFERENCE_CHARACTERS], "actor": actor,
    }  # fmt: skip
    if isinstance(target, Invoice):
        record_payment(invoice=target.pk, provider=MANUAL, **fields)
    else:
        orders = additions.transfer_orders()
        assert orders is not None, "an order is of those that are registered"
        orders.book(intent=target.pk, **fields)
    receipt.state = BankReceipt.State.BOOKED
    receipt.invoice_id = target.pk if isinstance(target, Invoice) else None
    receipt.payment_intent_id = None if isinstance(target, Invoice) else target.pk
    settle_receipt(receipt, actor=actor)


def settle_receipt(receipt: BankReceipt, *, actor: str, note: str = "") -> None:
    """Write that a receipt is booked or put aside, and who did it."""
    receipt.why, receipt.settled_by, receipt.settled_at, receipt.note = "", actor, timezone.now(), note
    receipt.save(update_fields=BankReceipt.CHANGES)


def sums_of(receipts: Iterable[BankReceipt]) -> dict[str, int]:
    """Return the sums of receipts in minor units, by currency."""
    sums: dict[str, int] = {}
    for receipt in receipts:
        sums[receipt.currency] = sums.get(receipt.currency, 0) + receipt.amount_minor
    return sums
