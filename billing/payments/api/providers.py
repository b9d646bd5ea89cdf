"""Calls about providers: the events that they send, and the saved methods that they keep."""

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from billing.api.endpoints import NO_CUSTOMER, PAYMENTS, BillingEndpoint, WriteEndpoint
from billing.api.paths import REF_PATH
from billing.api.schemas import request_schemas
from billing.errors import NotFound
from billing.payments.api import intent_schemas as schemas
from billing.payments.api.paths import METHOD_PATH, PROVIDER_PATH
from billing.payments.errors import EventRejected, ProviderRefused, ProviderUnavailable
from billing.payments.provider_events import take_in
from billing.payments.providers.configured import is_configured
from billing.payments.providers.interface import SendsEvents
from billing.payments.saved_methods import forget_method, methods_of
from ledger.rest.kit.authentication import BILLING_READ, BILLING_WRITE
from ledger.rest.kit.endpoint import Endpoint
from ledger.rest.kit.queries import DryRunQuery, read_query
from ledger.rest.kit.rendering import Response, json_response
from ledger.rest.kit.request_errors import NotFound as NoSuchPath
from ledger.rest.kit.schema import ResponseBody, operation

EVENT_LIMIT_BYTES = 256 * 1024


class ProviderEvents(Endpoint):
    """Where a provider sends its events. Its signature says who it is, not an API key."""

    is_public = True
    body_limit_bytes = EVENT_LIMIT_BYTES

    @operation(
        "takeInProviderEvent", "Take in an event of a provider",
        "For the provider itself, at the address that you give it. The event is on record once, however often it comes, and is "
        "answered then; it says only that the provider is to be asked about a payment, so that no order of events matters.",
        tag=PAYMENTS, scope="", parameters=[PROVIDER_PATH],
        responses={200: ResponseBody(schemas.ReceivedEventSerializer, {"is_new": True}, "The event is on record.")},
        problems=[EventRejected(), NoSuchPath()],
    )  # fmt: skip
    def post(self, request: HttpRequest, provider: str) -> Response:
        if not is_configured(provider, SendsEvents):
            raise NoSuchPath
        body: bytes | Exception = request.raw_body  # type: ignore[attr-defined]
        if isinstance(body, Exception):
            raise body
        return json_response({"is_new": take_in(provider, body, _headers(request))})


def _headers(request: HttpRequest) -> Mapping[str, str]:
    """Return the headers by their names in lower case."""
    return {
        name.removeprefix("HTTP_").replace("_", "-").lower(): str(value)
        for name, value in request.META.items()
        if name.startswith("HTTP_")
    }


class PaymentMethods(BillingEndpoint):
    """The saved methods of a customer."""

    @operation(
        "listPaymentMethods", "List a customer's saved payment methods",
        "The providers are asked for them: nothing of a method is stored here. A checkout with `saves_method` saves one.",
        tag=PAYMENTS, scope=BILLING_READ, parameters=[REF_PATH],
        responses={200: ResponseBody(schemas.PaymentMethodsSerializer, schemas.METHODS, "The methods.")},
        problems=[NO_CUSTOMER, ProviderUnavailable(why="APIConnectionError"), ProviderRefused(why="No such customer")],
    )  # fmt: skip
    def get(self, request: HttpRequest, ref: str) -> Response:
        methods = methods_of(ref)
        return json_response({"results": [schemas.PaymentMethodSerializer.body(method) for method in methods]})


class OnePaymentMethod(WriteEndpoint):
    """One saved method of a customer."""

    collection = "payment-methods"
    takes_nothing = True

    @operation(
        "forgetPaymentMethod", "Forget a saved payment method",
        "The provider forgets it for good. The response shows the methods that are left.",
        tag=PAYMENTS, scope=BILLING_WRITE, idempotent=True, dry_run=True, parameters=[REF_PATH, METHOD_PATH],
        responses={200: ResponseBody(schemas.PaymentMethodsSerializer, schemas.METHODS, "The methods that are left.")},
        problems=[
            NO_CUSTOMER, NotFound(resource="payment method", ref="pm_1Qx7"), ProviderUnavailable(why="APIConnectionError"),
            ProviderRefused(why="No such payment method"),
        ],
    )  # fmt: skip
    def delete(self, request: HttpRequest, ref: str, method: str) -> Response:
        is_tried = read_query(DryRunQuery, request)["dry_run"]

        def act(fields: dict[str, Any]) -> tuple[int, Any]:
            # The provider is asked in the transaction of the key, which holds no other lock: what it forgot stays forgotten.
            left = forget_method(ref, method, dry_run=is_tried)
            return 200, {"results": [schemas.PaymentMethodSerializer.body(each) for each in left]}

        return self.once(request, request_schemas.Nothing, act, dry_run=is_tried)
