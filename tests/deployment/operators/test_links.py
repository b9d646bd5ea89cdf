"""The admin as each role finds it: every link and form that it is shown works, every page that it may open is linked.

No page shows a value as Python writes it.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit
from uuid import uuid4

import pytest
from axes.models import AccessAttempt
from django.contrib import admin
from django.test import Client
from django.urls import URLPattern, URLResolver, resolve

from billing.documents.credit_refunds import deposit_in
from billing.documents.invoice_payments import record_payment
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.dunning.holds import hold_reminders
from billing.dunning.models import Mail
from billing.metering.meters import create_meter
from billing.models import Customer, Run, RunResult, SuspendedBilling, VatLookup
from billing.orders.coupons import create_coupon, give_subscription_coupon
from billing.orders.overrides import PriceOverride
from billing.orders.phases import Phase
from billing.orders.plans import change_plan_sale
from billing.orders.subscriptions import Wish, amend_subscription
from billing.orders.tax_declarations import NewTax, declare
from billing.payments.models import PaymentIntent, TopUp
from billing.payments.testing import PurchaseFactory
from billing.statements_in.models import BankReceipt
from ledger import services
from ledger.errors import InsufficientCredits
from ledger.keys.api_keys import create_api_key
from ledger.models import CreditType
from ledger.rules.requests import GrantRequest
from ledger.shadow.observing import observe
from ledger.signals.alert_declarations import AlertRequest, set_alert
from ledger.signals.feed import feed
from ledger.signals.webhooks import WebhookChangeRequest, WebhookRequest, change_webhook, create_webhook
from ledger.staff import approvals
from ledger.totals.closing import close_months
from ledger.totals.counting import count_entries
from ledger_project.operators.roles import ROLES
from tests.billing.factories import PlanFactory, SubscriptionFactory, recurring
from tests.browser.billed import billed_with_everything
from tests.deployment.operators.test_roles import client_of_role

pytestmark = pytest.mark.django_db

PAGES_OF_A_VIEW = 4
"""How many pages of a view are opened; of those with the same filters one."""
PAGES_OF_ENTRIES = 6
"""Entries of each kind have other buttons."""
MOST_PAGES = 450
WITHOUT_TEXT = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
PYTHON_VALUE = re.compile(r"\bNone\b(?! in the last)|\bTrue\b|\bFalse\b|\bDecimal\b|\bdatetime\b|object at 0x|[{[(]&#x27;")
"""What a page shows where somebody forgot to write a value for people."""
CODED = re.compile(r"\b(?:minor|major|smallest) units?\b|\bin cents\b|(?<!--format )\bJSON\b(?! file)", re.IGNORECASE)
"""What a form says where an operator would have to know how the API writes a value."""
MONEY_WITHOUT_CURRENCY = re.compile(r'id="[^"]*_currency"[^>]*></span>')
WITHOUT_LINK = {
    "autocomplete", "billing_plan_examples", "jsi18n", "ledger_references", "login", "logout", "password_change_done",
    "view_on_site",
}  # fmt: skip
"""Views that are called by scripts, or lead somewhere else."""
WITHOUT_PAGE = {"ledger_account_change", "ledger_staffevent_change", "ledger_account_test_clock", "billing_journal"}
"""Rows without a page of their own, and what only a deployment for tests or a closed month links to."""
ADDED = {
    "auth_group", "auth_user", "billing_coupon", "billing_customer", "billing_meter", "billing_plan", "billing_subscription",
    "ledger_keys_apikey", "ledger_credittype",
}  # fmt: skip
DELETED = {"auth_group", "axes_accessattempt", "ledger_credittype"}
"""Models whose rows can be added or deleted by Django's pages. No other model has these pages; no model has a history."""


