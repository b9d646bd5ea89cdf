"""Subscriptions that start when they are paid: over REST, in the admin, by the command, on the customer's page, as signals."""

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from billing.auditing import consistency
from billing.auditing.explanation import explain
from billing.customer_page import find
from billing.documents.payment_returns import record_payment_return
from billing.generator import activations
from billing.generator.activations import cancel_order, expire
from billing.generator.options import Options
from billing.generator.run.generate import generate
from billing.management.run_texts import explanation_text
from billing.models import Activation, Invoice, RequestKey, Subscription
from billing.orders.plan_move_orders import NewPlanMove
from billing.orders.plan_move_preview import move_preview
from billing.payments.advancing import advance
from billing.payments.intent_orders import order_payment
from billing.payments.transfers import book_transfer
from ledger import services
from ledger.database.statements import fetch_rows
from ledger.portal.parts import PageDisplay
from ledger.typesetting.languages import ENGLISH
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import send_both_steps, send_first_step, text_of_response
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, unique
from tests.billing.generator.test_activations import invoice_of, order, pay, state
from tests.billing.payments.stripe_double import StripeDouble
from tests.billing.payments.test_stripe import URL, stripe
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.signals.conftest import receiver, webhook

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")]
__all__ = ["client", "receiver", "stripe", "webhook"]

ADMIN = "/admin/billing/subscription"


def body(**fields: Any) -> dict[str, Any]:
    """An order of 30.00 a month that starts when it is paid."""
    plan = PlanFactory(prices=[recurring(unit_amount="30.00")])
    return {
        "ref": unique("SUB"), "customer": CustomerFactory().ref, "plan": plan.code, "started_at": "2026-01-01T00:00:00Z",
        "starts_when_paid": True,
    } | fields  # fmt: skip


def counts() -> list[int]:
    return [model.objects.count() for model in (Subscription, Activation, Invoice, RequestKey)]


# Over REST -------------------------------------------------------------------------------------------


def test_the_answer_names_the_invoice_to_pay_and_the_payment_starts_it(api: ApiClient) -> None:
    asked = body()
    before = counts()
    tried = api.post("/v1/subscriptions?dry_run=true", asked)
    assert (tried.status_code, tried.json()["activation"]["state"], counts()) == (200, "waiting", before)
    made = api.post("/v1/subscriptions", asked, key="one")
    again = api.post("/v1/subscriptions", asked, key="one")
    assert (made.status_code, made.content) == (201, again.content)
    waiting = made.json()["activation"]
    assert (waiting["state"], waiting["settled_at"]) == ("waiting", None)
    invoice = api.get(f"/v1/invoices/{waiting['invoice']}").json()
    assert (invoice["state"], invoice["amount_remaining_minor"], invoice["subscription"]) == ("open", 3000, asked["ref"])
    [listed] = api.get(f"/v1/subscriptions?state=incomplete&customer={asked['customer']}").json()["results"]
    assert (listed["ref"], listed["activation"], listed["due_at"]) == (asked["ref"], waiting, None)
    assert api.get(f"/v1/subscriptions/{asked['ref']}/calendar").json()["is_incomplete"] is True
    path = f"/v1/subscriptions/{asked['ref']}"
    assert api.post(f"{path}/invoices", {"as_of": "2026-03-01T00:00:00Z"}).json() == {"invoices": [], "allowances": []}
    api.post("/v1/payments", {"invoice": waiting["invoice"], "payment": unique("p"), "amount_minor": 3000})
    read = api.get(path).json()
    assert (read["state"], read["activation"]["state"], read["current_period"] is not None) == ("active", "started", True)
    assert api.get(f"{path}/calendar").json()["is_incomplete"] is False
    assert len(api.post(f"{path}/invoices", {"as_of": "2026-02-01T00:00:00Z"}).json()["invoices"]) == 1


def test_an_ordinary_order_has_no_activation(api: ApiClient) -> None:
    made = api.post("/v1/subscriptions", body(starts_when_paid=False)).json()
    assert (made["activation"], Invoice.objects.count()) == (None, 0)


def test_an_order_that_credit_pays_has_started_in_the_dry_run_and_in_the_answer(api: ApiClient) -> None:
    asked = body(plan=PlanFactory(prices=[recurring(unit_amount="0.00")]).code)
    for path in ("/v1/subscriptions?dry_run=true", "/v1/subscriptions"):
        assert api.post(path, asked).json()["activation"]["state"] == "started"


