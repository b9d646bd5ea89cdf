"""Calls about sellers: who invoices, with its logo, words and numbers."""

from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import CATALOGUE, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.documents import sellers
from billing.errors import NotFound
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.queries import ListQuery
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Sellers(BillingEndpoint):
    """All sellers."""

    get = list_operation(
        "listSellers", "List sellers", "In their current versions; the one that was recorded last comes first.",
        tag=CATALOGUE, path="/v1/sellers", query=ListQuery, shape=response_schemas.SellerSerializer, example=examples.SELLER,
        rows=reads.sellers,
    )  # fmt: skip


class OneSeller(WriteEndpoint):
    """One seller."""

    collection = "sellers"

    @operation(
        "readSeller", "Read a seller", "In its current version.", tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH],
        responses={200: ResponseBody(response_schemas.SellerSerializer, examples.SELLER, "The seller.")},
        problems=[NotFound(resource="seller", ref="default")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(response_schemas.SellerSerializer.body(reads.seller(ref)))

    @operation(
        "recordSeller", "Record a seller",
        "Records a seller, or its next version, whole: a member that the body leaves out, the seller no longer has. Documents "
        "that are issued from then on show it; earlier ones keep theirs. The same details again record nothing.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(request_schemas.SELLER, {"a seller": examples.SELLER_BODY}),
        responses={200: ResponseBody(response_schemas.SellerSerializer, examples.SELLER, "The seller.")},
    )  # fmt: skip
    def put(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            seller = sellers.record(request_schemas.SELLER.make(fields | {"ref": ref}), actor=self.key.actor)
            seller.refresh_from_db()
            return 200, response_schemas.SellerSerializer.body(seller)

        return self.once(request, request_schemas.SELLER, act)
