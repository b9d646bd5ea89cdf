"""Calls about packs, which are on sale."""

from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import PAYMENTS, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import REF_PATH
from billing.api.schemas.request_schemas import PlanQuery
from billing.errors import NotFound
from billing.payments import reads
from billing.payments.api import purchase_schemas as schemas
from billing.payments.packs import NewPack, create_pack
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Packs(WriteEndpoint):
    """Packs of credits."""

    collection = "packs"
    location = "/v1/packs/{ref}?version={version}"
    get = list_operation(
        "listPacks", "List packs", "Every version, newest first.", tag=PAYMENTS, path="/v1/packs",
        query=schemas.PacksQuery, shape=schemas.PackSerializer, example=schemas.PACK, rows=reads.packs,
    )  # fmt: skip

    @operation(
        "createPack", "Create a pack", "Creates a pack, or its next version: versions never change. The newest version that has "
        "begun is on sale, until it ends.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(shape_of(NewPack), {"a pack": schemas.PACK_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.PackSerializer, schemas.PACK, "The new version.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 201, schemas.PackSerializer.body(create_pack.execute(shape_of(NewPack).make(fields)))

        return self.once(request, NewPack, act)


class OnePack(BillingEndpoint):
    """One pack."""

    @operation(
        "readPack", "Read a pack", "The newest version, or the version that the request names.",
        tag=PAYMENTS, scope=BILLING_READ, parameters=[REF_PATH], query=PlanQuery,
        responses={200: ResponseBody(schemas.PackSerializer, schemas.PACK, "The version.")},
        problems=[NotFound(resource="pack", ref="starter")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(schemas.PackSerializer.body(reads.pack(ref, **read_query(PlanQuery, request))))
