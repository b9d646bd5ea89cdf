"""The pages of webhooks and alerts: what they show, and that nobody does without a permission what it does not allow."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from ledger import services
from ledger.database.statements import fetch_rows, fetch_value
from ledger.models import CreditType, StaffEvent
from ledger.signals import alert_declarations
from ledger.signals.alert_declarations import AlertRequest, EndAlertRequest, alerts_of, end_alert, set_alert
from ledger.signals.feed import feed
from ledger.signals.models import Alert, Webhook, WebhookChange
from ledger.testing import unique
from tests.ledger.signals.conftest import Receiver, answer, receiver, webhook, work
from tests.ledger.staff.admin_site import cost_of, hidden_key, operator, submit_form, text_of

__all__ = ["receiver", "webhook"]

WEBHOOKS, ALERTS = "/admin/ledger_signals/webhook/", "/admin/ledger_signals/alert/"

pytestmark = pytest.mark.django_db


@pytest.fixture
def failed(receiver: Receiver, webhook: Callable[..., dict[str, Any]]) -> tuple[int, UUID]:
    """A webhook whose first signal was refused once, and that signal."""
    receiver.behaviours.append(answer(500, b"out <b>of</b> order"))
    made = webhook("entry.recorded", description="The shop")
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    work()
    return made["id"], fetch_value(lambda value: value, "SELECT id FROM ledger_signal")


def page(client: Any, url: str) -> str:
    response = client.get(url)
    assert response.status_code == 200, url
    return text_of(response.content.decode())


def test_a_webhook_is_shown_with_its_deliveries_and_attempts(failed: tuple[int, UUID], receiver: Receiver) -> None:
    number, signal = failed
    secret = Webhook.objects.get().secret
    client = operator("ledger_signals.view_webhook")
    listed, one = page(client, WEBHOOKS), page(client, f"{WEBHOOKS}{number}/change/")
    sent = page(client, f"{WEBHOOKS}{number}/deliveries/{signal}/")
    assert receiver.url in listed
    assert "failing" in listed
    assert "entry.recorded" in one
    assert "pending" in one
    for words in (str(signal), "the receiver answered 500", "out <b>of</b> order", '"balance":5'):
        assert words in sent, words
    assert "Send again" not in sent
    assert not [text for text in (listed, one, sent) if secret in text]


@pytest.mark.slow
def test_a_signal_is_sent_again_by_those_who_may(failed: tuple[int, UUID], receiver: Receiver) -> None:
    number, signal = failed
    address = f"{WEBHOOKS}{number}/deliveries/{signal}/"
    assert operator("ledger_signals.view_webhook", name="ann").post(address).status_code == 403
    assert operator("ledger_signals.resend_signal", name="bob").post(address).status_code == 403
    assert fetch_rows(str, "SELECT action FROM ledger_webhook_change") == ["created"]
    client = operator("ledger_signals.view_webhook", "ledger_signals.resend_signal")
    assert "Send again" in page(client, address)
    assert client.post(address).status_code == 302
    work()
    assert [each.id for each in receiver.received] == [str(signal)] * 2
    assert WebhookChange.objects.order_by("-id")[0].actor == "admin:mara"
    assert "delivered" in page(client, address)


def test_a_signal_that_the_webhook_did_not_get_is_not_found(failed: tuple[int, UUID]) -> None:
    client = operator()
    for address in (f"{WEBHOOKS}99/deliveries/{failed[1]}/", f"{WEBHOOKS}{failed[0]}/deliveries/{UUID(int=0)}/"):
        assert client.get(address).status_code == client.post(address).status_code == 404
    assert fetch_rows(str, "SELECT action FROM ledger_webhook_change") == ["created"]


def test_a_webhook_is_disabled_and_enabled_by_those_who_may(failed: tuple[int, UUID]) -> None:
    address = f"{WEBHOOKS}{failed[0]}/"
    assert operator("ledger_signals.view_webhook", name="ann").post(f"{address}disable/").status_code == 403
    assert Webhook.objects.get().disabled_at is None
    client = operator("ledger_signals.view_webhook", "ledger_signals.switch_webhook")
    assert "keeps its signals" in page(client, f"{address}disable/")
    assert Webhook.objects.get().disabled_at is None
    assert client.post(f"{address}disable/").status_code == 302
    assert Webhook.objects.get().disabled_at is not None
    shown = page(client, f"{address}change/")
    assert "Disabled by request." in shown
    client.post(f"{address}enable/")
    assert Webhook.objects.get().disabled_at is None
    actions = WebhookChange.objects.order_by("id").values_list("action", "actor")[1:]
    assert list(actions) == [("changed", "admin:mara"), ("changed", "admin:mara")]


def test_an_alert_is_shown_with_the_accounts_that_crossed_it(webhook: Callable[..., dict[str, Any]]) -> None:
    for name, limits in (
        ("low", {"below": 1200}),
        ("part", {"below_percent": 20}),
        ("days", {"days_left": 3}),
        ("retired", {"below": 1}),
    ):
        set_alert(AlertRequest(alert=name, reason="Asked for", actor="key:shop", **limits))
    set_alert(AlertRequest(alert="soon", expiring_days=7, holder_id="ada", credit_type="credits"))
    end_alert(EndAlertRequest(alert="retired"))
    for holder, amount in (("ada", 1199), ("bob", 1300)):
        services.grant(holder_id=holder, amount=amount, idempotency_key=unique("k"))
    feed()
    client = operator("ledger_signals.view_alert")
    listed = page(client, ALERTS)
    for words in ("below 1,200 credits", "below 20 %", "less than 3 days left at the rate of 7 days", "expire within 7 days"):
        assert words in listed, words
    assert "retired" not in listed
    number = fetch_value(int, "SELECT id FROM ledger_alert WHERE name = 'low'")
    shown = page(client, f"{ALERTS}{number}/change/")
    assert "ada, credits" in shown
    assert "bob" not in shown
    assert "below 20 %" not in page(client, f"{ALERTS}?name=low")
    assert "below 1,200" not in page(client, f"{ALERTS}?holder_id=ada")


def alert_rows() -> int:
    return fetch_value(int, "SELECT (SELECT count(*) FROM ledger_alert) + (SELECT count(*) FROM ledger_alert_look)")


@pytest.mark.slow
def test_an_alert_is_declared_changed_and_ended_in_the_admin(db: None) -> None:
    client = operator("ledger_signals.view_alert", "ledger_signals.set_alert")
    declared = {"alert": "low", "holder_id": "ada", "credit_type": "credits", "below": "1200", "reason": "Asked for"}
    assert submit_form(client, f"{ALERTS}declare-alert/", **declared).status_code == 302
    row = Alert.objects.get()
    assert (row.name, row.holder_id, row.credit_type, row.below) == ("low", "ada", "credits", 1200)
    assert (row.actor, row.reason) == ("admin:mara", "Asked for")
    change = f"{ALERTS}{row.pk}/change-alert/"
    assert 'value="1200"' in client.get(change).content.decode()
    assert submit_form(client, change, **declared | {"below": "", "days_left": "3"}).status_code == 302
    [known] = alerts_of("ada")
    assert (known.below, known.days_left, known.rate_days) == (None, 3, 7)
    assert submit_form(client, f"{ALERTS}{known.id}/end-alert/", reason="Over").status_code == 302
    assert alerts_of("ada") == []
    assert list(StaffEvent.objects.values_list("action", flat=True)).count("form") == 3


def test_an_amount_is_typed_and_shown_in_the_unit_of_its_credit_type(db: None) -> None:
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    client = operator("ledger_signals.view_alert", "ledger_signals.set_alert")
    values = {"alert": "low", "credit_type": "usd_cents", "below": "12.50", "reason": "x"}
    assert submit_form(client, f"{ALERTS}declare-alert/", **values).status_code == 302
    row = Alert.objects.get()
    assert row.below == 1250
    assert "below 12.50 USD" in page(client, ALERTS)
    assert "below 12.50 USD" in page(client, f"{ALERTS}{row.pk}/change/")
    assert 'value="12.50"' in client.get(f"{ALERTS}{row.pk}/change-alert/").content.decode()


def test_an_amount_of_types_with_different_decimals_is_refused_and_writes_nothing(db: None) -> None:
    client = operator("ledger_signals.view_alert", "ledger_signals.set_alert")
    CreditType.objects.create(code="tokens", name="Tokens", unit="tokens", scale=0)
    values = {"alert": "low", "below": "5", "reason": "x"}
    assert submit_form(client, f"{ALERTS}declare-alert/", **values).status_code == 302
    before = alert_rows()
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    refused = submit_form(client, f"{ALERTS}declare-alert/", **values | {"alert": "other"})
    assert refused.status_code == 422
    assert "credit types differ in their decimals" in text_of(refused.content.decode())
    assert alert_rows() == before


def test_the_second_click_on_declare_declares_nothing_again(db: None) -> None:
    client = operator("ledger_signals.view_alert", "ledger_signals.set_alert")
    values = {"alert": "low", "below": "5", "reason": "Asked for", "idempotency_key": "admin-1"}
    for _ in range(2):
        assert client.post(f"{ALERTS}declare-alert/", values).status_code == 302
    assert Alert.objects.count() == 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"below": ""}, "Give below, or “Below percent”, or “Days left”, or “Expiring within days”."),
        ({"below_percent": "20"}, "Give either this or below, not both."),
        ({"rate_days": "7"}, "Only with “Days left”."),
        ({"alert": "A b"}, "This must be"),
        ({"holder_id": "a b"}, "This must be"),
    ],
)
def test_a_wrong_alert_is_refused_at_its_field_and_writes_nothing(db: None, wrong: dict[str, str], words: str) -> None:
    client = operator("ledger_signals.view_alert", "ledger_signals.set_alert")
    refused = submit_form(client, f"{ALERTS}declare-alert/", **{"alert": "low", "below": "5", "reason": "x"} | wrong)
    assert refused.status_code == 422
    assert words in text_of(refused.content.decode())
    assert alert_rows() == 0


def test_one_alert_too_many_and_an_end_that_came_first_are_refused_in_words(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    client = operator("ledger_signals.view_alert", "ledger_signals.set_alert")
    monkeypatch.setattr(alert_declarations, "MAX_ALERTS", 1)
    made = set_alert(AlertRequest(alert="low", below=5)).alert
    before = alert_rows()
    refused = submit_form(client, f"{ALERTS}declare-alert/", alert="other", below="5", reason="x")
    assert refused.status_code == 422
    assert "at most 1" in text_of(refused.content.decode())
    assert alert_rows() == before
    address = f"{ALERTS}{made.pk}/end-alert/"
    key = hidden_key(client.get(address).content.decode())
    end_alert(EndAlertRequest(alert="low"))
    before = alert_rows()
    assert client.post(address, {"idempotency_key": key, "reason": "x"}).status_code in (404, 422)
    assert alert_rows() == before


@pytest.mark.slow
def test_alerts_are_declared_and_ended_only_with_the_permission(db: None) -> None:
    made = set_alert(AlertRequest(alert="low", below=5)).alert
    before = alert_rows()
    client = operator("ledger_signals.view_alert")
    for page_of in ("declare-alert/", f"{made.pk}/change-alert/", f"{made.pk}/end-alert/"):
        values = {"alert": "low", "below": "9", "reason": "x", "idempotency_key": "k"}
        assert client.get(ALERTS + page_of).status_code == client.post(ALERTS + page_of, values).status_code == 403
    assert alert_rows() == before


@pytest.mark.slow
def test_the_pages_cost_the_same_with_more_rows(webhook: Callable[..., dict[str, Any]]) -> None:
    client = operator()
    costs = []
    for count in (1, 5):
        for number in range(count):
            set_alert(AlertRequest(alert=f"a{count}-{number}", below=10))
            webhook("entry.recorded", "balance.low")
        services.grant(holder_id=unique("h"), amount=5, idempotency_key=unique("k"))
        feed()
        addresses = (ALERTS, WEBHOOKS, f"{WEBHOOKS}{Webhook.objects.order_by('id')[0].pk}/change/")
        costs.append([len(cost_of(client, address).statements) for address in addresses])
    assert costs[0] == costs[1]


def test_nobody_sees_the_pages_without_their_permission(failed: tuple[int, UUID]) -> None:
    client = operator("ledger.view_account")
    number, signal = failed
    for address in (WEBHOOKS, ALERTS, f"{WEBHOOKS}{number}/change/", f"{WEBHOOKS}{number}/deliveries/{signal}/"):
        assert client.get(address).status_code == 403, address