def test_it_is_canceled_once(api: ApiClient) -> None:
    asked = body()
    waiting = api.post("/v1/subscriptions", asked).json()["activation"]
    path = f"/v1/subscriptions/{asked['ref']}/cancel"
    assert api.post(f"{path}?dry_run=true", {}).json()["state"] == "canceled"
    assert Invoice.objects.get(pk=waiting["invoice"]).state == "open"
    done = api.post(path, {"reason": "Ordered twice"}, key="once")
    assert (done.status_code, done.json()["state"], done.json()["invoice"]) == (200, "canceled", waiting["invoice"])
    assert api.post(path, {"reason": "Ordered twice"}, key="once").content == done.content
    assert api.get(f"/v1/invoices/{waiting['invoice']}").json()["state"] == "void"
    refused = api.post(path, {})
    assert (refused.status_code, refused.json()["type"].rsplit("/", 1)[1]) == (409, "subscription-not-incomplete")
    assert api.post("/v1/subscriptions/nobody/cancel", {}).status_code == 404
    read = api.get(f"/v1/subscriptions/{asked['ref']}").json()
    assert (read["state"], read["plan"], read["items"], read["due_at"]) == ("expired", asked["plan"], [], None)


def test_what_waits_is_refused_by_name(api: ApiClient) -> None:
    asked = body()
    waiting = api.post("/v1/subscriptions", asked).json()["activation"]
    path = f"/v1/subscriptions/{asked['ref']}"
    before = counts()
    for call, sent in (
        (f"{path}/amendments", {"effective_at": "2026-02-01T00:00:00Z", "quantities": {"base": 2}}),
        (f"{path}/charges", {"amount_minor": 100, "description": "Set-up"}),
        (f"/v1/invoices/{waiting['invoice']}/void", {}),
    ):
        refused = api.post(call, sent).json()
        assert (refused["status"], refused["state"]) == (409, "waiting")
        assert refused["type"].endswith("/subscription-not-started")
    # Only the refusals are on record, under their keys.
    assert counts() == [*before[:3], before[3] + 3]


def test_a_preview_shows_the_order_as_if_it_was_paid(api: ApiClient) -> None:
    asked = body(started_at="2099-01-01T00:00:00Z")
    customer = asked.pop("customer")
    del asked["ref"]
    before = counts()
    shown = api.post(f"/v1/customers/{customer}/preview", {"subscription": asked, "invoices": 2}).json()["invoices"]
    assert [(one["invoice"]["total_minor"], one["invoice"]["lines"][0]["period"]["start"][:10]) for one in shown] == [
        (3000, "2099-01-01"), (3000, "2099-02-01"),
    ]  # fmt: skip
    assert counts() == before


# Ways to pay -----------------------------------------------------------------------------------------


def test_a_transfer_in_two_parts_starts_it() -> None:
    subscription = order()
    intent = order_payment(invoice=invoice_of(subscription).pk, provider="manual")
    advance(intent.pk, now=True)
    book_transfer(intent=intent.pk, payment=unique("t"), amount_minor=1000)
    assert state(subscription) == "incomplete"
    book_transfer(intent=intent.pk, payment=unique("t"), amount_minor=2000)
    intent.refresh_from_db()
    assert (intent.state, state(subscription)) == ("succeeded", "active")
    assert consistency.check() == []


def test_a_checkout_starts_it_and_the_checkout_of_a_canceled_order_is_given_up(api: ApiClient, stripe: StripeDouble) -> None:
    begun, canceled = order(), order()
    intents = []
    for subscription in (begun, canceled):
        intent = order_payment(invoice=invoice_of(subscription).pk, provider="stripe", return_url=URL)
        advance(intent.pk, now=True)
        intent.refresh_from_db()
        intents.append(intent)
    stripe.pay(intents[0].checkout)
    advance(intents[0].pk, now=True)
    assert state(begun) == "active"
    api.post(f"/v1/subscriptions/{canceled.ref}/cancel", {})
    advance(intents[1].pk, now=True)
    intents[1].refresh_from_db()
    assert intents[1].state == "canceled"
    assert consistency.check() == []


# The command -----------------------------------------------------------------------------------------


