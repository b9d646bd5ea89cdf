"""Records money: a purchase when it is in, a return when it is gone. Each is committed before anything is done to credits."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

from django.utils import timezone

from billing.errors import AlreadyExists
from billing.models import Customer, InvoicePayment
from billing.models.columns import first_of
from billing.payments.errors import ReturnExceedsPurchase
from billing.payments.models import DuePurchase, Pack, Purchase, PurchaseReturn
from billing.payments.packs import MAX_PACKS, MAX_VERSION, ensure_quantity, pack_on_sale
from billing.payments.purchase_settling import attempt
from billing.rating.limits import MAX_MINOR, check_past
from billing.rating.values import MANUAL, PaymentId, Provider, Ref
from ledger.database.lock_names import PURCHASE, PURCHASE_PAYMENT
from ledger.database.transactions import after_commit, locked_transaction
from ledger.errors import Invalid
from ledger.records import Record, UseCase
from ledger.values import (
    MAX_ACTOR_CHARACTERS,
    MAX_REASON_CHARACTERS,
    MAX_REFERENCE_CHARACTERS,
    Choice,
    EntryNumber,
    Holder,
    Integer,
    Text,
    Time,
)

Kind = PurchaseReturn.Kind


@dataclass(frozen=True, kw_only=True)
class NewPurchase(Record):
    """Money that is in for a pack."""

    pack: Annotated[str, Ref("The pack that was bought.")]
    version: Annotated[
        int | None,
        Integer(
            "Its version, also one that is no longer on sale; by default the one on sale.", least=1, most=MAX_VERSION, null=True
        ),
    ] = None
    quantity: Annotated[int, Integer("How many packs.", least=1, most=MAX_PACKS)] = 1
    holder_id: Annotated[str, Holder("Who gets the credits.")]
    customer: Annotated[str | None, Ref("The customer who paid.", null=True)] = None
    provider: Annotated[str, Provider("Who took the money, such as paypal; `manual` for money that somebody booked by hand.")] = (
        MANUAL
    )
    payment: Annotated[str, PaymentId("The provider's id of the payment. A payment makes one purchase.")]
    paid_minor: Annotated[
        int | None, Integer("What was paid, in minor units; the price by default.", least=1, most=MAX_MINOR, null=True)
    ] = None
    paid_at: Annotated[datetime | None, Time("When the money was in; now by default.", null=True)] = None
    reference: Annotated[str, Text("What it belongs to in your books.", most=MAX_REFERENCE_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""

    def check_whole(self) -> None:
        check_past("/paid_at", self.paid_at)


@dataclass(frozen=True, kw_only=True)
class NewReturn(Record):
    """Money of a purchase that went back, or came in again."""

    purchase: Annotated[int, EntryNumber("The purchase, by its id.")]
    kind: Annotated[
        str,
        Choice(
            Kind.values,
            "`refund`: you returned money. `dispute`: the customer's bank took it. `reinstated`: a dispute was won, and its "
            "money is back.",
        ),
    ]
    payment: Annotated[str, PaymentId("The provider's id of the refund or dispute; of `reinstated`, that of the dispute.")]
    amount_minor: Annotated[
        int | None,
        Integer(
            "In minor units; by default all that was not returned yet. A dispute may be larger: what is beyond that is a loss. "
            "Not for `reinstated`.",
            least=1,
            most=MAX_MINOR,
            null=True,
        ),
    ] = None
    returned_at: Annotated[datetime | None, Time("When; now by default.", null=True)] = None
    reason: Annotated[str, Text("Why, for people.", most=MAX_REASON_CHARACTERS)] = ""
    actor: Annotated[str, Text(most=MAX_ACTOR_CHARACTERS)] = ""

    def check_whole(self) -> None:
        check_past("/returned_at", self.returned_at)
        if self.kind == Kind.REINSTATED and self.amount_minor is not None:
            raise Invalid(pointer="/amount_minor", rule="not-used", detail="a dispute that was won gives its whole amount back")


# Purchases -------------------------------------------------------------------------------------------


def _record(request: NewPurchase) -> Purchase:
    """Record a purchase, or return the one that the payment has made; or raise and write nothing.

    When it is committed, its credits are added. If that fails, the purchase stays, and a worker adds them later.

    Raises:
        Invalid: the pack, version or customer does not exist, or the pack is not on sale.
        AlreadyExists: the payment has made another purchase, or paid an invoice.
    """
    with locked_transaction(PURCHASE_PAYMENT(request.provider, request.payment)):
        recorded = Purchase.objects.filter(provider=request.provider, payment=request.payment).first()
        if recorded is not None:
            return _ensure_same(recorded, request)
        elsewhere = InvoicePayment.objects.filter(provider=request.provider, payment=request.payment).first()
        if elsewhere is not None:
            raise AlreadyExists(resource="payment", ref=str(elsewhere.pk))
        now = timezone.now()
        pack = pack_on_sale(request.pack, request.paid_at or now, request.version)
        ensure_quantity(pack, request.quantity)
        purchase = Purchase.objects.create(
            provider=request.provider,
            payment=request.payment,
            pack_id=pack.pk,
            holder_id=request.holder_id,
            customer_id=_customer_id(request.customer),
            credit_type=pack.credit_type,
            quantity=request.quantity,
            credits=pack.credits * request.quantity,
            bonus=pack.bonus * request.quantity,
            currency=pack.currency,
            paid_minor=request.paid_minor or pack.price_minor * request.quantity,
            paid_at=request.paid_at or now,
            reference=request.reference,
            actor=request.actor,
        )
        purchase.refresh_from_db()
        _have_settled(purchase.pk)
        return purchase


record_purchase = UseCase(NewPurchase, _record)


def _have_settled(purchase_id: int) -> None:
    """Leave the next step to the workers, and try it as soon as the transaction has committed."""
    DuePurchase.objects.update_or_create(purchase_id=purchase_id, defaults={"due_at": timezone.now()})
    after_commit(attempt, purchase_id)


def _customer_id(ref: str | None) -> int | None:
    if ref is None:
        return None
    customer = Customer.objects.filter(ref=ref).first()
    if customer is None:
        raise Invalid(pointer="/customer", rule="exists", detail=f"customer {ref!r} does not exist")
    return customer.pk


def _ensure_same(purchase: Purchase, request: NewPurchase) -> Purchase:
    pack = Pack.objects.get(pk=purchase.pack_id)
    same = (request.pack, request.quantity, request.holder_id, _customer_id(request.customer), request.reference) == (
        pack.code, purchase.quantity, purchase.holder_id, purchase.customer_id, purchase.reference,
    )  # fmt: skip
    given = ((request.version, pack.version), (request.paid_minor, purchase.paid_minor), (request.paid_at, purchase.paid_at))
    if not same or any(wanted not in (None, recorded) for wanted, recorded in given):
        raise AlreadyExists(resource="purchase", ref=str(purchase.pk))
    return purchase


def purchase_of(purchase_id: int) -> Purchase:
    """Return the purchase that a path names.

    Raises:
        NotFound: it does not exist.
    """
    return first_of(Purchase.objects.filter(pk=purchase_id), "purchase", purchase_id)


# Returns ---------------------------------------------------------------------------------------------


def _record_return(request: NewReturn) -> PurchaseReturn:
    """Record returned money, or return the row that this refund or dispute has; or raise and write nothing.

    When it is committed, the unspent credits that the money had bought are revoked, or, of a dispute that was won, granted again.
    A bank takes what is disputed, also after a refund: what a dispute takes beyond the purchase's rest is recorded as a loss.

    Raises:
        NotFound: the purchase does not exist.
        Invalid: the dispute that was won does not exist.
        ReturnExceedsPurchase: of a refund, less of the purchase's money is left; of a dispute without an amount, nothing is.
        AlreadyExists: this refund or dispute was recorded with another amount.
    """
    purchase = purchase_of(request.purchase)
    with locked_transaction(PURCHASE(str(purchase.pk))):
        earlier = list(PurchaseReturn.objects.filter(purchase_id=purchase.pk).order_by("pk"))
        amount, loss = _divide_money(request, purchase, earlier)
        recorded = next((one for one in earlier if (one.kind, one.payment) == (request.kind, request.payment)), None)
        if recorded is not None:
            if request.amount_minor not in (None, recorded.amount_minor + recorded.loss_minor):
                raise AlreadyExists(resource=f"{recorded.kind} of purchase", ref=str(purchase.pk))
            return recorded
        left = left_minor(purchase, earlier)
        if amount + loss < 1 or (amount > left and request.kind == Kind.REFUND):
            raise ReturnExceedsPurchase(purchase=purchase.pk, returnable_minor=max(0, left))
        purchase_return = PurchaseReturn.objects.create(
            purchase_id=purchase.pk,
            kind=request.kind,
            payment=request.payment,
            amount_minor=amount,
            loss_minor=loss,
            returned_at=request.returned_at or timezone.now(),
            reason=request.reason,
            actor=request.actor,
        )
        purchase_return.refresh_from_db()
        _have_settled(purchase.pk)
        return purchase_return


record_return = UseCase(NewReturn, _record_return)


def left_minor(purchase: Purchase, returns: list[PurchaseReturn]) -> int:
    """Return how much of the purchase's money was not returned, in minor units."""
    return purchase.paid_minor - sum(one.signed_minor for one in returns)


def _divide_money(request: NewReturn, purchase: Purchase, earlier: list[PurchaseReturn]) -> tuple[int, int]:
    """Return the money of the purchase that a return takes or brings back, and the loss beyond it."""
    left = max(0, left_minor(purchase, earlier))
    if request.kind == Kind.REFUND:
        return request.amount_minor or left, 0
    if request.kind == Kind.DISPUTE:
        taken = request.amount_minor or left
        return min(taken, left), max(0, taken - left)
    dispute = next((one for one in earlier if (one.kind, one.payment) == (Kind.DISPUTE, request.payment)), None)
    if dispute is None:
        detail = f"purchase {purchase.pk} has no dispute {request.payment!r}"
        raise Invalid(pointer="/payment", rule="exists", detail=detail)
    return dispute.amount_minor, dispute.loss_minor
