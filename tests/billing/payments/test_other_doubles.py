"""The same stories with doubles that others made: localstripe, which keeps state and sends events, and stripe-mock, which checks
the shape of each request against Stripe's OpenAPI document.

stripe-mock is a program in Go: `go install github.com/stripe/stripe-mock@latest`. Where it is not installed, its test is skipped.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from django.conf import settings as django_settings

from billing.auditing import consistency
from billing.payments.advancing import advance, buyer_of, send_refund
from billing.payments.intent_orders import order_payment, refund_intent
from billing.payments.models import PaymentIntent, ProviderEvent, PurchaseReturn
from billing.payments.provider_events import handle, take_in
from billing.payments.providers.configured import provider
from billing.payments.providers.interface import Order
from billing.payments.providers.stripe_payments import StripeProvider
from billing.payments.testing import PackFactory
from billing.testing import CustomerFactory
from tests.billing.payments.stripe_double import SECRET
from tests.billing.payments.test_stripe import balance
from tests.ports import free_port

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]

KEY = "sk_test_12345"
GOOD, DECLINED, ASKS = "4242424242424242", "4000000000000341", "4000002760003184"


@contextmanager
def started(*command: str, address: str) -> Iterator[None]:
    """Run a server until it is no longer needed."""
    process = subprocess.Popen(command, cwd=django_settings.BASE_DIR, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                urlopen(Request(f"{address}/v1/customers", headers={"Authorization": f"Bearer {KEY}"}), timeout=5).close()
                break
            except OSError:
                assert process.poll() is None
                threading.Event().wait(0.1)
        yield
    finally:
        process.terminate()
        process.wait(timeout=10)


class LocalStripe:
    """What a test does in the customer's place."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.events: Queue[tuple[bytes, str]] = Queue()

    def post(self, path: str, **fields: str) -> dict[str, Any]:
        """Send a form to it."""
        headers = {"Authorization": f"Bearer {KEY}"}
        with urlopen(Request(f"{self.address}{path}", urlencode(fields).encode(), headers), timeout=10) as response:
            return dict(json.loads(response.read() or b"{}"))

    def card(self, number: str, buyer: str) -> str:
        """Save a card of a customer; return its id."""
        fields = {"card[number]": number, "card[exp_month]": "8", "card[exp_year]": "2030", "card[cvc]": "123", "type": "card"}
        method = str(self.post("/v1/payment_methods", **fields)["id"])
        self.post(f"/v1/payment_methods/{method}/attach", customer=buyer)
        return method


@pytest.fixture(scope="module")
def running() -> Iterator[LocalStripe]:
    port = free_port()
    local = LocalStripe(f"http://127.0.0.1:{port}")

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            local.events.put((body, self.headers["Stripe-Signature"]))

        def log_message(self, *arguments: Any) -> None:
            return

    receiver = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    with started(sys.executable, "-m", "tests.billing.payments.local_stripe", str(port), address=local.address):
        local.post("/_config/webhooks/one", url=f"http://127.0.0.1:{receiver.server_address[1]}/", secret=SECRET)
        yield local
    receiver.shutdown()
    receiver.server_close()


@pytest.fixture
def local(running: LocalStripe, settings: Any) -> Iterator[LocalStripe]:
    settings.PAYMENT_PROVIDERS = {
        "stripe": {
            "class": "billing.payments.providers.stripe_payments.StripeProvider",
            "api_key": KEY,
            "event_secret": SECRET,
            "api_base": running.address,
        }
    }
    yield running
    adapter = provider("stripe")
    assert isinstance(adapter, StripeProvider)
    adapter.close()


def charge(local: LocalStripe, number: str, **fields: Any) -> PaymentIntent:
    """Charge a card that a new customer has saved."""
    customer = CustomerFactory()
    method = local.card(number, buyer_of("stripe", customer.pk))
    made = order_payment(pack=PackFactory().code, holder_id="ada", customer=customer.ref, method=method, **fields)
    advance(made.pk)
    made.refresh_from_db()
    return made


@pytest.mark.slow
def test_localstripe_takes_the_money_of_a_saved_card_and_its_signed_event_changes_nothing(local: LocalStripe) -> None:
    payment = charge(local, GOOD)
    assert (payment.state, balance()) == ("succeeded", 1100)
    body, signature = local.events.get(timeout=20)
    while json.loads(body)["type"] != "payment_intent.succeeded":
        body, signature = local.events.get(timeout=20)
    assert take_in("stripe", body, {"stripe-signature": signature})
    [event] = ProviderEvent.objects.all()
    handle(event.pk)
    event.refresh_from_db()
    assert (event.intent_id, event.type) == (payment.pk, "payment_intent.succeeded")
    assert not take_in("stripe", body, {"stripe-signature": signature})
    made = refund_intent(intent=payment.pk, amount_minor=500)
    send_refund(made.pk)
    made.refresh_from_db()
    assert (made.state, PurchaseReturn.objects.get().amount_minor, balance()) == ("succeeded", 500, 825)
    assert consistency.check() == []


def test_localstripe_declines_and_asks_for_the_customer(local: LocalStripe) -> None:
    declined = charge(local, DECLINED)
    assert (declined.state, declined.error.split(":")[0]) == ("failed", "card_declined")
    asked = charge(local, ASKS, customer_present=True, return_url="https://shop.example/credits")
    assert (asked.state, balance()) == ("waiting", 0)
    intent = provider("stripe")._client.v1.payment_intents.retrieve(asked.payment)  # type: ignore[attr-defined]
    local.post(f"/v1/payment_intents/{asked.payment}/_authenticate", client_secret=intent["client_secret"], success="true")
    advance(asked.pk, now=True)
    asked.refresh_from_db()
    assert (asked.state, balance()) == ("succeeded", 1100)


STRIPE_MOCK = os.environ.get("STRIPE_MOCK") or shutil.which("stripe-mock")


@pytest.mark.slow
@pytest.mark.skipif(STRIPE_MOCK is None, reason="stripe-mock is not installed: go install github.com/stripe/stripe-mock@latest")
def test_stripe_mock_accepts_the_shape_of_every_request() -> None:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    assert STRIPE_MOCK is not None
    with started(STRIPE_MOCK, "-http-port", str(port), "-https-port", str(free_port()), address=address):
        adapter = StripeProvider(api_key=KEY, event_secret=SECRET, api_base=address)
        order = Order(key="k", amount_minor=2000, currency="EUR", title="Starter", return_url="https://shop.example/")
        assert adapter.start(order).checkout
        assert adapter.start(replace(order, currency="JPY", buyer="cus_1", saves_method=True)).url
        saved = replace(order, buyer="cus_1", method="pm_1")
        made = adapter.start(saved)
        assert made.payment
        for is_present in (False, True):
            adapter.start(replace(saved, payment=made.payment, is_present=is_present))
        for known in (replace(order, checkout="cs_1"), replace(saved, payment=made.payment)):
            adapter.find(known)
            adapter.cancel(known)
        adapter.refund(made.payment, 500, "EUR", "refund-1")
        assert adapter._disputes(made.payment) is not None
        assert adapter.key_of(made.payment) is not None
        assert adapter.make_buyer("CUST-1")
        adapter.methods("cus_1")
        assert adapter.start_saving("cus_1", "https://shop.example/")
        adapter.forget_method("pm_1")
        adapter.close()
