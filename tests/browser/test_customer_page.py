"""The customer's page in Chromium: light and dark, wide and narrow, by axe, without a request elsewhere, and in a frame."""

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from billing.models import Customer, InvoicePayment
from billing.payments.advancing import advance
from billing.payments.due_intents import advance_due
from billing.payments.due_purchases import settle_due
from billing.payments.intent_orders import order_payment
from billing.payments.models import TopUp
from billing.payments.providers.configured import provider
from billing.payments.testing import PackFactory
from ledger import journal, reads, services
from ledger.database.locks import holder_lock
from ledger.portal.links import link
from tests.billing.documents.issued import add_seller
from tests.billing.factories import PlanFactory, SubscriptionFactory, recurring
from tests.billing.payments.stripe_double import SECRET, StripeDouble, serving
from tests.billing.test_customer_page import billed
from tests.browser.billed import billed_with_everything
from tests.browser.chromium import Chromium, Visit, site_of
from tests.browser.histories import some_weeks
from tests.browser.small_pictures import keep
from tests.browser.test_accessibility import violations
from tests.browser.test_keyboard import NOTHING, walk
from tests.ledger.staff.admin_site import operator

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

PICTURES = os.environ.get("LEDGER_PICTURES")


@pytest.fixture
def links() -> dict[str, str]:
    """Links to the pages of a customer with some weeks of history and an invoice, and one that has ended."""
    now = datetime.now(UTC)
    entries = some_weeks("acme-gmbh", start=now - timedelta(days=40), end=now - timedelta(hours=1))
    with transaction.atomic(), holder_lock("acme-gmbh") as lock:
        journal.append(lock, entries)
    services.grant(
        holder_id="acme-gmbh", amount=90, expires_at=now + timedelta(days=9), idempotency_key="x", source="promotional"
    )
    services.grant(holder_id="acme-gmbh", amount=400, credit_type="sms", idempotency_key="y")
    billed_with_everything()
    shown = link(holder_id="acme-gmbh").url
    plan = PlanFactory(code="bigger", name="Bigger", prices=[recurring("base", "120.00")])
    customer = Customer.objects.get(holder_id="acme-gmbh")
    subscription = SubscriptionFactory(customer=customer.ref, started_at=now - timedelta(days=9))
    changed = link(holder_id="acme-gmbh", allow_plan_changes=True, plans=[plan.code]).url

    def step(name: str) -> str:
        return changed.replace("/c/?", f"/c/steps/{name}?")

    return {
        "page-plans": changed,
        "plan": step(f"plan-{subscription.pk}"),
        "plan-move": step(f"plan_move-{subscription.pk}_{plan.pk}"),
        "plan-cancel": step(f"plan_cancel-{subscription.pk}"),
        "plan-refused": step(f"plan_move-{subscription.pk}_1"),
        "page": shown,
        "page-de": link(holder_id="acme-gmbh", language="de").url,
        "page-hidden": link(holder_id="acme-gmbh", hide_amounts=True).url,
        "page-nobody": link(holder_id="nobody").url,
        "page-gone": f"{shown}x",
    }


@pytest.mark.parametrize(("theme", "width"), [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)])
def test_the_page_is_accessible_and_asks_nothing_of_others(links, chromium, theme, width):
    found = {}

    def look(visit: Visit) -> None:
        for name, url in links.items():
            visit.open(f"{site.url}{url}")
            assert not visit.is_wider_than_the_window, name
            found[name] = violations(visit)
            if PICTURES and (name, theme, width) == ("page", "light", 1440):
                keep(PICTURES, "customers-page", visit.picture())
        assert (visit.complaints, visit.elsewhere) == ([], [])

    with site_of(Client()) as site:
        chromium.look(f"{site.url}/", look, theme=theme, width=width)
    assert found == {name: [] for name in links}


