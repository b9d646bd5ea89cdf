"""Calls about plans, which customers order, and coupons, which give them discounts."""

from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import CATALOGUE, REF_PATH, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import AlreadyExists, NotFound
from billing.orders import coupons, plans
from billing.orders.coupons import NewCoupon
from billing.orders.plans import NewPlan
from billing.rating.prices.reading import price_dict
from ledger.api.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import RequestBody, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.records import shape_of


class Plans(WriteEndpoint):
    """Plans, which customers order."""

    collection = "plans"
    location = "/v1/plans/{code}?version={version}"
    get = list_operation(
        "listPlans", "List plans", "Every version, newest first.", tag=CATALOGUE, path="/v1/plans",
        query=request_schemas.PlansQuery, shape=response_schemas.PlanSerializer, example=examples.PLAN,
        rows=reads.plans,
    )  # fmt: skip

    @operation(
        "createPlan", "Create a plan", "Creates a plan, or its next version: versions never change, and subscriptions "
        "stay on their version.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(
            shape_of(NewPlan),
            {"a plan": examples.PLAN_BODY, "usage paid in credits first": examples.PLAN_IN_CREDITS_BODY},
        ),
        responses={201: ResponseBody(response_schemas.PlanSerializer, examples.PLAN, "The new version.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            new_plan = shape_of(NewPlan).make(fields)
            plan = plans.create_plan.execute(new_plan)
            # Not by `terms_of`, which would keep in memory a version that a dry run rolls back.
            prices = [price_dict(price) for price in new_plan.prices]
            return 201, response_schemas.PlanSerializer.body(plan, prices=prices)

        return self.once(request, NewPlan, act)


class OnePlan(BillingEndpoint):
    """One plan."""

    @operation(
        "readPlan", "Read a plan", "The newest version, or the version that the request names.",
        tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH], query=request_schemas.PlanQuery,
        responses={200: ResponseBody(response_schemas.PlanSerializer, examples.PLAN, "The version.")},
        problems=[NotFound(resource="plan", ref="basic")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(
            response_schemas.PlanSerializer.body(reads.plan(ref, **read_query(request_schemas.PlanQuery, request)))
        )


class Coupons(WriteEndpoint):
    """Discounts."""

    collection = "coupons"
    location = "/v1/coupons/{code}"
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
        return json_response(response_schemas.CouponSerializer.body(reads.coupon(ref)))
