"""Calls about plans: what is sold."""

from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api import examples, request_schemas, response_schemas
from billing.api.endpoints import CATALOGUE, REF_PATH, BillingEndpoint, WriteEndpoint, list_operation
from billing.errors import NotFound
from billing.orders import plans
from billing.orders.plans import NewPlan
from billing.rating.price_input import parse_prices, price_dict
from ledger.api.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.api.kit.reading.queries import read_query
from ledger.api.kit.schema import RequestBody, ResponseBody, operation
from ledger.api.kit.writing.rendering import Response, json_response
from ledger.records import shape_of


class Plans(WriteEndpoint):
    """What is sold."""

    collection = "plans"
    get = list_operation(
        "listPlans", "List plans", "Every version, newest first.", tag=CATALOGUE, path="/v1/plans",
        query=request_schemas.PlansQuery, shape=response_schemas.PlanSerializer, example=examples.PLAN,
        rows=reads.plans,
    )  # fmt: skip

    @operation(
        "createPlan", "Create a plan", "Or the next version of one: versions never change, subscriptions stay on theirs.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(
            shape_of(NewPlan),
            {"a plan": examples.PLAN_BODY, "usage paid in credits first": examples.PLAN_IN_CREDITS_BODY},
        ),
        responses={201: ResponseBody(response_schemas.PlanSerializer, examples.PLAN, "The version that was made.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        """Create a plan or a version of it."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            plan = plans.create_plan.execute(shape_of(NewPlan).make(fields))
            # Not by `terms_of`, which would keep a version in memory that a dry run undoes.
            prices = [price_dict(price) for price in parse_prices(fields["prices"])]
            return 201, response_schemas.PlanSerializer.body(plan, prices=prices)

        return self.once(request, NewPlan, act)


class OnePlan(BillingEndpoint):
    """One plan."""

    @operation(
        "readPlan", "Read a plan", "Its newest version, or the one that is asked for.", tag=CATALOGUE, scope=BILLING_READ,
        parameters=[REF_PATH], query=request_schemas.PlanQuery,
        responses={200: ResponseBody(response_schemas.PlanSerializer, examples.PLAN, "The version.")},
        problems=[NotFound(resource="plan", ref="basic")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        """Read a plan."""
        return json_response(
            response_schemas.PlanSerializer.body(reads.plan(ref, **read_query(request_schemas.PlanQuery, request)))
        )