class Links(HTMLParser):
    """The addresses that a page leads to, and its forms that write: address and hidden values."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.forms: list[tuple[str, dict[str, str]]] = []
        self._form: tuple[str, dict[str, str]] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "a" and given.get("href"):
            self.addresses.append(given["href"])
        elif tag == "form" and given.get("method", "get").lower() == "post":
            self._form = given.get("action", ""), {}
        elif tag == "form":
            self.addresses.append(given.get("action") or "?")
        elif self._form and tag == "input" and given.get("type") == "hidden":
            self._form[1][given.get("name", "")] = given.get("value", "")
        elif self._form and tag in ("button", "input") and given.get("type", "submit") == "submit":
            self.forms.append(self._form)

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None


@dataclass
class Walk:
    """The pages that a client comes to by links: the name of the view of each address; `wrong` says what did not work."""

    client: Client
    views: dict[str, str] = field(default_factory=dict)
    forms: dict[str, tuple[str, dict[str, str]]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    pages: set[str] = field(default_factory=set)
    """The addresses of those that are HTML, and lead nowhere else."""

    def begin_at(self, *addresses: str) -> "Walk":
        """Open these pages and those that they lead to, the nearest first, as far as the bounds of this module go."""
        opened: Counter[str] = Counter()
        waiting = [(address, "where it begins") for address in addresses]
        met = set(addresses)
        while waiting:
            address, origin = waiting.pop(0)
            view, filters = view_of(address), filters_of(address)
            shape = f"{view}?{filters}"
            most = PAGES_OF_ENTRIES if view == "ledger_entrylisting_change" else PAGES_OF_A_VIEW
            if view != "search" and (opened[view] == most or (filters and opened[shape])):
                continue
            opened.update((view, shape))
            links = [each for each in self._open(address, origin) if each not in met]
            met.update(links)
            waiting.extend((each, address) for each in links)
        assert len(self.views) < MOST_PAGES
        return self

    def _open(self, address: str, origin: str) -> Iterator[str]:
        """Open the page, and give the addresses inside the admin that it leads to."""
        headers = {"HX-Request": "true"} if view_of(address) == "search" else {}
        response = self.client.get(address, follow=True, headers=headers)
        self.views[address] = view_of(address)
        here = response.redirect_chain[-1][0] if response.redirect_chain else address
        if response.status_code != 200 or view_of(here) == "login":
            self.wrong.append(f"{response.status_code} {here}, linked from {origin}")
        body = response.getvalue()
        if not response["Content-Type"].startswith("text/html"):
            return
        if here == address and view_of(address) != "search":
            self.pages.add(address)
        links = Links(body.decode())
        if values := PYTHON_VALUE.findall(WITHOUT_TEXT.sub(" ", body.decode())):
            self.wrong.append(f"{values} on {address}")
        if links.forms and (words := CODED.findall(WITHOUT_TEXT.sub(" ", body.decode()))):
            self.wrong.append(f"{words} on the form of {address}")
        if MONEY_WITHOUT_CURRENCY.search(body.decode()):
            self.wrong.append(f"money without its currency on the form of {address}")
        for action, values in links.forms:
            target = urljoin(here, action)
            self.forms.setdefault(view_of(target), (target, values))
        for each in dict.fromkeys(links.addresses):
            target = urlsplit(urljoin(here, each))._replace(fragment="")
            if target.netloc:
                self.wrong.append(f"{each} leads to another site, linked from {address}")
            elif target.path.startswith("/admin/"):
                yield target.geturl()

    def send_forms(self) -> "Walk":
        """Send a form of each view with nothing filled in: it comes back with its mistakes, or it is done."""
        # Last the group of the operators who are walking.
        for view, (address, values) in sorted(self.forms.items(), key=lambda form: form[0] == "auth_group_delete"):
            if view != "logout" and (status := self.client.post(address, values).status_code) not in (200, 302, 422):
                self.wrong.append(f"{status} for the form of {address}")
        return self


def view_of(address: str) -> str:
    """The name of the view behind an address."""
    path = urlsplit(address).path
    return "search" if path == "/admin/search/" else resolve(path).url_name or ""


def filters_of(address: str) -> str:
    """The names of an address's parameters."""
    return "&".join(sorted(name for name, _ in parse_qsl(urlsplit(address).query)))


def names_of(patterns: list[URLPattern | URLResolver]) -> Iterator[str]:
    """The names of all views behind these patterns."""
    for each in patterns:
        if isinstance(each, URLResolver):
            yield from names_of(each.url_patterns)
        elif each.name:
            yield each.name


def linked_views() -> set[str]:
    """The names of the views of the admin that somebody can come to by a link."""
    missing = {f"{name}_history" for name in models()} | WITHOUT_LINK | WITHOUT_PAGE
    missing |= {f"{name}_add" for name in models() - ADDED} | {f"{name}_delete" for name in models() - DELETED}
    return set(names_of(admin.site.get_urls())) - missing