def test_the_command_expires_what_is_too_late_by_the_time_of_its_holder(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    now, holder = datetime(2034, 1, 1, tzinfo=UTC), unique("holder")
    services.set_clock(holder_id=holder, now=now, idempotency_key=unique("key"))
    late = order(started_at=now, customer=CustomerFactory(holder_id=holder))
    soon = order()
    assert Activation.objects.get(subscription_id=late.pk).expires_at == now + timedelta(hours=23)

    def command(*options: str) -> str:
        out = StringIO()
        call_command("expire_subscriptions", *options, stdout=out)
        return out.getvalue()

    assert command().startswith("0 expired, 0 busy or failed.")
    services.set_clock(holder_id=holder, now=now + timedelta(hours=23), idempotency_key=unique("key"))
    assert command("--dry-run").startswith("1 expired")
    assert state(late) == "incomplete"
    assert '"expired": 1' in command("--format", "json")
    assert command().startswith("0 expired")
    assert (state(late), state(soon)) == ("expired", "incomplete")
    assert consistency.check() == []


def test_explain_says_what_it_waits_for() -> None:
    subscription = order()
    explained = explanation_text(explain(subscription.ref, at(3)))
    assert f"it starts when invoice {invoice_of(subscription).pk} is paid, and is waiting" in explained
    assert "First payment" in explained


# What is shown and told ------------------------------------------------------------------------------


def test_signals_tell_of_the_start_the_expiry_and_the_cancellation(webhook: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    webhook("subscription.started", "subscription.expired", "subscription.canceled")
    begun, canceled, expired = order(), order(), order()
    pay(begun)
    record_payment_return(invoice_payment=pay(begun).pk, kind="refund", payment=unique("re"))
    cancel_order(ref=canceled.ref)
    monkeypatch.setattr(activations, "present", lambda _: at(1, year=2040))
    expire(expired.ref)
    found = fetch_rows(
        lambda *row: row, "SELECT type, data ->> 'subscription', data ->> 'invoice' FROM ledger_signal ORDER BY number"
    )
    assert found == [
        (f"subscription.{what}", one.ref, str(invoice_of(one).pk))
        for what, one in (("started", begun), ("canceled", canceled), ("expired", expired))
    ]


def test_the_customers_page_says_that_it_begins_when_it_is_paid() -> None:
    holder = unique("holder")
    subscription = order(customer=CustomerFactory(holder_id=holder))
    page = find(holder)
    assert page is not None

    def shown() -> str:
        view = PageDisplay(language=ENGLISH, hides_amounts=False, document_url=str, action_url=str, back_url=str)
        [section] = [each for each in page.sections(view) if each.name == "subscriptions"]
        return str(section.cells[0][1])

    assert "Begins when its first invoice is paid" in shown()
    generate(ref=subscription.ref, options=Options(as_of=at(5)))
    assert "Begins when its first invoice is paid" in shown()
    pay(subscription)
    assert "Active" in shown()


def test_a_plan_move_takes_it_along_and_its_preview_names_it() -> None:
    plan = PlanFactory(prices=[recurring(unit_amount="30.00")])
    subscription, other = order(plan=plan), SubscriptionFactory(plan=plan.code)
    PlanFactory(code=plan.code, prices=[recurring(unit_amount="60.00")])
    seen = move_preview(NewPlanMove(plan=plan.code, effective_at=at(2), actor="ada"), after=None, limit=5)
    assert [(one.subscription, "incomplete" in one.notes) for one in seen.subscriptions] == [
        (subscription.ref, True), (other.ref, False),
    ]  # fmt: skip


def test_an_operator_orders_it_sees_its_invoice_and_cancels_it(client: Client) -> None:
    asked = body()
    values = {
        "ref": asked["ref"], "customer": asked["customer"], "plan": asked["plan"], "started_at": "2026-01-01T00:00",
        "starts_when_paid": "yes", "payment_timeout_hours": "48", "time_zone": "UTC", "reason": "by phone",
    }  # fmt: skip
    before = counts()
    text = text_of_response(send_first_step(client, f"{ADMIN}/add/", values))
    assert "The first invoice: 30.00 EUR is due" in text
    assert "It starts when 30.00 EUR is paid, and expires" in text
    assert counts() == before
    assert send_both_steps(client, f"{ADMIN}/add/", values).status_code == 302
    subscription = Subscription.objects.get(ref=asked["ref"])
    page = text_of_response(client.get(f"{ADMIN}/{subscription.pk}/change/"))
    assert "It starts when its first invoice is paid, and expires" in page
    assert "Cancel the order" in page
    assert "Change the plan" not in page
    assert asked["ref"] in text_of_response(client.get(f"{ADMIN}/?state=incomplete"))
    assert send_both_steps(client, f"{ADMIN}/{subscription.pk}/cancel-order/", {"reason": "Ordered twice"}).status_code == 302
    page = text_of_response(client.get(f"{ADMIN}/{subscription.pk}/change/"))
    assert "Its first invoice was not paid, and the order was canceled" in page
    assert "Cancel the order" not in page
    assert consistency.check() == []
