"""The customer's page changes and cancels subscriptions where its link allows that, once, and says what it costs before."""

import re
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.http import HttpResponse
from django.test import Client

from billing import reads
from billing.auditing import consistency
from billing.models import Amendment, Invoice, Plan, RequestKey, Subscription
from billing.orders.plans import change_plan_sale
from billing.orders.subscriptions import Wish, amend_subscription
from billing.orders.suspension import suspend
from ledger import reads as ledger_reads
from ledger import services
from ledger.models import Entry
from ledger.portal import links
from ledger.testing import unique
from tests.billing.documents.issued import add_seller
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

YEAR = 2035
NOW = at(1, 16, year=YEAR)


@pytest.fixture(autouse=True)
def _seller_and_clocks(settings: Any) -> None:
    settings.LEDGER = settings.LEDGER | {"TEST_CLOCKS": True}
    add_seller()


def set_clock(now: datetime) -> None:
    services.set_clock(holder_id="ada", now=now, idempotency_key=unique("k"))


@pytest.fixture
def subscription() -> Subscription:
    """A subscription of 31.00 and 310 credits a month since 1 January, which is billed; it is 16 January."""
    set_clock(at(1, year=YEAR))
    customer = CustomerFactory(holder_id="ada", time_zone="UTC")
    solo = plan("solo", "Solo", "31.00", 310)
    plan("team", "Team", "62.00", 620)
    made = SubscriptionFactory(customer=customer.ref, plan=solo.code, started_at=at(1, year=YEAR))
    bill(made, at(1, year=YEAR))
    set_clock(NOW)
    return made


def plan(code: str, name: str, fee: str, granted: int, **fields: Any) -> Plan:
    allowance = {"credit_type": "credits", "amount": granted}
    return PlanFactory(code=code, name=name, prices=[recurring("base", fee)], allowance=allowance, **fields)


class Page:
    """A customer with a link, who presses buttons."""

    def __init__(self, client: Client, **link: Any) -> None:
        fields = {"holder_id": "ada", "allow_plan_changes": True, "plans": ["solo", "team", "none"], "language": "en"}
        self.client = client
        self.address = links.link(**{**fields, **link}).url
        self.shown = client.get(self.address)

    @property
    def text(self) -> str:
        return " ".join(re.sub(r"<[^>]*>", " ", self.shown.content.decode()).split()).replace("\xa0", " ")

    @property
    def buttons(self) -> dict[str, str]:
        html = self.shown.content.decode().replace("\xa0", " ")
        found = re.findall(r'<form method="post" action="([^"]*)"><button>([^<]*)</button>', html)
        return {text: address.replace("&amp;", "&") for address, text in found}

    def press(self, text: str) -> HttpResponse:
        return self.send(self.buttons[text])

    def send(self, address: str) -> HttpResponse:
        self.shown = self.client.post(address, follow=True)
        return self.shown


def written() -> tuple[int, ...]:
    return tuple(each.objects.count() for each in (Amendment, Invoice, RequestKey, Entry))


def test_a_plan_is_changed_once_after_its_money_and_credits_were_shown(client: Client, subscription: Subscription) -> None:
    page, before = Page(client), written()
    page.press("Change or cancel")
    assert list(page.buttons) == ["Move to Team", "Cancel at the end of the period, on 1 Feb 2035"]
    page.press("Move to Team")
    text = page.text
    assert "Move to Team The new plan begins at once." in text
    assert "Next invoice, on 16 Jan 2035 16.00 EUR" in text
    assert ("Credits that go back 160 credits" in text, "Credits that you get 320 credits" in text) == (True, True)
    assert written() == before
    confirm = page.buttons["Move to Team now"]
    assert page.send(confirm).status_code == 200
    assert "Team Active 1 Jan 2035" in page.text
    page.send(confirm)
    assert "Team Active 1 Jan 2035" in page.text, "a second press finds the result of the first"
    amendment = Amendment.objects.latest("pk")
    assert (Amendment.objects.count(), amendment.actor, (amendment.effective_at - NOW).days) == (
        before[0] + 1,
        "customer page",
        0,
    )
    [invoice] = bill(subscription, NOW)
    assert invoice["total_minor"] == 1600
    assert ledger_reads.balance("ada").available == 150 + 320
    assert consistency.check() == []