def models() -> set[str]:
    """The models that the admin shows, such as `auth_user`."""
    return {f"{model._meta.app_label}_{model._meta.model_name}" for model in admin.site._registry}


def ledger_of_everything() -> list[str]:
    """Make an example of each row; return what finds them with Ctrl+K."""
    acme: dict[str, Any] = {"holder_id": "acme-gmbh", "actor": "key:shop"}
    for enabled in (True, False):
        made = create_webhook(WebhookRequest(url="https://shop.example/hook", types=["entry.recorded"], actor="key:shop"))
        change_webhook(WebhookChangeRequest(webhook=made.body["id"], enabled=enabled))
    set_alert(AlertRequest(alert="low", below=2_000, actor="key:shop"))
    services.grant(**acme, amount=1_000, idempotency_key="g", expires_at=datetime.now(UTC) + timedelta(days=3))
    spend = services.spend(**acme, amount=100, idempotency_key="s", reference="job-18")
    services.refund(**acme, spend=spend.sequence, amount=10, idempotency_key="r", reason="goodwill")
    services.hold(**acme, amount=50, idempotency_key="h", reference="session-1")
    services.transfer(**acme, to="ben", amount=20, idempotency_key="t", reason="a gift", reference="gift-7")
    services.set_recurring_grant(**acme, recurring_grant="gift", interval="day", amount=1, idempotency_key="gift")
    services.set_budget(**acme, budget="daily", limit=500, window="day", idempotency_key="limit")
    services.grant(**acme, amount=5, idempotency_key="cents", credit_type="usd_cents")
    with pytest.raises(InsufficientCredits):
        services.spend(**acme, amount=9_999, idempotency_key="no", reference="job-19")
    services.batch(
        [GrantRequest(**acme, amount=5, idempotency_key="b")], mode="each", idempotency_key="nightly", actor="key:shop"
    )
    services.publish_rate(code="gpt.out", price=3, per=1_000, actor="admin:mara", reason="price list")
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    create_api_key(name="shop", scopes=["ledger:read"])
    form = {"holder_id": "acme-gmbh", "credit_type": "credits", "amount": "5", "source": "purchased", "reason": "large"}
    approvals.ask(
        key="waits", title="Grant credits", path="/admin/ledger/account/grant-credits/", query="",
        form={**form, "priority": "100", "idempotency_key": "waits", "confirmed": "yes"}, totals={"credits": 5},
        reason="large", requested_by="admin:mara",
    )  # fmt: skip
    AccessAttempt.objects.create(
        username="mallory", ip_address="192.0.2.1", attempt_time=datetime.now(UTC), failures_since_start=3
    )
    feed()
    count_entries(patience_seconds=0)
    close_months()
    return ["acme", "job-18", "job-19", "session-1", "gift-7", "nightly"]


