"""Stripe, by its official package. Loaded only where a key of Stripe is set.

Note [A charge is two requests]
    A payment intent is made first, and confirmed by a second request, once its id is on record here. An intent that nobody
    confirms takes no money, and one intent takes money once. So a charge happens at most once, also when an idempotency key is
    older than the day for which Stripe keeps it.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

import stripe
from django.core.exceptions import ImproperlyConfigured

from billing.payments.errors import EventRejected, ProviderRefused, ProviderUnavailable
from billing.payments.providers.interface import (
    CANCELED,
    FAILED,
    PROCESSING,
    REQUESTED,
    STRIPE,
    SUCCEEDED,
    WAITING,
    Found,
    KeepsMethods,
    Method,
    MoneyBack,
    Order,
    Provider,
    SendsEvents,
    SendsMoneyBack,
    SignedEvent,
)
from billing.stripe_client import connect
from billing.stripe_units import minor_of, units_of

KEY: Final = "credit_ledger_payment"
"""The metadata in which Stripe keeps an order's key."""
REFUND_KEY: Final = "credit_ledger_refund"
TIMEOUT_S: Final = 10
TOLERANCE_S: Final = 300
AUTHENTICATION_REQUIRED: Final = "authentication_required"
STATES: Final = {
    "succeeded": SUCCEEDED, "processing": PROCESSING, "requires_action": WAITING, "requires_confirmation": REQUESTED,
    "requires_payment_method": WAITING, "canceled": CANCELED,
}  # fmt: skip
# A dispute that is only an inquiry takes no money.
INQUIRY: Final = "warning_"
PAGE_ROWS: Final = 100


