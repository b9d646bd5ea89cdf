"""Bodies, queries and examples of the calls about packs and purchases."""

from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Annotated, Any

from rest_framework import serializers

from billing.api.schemas.request_schemas import InCurrency, OfCustomer
from billing.payments.purchase_recording import NewPurchase, NewReturn
from billing.rating.values import PaymentId, Provider, Ref
from billing.reads.response_fields import minor, text, time, whole
from ledger.json_values import time_text
from ledger.records import Shape
from ledger.responses import ResponseSchema, computed
from ledger.rest.kit.queries import ListQuery, QueryBoolean
from ledger.values import Holder, Time

PURCHASE_BODY = Shape(NewPurchase, without={"actor"})
RETURN_BODY = Shape(NewReturn, without={"actor", "purchase"})


@dataclass(frozen=True, kw_only=True)
class PacksQuery(ListQuery):
    """The filters of versions of packs."""

    code: Annotated[str | None, Ref("Only versions of this pack.", named="ref")] = None
    currency: InCurrency = None
    on_sale: Annotated[bool, QueryBoolean("True: only the version of each pack that is on sale now.")] = False


@dataclass(frozen=True, kw_only=True)
class PurchasesQuery(ListQuery):
    """Which purchases."""

    holder: Annotated[str | None, Holder("Only purchases of this holder's credits.", named="holder_id")] = None
    customer: OfCustomer = None
    pack: Annotated[str | None, Ref("Only purchases of this pack.")] = None
    provider: Annotated[str | None, Provider("Only money that this provider took.")] = None
    payment: Annotated[str | None, PaymentId("Only the payment with this id.")] = None
    waiting: Annotated[
        bool | None,
        QueryBoolean("True: only purchases with credits that are still to be added or revoked; false: only the others."),
    ] = None
    since: Annotated[datetime | None, Time("Paid at this time or later.")] = None
    until: Annotated[datetime | None, Time("Paid before this time.")] = None


class PackSerializer(ResponseSchema):
    """A version of a pack."""

    ref = text("code")
    version = whole()
    name = text()
    names = serializers.DictField(child=serializers.CharField())
    credit_type = text()
    credits = whole()
    bonus = whole()
    currency = text()
    price_minor = minor()
    expires_days = whole(null=True)
    applies_to = serializers.DictField(
        allow_null=True, help_text="What the credits and the bonus can pay for, as in a grant; null for everything."
    )
    valid_from = time()
    valid_until = time(null=True)


class CreditEntrySerializer(ResponseSchema):
    """An entry of the ledger."""

    source = text(itemgetter("source"))  # type: ignore[assignment]
    sequence = whole(itemgetter("sequence"))
    amount = whole(itemgetter("amount"))


class PurchaseGrantSerializer(ResponseSchema):
    """The credits that a purchase added."""

    credits = whole()
    bonus = whole()
    entries = CreditEntrySerializer(many=True)
    granted_at = time("recorded_at")


class SettledReturnSerializer(ResponseSchema):
    """What a return did to the credits; below 0 where money came in again."""

    credits = whole(attrgetter("taken_credits"), help_text="Purchased credits that were revoked, or not added.")
    bonus = whole(attrgetter("taken_bonus"))
    claim_credits = whole(
        lambda row: row.share_credits - row.taken_credits, help_text="Purchased credits that were gone already."
    )
    claim_minor = minor(help_text="The money for them, in minor units.")
    entries = CreditEntrySerializer(many=True)
    settled_at = time("recorded_at")


class ReturnSerializer(ResponseSchema):
    """Money of a purchase that went back, or came in again."""

    purchase = whole(attrgetter("row.purchase_id"))
    kind = text(attrgetter("row.kind"))
    payment = text(attrgetter("row.payment"))
    amount_minor = minor(attrgetter("row.amount_minor"), help_text="Of the money of the purchase, in minor units.")
    loss_minor = minor(
        attrgetter("row.loss_minor"), help_text="What a dispute took beyond the rest of that money, in minor units."
    )
    returned_at = computed(serializers.CharField(), attrgetter("row.returned_at"), as_text=time_text)
    reason = text(attrgetter("row.reason"))
    actor = text(attrgetter("row.actor"))
    settled = computed(SettledReturnSerializer(allow_null=True), attrgetter("settled"))


class WaitingSerializer(ResponseSchema):
    """A step that is still to be done."""

    tries = whole()
    next_try_at = time("due_at")
    error = text(lambda row: row.error or None, null=True, help_text="Why the last try failed.")


