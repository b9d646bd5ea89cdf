"""Calls about plans, which customers order, and coupons, which give them discounts."""

from operator import attrgetter
from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import CATALOGUE, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import PLAN_MOVE_PATH, REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.api.schemas import plan_moves as schemas
from billing.errors import AlreadyExists, NotFound
from billing.orders import coupons, plan_move_progress, plans
from billing.orders.coupons import NewCoupon
from billing.orders.plan_move_orders import start_plan_move
from billing.orders.plan_move_preview import move_preview
from billing.orders.plans import NewPlan
from billing.rating.prices.overage import is_overage
from billing.rating.prices.reading import price_dict
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation

NO_PLAN = NotFound(resource="plan", ref="basic")
NO_PLAN_MOVE = NotFound(resource="plan move", ref=1)


class Plans(WriteEndpoint):
    """Plans, which customers order."""

    collection = "plans"
    location = "/v1/plans/{ref}?version={version}"
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
            {
                "a plan": examples.PLAN_BODY, "usage paid in credits first": examples.PLAN_IN_CREDITS_BODY,
                "allowance, overage, cap": examples.PLAN_WITH_OVERAGE_BODY,
                "limits by seat and member": examples.PLAN_WITH_BUDGETS_BODY,
            },
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
        problems=[NO_PLAN],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(
            response_schemas.PlanSerializer.body(reads.plan(ref, **read_query(request_schemas.PlanQuery, request)))
        )


class PlanSales(WriteEndpoint):
    """Whether a plan is on sale."""

    collection = "plan-sales"
    location = "/v1/plans/{ref}?version={version}"

    @operation(
        "changePlanSale", "Retire a plan, or put it on sale again",
        "Writes the plan's next version with the same terms. No order takes a retired plan, by itself, by an amendment or by a "
        "phase; subscriptions that have it go on. A plan that is so already stays as it is.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(schemas.PLAN_SALE_BODY, {"retire it": {"on_sale": False}}),
        responses={201: ResponseBody(response_schemas.PlanSerializer, examples.RETIRED_PLAN, "The newest version.")},
        problems=[NO_PLAN],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            plan = plans.change_plan_sale.execute(schemas.PLAN_SALE_BODY.make(fields | {"plan": ref}))
            # Not by `terms_of`, as of a new plan.
            written = plans.terms_of.__wrapped__(plan.pk).prices
            prices = [price_dict(price) for _, price in written if not is_overage(price)]
            return 201, response_schemas.PlanSerializer.body(plan, prices=prices)

        return self.once(request, schemas.PLAN_SALE_BODY, act)


class PlanMoves(WriteEndpoint):
    """Moves of subscriptions to the newest version of a plan."""

    collection = "plan-moves"
    location = "/v1/plan-moves/{id}"
    get = list_operation(
        "listPlanMoves", "List the moves to versions of a plan", "Newest first.", tag=CATALOGUE, path="/v1/plans/basic/moves",
        parameters=[REF_PATH], problems=[NO_PLAN], query=request_schemas.AllQuery, shape=schemas.PlanMoveSerializer,
        example=schemas.DONE_PLAN_MOVE, rows=plan_move_progress.plan_moves, body=lambda found, _: schemas.plan_move(found),
        row_id=attrgetter("row.pk"),
    )  # fmt: skip

    @operation(
        "moveSubscriptions", "Move subscriptions to the newest version of a plan",
        "Orders the move and returns at once; workers then write an ordinary amendment for each subscription that is on an "
        "earlier version at that time, once. Planned amendments to an earlier version are moved too.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(schemas.PLAN_MOVE_BODY, {"all subscriptions": schemas.PLAN_MOVE_EXAMPLE_BODY}),
        responses={201: ResponseBody(schemas.PlanMoveSerializer, schemas.PLAN_MOVE, "The move, which workers carry out.")},
        problems=[NO_PLAN],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            order = schemas.PLAN_MOVE_BODY.make(fields | {"plan": ref, "actor": self.key.actor})
            return 201, schemas.plan_move(plan_move_progress.plan_move(start_plan_move.execute(order).pk))

        return self.once(request, schemas.PLAN_MOVE_BODY, act)


class PlanMovePreviews(BillingEndpoint):
    """What a move to the newest version of a plan would change."""

    @operation(
        "previewPlanMove", "Preview a move to the newest version of a plan",
        "What the move would change a month, per subscription and in sum (`sums` and `left_out` are null for more than 10,000 "
        "subscriptions), and who stays. Nothing is written, so the call needs no Idempotency-Key.",
        tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH], query=schemas.MovePreviewQuery,
        takes=RequestBody(schemas.PLAN_MOVE_BODY, {"all subscriptions": schemas.PLAN_MOVE_EXAMPLE_BODY}),
        responses={200: ResponseBody(schemas.MovesPreviewSerializer, schemas.MOVES_PREVIEW, "What would change.")},
        problems=[NO_PLAN],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        query = read_query(schemas.MovePreviewQuery, request)
        order = schemas.PLAN_MOVE_BODY.make(self.body(request, schemas.PLAN_MOVE_BODY) | {"plan": ref})
        return json_response(schemas.moves_preview(move_preview(order, after=query.get("after"), limit=query["limit"])))


class OnePlanMove(BillingEndpoint):
    """One plan move."""

    @operation(
        "readPlanMove", "Read a plan move", "The move and how far it is.", tag=CATALOGUE, scope=BILLING_READ,
        parameters=[PLAN_MOVE_PATH],
        responses={200: ResponseBody(schemas.PlanMoveSerializer, schemas.DONE_PLAN_MOVE, "The move.")}, problems=[NO_PLAN_MOVE],
    )  # fmt: skip
    def get(self, request: HttpRequest, move_id: int) -> Response:
        return json_response(schemas.plan_move(plan_move_progress.plan_move(move_id)))


class MovedSubscriptions(BillingEndpoint):
    """What became of the subscriptions of a plan move."""

    get = list_operation(
        "listMovedSubscriptions", "List the subscriptions of a plan move", "Those that it has looked at, the newest first.",
        tag=CATALOGUE, path="/v1/plan-moves/1/subscriptions", parameters=[PLAN_MOVE_PATH], problems=[NO_PLAN_MOVE],
        query=schemas.MovedSubscriptionsQuery, shape=schemas.MovedSubscriptionSerializer, example=schemas.MOVED_SUBSCRIPTION,
        rows=plan_move_progress.moved_subscriptions, body=schemas.moved_subscription, row_id=lambda found: found[0].pk,
    )  # fmt: skip


class Coupons(WriteEndpoint):
    """Discounts."""

    collection = "coupons"
    location = "/v1/coupons/{ref}"
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
