"""Calls about coupons: discounts that customers can be given."""

from django.http import HttpRequest

from billing import reads
from billing.api import examples, request_schemas, response_schemas
from billing.api.endpoints import CATALOGUE, REF_PATH, BillingEndpoint, WriteEndpoint, list_operation
from billing.errors import AlreadyExists, NotFound
from billing.orders import coupons
from billing.orders.coupons import NewCoupon
from ledger.api.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.api.kit.schema import RequestBody, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.records import shape_of


class Coupons(WriteEndpoint):
    """Discounts."""

    collection = "coupons"
    get = list_operation(
        "listCoupons", "List coupons", "Newest first.", tag=CATALOGUE, path="/v1/coupons",
        query=request_schemas.CouponsQuery, shape=response_schemas.CouponSerializer, example=examples.COUPON,
        rows=reads.coupons,
    )  # fmt: skip

    @operation(
        "createCoupon", "Create a coupon", tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(shape_of(NewCoupon), {"a percentage": examples.COUPON_BODY}),
        responses={201: ResponseBody(response_schemas.CouponSerializer, examples.COUPON, "The coupon.")},
        problems=[AlreadyExists(resource="coupon", ref="WELCOME")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        """Create a coupon."""
        return self.once(
            request,
            NewCoupon,
            lambda fields: (
                201,
                response_schemas.CouponSerializer.body(coupons.create_coupon.execute(shape_of(NewCoupon).make(fields))),
            ),
        )


class OneCoupon(BillingEndpoint):
    """One coupon."""

    @operation(
        "readCoupon", "Read a coupon", tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH],
        responses={200: ResponseBody(response_schemas.CouponSerializer, examples.COUPON, "The coupon.")},
        problems=[NotFound(resource="coupon", ref="WELCOME")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        """Read a coupon."""
        return json_response(response_schemas.CouponSerializer.body(reads.coupon(ref)))
