"""The calls that show a customer's next invoices, also with what is not ordered yet."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

from django.db import Error
from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import BUSY, NO_CUSTOMER, NO_SUBSCRIPTION, NO_TAXES, SUBSCRIPTIONS, BillingEndpoint
from billing.api.paths import REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import BillingWouldBeSuspended, CouponNotApplicable, NotFound
from billing.generator.run.preview import UpcomingInvoice, next_invoices, subscriptions_of
from billing.models import Customer, Subscription
from billing.orders import coupons, subscriptions
from billing.orders.subscriptions import NewSubscription, Wish
from billing.tax_asking import asks_taxes
from ledger.database.lock_names import SUBSCRIPTION_INTENT
from ledger.database.locks import lock_number, sqlstate
from ledger.database.transactions import COLLIDED, TRIES
from ledger.errors import Invalid, SequenceTaken
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ
from ledger.rest.kit.queries import read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation
from ledger.services import preview, time_of

NOT_ORDERED = "preview:not-ordered"
"""The ref of a subscription that is not ordered, on its invoices."""
SUSPENDED = BillingWouldBeSuspended(subscription="SUB-1234", reason="too-many-periods")
SHOWN = ResponseBody(response_schemas.PreviewSerializer, examples.PREVIEW, "The next invoices, in the order of time.")


class Previews(BillingEndpoint):
    """The next invoices of a customer. They are computed as runs would make them, and nothing is stored."""

    @operation(
        "readNextInvoices", "Preview the next invoices",
        "The next invoices of all the customer's subscriptions, as runs at their due instants would make them from today's "
        "orders, usage and credits, on one snapshot; with each, how it differs from the subscription's invoice before it. "
        "Nothing is stored, and no spend of the holder waits.",
        tag=SUBSCRIPTIONS, scope=BILLING_READ, parameters=[REF_PATH], query=request_schemas.PreviewQuery,
        responses={200: SHOWN}, problems=[NO_CUSTOMER, BUSY, SUSPENDED, *NO_TAXES],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(_show_preview(ref, {"invoices": read_query(request_schemas.PreviewQuery, request)["invoices"]}))

    @operation(
        "previewOrder", "Preview what is not ordered yet",
        "The same with a new subscription, an amendment of a subscription, a coupon, or several of them. Nothing is ordered, so "
        "the call needs no Idempotency-Key. A new subscription has the subscription `preview:not-ordered` on its invoices.",
        tag=SUBSCRIPTIONS, scope=BILLING_READ, parameters=[REF_PATH],
        takes=RequestBody(shape_of(request_schemas.NewPreview), {"a subscription": examples.PREVIEW_BODY}),
        responses={200: SHOWN},
        problems=[
            NO_CUSTOMER, NO_SUBSCRIPTION, BUSY, SUSPENDED,
            CouponNotApplicable(coupon="WELCOME", why="the customer has it already"), *NO_TAXES,
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        fields = self.body(request, shape_of(request_schemas.NewPreview))
        if not {"subscription", "amendment", "coupon"} & fields.keys():
            raise Invalid(pointer="", rule="required", detail="give a subscription, an amendment or a coupon")
        return json_response(_show_preview(ref, fields))


def _show_preview(ref: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the next invoices, on a new snapshot if another request has ordered since the snapshot what the preview orders.

    Raises:
        SequenceTaken: that happened three times in a row.
    """
    for _ in range(TRIES):
        try:
            return {"invoices": [response_schemas.upcoming_invoice(one) for one in _next_invoices(ref, fields)]}
        except Error as error:
            if sqlstate(error) not in COLLIDED:
                raise
            overtaken = error
    raise SequenceTaken from overtaken


@asks_taxes
def _next_invoices(ref: str, fields: dict[str, Any]) -> list[UpcomingInvoice]:
    # Each preview has its own, so that two of them wait for each other at no name.
    own = f"{NOT_ORDERED}:{uuid4().hex}"
    try:
        with preview(one_snapshot=True):
            customer = reads.customer(ref)
            _order(customer, own, fields)
            made = next_invoices(subscriptions_of(customer), as_of=time_of(customer.holder_id), most=fields["invoices"])
    except BillingWouldBeSuspended as refusal:
        if refusal.facts["subscription"] != own:
            raise
        raise BillingWouldBeSuspended(**{**refusal.facts, "subscription": NOT_ORDERED}) from refusal
    for one in made:
        if one.document["subscription"] == own:
            one.document["subscription"] = NOT_ORDERED
    return made


def _order(customer: Customer, own: str, fields: dict[str, Any]) -> None:
    """Order what is not ordered yet, in the caller's preview; the locks of the subscriptions come before that of the coupons.

    Args:
        own: the ref of the new subscription.
    """
    orders: dict[str, Callable[[], object]] = {}
    if "subscription" in fields:
        order = shape_of(NewSubscription).make({**fields["subscription"], "ref": own, "customer": customer.ref})
        orders[own] = lambda: subscriptions.create_subscription.execute(order)
    if "amendment" in fields:
        wish = dict(fields["amendment"])
        amended, effective_at = wish.pop("subscription"), wish["effective_at"]
        if not Subscription.objects.filter(ref=amended, customer_id=customer.pk).exists():
            raise NotFound(resource="subscription", ref=amended)
        orders[amended] = lambda: subscriptions.amend_subscription(ref=amended, effective_at=effective_at, wish=Wish.of(wish))
    for ref in sorted(orders, key=lambda ref: lock_number(SUBSCRIPTION_INTENT(ref))):
        orders[ref]()
    if "coupon" in fields:
        coupons.give_coupon(
            customer_id=customer.pk, customer_ref=customer.ref, customer_currency=customer.currency, code=fields["coupon"]
        )