class StripeProvider(Provider, SendsMoneyBack, SendsEvents, KeepsMethods):
    """Stripe's checkouts, payment intents, refunds and disputes."""

    name: ClassVar[str] = STRIPE

    def __init__(self, *, api_key: str, event_secret: str, api_base: str = "") -> None:
        if not (api_key and event_secret):
            raise ImproperlyConfigured(f"the provider {STRIPE!r} needs an api_key and an event_secret that are not empty.")
        self._event_secret = event_secret
        self._client, self._http = connect(api_key, api_base=api_base, timeout_s=TIMEOUT_S)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def start(self, order: Order) -> Found:
        if not order.method:
            return self._start_checkout(order)
        if not order.payment:
            return self._make_intent(order)
        return self._confirm(order)

    def _start_checkout(self, order: Order) -> Found:
        price = {
            "currency": order.currency.lower(),
            "unit_amount": _units(order.amount_minor, order.currency),
            "product_data": {"name": order.title},
        }
        intent = {"metadata": {KEY: order.key}} | ({"setup_future_usage": "off_session"} if order.saves_method else {})
        parameters: Any = {
            "mode": "payment",
            "line_items": [{"quantity": 1, "price_data": price}],
            "success_url": order.return_url,
            "cancel_url": order.return_url,
            "client_reference_id": order.key,
            "metadata": {KEY: order.key},
            "payment_intent_data": intent,
            **({"customer": order.buyer} if order.buyer else {}),
            # Saved methods are cards.
            **({"payment_method_types": ["card"]} if order.saves_method else {}),
        }
        session = _ask(lambda: self._client.v1.checkout.sessions.create(parameters, _key(order, "checkout")))
        return Found(
            state=WAITING, checkout=session["id"], payment=_id_of(session.get("payment_intent")), url=session.get("url") or ""
        )

    def _make_intent(self, order: Order) -> Found:
        """See Note [A charge is two requests]."""
        parameters: Any = {
            "amount": _units(order.amount_minor, order.currency),
            "currency": order.currency.lower(),
            "customer": order.buyer,
            "payment_method": order.method,
            "payment_method_types": ["card"],
            "description": order.title,
            "metadata": {KEY: order.key},
        }
        intent = _ask(lambda: self._client.v1.payment_intents.create(parameters, _key(order, "intent")))
        return Found(state=REQUESTED, payment=intent["id"])

    def _confirm(self, order: Order) -> Found:
        """Confirm the charge. If the bank asks for the customer, return where the customer confirms it."""
        present: dict[str, Any] = {"return_url": order.return_url, "payment_method": order.method}
        how = present if order.is_present else {"off_session": True}
        try:
            intent = _ask(lambda: self._client.v1.payment_intents.confirm(order.payment, how, _key(order, "confirm")))  # type: ignore[arg-type]
            if order.is_present or _error_code(intent) != AUTHENTICATION_REQUIRED:
                return self._describe(order, intent)
        except _Declined as declined:
            if declined.reason != AUTHENTICATION_REQUIRED or order.is_present or not order.return_url:
                return self.find(order)
        try:
            intent = _ask(lambda: self._client.v1.payment_intents.confirm(order.payment, present, _key(order, "customer")))  # type: ignore[arg-type]
        except _Declined:
            return self.find(order)
        return self._describe(order, intent)

    def find(self, order: Order) -> Found:
        payment, url, checkout_state = order.payment, "", ""
        if order.checkout:
            session = _ask(lambda: self._client.v1.checkout.sessions.retrieve(order.checkout))
            payment = payment or _id_of(session.get("payment_intent"))
            url = session.get("url") or ""
            checkout_state = session.get("status") or ""
        if not payment:
            return Found(state=CANCELED if checkout_state == "expired" else WAITING, checkout=order.checkout, url=url)
        intent = _ask(lambda: self._client.v1.payment_intents.retrieve(payment))
        answer = self._describe(order, intent, url)
        if checkout_state in ("expired", "complete") and answer.state == WAITING:
            # It can no longer be paid: it is over, or what the customer chose has failed afterwards.
            return replace(answer, state=CANCELED if checkout_state == "expired" else FAILED, url="")
        return answer

    def cancel(self, order: Order) -> None:
        if order.checkout:
            _ask(lambda: self._client.v1.checkout.sessions.expire(order.checkout))
        else:
            _ask(lambda: self._client.v1.payment_intents.cancel(order.payment))

    def _describe(self, order: Order, intent: Mapping[str, Any], url: str = "") -> Found:
        state = STATES.get(intent["status"], PROCESSING)
        error = intent.get("last_payment_error") or {}
        if order.method and intent["status"] == "requires_payment_method" and error:
            state = FAILED
        action = (intent.get("next_action") or {}).get("redirect_to_url") or {}
        paid = state == SUCCEEDED
        return Found(
            state=state,
            checkout=order.checkout,
            payment=intent["id"],
            url=(action.get("url") or url) if state == WAITING else "",
            error="" if paid else ": ".join(filter(None, (error.get("code"), error.get("decline_code"), error.get("message")))),
            received_minor=minor_of(intent.get("amount_received") or 0, intent["currency"]),
            currency=intent["currency"].upper(),
            refunds=self._refunds(intent["id"]) if paid else (),
            disputes=self._disputes(intent["id"]) if paid else (),
        )

    def _refunds(self, payment: str) -> tuple[MoneyBack, ...]:
        return tuple(
            MoneyBack(
                id=row["id"],
                amount_minor=minor_of(row["amount"], row["currency"]),
                key=(row.get("metadata") or {}).get(REFUND_KEY, ""),
                is_final=row.get("status") == "succeeded",
                is_failed=row.get("status") in ("failed", "canceled"),
            )
            for row in _all(self._client.v1.refunds.list, {"payment_intent": payment})
        )

    def _disputes(self, payment: str) -> tuple[MoneyBack, ...]:
        return tuple(
            MoneyBack(id=row["id"], amount_minor=minor_of(row["amount"], row["currency"]), is_won=row["status"] == "won")
            for row in _all(self._client.v1.disputes.list, {"payment_intent": payment})
            if not row["status"].startswith(INQUIRY)
        )

    def refund(self, payment: str, amount_minor: int, currency: str, key: str) -> None:
        # Stripe keeps idempotency keys for a day; the list says for good what was done.
        if any(row.key == key for row in self._refunds(payment)):
            return
        parameters: Any = {"payment_intent": payment, "amount": _units(amount_minor, currency), "metadata": {REFUND_KEY: key}}
        _ask(lambda: self._client.v1.refunds.create(parameters, {"idempotency_key": key}))

    def read_event(self, body: bytes, headers: Mapping[str, str]) -> SignedEvent:
        try:
            text = body.decode()
            stripe.WebhookSignature.verify_header(text, headers.get("stripe-signature"), self._event_secret, TOLERANCE_S)
            event = json.loads(text)
            about = event["data"]["object"]
            is_checkout = event["type"].startswith("checkout.session.")
            is_intent = event["type"].startswith("payment_intent.")
            return SignedEvent(
                id=_storable(event["id"], 200),
                type=_storable(event["type"], 100),
                key=_storable((about.get("metadata") or {}).get(KEY) or "", 64),
                checkout=_storable(about["id"], 200) if is_checkout else "",
                payment=_storable(about["id"] if is_intent else _id_of(about.get("payment_intent")), 200),
            )
        except (stripe.SignatureVerificationError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EventRejected from error

    def key_of(self, payment: str) -> str:
        intent = _ask(lambda: self._client.v1.payment_intents.retrieve(payment))
        return str((intent.get("metadata") or {}).get(KEY) or "")

    def make_buyer(self, ref: str) -> str:
        customer = _ask(
            lambda: self._client.v1.customers.create(
                {"metadata": {"credit_ledger_customer": ref}}, {"idempotency_key": f"customer-{ref}"}
            )
        )
        return str(customer["id"])

    def methods(self, buyer: str) -> list[Method]:
        rows = _all(self._client.v1.payment_methods.list, {"customer": buyer, "type": "card"})
        return [Method(id=row["id"], provider=self.name, text=_card_text(row.get("card") or {})) for row in rows]

    def start_saving(self, buyer: str, return_url: str) -> str:
        parameters: Any = {
            "mode": "setup",
            "customer": buyer,
            "payment_method_types": ["card"],
            "success_url": return_url,
            "cancel_url": return_url,
        }
        return str(_ask(lambda: self._client.v1.checkout.sessions.create(parameters)).get("url") or "")

    def forget_method(self, method: str) -> None:
        _ask(lambda: self._client.v1.payment_methods.detach(method))


class _Declined(ProviderRefused):
    """The card was declined; the intent says how it stands."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(why=text)
        self.reason = code


def _ask(send: Callable[[], Any]) -> Any:
    """Send a request and return its response as plain JSON; or raise what `Provider.start` raises."""
    try:
        response = send()
    except stripe.CardError as error:
        raise _Declined(error.code or "", str(error.user_message or error)[:500]) from error
    except (stripe.InvalidRequestError, stripe.IdempotencyError) as error:
        raise ProviderRefused(why=str(error.user_message or error)[:500]) from error
    except stripe.StripeError as error:
        # Also a wrong key: nothing was executed, and it may be mended.
        raise ProviderUnavailable(why=f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]) from error
    return response.to_dict()


def _all(ask: Callable[[Any], Any], parameters: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of all pages of a list. Raises: as `_ask`."""
    after: dict[str, Any] = {}
    while True:
        page = _ask(partial(ask, {**parameters, **after, "limit": PAGE_ROWS}))
        yield from page["data"]
        if not page.get("has_more"):
            return
        after = {"starting_after": page["data"][-1]["id"]}


def _units(amount_minor: int, currency: str) -> int:
    """Return an amount in Stripe's units. Raises `ProviderRefused` if it is no whole number of them."""
    try:
        return units_of(amount_minor, currency)
    except ValueError as error:
        raise ProviderRefused(why=str(error)) from error


def _storable(value: str, most: int) -> str:
    """Return a name of Stripe's. Raises `ValueError` for anything else, which the database might not take."""
    if len(value) > most or not (value.isascii() and value.isprintable()):
        raise ValueError(value)
    return value


def _key(order: Order, step: str) -> Any:
    return {"idempotency_key": f"{order.key}-{step}"}


def _id_of(value: Any) -> str:
    """Return the id of an object that may be expanded; empty if there is none."""
    return (value.get("id", "") if isinstance(value, Mapping) else value) or ""


def _error_code(intent: Mapping[str, Any]) -> str:
    return str((intent.get("last_payment_error") or {}).get("code") or "")


def _card_text(card: Mapping[str, Any]) -> str:
    brand = str(card.get("brand") or "card").capitalize()
    return f"{brand} …{card.get('last4', '')}, {card.get('exp_month')}/{card.get('exp_year')}"
