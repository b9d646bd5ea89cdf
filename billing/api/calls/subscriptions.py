"""Calls about subscriptions: orders, amendments, one-off charges, and suspended billing."""

from operator import attrgetter
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from billing import reads
from billing.api.endpoints import BUSY, NO_SUBSCRIPTION, NO_TAXES, SUBSCRIPTIONS, BillingEndpoint, WriteEndpoint, list_operation
from billing.api.paths import COUPON_PATH, REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import (
    AlreadyExists,
    BillingNotSuspended,
    BillingWouldBeSuspended,
    CouponNotApplicable,
    NotFound,
    SubscriptionNotIncomplete,
    SubscriptionNotStarted,
)
from billing.generator import activations
from billing.generator.options import Options
from billing.generator.run import generate
from billing.models import Activation
from billing.orders import coupons, subscriptions, suspension
from billing.orders.coupons import NewGivenCoupon
from billing.orders.subscriptions import NewSubscription
from billing.reads.catalogue import GivenCoupon
from ledger.errors import Invalid
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation

NOT_STARTED = SubscriptionNotStarted(subscription="SUB-1234", state="waiting")


def _coupon(found: GivenCoupon, _: str) -> dict[str, Any]:
    return response_schemas.customer_coupon(found)


class Subscriptions(WriteEndpoint):
    """Subscriptions, the orders of customers."""

    collection = "subscriptions"
    location = "/v1/subscriptions/{ref}"
    get = list_operation(
        "listSubscriptions", "List subscriptions", "Subscriptions in their current state, newest first.",
        tag=SUBSCRIPTIONS, path="/v1/subscriptions",
        query=request_schemas.SubscriptionsQuery, shape=response_schemas.SubscriptionSummarySerializer,
        example=examples.SUBSCRIPTION_SUMMARY,
        rows=reads.subscriptions, row_id=attrgetter("id"),
    )  # fmt: skip

    @operation(
        "createSubscription", "Create a subscription", tag=SUBSCRIPTIONS, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(
            shape_of(NewSubscription),
            {
                "a subscription": examples.SUBSCRIPTION_BODY,
                "phases": examples.PHASED_SUBSCRIPTION_BODY,
                "paid first": examples.PAID_FIRST_BODY,
            },
        ),
        responses={201: ResponseBody(response_schemas.SubscriptionSerializer, examples.SUBSCRIPTION, "The subscription.")},
        problems=[
            AlreadyExists(resource="subscription", ref="SUB-1234"),
            BillingWouldBeSuspended(subscription="SUB-1234", reason="amount-too-large"),
            *NO_TAXES,
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            subscription = activations.order_subscription.execute(
                shape_of(NewSubscription).make(fields | {"actor": self.key.actor})
            )
            held = subscriptions.held_back(subscription).days
            activation = Activation.objects.filter(subscription_id=subscription.pk).first()
            named = {
                "customer": fields["customer"], "plan": fields["plan"], "hold_days": held,
                "consolidated_invoicing": subscriptions.is_consolidated(subscription),
                "activation": None if activation is None else response_schemas.ActivationSerializer.body(activation),
            }  # fmt: skip
            return 201, response_schemas.SubscriptionSerializer.body(subscription, **named)

        return self.once(request, NewSubscription, act)


class CancelOrder(WriteEndpoint):
    """Cancels an order that waits for its first payment."""

    collection = "canceled-orders"
    takes_nothing = True

    @operation(
        "cancelOrder", "Cancel an order",
        "Of a subscription that waits for the payment of its first invoice: the invoice is voided, and the subscription never "
        "starts. What was paid of the invoice becomes credit of the customer. To end a subscription that has started, amend it.",
        tag=SUBSCRIPTIONS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(request_schemas.CANCELED_ORDER, {"a reason": {"reason": "Ordered twice"}}),
        responses={200: ResponseBody(response_schemas.ActivationSerializer, examples.ACTIVATION, "The order, canceled.")},
        problems=[NO_SUBSCRIPTION, BUSY, SubscriptionNotIncomplete(subscription="SUB-1234")],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            order = request_schemas.CANCELED_ORDER.make(fields | {"ref": ref, "actor": self.key.actor})
            return 200, response_schemas.ActivationSerializer.body(activations.cancel_order.execute(order))

        return self.once(request, request_schemas.CANCELED_ORDER, act)


class OneSubscription(BillingEndpoint):
    """One subscription."""

    @operation(
        "readSubscription", "Read a subscription",
        "The subscription with its current state, current period, current and future items, all amendments, and when it "
        "is next due.",
        tag=SUBSCRIPTIONS, scope=BILLING_READ, parameters=[REF_PATH],
        responses={
            200: ResponseBody(response_schemas.SubscriptionDetailSerializer, examples.SUBSCRIPTION_DETAIL, "The subscription.")
        },
        problems=[NO_SUBSCRIPTION],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(response_schemas.subscription_detail(reads.subscription(ref)))


class Calendars(BillingEndpoint):
    """What a subscription is charged for from now on."""

    @operation(
        "readCalendar", "Read a subscription's calendar",
        "The stretches of time at the same terms, from now on as far as they are ordered: phases, planned amendments, pauses and "
        "the end. At most 200.",
        tag=SUBSCRIPTIONS, scope=BILLING_READ, parameters=[REF_PATH],
        responses={200: ResponseBody(response_schemas.CalendarSerializer, examples.CALENDAR, "The calendar.")},
        problems=[NO_SUBSCRIPTION],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(response_schemas.calendar_body(reads.calendar(ref), ref))


class Amendments(WriteEndpoint):
    """Changes to a subscription."""

    collection = "amendments"
    location = "/v1/subscriptions/{subscription}"
    get = list_operation(
        "listAmendments", "List a subscription's amendments", "Newest first; the last one in the list is the order.",
        tag=SUBSCRIPTIONS, path="/v1/subscriptions/SUB-1234/amendments", parameters=[REF_PATH], problems=[NO_SUBSCRIPTION],
        query=request_schemas.AllQuery, shape=response_schemas.AmendmentSerializer, example=examples.AMENDMENT,
        rows=reads.amendments, body=lambda row, ref: response_schemas.AmendmentSerializer.body(row, subscription=ref),
    )  # fmt: skip

    @operation(
        "amendSubscription", "Amend a subscription",
        "Records the change and returns at once, even while another process generates invoices for the subscription. The "
        "next run after the change has taken effect bills the difference: credits and charges. "
        "With `dry_run=true`: the invoices that a run at `as_of` would make after the amendment.",
        tag=SUBSCRIPTIONS, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        parameters=[REF_PATH], query=request_schemas.AmendmentQuery,
        takes=RequestBody(subscriptions.AMENDMENT, {"more": examples.AMENDMENT_BODY, "phases": examples.PHASES_BODY}),
        responses={
            201: ResponseBody(response_schemas.AmendmentSerializer, examples.AMENDMENT, "The amendment."),
            200: ResponseBody(
                response_schemas.GeneratedInvoicesSerializer, examples.GENERATED, "The effect (dry run)."
            ),
        },
        problems=[NO_SUBSCRIPTION, NOT_STARTED, BUSY, *NO_TAXES],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        query = read_query(request_schemas.AmendmentQuery, request)
        dry_run = query["dry_run"]
        if "as_of" in query and not dry_run:
            raise Invalid(pointer="/as_of", rule="dry-run-only", detail="works only with dry_run=true; runs bill the amendment")

        def amended(fields: dict[str, Any]) -> Any:
            return subscriptions.amend_subscription(
                ref=ref, effective_at=fields["effective_at"], wish=subscriptions.Wish.of(fields), actor=self.key.actor
            )

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 201, response_schemas.AmendmentSerializer.body(amended(fields), subscription=ref)

        def show(fields: dict[str, Any]) -> tuple[int, Any]:
            amendment = amended(fields)
            as_of = query.get("as_of")
            if as_of is None:
                subscription = subscriptions.subscription_of(ref)
                as_of = max(amendment.counts_from, timezone.now()) + subscriptions.held_back(subscription)
            options = Options(as_of=as_of, finalize=False, dry_run=True, render=reads.invoice_document)
            return 200, response_schemas.generated_invoices(generate.generate_in(ref=ref, options=options))

        return self.once(request, subscriptions.AMENDMENT, show if dry_run else act, dry_run=dry_run, shows_effect=True)


class Charges(WriteEndpoint):
    """One-off charges."""

    collection = "charges"
    location = "/v1/subscriptions/{subscription}"
    get = list_operation(
        "listCharges", "List a subscription's one-off charges", "Newest first.",
        tag=SUBSCRIPTIONS, path="/v1/subscriptions/SUB-1234/charges", parameters=[REF_PATH], problems=[NO_SUBSCRIPTION],
        query=request_schemas.AllQuery, shape=response_schemas.ChargeSerializer, example=examples.CHARGE,
        rows=reads.charges, body=lambda row, ref: response_schemas.ChargeSerializer.body(row, subscription=ref),
    )  # fmt: skip

    @operation(
        "chargeOnce", "Add a one-off charge", "The next invoice of the subscription bills the charge, once.",
        tag=SUBSCRIPTIONS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(request_schemas.CHARGE, {"a set-up fee": examples.CHARGE_BODY}),
        responses={201: ResponseBody(response_schemas.ChargeSerializer, examples.CHARGE, "The charge.")},
        problems=[NO_SUBSCRIPTION, NOT_STARTED],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            charge = subscriptions.charge_once.execute(
                request_schemas.CHARGE.make(fields | {"ref": ref, "actor": self.key.actor})
            )
            return 201, response_schemas.ChargeSerializer.body(charge, subscription=ref)

        return self.once(request, request_schemas.CHARGE, act)


class SubscriptionCoupons(WriteEndpoint):
    """The coupons of one subscription."""

    collection = "subscription-coupons"
    location = "/v1/subscriptions/{subscription}/coupons"
    get = list_operation(
        "listSubscriptionCoupons", "List a subscription's coupons", "Newest first; includes coupons that were taken away.",
        tag=SUBSCRIPTIONS, path="/v1/subscriptions/SUB-1234/coupons", parameters=[REF_PATH], problems=[NO_SUBSCRIPTION],
        query=request_schemas.AllQuery, shape=response_schemas.CustomerCouponSerializer, example=examples.SUBSCRIPTION_COUPON,
        rows=reads.subscription_coupons, body=_coupon, row_id=attrgetter("row.pk"),
    )  # fmt: skip

    @operation(
        "giveSubscriptionCoupon", "Give a coupon to a subscription",
        "Only this subscription uses the coupon, from its next invoice on.",
        tag=SUBSCRIPTIONS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(shape_of(NewGivenCoupon), {"a coupon": {"coupon": "WELCOME"}}),
        responses={
            201: ResponseBody(
                response_schemas.CustomerCouponSerializer, examples.SUBSCRIPTION_COUPON, "The next invoice uses it first."
            )
        },
        problems=[NO_SUBSCRIPTION, CouponNotApplicable(coupon="WELCOME", why="the subscription has it already")],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            coupons.give_subscription_coupon(ref=ref, code=fields["coupon"])
            [given] = reads.subscription_coupons(ref, limit=1)
            return 201, _coupon(given, ref)

        return self.once(request, NewGivenCoupon, act)


class OneSubscriptionCoupon(WriteEndpoint):
    """One of a subscription's coupons."""

    collection = "subscription-coupons"
    takes_nothing = True

    @operation(
        "takeSubscriptionCouponOff", "Take a coupon away from a subscription",
        "New invoices do not use the coupon; earlier invoices keep their discount. The subscription cannot get it again.",
        tag=SUBSCRIPTIONS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH, COUPON_PATH],
        responses={
            200: ResponseBody(
                response_schemas.CustomerCouponSerializer, examples.SUBSCRIPTION_COUPON, "The coupon, with its discounts so far.",
            )
        },
        problems=[NO_SUBSCRIPTION, NotFound(resource="subscription's coupon", ref="WELCOME")],
    )  # fmt: skip
    def delete(self, request: HttpRequest, ref: str, code: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            taken_off = coupons.take_subscription_coupon_off(ref=ref, code=code)
            [given] = reads.subscription_coupons(ref, before=taken_off.pk + 1, limit=1)
            return 200, _coupon(given, ref)

        return self.once(request, request_schemas.Nothing, act)


class BillingResumption(WriteEndpoint):
    """Resuming the billing of a subscription."""

    collection = "resume-billing"

    @operation(
        "resumeBilling", "Resume the billing of a subscription", tag=SUBSCRIPTIONS, scope=BILLING_WRITE, idempotent=True,
        dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(shape_of(request_schemas.ResumeBilling), {"checked": {"reason": "Checked by hand"}}),
        responses={
            200: ResponseBody(
                response_schemas.SuspendedBillingSerializer, examples.SUSPENDED_BILLING, "Why billing was suspended."
            )
        },
        problems=[NO_SUBSCRIPTION, BillingNotSuspended(subscription="SUB-1234")],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            resumed = suspension.resume(ref=ref, actor=self.key.actor, **fields)
            return 200, response_schemas.SuspendedBillingSerializer.body(resumed, subscription=ref)

        return self.once(request, request_schemas.ResumeBilling, act)
