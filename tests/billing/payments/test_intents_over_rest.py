"""Payment intents over REST and in the admin: recorded once, refused by field, canceled, refunded; signed events."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import SystemCheckError
from django.test import Client
from django.utils import timezone

from billing import apps as billing_app
from billing.payments.advancing import LEASE_S, advance
from billing.payments.due_intents import advance_due
from billing.payments.intent_orders import order_payment
from billing.payments.models import PaymentIntent, ProviderEvent, ProviderRefund, Purchase
from billing.payments.providers.configured import check_providers, is_configured, provider
from billing.payments.providers.interface import Found, Order, Provider, SendsMoneyBack
from billing.payments.testing import PackFactory
from billing.testing import CustomerFactory
from ledger.staff.models import Approval
from ledger_project.serving.bootstrap import refuse_wrong_settings
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import send_both_steps, text_of_response
from tests.billing.payments.stripe_double import DECLINED, OK, StripeDouble
from tests.billing.payments.test_stripe import URL, charge, checkout, stripe
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]
__all__ = ["client", "stripe"]

INTENTS = "/v1/payment-intents"


@pytest.fixture
def aged() -> Any:
    """Let the last answers of the provider no longer be fresh."""
    return lambda: PaymentIntent.objects.update(asked_at=timezone.now() - timedelta(minutes=1))


def test_a_checkout_over_rest_is_recorded_once_and_read_with_its_address(api: ApiClient, stripe: StripeDouble, aged: Any) -> None:
    pack, customer = PackFactory(), CustomerFactory()
    body = {"pack": pack.code, "holder_id": "ada", "customer": customer.ref, "return_url": URL, "saves_method": True}
    made = api.post(INTENTS, body, key="one")
    assert (made.status_code, made["Location"]) == (201, f"{INTENTS}/{made.json()['id']}")
    assert (made.json()["state"], made.json()["url"], made.json()["actor"]) == ("requested", None, "key:shop")
    again = api.post(INTENTS, body, key="one")
    assert (again.content, again["Idempotency-Replayed"]) == (made.content, "true")
    assert (api.get(made["Location"]).json()["state"], stripe.asked.total()) == ("requested", 0), "a worker asks, not the call"
    advance_due()
    read = api.get(made["Location"]).json()
    assert (read["state"], read["url"].startswith("https://checkout.example/")) == ("waiting", True)
    stripe.pay(read["checkout"])
    aged()
    assert api.get(made["Location"]).json()["state"] == "waiting"
    advance_due()
    paid = api.get(made["Location"]).json()
    assert (paid["state"], paid["url"], paid["next_try_at"], paid["error"]) == ("succeeded", None, None, None)
    assert api.get(f"/v1/purchases/{paid['purchase']}").json()["state"] == "granted"
    for query, count in (
        ("holder_id=ada", 1), (f"customer={customer.ref}", 1), ("state=waiting", 0), (f"pack={pack.code}", 1), ("invoice=7", 0),
    ):  # fmt: skip
        assert len(api.get(f"{INTENTS}?{query}").json()["results"]) == count, query


@pytest.mark.products(most=3)
@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"pack": "none"}, "/pack"),
        ({"version": 9}, "/version"),
        ({"customer": "none"}, "/customer"),
        ({"return_url": None}, "/return_url"),
        ({"return_url": "javascript:alert(1)"}, "/return_url"),
        ({"method": "pm_1"}, "/customer"),
        ({"saves_method": True}, "/customer"),
        ({"provider": "none"}, "/provider"),
        ({"amount_minor": 5}, "/amount_minor"),
        ({"invoice": 7}, ""),
    ],
)
def test_bad_fields_are_refused_and_nothing_is_written(
    api: ApiClient, stripe: StripeDouble, change: dict[str, Any], pointer: str
) -> None:
    body = {"pack": PackFactory().code, "holder_id": "ada", "return_url": URL} | change
    response = api.post(INTENTS, body)
    assert response.status_code == 400
    assert response.json()["errors"][0]["pointer"].startswith(pointer)
    assert (PaymentIntent.objects.count(), stripe.asked.total()) == (0, 0)


def test_without_a_provider_nothing_is_recorded(api: ApiClient, settings: Any) -> None:
    settings.PAYMENT_PROVIDERS = {}
    body = {"pack": PackFactory().code, "holder_id": "ada", "return_url": URL}
    assert api.post(INTENTS, body).json()["errors"][0]["pointer"] == "/provider"
    assert Client().post("/v1/providers/stripe/events", b"{}", content_type="application/json").status_code == 404
    assert PaymentIntent.objects.count() == 0


class Half(Provider):
    """A provider without `find` and `cancel`."""

    name = "half"

    def start(self, order: Order) -> Found:
        raise NotImplementedError


class Acme(Half):
    """A provider of a project."""

    name = "acme"

    def __init__(self, *, key: str) -> None:
        if not key.startswith("k_"):
            raise ValueError(key)

    def find(self, order: Order) -> Found:
        raise NotImplementedError

    def cancel(self, order: Order) -> None:
        raise NotImplementedError


STRIPE_CLASS = "billing.payments.providers.stripe_payments.StripeProvider"
HERE = "tests.billing.payments.test_intents_over_rest"


@pytest.mark.parametrize(
    ("name", "declared", "code", "text"),
    [
        ("other", {}, "E002", "has no 'class'"),
        ("other", {"key": "k_secret"}, "E002", "has no 'class'"),
        ("other", {"class": "shop.payments.Other"}, "E003", "No module named 'shop'"),
        ("other", {"class": f"{HERE}.Other"}, "E003", "Other"),
        ("other", {"class": "django.utils.timezone.now"}, "E002", "no subclass of Provider"),
        ("half", {"class": f"{HERE}.Half"}, "E002", "lacks cancel, find"),
        ("other", {"class": f"{HERE}.Acme", "key": "k_secret"}, "E002", "the name of"),
        ("acme", {"class": f"{HERE}.Acme"}, "E002", "missing a required argument: 'key'"),
        ("acme", {"class": f"{HERE}.Acme", "key": "k_secret", "keys": "k_secret"}, "E002", "unexpected keyword argument 'keys'"),
        ("acme", {"class": f"{HERE}.Acme", "key": "secret"}, "E002", "cannot be made: ValueError"),
        ("stripe", {"class": STRIPE_CLASS, "api_key": "sk_secret"}, "E002", "event_secret"),
        ("stripe", {"class": STRIPE_CLASS, "api_key": "sk_secret", "event_secret": ""}, "E002", "not empty"),
    ],
)
def test_a_provider_that_is_unknown_or_half_declared_is_refused_at_the_start(
    settings: Any, name: str, declared: dict[str, str], code: str, text: str
) -> None:
    settings.PAYMENT_PROVIDERS = {name: declared}
    [found] = check_providers(None)
    assert (found.id, text in found.msg, "secret" in found.msg.replace("event_secret", "")) == (f"billing.{code}", True, False)
    with pytest.raises((ImproperlyConfigured, ImportError, ValueError)):
        provider(name)


@pytest.mark.parametrize("command", ["serve", "work", "collect_payments"])
def test_no_process_starts_with_a_provider_that_is_half_declared(
    settings: Any, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    settings.PAYMENT_PROVIDERS = {"stripe": {"class": STRIPE_CLASS, "api_key": "sk_secret"}}
    app = "billing.payments" if command == "collect_payments" else "ledger_project"
    monkeypatch.setattr(f"{app}.management.commands.{command}.Command.handle", lambda *_, **__: pytest.fail("it starts"))
    with pytest.raises(SystemCheckError, match="event_secret"):
        call_command(command, skip_checks=False)
    with pytest.raises(SystemCheckError, match="event_secret"):
        refuse_wrong_settings()


def test_providers_without_the_application_that_calls_them_are_an_error(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.PAYMENT_PROVIDERS = {"acme": {"class": f"{HERE}.Acme", "key": "k_1"}}
    assert billing_app._check_payments(None) == []
    monkeypatch.setattr(billing_app.apps, "is_installed", lambda name: name != "billing.payments")
    assert [found.id for found in billing_app._check_payments(None)] == ["billing.E006"]
    settings.PAYMENT_PROVIDERS = {}
    assert billing_app._check_payments(None) == []


def test_a_provider_of_the_project_is_the_class_at_its_path(settings: Any) -> None:
    settings.PAYMENT_PROVIDERS = {"acme": {"class": f"{HERE}.Acme", "key": "k_1"}}
    assert check_providers(None) == []
    assert isinstance(provider("acme"), Acme)
    assert is_configured("acme")
    assert not is_configured("acme", SendsMoneyBack)
    assert not is_configured("stripe")


def test_a_dry_run_asks_nobody(api: ApiClient, stripe: StripeDouble) -> None:
    body = {"pack": PackFactory().code, "holder_id": "ada", "return_url": URL}
    assert api.post(f"{INTENTS}?dry_run=true", body).json()["amount_minor"] == 2000
    assert (PaymentIntent.objects.count(), stripe.asked.total()) == (0, 0)


def test_cancel_and_refund_over_rest(api: ApiClient, stripe: StripeDouble, aged: Any) -> None:
    waiting, paid = checkout(), charge(OK)
    assert api.post(f"{INTENTS}/{waiting.pk}/cancel", {}).status_code == 200
    assert (api.get(f"{INTENTS}/{waiting.pk}").json()["state"], stripe.rows[waiting.checkout]["status"]) == ("waiting", "open")
    advance_due()
    assert api.get(f"{INTENTS}/{waiting.pk}").json()["state"] == "canceled"
    closed = api.post(f"{INTENTS}/{paid.pk}/cancel", {})
    assert (closed.status_code, closed.json()["state"]) == (409, "succeeded")
    made = api.post(f"{INTENTS}/{paid.pk}/refunds", {"amount_minor": 500, "reason": "Half"})
    assert (made.status_code, made.json()["state"]) == (201, "requested")
    assert stripe.asked["POST refunds"] == 0
    advance_due()
    read = api.get(f"{INTENTS}/{paid.pk}").json()
    assert (read["returned_minor"], read["refunds"][0]["state"]) == (500, "succeeded")
    too_much = api.post(f"{INTENTS}/{paid.pk}/refunds", {"amount_minor": 1501})
    assert (too_much.status_code, too_much.json()["refundable_minor"]) == (409, 1500)
    assert api.post(f"{INTENTS}/999999/refunds", {}).status_code == 404
    assert ProviderRefund.objects.count() == 1


def test_saved_methods_are_listed_and_forgotten(api: ApiClient, stripe: StripeDouble) -> None:
    customer = CustomerFactory()
    url = f"/v1/customers/{customer.ref}/payment-methods"
    assert api.get(url).json() == {"results": []}
    order = order_payment(pack=PackFactory().code, holder_id="ada", customer=customer.ref, return_url=URL, saves_method=True)
    advance(order.pk)
    assert api.get(url).json() == {"results": [{"id": OK, "provider": "stripe", "text": "Visa …4242, 8/2030"}]}
    assert api.delete(f"{url}/{OK}?dry_run=true").json() == {"results": []}
    assert stripe.asked["POST payment_methods/detach"] == 0
    assert api.delete(f"{url}/{OK}").json() == {"results": []}
    assert stripe.asked["POST payment_methods/detach"] == 1
    assert api.delete(f"{url}/pm_none").status_code == 404
    assert api.get("/v1/customers/none/payment-methods").status_code == 404
    stripe.fault = {"GET /v1/payment_methods": "down"}
    assert (api.get(url).status_code, api.get(url).json()["outcome"]) == (503, "not_executed")


def test_while_a_provider_is_silent_polls_are_answered_from_the_table_and_nobody_is_asked(
    api: ApiClient, stripe: StripeDouble, aged: Any
) -> None:
    payment = checkout()
    asked = stripe.asked.total()
    for _ in range(24):
        assert api.get(f"{INTENTS}/{payment.pk}").json()["state"] == "waiting"
    aged()
    due_at = PaymentIntent.objects.get().due_at
    assert api.get(f"{INTENTS}/{payment.pk}").status_code == 200
    woken = PaymentIntent.objects.get().due_at
    assert (woken < due_at, stripe.asked.total()) == (True, asked)
    # A worker waits for the answer: nobody else is to ask.
    leased_at = timezone.now() - timedelta(seconds=LEASE_S / 2)
    PaymentIntent.objects.update(asked_at=leased_at, due_at=leased_at + timedelta(seconds=LEASE_S))
    api.get(f"{INTENTS}/{payment.pk}")
    assert PaymentIntent.objects.get().due_at == leased_at + timedelta(seconds=LEASE_S)


def test_an_event_is_on_record_when_it_is_answered_and_a_worker_asks(stripe: StripeDouble) -> None:
    payment = checkout()
    stripe.pay(payment.checkout)
    asked = stripe.asked.total()
    body, signature = stripe.event("checkout.session.completed", payment.checkout)
    headers = {"Stripe-Signature": signature}
    answer = Client().post("/v1/providers/stripe/events", body, content_type="application/json", headers=headers)
    assert (answer.status_code, stripe.asked.total(), ProviderEvent.objects.get().handled_at) == (200, asked, None)
    assert advance_due().events == 1
    payment.refresh_from_db()
    assert payment.state == "succeeded"


def test_an_event_needs_a_signature_and_no_key(stripe: StripeDouble) -> None:
    payment = checkout()
    body, signature = stripe.event("checkout.session.completed", payment.checkout, event_id="evt_1")

    def send(content: bytes, header: str) -> Any:
        return Client().post(
            "/v1/providers/stripe/events", content, content_type="application/json", headers={"Stripe-Signature": header}
        )

    assert (send(body, signature).json(), send(body, signature).json()) == ({"is_new": True}, {"is_new": False})
    for content, header in ((body, "t=1,v1=00"), (body + b" ", signature), (b"", signature), (body, "")):
        assert send(content, header).status_code == 400
    assert send(b"x" * 300_000, signature).status_code == 413
    assert ProviderEvent.objects.count() == 1


@pytest.mark.parametrize("path", [INTENTS, f"{INTENTS}/1/cancel", f"{INTENTS}/1/refunds"])
def test_writing_needs_the_scope(make_api: Any, path: str) -> None:
    assert make_api("billing:read", name="reader").post(path, {}).status_code == 403


def test_the_command_takes_further_what_is_due(stripe: StripeDouble) -> None:
    made = order_payment(pack=PackFactory().code, holder_id="ada", customer=CustomerFactory().ref, method=OK)
    out = StringIO()
    call_command("collect_payments", "--dry-run", stdout=out)
    assert "0 events, 1 payments and 0 refunds due" in out.getvalue()
    assert not stripe.asked
    call_command("collect_payments", "--format", "json", stdout=StringIO())
    made.refresh_from_db()
    assert (made.state, Purchase.objects.count()) == ("succeeded", 1)
    stripe.fault = {"POST /v1/payment_intents": "down"}
    order_payment(pack=PackFactory().code, holder_id="ada", customer=CustomerFactory().ref, method=OK)
    with pytest.raises(SystemExit) as ended:
        call_command("collect_payments", stdout=StringIO())
    assert ended.value.code == 3


# The admin -------------------------------------------------------------------------------------------

PAGES = "/admin/billing_payments/paymentintent"


def test_the_pages_show_an_intent_and_refund_or_cancel_it(client: Any, stripe: StripeDouble) -> None:
    paid, waiting, failed = charge(OK), checkout("bob"), charge(DECLINED, "eve")
    values = {"amount": "5.00", "reason": "Half"}
    assert send_both_steps(client, f"{PAGES}/{paid.pk}/refund/", values).status_code == 302
    assert advance_due().refunds == 1
    shown = text_of_response(client.get(f"{PAGES}/{paid.pk}/change/"))
    for sentence in ("20.00 EUR is in.", "5.00 EUR went back.", "It made purchase", "Half"):
        assert sentence in shown
    assert send_both_steps(client, f"{PAGES}/{waiting.pk}/cancel/", {}).status_code == 302
    advance(waiting.pk)
    assert "nobody can any more" in text_of_response(client.get(f"{PAGES}/{waiting.pk}/change/"))
    assert "card_declined" in text_of_response(client.get(f"{PAGES}/{failed.pk}/change/"))
    for query, found in (
        ("", {paid, waiting, failed}), ("holder=ada", {paid}), ("state=failed", {failed}), (f"q={paid.payment}", {paid}),
    ):  # fmt: skip
        rows = client.get(f"{PAGES}/?{query}").context_data["cl"].result_list
        assert {row.pk for row in rows} == {row.pk for row in found}, query


def test_a_refund_above_the_limit_waits_for_a_second_operator(client: Any, stripe: StripeDouble, settings: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["EUR=500"]}
    paid = charge(OK)
    assert send_both_steps(client, f"{PAGES}/{paid.pk}/refund/", {"amount": "5.01", "reason": "Half"}).status_code == 302
    assert (Approval.objects.get().stakes, ProviderRefund.objects.count()) == ({"EUR": 501}, 0)
    assert send_both_steps(client, f"{PAGES}/{paid.pk}/refund/", {"amount": "5.00", "reason": "Half"}).status_code == 302
    assert (Approval.objects.count(), ProviderRefund.objects.get().amount_minor) == (1, 500)


def test_only_those_who_may_refund(stripe: StripeDouble) -> None:
    paid = charge(OK)
    reader = operator("billing_payments.view_paymentintent", name="reader")
    assert reader.get(f"{PAGES}/{paid.pk}/change/").status_code == 200
    for what in ("refund", "cancel"):
        assert reader.get(f"{PAGES}/{paid.pk}/{what}/").status_code == 403
