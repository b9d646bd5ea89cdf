"""Calls about customers and their coupons."""

from operator import attrgetter
from typing import Any

from django.http import HttpRequest

from billing import reads
from billing.api.endpoints import CATALOGUE, NO_CUSTOMER, WriteEndpoint, list_operation
from billing.api.paths import COUPON_PATH, REF_PATH
from billing.api.schemas import examples, request_schemas, response_schemas
from billing.errors import AlreadyExists, CouponNotApplicable, NotFound
from billing.orders import coupons, customers
from billing.orders.customers import CustomerChange, NewCustomer
from billing.orders.vat_lookups import VatAnswer
from ledger.records import shape_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.parsing import is_merge_patch
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.schema import RequestBody, ResponseBody, operation


class Customers(WriteEndpoint):
    """Who pays."""

    collection = "customers"
    location = "/v1/customers/{ref}"
    get = list_operation(
        "listCustomers", "List customers", "Newest first.", tag=CATALOGUE, path="/v1/customers",
        query=request_schemas.CustomersQuery, shape=response_schemas.CustomerSerializer, example=examples.CUSTOMER,
        rows=reads.customers,
    )  # fmt: skip

    @operation(
        "createCustomer", "Create a customer", tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        takes=RequestBody(shape_of(NewCustomer), {"a customer": examples.CUSTOMER_BODY}),
        responses={201: ResponseBody(response_schemas.CustomerSerializer, examples.CUSTOMER, "The customer.")},
        problems=[AlreadyExists(resource="customer", ref="CUST-7")],
    )  # fmt: skip
    def post(self, request: HttpRequest) -> Response:
        def made(fields: dict[str, Any]) -> NewCustomer:
            return shape_of(NewCustomer).make(fields)

        def act(fields: dict[str, Any], lookup: VatAnswer | None) -> tuple[int, Any]:
            return 201, response_schemas.CustomerSerializer.body(customers.create(made(fields), lookup))

        return self.once(request, NewCustomer, act, before=lambda fields: customers.look_up_before(made(fields)))


class OneCustomer(WriteEndpoint):
    """One customer."""

    collection = "customers"

    @operation(
        "readCustomer", "Read a customer", tag=CATALOGUE, scope=BILLING_READ, parameters=[REF_PATH],
        responses={200: ResponseBody(response_schemas.CustomerSerializer, examples.CUSTOMER, "The customer.")},
        problems=[NO_CUSTOMER],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        return json_response(response_schemas.CustomerSerializer.body(reads.customer(ref)))

    @operation(
        "changeCustomer", "Change a customer",
        "Applies from the next document on; finalised documents do not change. Currency, time zone, holder and credits "
        "never change, because earlier invoices depend on them. As `application/json`, an `address` replaces the "
        "whole address; as `application/merge-patch+json`, it changes the members that it names.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH],
        takes=RequestBody(
            request_schemas.CUSTOMER_CHANGE, {"moved": {"address": {"line1": "1 New St", "city": "Berlin"}}}
        ),
        responses={200: ResponseBody(response_schemas.CustomerSerializer, examples.CUSTOMER, "The customer after the change.")},
        problems=[NO_CUSTOMER],
    )  # fmt: skip
    def patch(self, request: HttpRequest, ref: str) -> Response:
        def made(fields: dict[str, Any]) -> CustomerChange:
            return request_schemas.CUSTOMER_CHANGE.make(fields | {"ref": ref, "merges_address": is_merge_patch(request)})

        def act(fields: dict[str, Any], lookup: VatAnswer | None) -> tuple[int, Any]:
            return 200, response_schemas.CustomerSerializer.body(customers.change(made(fields), lookup))

        shape = request_schemas.CUSTOMER_CHANGE
        return self.once(request, shape, act, before=lambda fields: customers.look_up_before(made(fields)))


class CustomerCoupons(WriteEndpoint):
    """A customer's coupons."""

    collection = "customer-coupons"
    location = "/v1/customers/{customer}/coupons"
    get = list_operation(
        "listCustomerCoupons", "List a customer's coupons",
        "Newest first; includes coupons of single subscriptions, and coupons that were taken away.",
        tag=CATALOGUE, path="/v1/customers/CUST-7/coupons", parameters=[REF_PATH], problems=[NO_CUSTOMER],
        query=request_schemas.AllQuery, shape=response_schemas.CustomerCouponSerializer, example=examples.CUSTOMER_COUPON,
        rows=reads.customer_coupons, body=lambda found, ref: response_schemas.customer_coupon(found), row_id=attrgetter("row.pk"),
    )  # fmt: skip

    @operation(
        "giveCoupon", "Give a coupon to a customer", tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True,
        parameters=[REF_PATH],
        takes=RequestBody(shape_of(coupons.NewGivenCoupon), {"a coupon": {"coupon": "WELCOME"}}),
        responses={
            201: ResponseBody(
                response_schemas.GivenCouponSerializer, examples.GIVEN_COUPON, "The next invoice is the first to use the coupon."
            )
        },
        problems=[
            NotFound(resource="customer", ref="CUST-7"),
            CouponNotApplicable(coupon="WELCOME", why="the customer has it already"),
        ],
    )  # fmt: skip
    def post(self, request: HttpRequest, ref: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            customer = customers.customer_of(ref)
            given = coupons.give_coupon(
                customer_id=customer.pk, customer_ref=ref, customer_currency=customer.currency, code=fields["coupon"]
            )
            given.refresh_from_db()
            return 201, response_schemas.GivenCouponSerializer.body(
                given, customer=ref, subscription=None, coupon=fields["coupon"]
            )

        return self.once(request, coupons.NewGivenCoupon, act)


class OneCustomerCoupon(WriteEndpoint):
    """One of a customer's coupons."""

    collection = "customer-coupons"
    takes_nothing = True

    @operation(
        "takeCouponOff", "Take a coupon away from a customer",
        "New invoices do not use the coupon; earlier invoices keep their discount. The customer cannot get it again.",
        tag=CATALOGUE, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH, COUPON_PATH],
        responses={
            200: ResponseBody(
                response_schemas.CustomerCouponSerializer, examples.CUSTOMER_COUPON,
                "The coupon, with its discounts so far.",
            )
        },
        problems=[NO_CUSTOMER, NotFound(resource="customer's coupon", ref="WELCOME")],
    )  # fmt: skip
    def delete(self, request: HttpRequest, ref: str, code: str) -> Response:
        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            taken_off = coupons.take_coupon_off(customer_id=customers.customer_of(ref).pk, customer_ref=ref, code=code)
            [given] = reads.customer_coupons(ref, before=taken_off.pk + 1, limit=1)
            return 200, response_schemas.customer_coupon(given)

        return self.once(request, request_schemas.Nothing, act)