class PurchaseSerializer(ResponseSchema):
    """Money that came in for a pack, and what became of the credits."""

    id = whole(attrgetter("row.pk"))
    state = text(help_text="paid: the credits are not added yet; granted; returned: all of the money went back.")
    provider = text(attrgetter("row.provider"))
    payment = text(attrgetter("row.payment"))
    pack = text(attrgetter("pack.code"))
    version = whole(attrgetter("pack.version"))
    quantity = whole(attrgetter("row.quantity"))
    holder_id = text(attrgetter("row.holder_id"))
    customer = text(null=True)
    credit_type = text(attrgetter("row.credit_type"))
    credits = whole(attrgetter("row.credits"))
    bonus = whole(attrgetter("row.bonus"))
    applies_to = computed(
        serializers.DictField(allow_null=True, help_text="What the credits and the bonus can pay for; null for everything."),
        attrgetter("pack.applies_to"),
    )
    currency = text(attrgetter("row.currency"))
    paid_minor = minor(attrgetter("row.paid_minor"))
    paid_at = computed(serializers.CharField(), attrgetter("row.paid_at"), as_text=time_text)
    reference = text(attrgetter("row.reference"))
    actor = text(attrgetter("row.actor"))
    recorded_at = computed(serializers.CharField(), attrgetter("row.recorded_at"), as_text=time_text)
    granted = computed(PurchaseGrantSerializer(allow_null=True), attrgetter("grant"))
    returned_minor = minor()
    loss_minor = minor(help_text="What disputes took beyond the money of the purchase, in minor units.")
    claim_credits = whole(
        help_text="Purchased credits that were gone when their money was returned, less those that came back since."
    )
    claim_minor = minor(help_text="The money for them, in minor units.")
    returns = computed(ReturnSerializer(many=True), attrgetter("returns"))
    waiting = computed(WaitingSerializer(allow_null=True), attrgetter("due"))


# Examples --------------------------------------------------------------------------------------------

PACK_EXAMPLE_BODY: dict[str, Any] = {
    "ref": "starter", "name": "Starter", "credits": 1000, "bonus": 100, "currency": "EUR", "price_minor": 2000,
    "expires_days": 365,
}  # fmt: skip
PACK: dict[str, Any] = {
    "ref": "starter", "version": 1, "name": "Starter", "names": {}, "credit_type": "credits", "credits": 1000, "bonus": 100,
    "currency": "EUR", "price_minor": 2000, "expires_days": 365, "applies_to": None,
    "valid_from": "2026-01-01T00:00:00.000000Z", "valid_until": None,
}  # fmt: skip
PURCHASE_EXAMPLE_BODY: dict[str, Any] = {
    "pack": "starter", "holder_id": "customer-42", "customer": "CUST-7", "provider": "paypal", "payment": "8AC21",
}  # fmt: skip
PURCHASE: dict[str, Any] = {
    "id": 1, "state": "paid", "provider": "paypal", "payment": "8AC21", "pack": "starter", "version": 1, "quantity": 1,
    "holder_id": "customer-42", "customer": "CUST-7", "credit_type": "credits", "credits": 1000, "bonus": 100, "applies_to": None,
    "currency": "EUR", "paid_minor": 2000, "paid_at": "2026-01-14T09:30:00.123456Z", "reference": "", "actor": "key:shop",
    "recorded_at": "2026-01-14T09:30:00.123456Z", "granted": None, "returned_minor": 0, "loss_minor": 0,
    "claim_credits": 0, "claim_minor": 0, "returns": [],
    "waiting": {"tries": 0, "next_try_at": "2026-01-14T09:30:00.123456Z", "error": None},
}  # fmt: skip
RETURN_EXAMPLE_BODY: dict[str, Any] = {"kind": "refund", "payment": "REF-3", "amount_minor": 500, "reason": "Not as agreed"}
RETURN: dict[str, Any] = {
    "purchase": 1, **RETURN_EXAMPLE_BODY, "loss_minor": 0, "returned_at": "2026-01-20T08:00:00.000000Z", "actor": "key:shop",
    "settled": None,
}  # fmt: skip
SETTLED: dict[str, Any] = {
    "credits": 200, "bonus": 25, "claim_credits": 50, "claim_minor": 100,
    "entries": [
        {"source": "purchased", "sequence": 8, "amount": 200}, {"source": "promotional", "sequence": 9, "amount": 25},
    ],
    "settled_at": "2026-01-20T08:00:00.123456Z",
}  # fmt: skip
GRANTED_PURCHASE: dict[str, Any] = {
    **PURCHASE, "state": "granted", "waiting": None,
    "granted": {
        "credits": 1000, "bonus": 100,
        "entries": [
            {"source": "purchased", "sequence": 1, "amount": 1000}, {"source": "promotional", "sequence": 2, "amount": 100},
        ],
        "granted_at": "2026-01-14T09:30:00.234567Z",
    },
    "returned_minor": 500, "claim_credits": 50, "claim_minor": 100, "returns": [{**RETURN, "settled": SETTLED}],
}  # fmt: skip
