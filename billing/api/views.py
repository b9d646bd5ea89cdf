"""Billing's calls: one class per path, each a reading of the request, one use-case or one look, and an answer."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, TypeVar

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from drf_spectacular.utils import OpenApiExample, OpenApiParameter

from billing import reads
from billing.api import bodies, examples, shapes
from billing.documents import credit_notes, transitions
from billing.documents.credit_notes import Wanted
from billing.errors import (
    AlreadyExists,
    CouponNotApplicable,
    CreditExceedsInvoice,
    InvalidTransition,
    InvoiceGenerationBusy,
    NotFound,
    NotParked,
)
from billing.generator import generate
from billing.generator.generate import Options, Scope
from billing.metering import usage
from billing.orders import coupons, customers, plans, subscriptions, suspension
from billing.orders.customers import CreditTerms
from billing.orders.subscriptions import Wish
from billing.rating.aggregation import Aggregation, Event
from billing.rating.limits import MAX_MINOR
from billing.rating.money import decimal_text
from billing.rating.periods import Interval, IntervalUnit
from billing.rating.prepaid_units import quote_covered, units_of
from billing.rating.price_input import parse_price
from billing.rating.pricing import PERCENTAGES, Rating, quote, usage_of
from billing.request_keys import Answer as Answered
from billing.request_keys import answer_once
from ledger.api.kit import cursors
from ledger.api.kit.authentication import BILLING_READ, BILLING_WRITE, Key
from ledger.api.kit.endpoint import Endpoint
from ledger.api.kit.idempotency import idempotency_key
from ledger.api.kit.inputs import StrictSerializer, read, read_query
from ledger.api.kit.parsing import BATCH_LIMIT_BYTES, BODY_LIMIT_BYTES, read_body
from ledger.api.kit.rendering import in_key_order, json_answer, recorded_answer
from ledger.api.kit.request_errors import Flaw, InvalidRequest
from ledger.api.kit.request_errors import NotFound as NoSuchPath
from ledger.api.kit.schema import Answer, Taken, operation, page_example, page_of
from ledger.database.lock_decorators import locked, on
from ledger.database.lock_names import INVOICE_GENERATION
from ledger.database.locks import Lock
from ledger.errors import Invalid, LedgerError, Refused

Row = TypeVar("Row")

CATALOGUE = "Catalogue"
SUBSCRIPTIONS = "Subscriptions"
USAGE = "Usage"
INVOICES = "Invoices"

REF_PATH = OpenApiParameter(
    "ref",
    {"type": "string", "pattern": f"^{bodies.REF_PATTERN}$", "minLength": 1, "maxLength": 64},
    OpenApiParameter.PATH,
    description="Your name for it.",
    examples=[OpenApiExample("ref", "SUB-1234")],
)
INVOICE_PATH = OpenApiParameter(
    "invoice_id",
    {"type": "integer", "format": "int64", "minimum": 1},
    OpenApiParameter.PATH,
    description="The id of the invoice; not its number, which only a finalised one has.",
    examples=[OpenApiExample("invoice", 1)],
)
CREDIT_NOTE_PATH = OpenApiParameter(
    "credit_note_id",
    {"type": "integer", "format": "int64", "minimum": 1},
    OpenApiParameter.PATH,
    description="The id of the credit note; not its number.",
    examples=[OpenApiExample("credit note", 1)],
)
COUPON_PATH = OpenApiParameter(
    "code", REF_PATH.type, OpenApiParameter.PATH, description="The coupon.", examples=[OpenApiExample("code", "WELCOME")]
)
EVENT_PATH = OpenApiParameter(
    "key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    OpenApiParameter.PATH,
    description="The event's idempotency key; a slash in it is written %2F.",
    examples=[OpenApiExample("key", "call-8812")],
)
NO_CUSTOMER = NotFound(resource="customer", ref="CUST-7")
NO_SUBSCRIPTION = NotFound(resource="subscription", ref="SUB-1234")
NO_INVOICE = NotFound(resource="invoice", ref=1)
NO_CREDIT_NOTE = NotFound(resource="credit note", ref=1)
BUSY = InvoiceGenerationBusy(key="invoice_gen/SUB-1234", subscription="SUB-1234")


class _Billing(Endpoint):
    """Billing knows customers, not holders: a key that is confined to one holder sees nothing of it."""

    def admit(self, key: Key, path: Mapping[str, Any]) -> None:
        super().admit(key, path)
        if key.holder_id is not None:
            raise NoSuchPath


class _Writes(_Billing):
    """What the writes have in common: a key, a body, and an answer that is remembered with the key."""

    scopes = {"post": BILLING_WRITE}
    collection: ClassVar[str]
    takes_nothing: ClassVar[bool] = False

    def once(
        self,
        request: HttpRequest,
        shape: type[StrictSerializer],
        act: Callable[[dict[str, Any]], tuple[int, Any]],
        *,
        remembers: bool = True,
        on_refusal: Callable[[Refused], None] | None = None,
    ) -> HttpResponse:
        """Read the body, do what it asks for at most once, and answer.

        Args:
            act: from the clean fields to a status and a body; runs inside the transaction that remembers the answer.
            remembers: False for what changes nothing, such as a dry run.
            on_refusal: what is to be written with a refusal although the act is undone.
        """
        key = idempotency_key(request)
        raw = self._raw(request)
        fields = read(shape, raw)
        if not remembers:
            with transaction.atomic(durable=True):
                status, body = act(fields)
            return json_answer(body, status=status)

        def answered() -> Answered:
            status, body = act(fields)
            return Answered(status, body)

        answer = answer_once(
            collection=self.collection, idempotency_key=key, request_digest=_digest(request, raw), act=answered,
            on_refusal=on_refusal,
        )  # fmt: skip
        return recorded_answer(in_key_order(answer.body), replayed=answer.replayed, status=answer.status)

    def _raw(self, request: HttpRequest) -> dict[str, Any]:
        if self.takes_nothing and request.META.get("CONTENT_LENGTH") in (None, "", "0"):
            return {}
        return read_body(request)


def listed(
    request: HttpRequest,
    query: type[StrictSerializer],
    select: Callable[..., Sequence[Row]],
    *,
    body: Callable[[Row], Any],
    row_id: Callable[[Row], int] = attrgetter("pk"),
) -> HttpResponse:
    """Return a page of a list whose rows go by a number, newest first.

    Args:
        query: the filters; what is left of them besides limit and cursor goes to `select`.
        select: takes the filters, `before` or `after` and `limit`.
        body: a row as it is shown.
    """
    filters = read_query(query, request)
    window = cursors.open_window(request, filters)
    bounds = {name: keyset[0] for name, keyset in window.newest_first().items()}
    rows = select(**filters, **bounds, limit=window.rows_wanted)
    return json_answer(window.page(rows, keyset=lambda row: (row_id(row),), body=body))


def _list_operation(
    name: str,
    summary: str,
    description: str,
    *,
    tag: str,
    query: type[StrictSerializer],
    shape: Any,
    example: Any,
    path: str,
    parameters: Sequence[OpenApiParameter] = (),
    problems: Sequence[LedgerError] = (),
) -> Callable[[Any], Any]:
    return operation(
        name, summary, description, tag=tag, scope=BILLING_READ, query=query, parameters=parameters, problems=problems,
        answers={200: Answer(page_of(shape), page_example(example, path=path), "A page of the list.")},
    )  # fmt: skip


def _digest(request: HttpRequest, raw: dict[str, Any]) -> bytes:
    """SHA-256 over what the request is: its route and its body, whatever the order of its keys."""
    route = f"{request.method} {request.path}?{request.META.get('QUERY_STRING', '')}"
    form = json.dumps([route, raw], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(form.encode()).digest()


# Catalogue and customers -----------------------------------------------------------------------------


class Customers(_Writes):
    """Who pays."""

    collection = "customers"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}

    @_list_operation(
        "listCustomers",
        "List customers",
        "Newest first.",
        tag=CATALOGUE,
        query=bodies.CustomersQuery,
        shape=shapes.CustomerShape,
        example=examples.CUSTOMER,
        path="/v1/customers",
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """List customers."""
        return listed(request, bodies.CustomersQuery, reads.customers, body=shapes.customer_body)

    @operation(
        "createCustomer", "Create a customer", tag=CATALOGUE, scope=BILLING_WRITE, keyed=True,
        takes=Taken(bodies.NewCustomerSerializer, {"a customer": examples.CUSTOMER_BODY}),
        answers={201: Answer(shapes.CustomerShape, examples.CUSTOMER, "The customer.")},
        problems=[AlreadyExists(resource="customer", ref="CUST-7")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a customer."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            terms = fields.pop("credits", None)
            customer = customers.create_customer(**fields, credits=CreditTerms(**terms) if terms else None)
            return 201, shapes.customer_body(customer)

        return self.once(request, bodies.NewCustomerSerializer, act)


class OneCustomer(_Writes):
    """One customer."""

    collection = "customers"
    scopes = {"get": BILLING_READ, "patch": BILLING_WRITE}

    @operation(
        "readCustomer", "Read a customer", tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH],
        answers={200: Answer(shapes.CustomerShape, examples.CUSTOMER, "The customer.")}, problems=[NO_CUSTOMER],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Read a customer."""
        return json_answer(shapes.customer_body(reads.customer(ref)))

    @operation(
        "changeCustomer", "Change a customer",
        "Counts from the next document on; finalised ones keep what they say. Currency, time zone, holder and credits never "
        "change: what was billed depends on them.",
        tag=CATALOGUE, scope=BILLING_WRITE, keyed=True, parameters=[REF_PATH],
        takes=Taken(bodies.CustomerChangeSerializer, {"moved": {"address": {"line1": "1 New St", "city": "Berlin"}}}),
        answers={200: Answer(shapes.CustomerShape, examples.CUSTOMER, "The customer as it is then.")}, problems=[NO_CUSTOMER],
    )  # fmt: skip
    def patch(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Change a customer."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 200, shapes.customer_body(customers.change_customer(ref=ref, **fields))

        return self.once(request, bodies.CustomerChangeSerializer, act)


class Plans(_Writes):
    """What is sold."""

    collection = "plans"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}

    @_list_operation(
        "listPlans",
        "List plans",
        "Every version, newest first.",
        tag=CATALOGUE,
        query=bodies.PlansQuery,
        shape=shapes.PlanShape,
        example=examples.PLAN,
        path="/v1/plans",
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """List plans."""
        return listed(request, bodies.PlansQuery, reads.plans, body=shapes.plan_body)

    @operation(
        "createPlan", "Create a plan", "Or the next version of one: versions never change, subscriptions stay on theirs.",
        tag=CATALOGUE, scope=BILLING_WRITE, keyed=True,
        takes=Taken(
            bodies.NewPlanSerializer,
            {"a plan": examples.PLAN_BODY, "usage paid in credits first": examples.PLAN_IN_CREDITS_BODY},
        ),
        answers={201: Answer(shapes.PlanShape, examples.PLAN, "The version that was made.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a plan or a version of it."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            interval = fields.pop("interval")
            plan = plans.create_plan(**fields, interval=Interval(IntervalUnit(interval["unit"]), interval["count"]))
            return 201, shapes.plan_body(plan)

        return self.once(request, bodies.NewPlanSerializer, act)


class OnePlan(_Billing):
    """One plan."""

    scopes = {"get": BILLING_READ}

    @operation(
        "readPlan", "Read a plan", "Its newest version, or the one that is asked for.", tag=CATALOGUE, scope=BILLING_READ,
        parameters=[REF_PATH], query=bodies.PlanQuery,
        answers={200: Answer(shapes.PlanShape, examples.PLAN, "The version.")}, problems=[NotFound(resource="plan", ref="basic")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Read a plan."""
        return json_answer(shapes.plan_body(reads.plan(ref, **read_query(bodies.PlanQuery, request))))


class Ratings(_Billing):
    """What something would cost."""

    scopes = {"post": BILLING_READ}
    body_limit_bytes = BATCH_LIMIT_BYTES

    @operation(
        "rate", "Rate usage", "What a quantity or some events would cost at a price; nothing is stored, so no key is needed.",
        tag=CATALOGUE, scope=BILLING_READ,
        takes=Taken(
            bodies.NewRatingSerializer,
            {"a quantity": examples.RATING_BODY, "with so many credits": examples.RATING_IN_CREDITS_BODY},
        ),
        answers={200: Answer(shapes.RatingShape, examples.RATING, "The amount and how it comes about.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> HttpResponse:
        """Rate a quantity or events."""
        fields = self.body(request, bodies.NewRatingSerializer)
        price = parse_price(fields["price"])
        known: Any = _rated(fields, price)
        billed = fields.get("already_billed", Decimal(0))
        if "credits_available" in fields:
            return json_answer(_rated_in_credits(fields, price, known, billed))
        return json_answer(_answerable(quote(price, known, fields["currency"], billed or None)).as_dict())


def _answerable(rating: Rating) -> Rating:
    """The rating, if an invoice could say its amount.

    Raises:
        InvalidRequest: it passes 2^53 - 1 minor units.
    """
    if abs(rating.amount_minor) > MAX_MINOR:
        detail = f"The amount exceeds {MAX_MINOR} minor units, the limit of one line."
        raise InvalidRequest([Flaw("", "amount-too-large", detail)])
    return rating


def _rated_in_credits(fields: dict[str, Any], price: Any, known: Any, billed: Decimal) -> dict[str, Any]:
    if price.credits is None:
        raise InvalidRequest([Flaw("/credits_available", "not-used", "The price does not take credits.")])
    available = fields["credits_available"]
    rating, coverage = quote_covered(price, known, fields["currency"], billed=billed, available=available)
    _answerable(rating)
    covered = {"units": decimal_text(units_of(price, coverage)), "credits": coverage.credits}
    return rating.as_dict() | {"covered": covered | {"credit_type": price.credits.credit_type}}


def _rated(fields: dict[str, Any], price: Any) -> Any:
    if ("quantity" in fields) == ("events" in fields):
        raise InvalidRequest([Flaw("/quantity", "one-of", "Give either quantity or events.")])
    if "quantity" in fields:
        return fields["quantity"]
    if price.aggregation is None and price.model not in PERCENTAGES:
        raise InvalidRequest([Flaw("/events", "not-used", "A recurring price has no events; give quantity.")])
    if price.aggregation == Aggregation.WEIGHTED_SUM:
        raise InvalidRequest([Flaw("/events", "needs-period", "An average over time needs its period; give quantity.")])
    events = [
        Event(one["value"], one["occurred_at"], one.get("properties", {}), sequence)
        for sequence, one in enumerate(fields["events"])
    ]
    return usage_of(price, events)


class Coupons(_Writes):
    """Discounts."""

    collection = "coupons"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}

    @_list_operation(
        "listCoupons",
        "List coupons",
        "Newest first.",
        tag=CATALOGUE,
        query=bodies.CouponsQuery,
        shape=shapes.CouponShape,
        example=examples.COUPON,
        path="/v1/coupons",
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """List coupons."""
        return listed(request, bodies.CouponsQuery, reads.coupons, body=shapes.coupon_body)

    @operation(
        "createCoupon", "Create a coupon", tag=CATALOGUE, scope=BILLING_WRITE, keyed=True,
        takes=Taken(bodies.NewCouponSerializer, {"a percentage": examples.COUPON_BODY}),
        answers={201: Answer(shapes.CouponShape, examples.COUPON, "The coupon.")},
        problems=[AlreadyExists(resource="coupon", ref="WELCOME")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a coupon."""
        return self.once(
            request, bodies.NewCouponSerializer, lambda fields: (201, shapes.coupon_body(coupons.create_coupon(**fields)))
        )


class OneCoupon(_Billing):
    """One coupon."""

    scopes = {"get": BILLING_READ}

    @operation(
        "readCoupon", "Read a coupon", tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH],
        answers={200: Answer(shapes.CouponShape, examples.COUPON, "The coupon.")},
        problems=[NotFound(resource="coupon", ref="WELCOME")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Read a coupon."""
        return json_answer(shapes.coupon_body(reads.coupon(ref)))


class CustomerCoupons(_Writes):
    """A customer's coupons."""

    collection = "customer-coupons"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}

    @_list_operation(
        "listCustomerCoupons",
        "List a customer's coupons",
        "Newest first; also those that were taken off.",
        tag=CATALOGUE,
        query=bodies.AllQuery,
        shape=shapes.CustomerCouponShape,
        example=examples.CUSTOMER_COUPON,
        path="/v1/customers/CUST-7/coupons",
        parameters=[REF_PATH],
        problems=[NO_CUSTOMER],
    )
    def get(self, request: HttpRequest, ref: str) -> HttpResponse:
        """List a customer's coupons."""
        return listed(
            request, bodies.AllQuery, partial(reads.customer_coupons, ref), row_id=lambda given: given.row.pk,
            body=partial(shapes.customer_coupon_body, customer=ref),
        )  # fmt: skip

    @operation(
        "giveCoupon", "Give a coupon to a customer", tag=CATALOGUE, scope=BILLING_WRITE, keyed=True, parameters=[REF_PATH],
        takes=Taken(bodies.NewGivenCouponSerializer, {"a coupon": {"coupon": "WELCOME"}}),
        answers={201: Answer(shapes.GivenCouponShape, examples.GIVEN_COUPON, "It is used from the next invoice on.")},
        problems=[
            NotFound(resource="customer", ref="CUST-7"),
            CouponNotApplicable(coupon="WELCOME", why="the customer has it already"),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Give a coupon to a customer."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            customer = customers.customer_of(ref)
            given = coupons.give_coupon(
                customer_id=customer.pk, customer_ref=ref, customer_currency=customer.currency, code=fields["coupon"]
            )
            given.refresh_from_db()
            return 201, shapes.given_coupon_body(given, customer=ref, coupon=fields["coupon"])

        return self.once(request, bodies.NewGivenCouponSerializer, act)


class OneCustomerCoupon(_Writes):
    """One of a customer's coupons."""

    collection = "customer-coupons"
    scopes = {"delete": BILLING_WRITE}
    takes_nothing = True

    @operation(
        "takeCouponOff", "Take a coupon off a customer",
        "Invoices made from now on do not use it; what earlier ones used stays. It cannot be given to the customer again.",
        tag=CATALOGUE, scope=BILLING_WRITE, keyed=True, parameters=[REF_PATH, COUPON_PATH],
        answers={200: Answer(shapes.CustomerCouponShape, examples.CUSTOMER_COUPON, "What it was used for.")},
        problems=[NO_CUSTOMER, NotFound(resource="customer's coupon", ref="WELCOME")],
    )  # fmt: skip
    def delete(self, request: HttpRequest, ref: str, code: str) -> HttpResponse:
        """Take a coupon off a customer."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            taken_off = coupons.take_coupon_off(customer_id=customers.customer_of(ref).pk, customer_ref=ref, code=code)
            [given] = reads.customer_coupons(ref, before=taken_off.pk + 1, limit=1)
            return 200, shapes.customer_coupon_body(given, customer=ref)

        return self.once(request, bodies.NothingSerializer, act)


# Subscriptions ---------------------------------------------------------------------------------------


class Subscriptions(_Writes):
    """What customers order."""

    collection = "subscriptions"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}

    @_list_operation(
        "listSubscriptions",
        "List subscriptions",
        "As they are now, newest first.",
        tag=SUBSCRIPTIONS,
        query=bodies.SubscriptionsQuery,
        shape=shapes.SubscriptionSummaryShape,
        example=examples.SUBSCRIPTION_SUMMARY,
        path="/v1/subscriptions",
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """List subscriptions."""
        return listed(
            request, bodies.SubscriptionsQuery, reads.subscriptions, row_id=lambda row: row.id, body=shapes.subscription_summary
        )

    @operation(
        "createSubscription", "Create a subscription", tag=SUBSCRIPTIONS, scope=BILLING_WRITE, keyed=True,
        takes=Taken(bodies.NewSubscriptionSerializer, {"a subscription": examples.SUBSCRIPTION_BODY}),
        answers={201: Answer(shapes.SubscriptionShape, examples.SUBSCRIPTION, "The subscription.")},
        problems=[AlreadyExists(resource="subscription", ref="SUB-1234")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> HttpResponse:
        """Create a subscription."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            subscription = subscriptions.create_subscription(**fields, actor=self.key.actor)
            body = shapes.subscription_body(subscription, customer=fields["customer"], plan=fields["plan"])
            return 201, body

        return self.once(request, bodies.NewSubscriptionSerializer, act)


class OneSubscription(_Billing):
    """One subscription."""

    scopes = {"get": BILLING_READ}

    @operation(
        "readSubscription", "Read a subscription",
        "As it is now: state, current period, items that count or will, all amendments, and when it is next due.",
        tag=SUBSCRIPTIONS, scope=BILLING_READ, parameters=[REF_PATH],
        answers={200: Answer(shapes.SubscriptionDetailShape, examples.SUBSCRIPTION_DETAIL, "The subscription.")},
        problems=[NO_SUBSCRIPTION],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Read a subscription."""
        return json_answer(shapes.subscription_detail(reads.subscription(ref)))


class Amendments(_Writes):
    """Changes to a subscription."""

    collection = "amendments"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}

    @_list_operation(
        "listAmendments",
        "List a subscription's amendments",
        "Newest first; the first one is the order.",
        tag=SUBSCRIPTIONS,
        query=bodies.AllQuery,
        shape=shapes.AmendmentShape,
        example=examples.AMENDMENT,
        path="/v1/subscriptions/SUB-1234/amendments",
        parameters=[REF_PATH],
        problems=[NO_SUBSCRIPTION],
    )
    def get(self, request: HttpRequest, ref: str) -> HttpResponse:
        """List a subscription's amendments."""
        return listed(request, bodies.AllQuery, partial(reads.amendments, ref), body=partial(shapes.amendment_body, ref=ref))

    @operation(
        "amendSubscription", "Amend a subscription",
        "Writes the wish and returns at once, also while invoices for the subscription are being made; the next run bills the "
        "difference: what is given back and what is charged, both once the change has taken effect. With `dry_run=true`: the "
        "invoices that a run at `as_of` would make with it.",
        tag=SUBSCRIPTIONS, scope=BILLING_WRITE, keyed=True, parameters=[REF_PATH], query=bodies.AmendmentQuery,
        takes=Taken(bodies.NewAmendmentSerializer, {"more": examples.AMENDMENT_BODY}),
        answers={
            201: Answer(shapes.AmendmentShape, examples.AMENDMENT, "The amendment."),
            200: Answer(shapes.InvoicesShape, {"invoices": [examples.INVOICE]}, "The effect (dry run)."),
        },
        problems=[NO_SUBSCRIPTION, BUSY],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Amend a subscription."""
        query = read_query(bodies.AmendmentQuery, request)
        dry_run = query["dry_run"]
        if "as_of" in query and not dry_run:
            raise Invalid(pointer="/as_of", rule="dry-run-only", detail="works only with dry_run=true; runs bill the amendment")

        def amended(fields: dict[str, Any]) -> Any:
            wish = Wish(
                plan=fields.get("plan"),
                quantities=fields.get("quantities"),
                sets_end="ends_at" in fields,
                ends_at=fields.get("ends_at"),
                paused=fields.get("paused"),
                trial_end=fields.get("trial_end"),
            )
            return subscriptions.amend_subscription(ref=ref, effective_at=fields["effective_at"], wish=wish, actor=self.key.actor)

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 201, shapes.amendment_body(amended(fields), ref)

        def show(fields: dict[str, Any]) -> tuple[int, Any]:
            amended(fields)
            as_of = query.get("as_of") or max(fields["effective_at"], timezone.now())
            options = Options(as_of=as_of, finalize=False, render=reads.invoice_document)
            generated = generate.generate_in(ref=ref, options=options)
            transaction.set_rollback(True)
            return 200, {"invoices": generated.documents}

        return self.once(request, bodies.NewAmendmentSerializer, show if dry_run else act, remembers=not dry_run)


class Charges(_Writes):
    """One-off charges."""

    collection = "charges"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}

    @_list_operation(
        "listCharges",
        "List a subscription's one-off charges",
        "Newest first.",
        tag=SUBSCRIPTIONS,
        query=bodies.AllQuery,
        shape=shapes.ChargeShape,
        example=examples.CHARGE,
        path="/v1/subscriptions/SUB-1234/charges",
        parameters=[REF_PATH],
        problems=[NO_SUBSCRIPTION],
    )
    def get(self, request: HttpRequest, ref: str) -> HttpResponse:
        """List a subscription's one-off charges."""
        return listed(request, bodies.AllQuery, partial(reads.charges, ref), body=partial(shapes.charge_body, ref=ref))

    @operation(
        "chargeOnce", "Add a one-off charge", "It is on the next invoice of the subscription, once.",
        tag=SUBSCRIPTIONS, scope=BILLING_WRITE, keyed=True, parameters=[REF_PATH],
        takes=Taken(bodies.NewChargeSerializer, {"a set-up fee": examples.CHARGE_BODY}),
        answers={201: Answer(shapes.ChargeShape, examples.CHARGE, "The charge.")},
        problems=[NO_SUBSCRIPTION],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Add a one-off charge."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 201, shapes.charge_body(subscriptions.charge_once(ref=ref, **fields, actor=self.key.actor), ref)

        return self.once(request, bodies.NewChargeSerializer, act)


class Unpark(_Writes):
    """A parked subscription may be billed again."""

    collection = "unpark"

    @operation(
        "unpark", "Let a parked subscription be billed again", tag=SUBSCRIPTIONS, scope=BILLING_WRITE, keyed=True,
        parameters=[REF_PATH], takes=Taken(bodies.UnparkSerializer, {"checked": {"reason": "Checked by hand"}}),
        answers={200: Answer(shapes.ParkingShape, examples.PARKING, "What it was parked for.")},
        problems=[NO_SUBSCRIPTION, NotParked(subscription="SUB-1234")],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Unpark a subscription."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 200, shapes.parking_body(suspension.unpark(ref=ref, actor=self.key.actor, **fields), ref)

        return self.once(request, bodies.UnparkSerializer, act)


# Usage -----------------------------------------------------------------------------------------------


class OneUsageEvent(_Billing):
    """One usage event."""

    scopes = {"get": BILLING_READ}

    @operation(
        "readUsageEvent", "Read a usage event", tag=USAGE, scope=BILLING_READ, parameters=[EVENT_PATH],
        answers={200: Answer(shapes.UsageEventShape, examples.USAGE_EVENT, "The event.")},
        problems=[NotFound(resource="usage event", ref="call-8812")],
    )  # fmt: skip
    def get(self, request: HttpRequest, key: str) -> HttpResponse:
        """Read a usage event."""
        return json_answer(shapes.usage_event_body(reads.usage_event(key)))


class UsageEvents(_Writes):
    """What was used."""

    collection = "usage-events"
    scopes = {"get": BILLING_READ, "post": BILLING_WRITE}
    body_limit_bytes = BATCH_LIMIT_BYTES

    @_list_operation(
        "listUsageEvents",
        "List a subscription's usage events",
        "The latest use first. Events that were billed long ago may be gone.",
        tag=USAGE,
        query=bodies.UsageEventsQuery,
        shape=shapes.UsageEventShape,
        example=examples.USAGE_EVENT,
        path="/v1/usage-events",
        problems=[NO_SUBSCRIPTION],
    )
    def get(self, request: HttpRequest) -> HttpResponse:
        """List a subscription's usage events."""
        filters = read_query(bodies.UsageEventsQuery, request)
        window = cursors.open_window(request, filters)
        events = reads.usage_events(**filters, **window.newest_first(), limit=window.rows_wanted)
        return json_answer(window.page(events, keyset=lambda event: event.keyset, body=shapes.usage_event_body))

    @operation(
        "takeInUsage", "Send usage events", "Up to 1,000 events, each with a result. An event's key is permanently unique.",
        tag=USAGE, scope=BILLING_WRITE, keyed=True,
        takes=Taken(bodies.UsageSerializer, {"one event": examples.USAGE_BODY}),
        answers={200: Answer(shapes.UsageResultsShape, examples.USAGE, "accepted, duplicate, conflict or invalid, for each.")},
    )  # fmt: skip
    def post(self, request: HttpRequest) -> HttpResponse:
        """Take usage events in."""
        return self.once(request, bodies.UsageSerializer, lambda fields: (200, {"results": _taken_in(fields["events"])}))


def _taken_in(raw_events: list[Any]) -> list[dict[str, Any]]:
    good: list[usage.NewEvent] = []
    results: list[dict[str, Any] | None] = []
    for raw in raw_events:
        try:
            fields = read(bodies.UsageEventSerializer, raw)
        except InvalidRequest as invalid:
            results.append(_invalid(raw, invalid))
            continue
        good.append(usage.NewEvent(**({"properties": {}} | fields)))
        results.append(None)
    outcomes = iter(usage.take_in(good))
    return [one if one is not None else _result(next(outcomes)) for one in results]


def _invalid(raw: Any, invalid: InvalidRequest) -> dict[str, Any]:
    key = raw.get("idempotency_key") if isinstance(raw, dict) else None
    detail = "; ".join(f"{flaw.pointer}: {flaw.detail}" for flaw in invalid.flaws)[:1000]
    return {"idempotency_key": key if isinstance(key, str) else None, "result": "invalid", "detail": detail}


def _result(outcome: usage.Outcome) -> dict[str, Any]:
    return {"idempotency_key": outcome.idempotency_key, "result": outcome.result.value, "detail": outcome.detail}


# Invoices --------------------------------------------------------------------------------------------


class SubscriptionInvoices(_Writes):
    """Making invoices for one subscription."""

    collection = "subscription-invoices"

    @operation(
        "generateInvoices", "Generate the invoices of a subscription",
        "Does the same as the command, for one subscription, up to `as_of`: 400 if that lies in the future, except in a dry run. "
        "Answers 409 at once if another process is generating its invoices; try again later.",
        tag=INVOICES, scope=BILLING_WRITE, keyed=True, parameters=[REF_PATH],
        takes=Taken(bodies.GenerationSerializer, {"all that is due": examples.GENERATION_BODY}),
        answers={
            201: Answer(shapes.InvoicesShape, {"invoices": [examples.INVOICE]}, "What was made."),
            200: Answer(shapes.InvoicesShape, {"invoices": []}, "Nothing is due, or what a dry run would make."),
        },
        problems=[NO_SUBSCRIPTION, BUSY],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> HttpResponse:
        """Make the invoices that are due."""
        asked: dict[str, Any] = {}

        def park(refusal: Refused) -> None:
            if not asked["dry_run"]:
                generate.park_refused(refusal)

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            asked.update(fields)
            generate.check_as_of(fields["as_of"], dry_run=fields["dry_run"])
            return self.make(ref=ref, fields=fields)

        return self.once(request, bodies.GenerationSerializer, act, on_refusal=park)

    @staticmethod
    @locked(on(INVOICE_GENERATION, "{ref}"), wait=False, busy=InvoiceGenerationBusy)
    def make(lock: Lock, *, ref: str, fields: dict[str, Any]) -> tuple[int, Any]:
        """Make the invoices that are due, or what a dry run would make, while nobody else makes any for the subscription."""
        options = Options(
            as_of=fields["as_of"],
            only=Scope(fields["only"]) if "only" in fields else None,
            finalize=fields["finalize"],
            dry_run=fields["dry_run"],
            render=reads.invoice_document,
        )
        generated = generate.generate_held(lock, ref=ref, options=options)
        made = bool(generated.documents) and not options.dry_run
        return 201 if made else 200, {"invoices": generated.documents}


class Invoices(_Billing):
    """All invoices."""

    scopes = {"get": BILLING_READ}

    @operation(
        "listInvoices", "List invoices", "Newest first.", tag=INVOICES, scope=BILLING_READ, query=bodies.InvoicesQuery,
        answers={
            200: Answer(page_of(shapes.InvoiceShape), page_example(examples.INVOICE, path="/v1/invoices"), "A page of invoices.")
        },
    )  # fmt: skip
    def get(self, request: HttpRequest) -> HttpResponse:
        """List invoices."""
        return listed(request, bodies.InvoicesQuery, reads.invoices, row_id=itemgetter("id"), body=dict)


class OneInvoice(_Writes):
    """One invoice."""

    scopes = {"get": BILLING_READ, "delete": BILLING_WRITE}
    collection = "invoices"
    takes_nothing = True

    @operation(
        "readInvoice", "Read an invoice", tag=INVOICES, scope=BILLING_READ, parameters=[INVOICE_PATH],
        answers={200: Answer(shapes.InvoiceShape, examples.INVOICE, "The invoice.")}, problems=[NO_INVOICE],
    )  # fmt: skip
    def get(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """Read an invoice."""
        return json_answer(reads.invoice_document(invoice_id))

    @operation(
        "deleteDraft", "Delete a draft",
        "Returns the credits the draft used and frees its periods for billing. The moves of its id keep the actor and reason.",
        tag=INVOICES, scope=BILLING_WRITE, keyed=True, parameters=[INVOICE_PATH], query=bodies.DeletionQuery,
        answers={200: Answer(shapes.DocumentMoveShape, examples.DELETION, "What is kept of it.")},
        problems=[NO_INVOICE, InvalidTransition(invoice=1, state="open", wanted="deleted"), BUSY],
    )  # fmt: skip
    def delete(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """Delete a draft."""
        why = read_query(bodies.DeletionQuery, request)

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            return 200, shapes.move_body(transitions.delete_draft_in(invoice_id=invoice_id, actor=self.key.actor, **why))

        return self.once(request, bodies.NothingSerializer, act)


class InvoiceMoves(_Billing):
    """Who moved an invoice, and why."""

    scopes = {"get": BILLING_READ}

    @operation(
        "listInvoiceMoves", "List the moves of an invoice",
        "Who finalised, paid, voided or gave it up, or deleted it as a draft, and why; newest first. What runs of the generator "
        "do is not among them.",
        tag=INVOICES, scope=BILLING_READ, parameters=[INVOICE_PATH], query=bodies.MovesQuery,
        answers={
            200: Answer(
                page_of(shapes.DocumentMoveShape), page_example(examples.MOVE, path="/v1/invoices/1/moves"), "A page of moves."
            )
        },
        problems=[NO_INVOICE],
    )  # fmt: skip
    def get(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """List who moved it."""
        return listed(request, bodies.MovesQuery, partial(reads.moves, invoice_id), body=shapes.move_body)


class InvoiceCreditNotes(_Writes):
    """What corrects a finalised invoice."""

    collection = "credit-notes"

    @operation(
        "creditInvoice", "Credit an invoice",
        "Issues a credit note over some lines or all that is left. It lowers what is due, first; of what was paid, money is set "
        "against the next invoices of the subscription, and prepaid credits go back to the holder.",
        tag=INVOICES, scope=BILLING_WRITE, keyed=True, parameters=[INVOICE_PATH],
        takes=Taken(
            bodies.NewCreditNoteSerializer, {"a line": examples.CREDIT_NOTE_BODY, "the rest": {"reason": "Cancelled as agreed"}}
        ),
        answers={201: Answer(shapes.CreditNoteShape, examples.CREDIT_NOTE, "The credit note.")},
        problems=[
            NO_INVOICE,
            InvalidTransition(invoice=1, state="draft", wanted="credited"),
            CreditExceedsInvoice(invoice=1, creditable_minor=480, lines=[{"position": 1, "creditable_minor": 400}]),
            BUSY,
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """Issue a credit note."""

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            lines = fields.get("lines")
            wanted = None if lines is None else [Wanted(**line) for line in lines]
            note = credit_notes.issue_in(invoice_id=invoice_id, lines=wanted, reason=fields["reason"], actor=self.key.actor)
            return 201, reads.credit_note_document(note.pk)

        return self.once(request, bodies.NewCreditNoteSerializer, act)


class CreditNotes(_Billing):
    """All credit notes."""

    scopes = {"get": BILLING_READ}

    @operation(
        "listCreditNotes", "List credit notes", "Newest first; those on request, and those that arose because credits on an "
        "invoice were larger than its charges (`carried`, without number and lines).",
        tag=INVOICES, scope=BILLING_READ, query=bodies.CreditNotesQuery,
        answers={
            200: Answer(
                page_of(shapes.CreditNoteShape), page_example(examples.CREDIT_NOTE, path="/v1/credit-notes"), "A page of them."
            )
        },
    )  # fmt: skip
    def get(self, request: HttpRequest) -> HttpResponse:
        """List credit notes."""
        return listed(request, bodies.CreditNotesQuery, reads.credit_notes, row_id=itemgetter("id"), body=dict)


class OneCreditNote(_Billing):
    """One credit note."""

    scopes = {"get": BILLING_READ}

    @operation(
        "readCreditNote", "Read a credit note", tag=INVOICES, scope=BILLING_READ, parameters=[CREDIT_NOTE_PATH],
        answers={200: Answer(shapes.CreditNoteShape, examples.CREDIT_NOTE, "The credit note.")}, problems=[NO_CREDIT_NOTE],
    )  # fmt: skip
    def get(self, request: HttpRequest, credit_note_id: int) -> HttpResponse:
        """Read a credit note."""
        return json_answer(reads.credit_note_document(credit_note_id))


class _Moves(_Writes):
    """From state to state; the body may say why."""

    collection = "invoices"
    body_limit_bytes = BODY_LIMIT_BYTES
    takes_nothing = True

    def move(self, request: HttpRequest, invoice_id: int, move: str) -> HttpResponse:
        """Move the invoice and answer with it as it is then."""

        def moved(fields: dict[str, Any]) -> tuple[int, Any]:
            transitions.move_in(invoice_id=invoice_id, move=move, actor=self.key.actor, **fields)
            return 200, reads.invoice_document(invoice_id)

        return self.once(request, bodies.MoveSerializer, moved)


def _move_operation(name: str, summary: str, description: str) -> Callable[[Any], Any]:
    return operation(
        name, summary, description, tag=INVOICES, scope=BILLING_WRITE, keyed=True, parameters=[INVOICE_PATH],
        takes=Taken(bodies.MoveSerializer, {"with a reason": {"reason": "Told so by phone"}, "nothing": {}}),
        answers={200: Answer(shapes.InvoiceShape, examples.INVOICE, "The invoice as it is then.")},
        problems=[NO_INVOICE, InvalidTransition(invoice=1, state="paid", wanted="void"), BUSY],
    )  # fmt: skip


class Finalize(_Moves):
    """A draft becomes a document."""

    @_move_operation("finalizeInvoice", "Finalise a draft", "Applies credits, gives the number and freezes it.")
    def post(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """Finalise a draft."""
        return self.move(request, invoice_id, "finalize")


class Pay(_Moves):
    """It was paid."""

    @_move_operation("payInvoice", "Mark an invoice as paid", "From open or uncollectible.")
    def post(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """Mark an invoice as paid."""
        return self.move(request, invoice_id, "pay")


class Void(_Moves):
    """It never was."""

    @_move_operation(
        "voidInvoice", "Void an invoice", "Frees the invoice's periods for billing and returns the credits it used, once."
    )
    def post(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """Void an invoice."""
        return self.move(request, invoice_id, "void")


class MarkUncollectible(_Moves):
    """It will not be paid."""

    @_move_operation("markInvoiceUncollectible", "Give an invoice up", "It can still be paid or voided.")
    def post(self, request: HttpRequest, invoice_id: int) -> HttpResponse:
        """Mark an invoice as uncollectible."""
        return self.move(request, invoice_id, "give_up")
