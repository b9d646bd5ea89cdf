"""What a person does with a receipt that is left: book it for an invoice or an order, or put it aside."""

from dataclasses import dataclass
from typing import Annotated

from billing.documents.payment_matching import invoices_named_in
from billing.models.columns import first_of
from billing.statements_in.booking import Target, book_receipt, settle_receipt
from billing.statements_in.models import BankReceipt
from billing.statements_in.orders import orders_named_in
from ledger.database.lock_names import BANK_RECEIPTS
from ledger.database.transactions import locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import MAX_ACTOR_CHARACTERS, MAX_REASON_CHARACTERS, EntryNumber, Text


@dataclass(frozen=True, kw_only=True)
class ReceiptBooking(Record):
    """A receipt that a person books for an invoice or for an order of a pack."""

    receipt: Annotated[int, EntryNumber("The receipt, by its id.")]
    target: Annotated[str, Text("The number of the invoice, or the reference of the payment intent.", least=1, most=200)]
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


@dataclass(frozen=True, kw_only=True)
class ReceiptSetAside(Record):
    """A receipt that is not for an invoice or an order."""

    receipt: Annotated[int, EntryNumber("The receipt, by its id.")]
    reason: Annotated[str, Text("What the money is, for later questions.", least=1, most=MAX_REASON_CHARACTERS)]
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""


def _book(request: ReceiptBooking) -> BankReceipt:
    """Book a receipt that is left for what a person names, or raise and write nothing. It pays once, as by a file.

    Raises:
        NotFound: the receipt does not exist.
        Invalid: it is booked or put aside already.
        Invalid: the name is of no invoice or order, or of several; or its currency is another one.
        Refused: the order is closed, or the receipt is less than it costs.
    """
    with locked_transaction(BANK_RECEIPTS()):
        receipt = _left_receipt(request.receipt)
        target = _named_target(request.target)
        if target.currency != receipt.currency:
            raise Invalid(pointer="/target", rule="other-currency", detail=f"{request.target} is in {target.currency}")
        book_receipt(receipt, target, actor=request.actor)
        return receipt


def _set_aside(request: ReceiptSetAside) -> BankReceipt:
    """Put a receipt that is left aside, or raise and write nothing. No file books it any more.

    Raises:
        NotFound: the receipt does not exist.
        Invalid: it is booked or put aside already.
    """
    with locked_transaction(BANK_RECEIPTS()):
        receipt = _left_receipt(request.receipt)
        receipt.state = BankReceipt.State.PUT_ASIDE
        settle_receipt(receipt, actor=request.actor, note=request.reason)
        return receipt


book_left_receipt = UseCase(ReceiptBooking, _book)
set_receipt_aside = UseCase(ReceiptSetAside, _set_aside)


def _left_receipt(receipt_id: int) -> BankReceipt:
    receipt = first_of(BankReceipt.objects.filter(pk=receipt_id), "bank receipt", receipt_id)
    if receipt.state != BankReceipt.State.LEFT:
        done = "booked" if receipt.state == BankReceipt.State.BOOKED else "put aside"
        raise Invalid(pointer="/receipt", rule="settled", detail=f"{receipt} is {done} already")
    return receipt


def _named_target(text: str) -> Target:
    named: list[Target] = [*invoices_named_in(text), *orders_named_in(text)]
    if len(named) != 1:
        nothing = f"no invoice has the number {text!r}, and no payment intent this reference"
        detail = "it names several; give one number or reference" if named else nothing
        raise Invalid(pointer="/target", rule="names-one", detail=detail)
    return named[0]