def test_what_the_credits_of_the_other_plan_pay_for_is_shown_before_it_is_chosen(
    client: Client, subscription: Subscription
) -> None:
    allowance = {"credit_type": "credits", "amount": 620, "applies_to": {"rates": ["image.small"]}}
    PlanFactory(code="team", name="Images", prices=[recurring("base", "62.00")], allowance=allowance)
    page = Page(client)
    page.press("Change or cancel")
    page.press("Move to Images")
    assert "Credits that go back 160 credits Credits that you get 320 credits, only for image.small" in page.text


def test_it_is_cancelled_at_the_end_of_the_period_and_kept_after_all(client: Client, subscription: Subscription) -> None:
    page = Page(client, plans=None)
    page.press("Change or cancel")
    [cancel] = page.buttons
    page.press(cancel)
    assert "Cancel Solo It ends on 1 Feb 2035. Until then everything stays as it is" in page.text
    assert reads.subscription(subscription.ref).row.ends_at is None
    confirm = page.buttons["Cancel on 1 Feb 2035"]
    for _ in range(2):
        page.send(confirm)
        assert "Solo Active until 1 Feb 2035" in page.text
    assert reads.subscription(subscription.ref).row.ends_at == at(2, year=YEAR)
    page.press("Change or cancel")
    assert "It ends on 1 Feb 2035." in page.text
    page.press("Take the cancellation back")
    assert "Solo Active 1 Jan 2035" in page.text
    assert (reads.subscription(subscription.ref).row.ends_at, Amendment.objects.count()) == (None, 3)
    page.send(confirm)
    assert reads.subscription(subscription.ref).row.ends_at is None, "the old button finds its old result"
    assert consistency.check() == []


def test_it_speaks_german(client: Client, subscription: Subscription) -> None:
    page = Page(client, language="de")
    page.press("Ändern oder kündigen")
    assert "Ihr Tarif Solo Was möchten Sie tun?" in page.text
    page.press("Zu Team wechseln")
    assert "Nächste Rechnung, am 16.01.2035 16,00 EUR" in page.text
    assert "Guthaben, das zurückgeht 160 Guthabeneinheiten" in page.text
    page.press("Jetzt zu Team wechseln")
    assert "Team Aktiv" in page.text


def name_of(subscription: Subscription, verb: str, *more: Any) -> str:
    return f"{verb}-{'_'.join(str(each) for each in (subscription.pk, *more))}"


def action(page: Page, name: str, kind: str = "actions") -> str:
    return page.address.replace("/c/?", f"/c/{kind}/{name}?")


@pytest.mark.parametrize(
    "link", [{"allow_plan_changes": False, "plans": None}, {"allow_plan_changes": False, "plans": None, "allow_payments": True}]
)
def test_a_link_without_the_permission_has_no_button_and_changes_nothing(
    client: Client, subscription: Subscription, link: dict[str, Any]
) -> None:
    page, before = Page(client, **link), written()
    assert "Change or cancel" not in page.text
    team = Plan.objects.get(code="team").pk
    for name in (
        name_of(subscription, "plan_move", team, 1),
        name_of(subscription, "plan_cancel", 1),
        name_of(subscription, "plan"),
    ):
        assert client.post(action(page, name)).status_code == 410, name
        assert client.get(action(page, name, "steps")).status_code == 410, name
    assert written() == before