def billing_of_everything() -> list[str]:
    """The same, of billing: with a subscription that is suspended, one that is paused, and one that ends after its trial."""
    invoice, draft, note = billed_with_everything()
    now, day = datetime.now(UTC), timedelta(days=1)
    trial = SubscriptionFactory(
        ref="TRIAL-1", customer="C-7", plan="team", started_at=now - day, trial_end=now + 7 * day, ends_at=now + 9 * day
    )
    phases = [Phase(intervals=1, price_override=PriceOverride(percent_off=Decimal(10))), Phase(list_prices=True)]
    paused = SubscriptionFactory(ref="PAUSED-1", customer="C-7", plan="team", started_at=now - day, phases=phases)
    amend_subscription(ref=paused.ref, effective_at=now, wish=Wish(paused=True))
    owner = Customer.objects.get(ref="C-7")
    deposit_in(customer_id=owner.pk, currency=owner.currency, amount_minor=500, reference="payment 17", actor="key:shop")
    amend_subscription(ref=trial.ref, effective_at=now, wish=Wish(price_override=PriceOverride(percent_off=Decimal(10))))
    create_coupon(code="ONLY-ONE", kind="percentage", value=Decimal(10), duration="forever")
    give_subscription_coupon(ref=trial.ref, code="ONLY-ONE")
    declare(NewTax(code="ca-gst", name="GST", rate=Decimal(5), country="CA", valid_from=now.date()), actor="key:shop")
    create_meter(code="tokens", expression="properties.input_tokens * 1.5")
    retired = change_plan_sale(plan=PlanFactory(code="yesteryear", prices=[recurring()]).code, on_sale=False)
    VatLookup.objects.create(customer_id=owner.pk, vat_id="DE999999999", outcome="valid", asked_at=now)
    SubscriptionFactory(ref="WAITING-1", plan=PlanFactory(prices=[recurring()]).code, started_at=now, starts_when_paid=True)
    SuspendedBilling.objects.create(subscription_id=draft.subscription_id, reason="unusual-amount")
    run = Run.objects.create(run_id="6f9619ff-8b86-4d11-b42d-00c04fc964ff", as_of=now, host="worker-1")
    RunResult.objects.create(run_id=run.pk, subscription_ref="SUB-1234", outcome="failed", detail="ValueError")
    services.grant(holder_id="ada", amount=1, idempotency_key="ada", actor="key:shop")
    purchase = PurchaseFactory(customer="C-7")
    PaymentIntent.objects.create(
        key="one", provider="stripe", pack_id=purchase.pack_id, holder_id="ada", customer_id=owner.pk, currency="EUR",
        amount_minor=2000, actor="key:shop", state="succeeded", payment=purchase.payment,
    )  # fmt: skip
    TopUp.objects.create(
        holder_id="ada", credit_type="credits", threshold=5, pack_ref="starter", packs=1, customer_id=owner.pk,
        provider="stripe", method="pm_1", cap_period="month", cooldown_seconds=60, declines=2, actor="key:shop",
    )  # fmt: skip
    line = OneOffLine(description="Work", unit_amount=Decimal(1))
    paid = issue_one_off_in(customer_ref="C-7", request=NewOneOffInvoice(lines=[line]))
    record_payment(invoice=paid.pk, payment="transfer 7", amount_minor=100)
    for key, more in (
        ("manual", {"provider": "manual", "state": "waiting", "pack_id": purchase.pack_id, "holder_id": "ada"}),
        ("card", {"provider": "stripe", "state": "succeeded", "payment": "pi_1", "invoice_id": paid.pk}),
    ):
        PaymentIntent.objects.create(key=key, customer_id=owner.pk, currency="EUR", amount_minor=100, actor="key:shop", **more)
    hold_reminders(invoice=paid.pk, reason="disputed", actor="key:shop")
    hold_reminders(customer="C-7", reason="a friend", actor="key:shop")
    Mail.objects.create(
        kind="invoice", invoice_id=paid.pk, customer_id=owner.pk, identity=uuid4(), recipient="ada@example.com", state="bounced"
    )
    BankReceipt.objects.create(
        name="bank-1", booked_on=now.date(), value_on=now.date(), currency="EUR", amount_minor=500, text="no number",
        file="f" * 64, actor="key:shop", state="left", why="The text names no invoice.", waits_for_person=True,
    )  # fmt: skip
    for key, operation, balance in (("seen", "grant", 5), ("differs", "spend", 9)):
        observe(holder_id="ada", idempotency_key=key, operation=operation, amount=5, balance=balance)
    assert paid.number is not None
    return [paid.number, retired.code, "WAITING-1", trial.ref, paused.ref, "SUB-1234", "C-7", "team", invoice.number, note.number]


def words_for_everything() -> list[str]:
    """Make an example of each row; return what finds them with Ctrl+K, those that few links lead to first."""
    of_ledger = ledger_of_everything()
    return billing_of_everything() + of_ledger


@pytest.mark.slow
@pytest.mark.parametrize("roles", [("administrator", "support"), tuple(ROLES)])
def test_each_role_is_shown_what_it_may_open_and_nothing_else(roles: tuple[str, ...]) -> None:
    words = words_for_everything()
    start = ["/admin/", *(f"/admin/search/?s={word}" for word in words)]
    walks = {role: Walk(client_of_role(role)).begin_at(*start) for role in roles}
    opened = {address: view for walk in walks.values() for address, view in walk.views.items()}
    for role, walk in walks.items():
        hidden = {view: address for address, view in opened.items() if view not in walk.views.values()}
        statuses = {address: walk.client.get(address).status_code for address in hidden.values()}
        assert {address for address, status in statuses.items() if status != 403} == set(), f"{role} is not shown these"
        assert walk.send_forms().wrong == [], role
    assert linked_views() - set(walks["administrator"].views.values()) == set()