@pytest.mark.parametrize("is_allowed", [True, False])
def test_only_an_origin_of_the_setting_frames_it(links, chromium, settings, is_allowed):
    with site_of(Client()) as site:
        origin = site.url.rstrip("/") if is_allowed else "https://shop.example"
        settings.LEDGER = {**settings.LEDGER, "CUSTOMER_PAGE_FRAMED_BY": [origin]}

        def look(visit: Visit) -> str:
            visit.page.goto(f"{site.url}/problems/not-found")
            visit.page.evaluate(
                """url => new Promise(done => {
                    const frame = document.createElement("iframe");
                    frame.onload = done;
                    frame.src = url;
                    document.body.append(frame);
                })""",
                links["page"],
            )
            return visit.page.frames[-1].content()

        assert ("Usage by day" in chromium.look(f"{site.url}/", look)) == is_allowed


class WorkedClient(Client):
    """A client with a worker, which asks the provider after each request."""

    def generic(self, *arguments: Any, **more: Any) -> Any:
        response = super().generic(*arguments, **more)
        advance_due(workers=1)
        settle_due()
        return response


@pytest.fixture
def stripe(settings: Any) -> Iterator[StripeDouble]:
    double = StripeDouble()
    with serving(double) as address:
        double.pages, double.cards = f"{address}/checkout", {}
        path = "billing.payments.providers.stripe_payments.StripeProvider"
        settings.PAYMENT_PROVIDERS = {
            "stripe": {"class": path, "api_key": "sk_test_x", "event_secret": SECRET, "api_base": address}
        }
        yield double
        provider("stripe").close()  # type: ignore[attr-defined]


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_a_customer_pays_buys_saves_a_card_and_changes_it(stripe: StripeDouble, chromium: Chromium) -> None:
    """In a browser, with the checkout of a stand-in for Stripe. The pages go on by themselves, as they do for a customer."""
    add_seller()
    _, invoice = billed("ada")
    PackFactory(name="Starter")
    customer = WorkedClient()

    def look(visit: Visit) -> None:
        def checks_out(button: str) -> None:
            visit.page.wait_for_url(f"{stripe.pages}/**")
            assert "Checkout of the stand-in" in visit.html
            visit.click(visit.button(button))
            visit.page.wait_for_url(f"{site.url}/**")

        def begins() -> None:
            visit.open(f"{site.url}{page}")

        begins()
        visit.click(visit.button("Pay"))
        visit.click(visit.button("By card"))
        checks_out("Give up")
        assert "is being" not in visit.html
        visit.page.goto(f"{site.url}{page}")
        visit.click(visit.button("Pay"))
        checks_out("Pay now")
        visit.page.get_by_text("Thank you. Your payment has arrived.").wait_for()
        begins()
        assert visit.button("Pay").count() == 0
        visit.click(visit.button("Buy"))
        checks_out("Pay now")
        visit.page.get_by_text("Thank you. Your payment has arrived.").wait_for()
        begins()
        visit.click(visit.button("Show and change"))
        visit.click(visit.button("Save a card"))
        checks_out("Save card")
        visit.page.get_by_text("Mastercard …4444").first.wait_for()
        begins()
        visit.click(visit.button("Turn on"))
        visit.page.get_by_label("When fewer credits").fill("500")
        visit.click(visit.button("Turn on"))
        assert "When fewer than 500 credits are left, Starter is bought" in visit.page.content()
        stripe.cards["pm_ok"] = {"brand": "visa", "last4": "4242", "exp_month": 8, "exp_year": 2030}
        visit.click(visit.button("Show and change"))
        visit.click(visit.button("Pay automatic top-ups with Visa …4242, 8/2030"))
        visit.click(visit.button("Remove Mastercard …4444, 1/2031"))
        assert violations(visit) == []
        assert visit.button("Remove Visa …4242, 8/2030").count() == 0
        assert visit.complaints == []

    with site_of(customer) as site:
        customer.defaults["HTTP_HOST"] = site.url.removeprefix("http://")
        page = link(holder_id="ada", allow_payments=True).url
        chromium.look(f"{site.url}/", look)
    invoice.refresh_from_db()
    [top_up] = TopUp.objects.filter(ended_at=None)
    assert (invoice.state, reads.balance("ada").available, top_up.method, set(stripe.cards)) == ("paid", 1100, "pm_ok", {"pm_ok"})
    assert set(stripe.taken.values()) == {1}


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_card_is_declined_another_asks_for_the_bank_and_the_invoice_is_paid_once(
    stripe: StripeDouble, chromium: Chromium, theme: str
) -> None:
    """On a telephone and by keyboard alone: each page that the customer comes to has no violation, and Tab reaches all of it."""
    add_seller()
    _, invoice = billed("ada")
    customer = WorkedClient()

    def look(visit: Visit) -> None:
        def is_fine() -> None:
            assert not visit.is_wider_than_the_window
            assert violations(visit) == []
            assert walk(visit) == NOTHING

        def press(name: str, leads_to: str) -> None:
            """Press a button or a link by Enter, and wait for the words."""
            role = visit.page.get_by_role("button", name=name, exact=True).or_(
                visit.page.get_by_role("link", name=name, exact=True)
            )
            role.first.focus()
            visit.page.keyboard.press("Enter")
            visit.page.get_by_text(re.compile(leads_to)).first.wait_for()

        visit.open(f"{site.url}{page}")
        is_fine()
        press("Pay", "How do you want to pay")
        is_fine()
        press("By card", "Checkout of the stand-in")
        is_fine()
        press("Pay with a card that is declined", "Your card was declined")
        is_fine()
        press("Give up", "has not enough money or has reached its limit, and nothing was charged. Try another card")
        is_fine()
        press("Try again", "Checkout of the stand-in")
        press("Pay with a card that the bank asks about", "Bank of the stand-in")
        is_fine()
        press("Refuse", "Checkout of the stand-in")
        press("Give up", "Try again, and confirm it in your banking app")
        is_fine()
        press("Try again", "Checkout of the stand-in")
        press("Pay with a card that the bank asks about", "Bank of the stand-in")
        press("Confirm the payment", "Thank you. Your payment has arrived.")
        is_fine()
        visit.open(f"{site.url}{page}")
        assert visit.button("Pay").count() == 0
        assert visit.complaints == []

    with site_of(customer) as site:
        customer.defaults["HTTP_HOST"] = site.url.removeprefix("http://")
        page = link(holder_id="ada", allow_payments=True).url
        chromium.look(f"{site.url}/", look, width=390, height=800, theme=theme)
    invoice.refresh_from_db()
    assert (invoice.state, list(stripe.taken.values())) == ("paid", [1])
    assert [payment.amount_minor for payment in InvoicePayment.objects.all()] == [invoice.total_minor]


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")
def test_an_operator_sees_why_a_customer_could_not_pay(stripe: StripeDouble, chromium: Chromium) -> None:
    add_seller()
    _, invoice = billed("ada")
    intent = order_payment(invoice=invoice.pk, return_url="https://shop.example/", actor="customer page")
    advance_due(workers=1)
    intent.refresh_from_db()
    stripe.decline(intent.checkout, "payment_intent_authentication_failure")
    advance(intent.pk, now=True)

    def look(visit: Visit) -> None:
        visit.open(f"{site.url}/admin/")
        said = r"1 payment waits because of a problem, such as payment \d+ of [\d.]+ EUR: the bank asked for a confirmation"
        assert re.search(said, visit.text), visit.text
        visit.click(visit.link("Open the payment"))
        told = (
            "The last try failed: the bank asked for a confirmation, and the customer did not give it, and nothing was charged."
        )
        assert told in visit.text
        assert "The customer can try again, also with another card." in visit.text
        assert visit.complaints == []

    with site_of(operator()) as site:
        chromium.look(f"{site.url}/", look)
    assert not stripe.taken