def test_changes_of_plans_allow_no_payments(client: Client, subscription: Subscription) -> None:
    [invoice] = Invoice.objects.all()
    page = Page(client)
    assert client.post(action(page, f"pay-{invoice.pk}")).status_code == 410
    assert client.get(action(page, f"pay-{invoice.pk}", "steps")).status_code == 410


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("not offered", "This plan is not on offer for this subscription"),
        ("other currency", "This plan is not on offer for this subscription"),
        ("includes tax", "This plan is not on offer for this subscription"),
        ("retired", "This plan is not on offer for this subscription"),
        ("the same plan", "This plan is not on offer for this subscription"),
        ("changed", "The subscription has changed since this was shown"),
        ("ended", "The subscription is not running"),
        ("paused", "The subscription is not running"),
        ("suspended", "The subscription is suspended"),
    ],
)
def test_a_move_is_refused_by_name_and_nothing_is_written(
    client: Client, subscription: Subscription, how: str, says: str
) -> None:
    after, wanted = 1, Plan.objects.get(code="team")
    page = Page(client, plans=["solo"] if how == "not offered" else ["solo", "team", "other"])
    if how == "other currency":
        wanted = plan("other", "Other", "1.00", 1, currency="USD")
    elif how == "includes tax":
        wanted = plan("other", "Other", "1.00", 1, tax_behavior="inclusive")
    elif how == "retired":
        wanted = change_plan_sale(plan="team", on_sale=False)
    elif how == "the same plan":
        wanted = Plan.objects.get(code="solo")
    elif how == "suspended":
        suspend(ref=subscription.ref, reason="overdue", facts={})
    elif how in ("changed", "ended", "paused"):
        wish = {
            "changed": Wish(quantities={"base": Decimal(2)}),
            "ended": Wish(ends_at=at(1, 10, year=YEAR), sets_end=True),
            "paused": Wish(paused=True),
        }
        amend_subscription(ref=subscription.ref, effective_at=at(1, 10, year=YEAR), wish=wish[how])
        after = 1 if how == "changed" else 2
    before = written()
    refused = client.post(action(page, name_of(subscription, "plan_move", wanted.pk, after)))
    assert (refused.status_code, says in refused.content.decode()) == (409, True)
    assert written() == before


def test_what_the_terms_refuse_is_said_before_and_at_the_button(client: Client, subscription: Subscription) -> None:
    """Another subscription has the overage of the account; trying again later would not help."""
    overage = {"price": {"model": "unit", "unit_amount": "0.02"}, "limit_credits": 60}
    many = PlanFactory(code="many", name="Many", prices=[recurring("base", "1.00")], overage=overage)
    SubscriptionFactory(customer=subscription.customer.ref, plan="many", started_at=NOW)
    page, before = Page(client, plans=["many"]), written()
    for refused in (
        client.get(action(page, name_of(subscription, "plan_move", many.pk), "steps")),
        client.post(action(page, name_of(subscription, "plan_move", many.pk, 1))),
    ):
        assert "terms with which this cannot be done here" in refused.content.decode(), refused.status_code
    assert written() == before


def test_a_cancellation_is_refused_by_name_where_it_is_cancelled_or_not(client: Client, subscription: Subscription) -> None:
    page = Page(client)
    refused = client.post(action(page, name_of(subscription, "plan_keep", 1)))
    assert (refused.status_code, "is not cancelled" in refused.content.decode()) == (409, True)
    amend_subscription(ref=subscription.ref, effective_at=NOW, wish=Wish(ends_at=at(2, year=YEAR), sets_end=True))
    before = written()
    refused = client.post(action(page, name_of(subscription, "plan_cancel", 2)))
    assert (refused.status_code, "ends already on 1 Feb 2035" in refused.content.decode().replace("\xa0", " ")) == (409, True)
    assert written() == before


def test_the_subscription_of_another_customer_is_not_there(client: Client, subscription: Subscription) -> None:
    other = SubscriptionFactory(customer=CustomerFactory(holder_id="eve").ref, plan="solo", started_at=at(1, year=YEAR))
    page, before = Page(client), written()
    team = Plan.objects.get(code="team").pk
    for name in ("plan", "plan_cancel", "plan_move"):
        more = [team] if name == "plan_move" else []
        assert client.get(action(page, name_of(other, name, *more), "steps")).status_code == 410
        assert client.post(action(page, name_of(other, name, *more, 1))).status_code == 410
    for wrong in ("plan-", "plan-x", "plan_move-1", "plan_cancel-1_2_3", "plan_keep-1", "plan-" + "9" * 40):
        assert client.post(action(page, wrong)).status_code == 410, wrong
    assert written() == before


def test_the_link_over_rest(db: None, make_api: Any) -> None:
    path = "/v1/holders/ada/page-links"
    api: ApiClient = make_api("pages:write", "billing:write")
    assert api.post(path, {"allow_plan_changes": True, "plans": ["team"]}, key=None).status_code == 200
    assert make_api("pages:write").post(path, {"allow_plan_changes": True}, key=None).status_code == 403
    for body, pointer in (
        ({"allow_plan_changes": True, "hide_amounts": True}, "/allow_plan_changes"),
        ({"plans": ["team"]}, "/plans"),
        ({"allow_plan_changes": True, "plans": []}, "/plans"),
    ):
        refused = api.post(path, body, key=None)
        assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (400, pointer)
