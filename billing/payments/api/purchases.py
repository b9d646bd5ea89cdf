"""Calls about purchases: money that is in, and money that went back."""

from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import NO_CUSTOMER, PAYMENTS, BillingEndpoint, WriteEndpoint, list_operation
from billing.errors import AlreadyExists
from billing.payments import reads
from billing.payments.api import purchase_schemas as schemas
from billing.payments.api.paths import PURCHASE_PATH
from billing.payments.errors import ReturnExceedsPurchase
from billing.payments.purchase_recording import record_purchase, record_return
from billing.payments.purchase_settling import attempt
from billing.payments.reads import ReturnRow
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Purchases(WriteEndpoint):
    """Purchases of packs."""

    collection = "purchases"
    location = "/v1/purchases/{id}"
    get = list_operation(
        "listPurchases", "List purchases", "Newest first.", tag=PAYMENTS, path="/v1/purchases",
        query=schemas.PurchasesQuery, shape=schemas.PurchaseSerializer, example=schemas.GRANTED_PURCHASE, rows=reads.purchases,
        problems=[NO_CUSTOMER],
    )  # fmt: skip

    @operation(
        "recordPurchase", "Record a purchase",
        "Send this when the money is in. The purchase is on record from then on, whatever happens; its credits are added right "
        "after that, before the response is sent. If that fails, for example because the holder is busy, it is tried again until "
        "it succeeds. The response shows the purchase as it was recorded: read it to see its credits. A payment makes one "
        "purchase, also when it is sent with another Idempotency-Key.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(schemas.PURCHASE_BODY, {"a purchase": schemas.PURCHASE_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.PurchaseSerializer, schemas.PURCHASE, "The purchase.")},
        problems=[AlreadyExists(resource="purchase", ref="1")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            purchase = record_purchase.execute(schemas.PURCHASE_BODY.make(fields | {"actor": self.key.actor}))
            return 201, schemas.PurchaseSerializer.body(reads.purchase(purchase.pk))

        return self.once(request, schemas.PURCHASE_BODY, act)


class OnePurchase(BillingEndpoint):
    """One purchase."""

    @operation(
        "readPurchase", "Read a purchase",
        "If its credits are still to be added or revoked, this is tried first.",
        tag=PAYMENTS, scope=BILLING_READ, parameters=[PURCHASE_PATH],
        responses={200: ResponseBody(schemas.PurchaseSerializer, schemas.GRANTED_PURCHASE, "The purchase.")},
        problems=[PURCHASE_PATH.missing],
    )  # fmt: skip
    def get(self, request: HttpRequest, purchase_id: int) -> Response:
        purchase = reads.purchase(purchase_id)
        if purchase.due is not None and attempt(purchase_id, wait=False):
            purchase = reads.purchase(purchase_id)
        return json_response(schemas.PurchaseSerializer.body(purchase))


class PurchaseReturns(WriteEndpoint):
    """Money of a purchase that went back, or came in again."""

    collection = "purchase-returns"
    location = "/v1/purchases/{purchase}"

    @operation(
        "recordReturn", "Record returned money",
        "A refund, a dispute, or a dispute that was won. It is on record from then on. The unspent credits that the money had "
        "bought, in proportion, are revoked right after that; what was spent already is a claim, in credits and money. A dispute "
        "that was won grants its credits again. Read the purchase to see this.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[PURCHASE_PATH],
        takes=RequestBody(schemas.RETURN_BODY, {"a refund": schemas.RETURN_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.ReturnSerializer, schemas.RETURN, "The return.")},
        problems=[
            PURCHASE_PATH.missing, ReturnExceedsPurchase(purchase=1, returnable_minor=1500),
            AlreadyExists(resource="refund of purchase", ref="1"),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, purchase_id: int) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            named = {"purchase": purchase_id, "actor": self.key.actor}
            purchase_return = record_return.execute(schemas.RETURN_BODY.make(fields | named))
            return 201, schemas.ReturnSerializer.body(ReturnRow(purchase_return, None))

        return self.once(request, schemas.RETURN_BODY, act)
