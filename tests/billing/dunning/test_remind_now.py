"""A person sends the next reminder at once: it counts as that step, once a day, and not for what nobody should be asked."""

from typing import Any

import pytest
from django.core import mail as outbox
from django.db.models import Q

from billing.admin import invoice_lists
from billing.auditing import consistency
from billing.documents.invoice_payments import record_payment
from billing.documents.payment_returns import record_payment_return
from billing.documents.sellers import record_seller
from billing.dunning.delivery import deliver_due
from billing.dunning.errors import WHY_NOT_REMINDED, NotReminded
from billing.dunning.holds import hold_reminders
from billing.dunning.models import Mail, Reminder
from billing.dunning.reminding import remind, remind_now
from billing.errors import NotFound
from billing.models import Charge, Invoice, SuspendedBilling
from ledger.testing import unique
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import hidden_values, send_first_step, text_of_response
from tests.billing.documents.issued import SELLER
from tests.billing.dunning.test_reminding import STEPS, issued, rows, today
from tests.billing.factories import SubscriptionFactory, at, transition
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db

__all__ = ["client", "today"]

BANK = {"iban": "DE02120300000000202051", "bic": "BYLADEM1001"}


@pytest.fixture(autouse=True)
def _reminding_seller() -> None:
    record_seller(SELLER | STEPS | BANK, actor="t")


def written() -> tuple[int, int, int, int]:
    return (Reminder.objects.count(), Mail.objects.count(), Charge.objects.count(), SuspendedBilling.objects.count())


def test_it_is_the_next_step_and_the_one_after_keeps_its_distance(today: Any) -> None:
    invoice = issued()
    today(invoice, 1)
    assert (remind(invoice.pk), remind_now(invoice=invoice.pk, actor="ada").actor) == (None, "ada")
    today(invoice, 14)
    assert remind(invoice.pk) is None, "the second step is 14 days after the first, on day 21 at the earliest"
    today(invoice, 20)
    second = remind_now(invoice=invoice.pk, actor="ada")
    assert (second.step, second.fee_minor) == (2, 500)
    today(invoice, 33)
    assert remind(invoice.pk) is None
    today(invoice, 35)
    third = remind(invoice.pk)
    assert (third and third.actor, rows()) == ("billing", [(1, 0, False), (2, 500, False), (3, 500, True)])
    assert consistency.check() == []


def test_beyond_the_last_step_it_costs_and_suspends_nothing(today: Any) -> None:
    record_seller(SELLER | {"reminder_days": [7], "reminder_fee_minor": {"EUR": 500}, "suspends_at_reminder": 1}, actor="t")
    invoice = issued()
    today(invoice, 7)
    assert remind(invoice.pk) is not None
    for day, step in ((8, 2), (9, 3)):
        today(invoice, day)
        reminder = remind_now(invoice=invoice.pk, actor="ada")
        assert (reminder.step, reminder.fee_minor, reminder.suspends, remind(invoice.pk)) == (step, 0, False, None)
    assert (written(), consistency.check()) == ((3, 3, 0, 1), [])


def test_it_needs_no_steps_of_the_seller(today: Any) -> None:
    record_seller(SELLER, actor="t")
    invoice = issued()
    today(invoice, 1)
    assert remind_now(invoice=invoice.pk, actor="ada").step == 1


def test_its_mail_has_the_amount_the_day_the_account_and_the_invoice(today: Any) -> None:
    invoice = issued()
    record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=4000)
    today(invoice, 1)
    remind_now(invoice=invoice.pk, actor="ada")
    assert deliver_due().sent == 1
    [message] = outbox.outbox
    body = message.body.replace("\xa0", " ")
    assert message.subject == f"Reminder: invoice {invoice.number} from {SELLER['name']} is overdue"
    assert "60.00 EUR is still due" in body
    assert "IBAN: DE02 1203 0000 0000 2020 51" in body
    assert f"Reference: {invoice.number}" in body
    assert [kind for _, _, kind in message.attachments] == ["application/pdf"]


@pytest.mark.parametrize("reason", sorted(WHY_NOT_REMINDED.keys() - {"draft", "first-payment", "no-sender"}))
def test_it_is_refused_by_name_and_nothing_is_written(today: Any, reason: str) -> None:
    invoice = issued(email="" if reason == "no-address" else "ada@example.com")
    today(invoice, 0 if reason == "not-overdue" else 7)
    if reason == "disputed":
        paid = record_payment(invoice=invoice.pk, payment=unique("p"), amount_minor=4000)
        record_payment_return(invoice_payment=paid.pk, kind="dispute", payment=unique("d"))
    elif reason == "on-hold":
        hold_reminders(customer=invoice.customer_ref, reason="a friend", actor="t")
    elif reason == "reminded-today":
        remind(invoice.pk)
    elif reason in {"paid", "void", "uncollectible"}:
        transition(invoice.pk, {"paid": "pay", "void": "void", "uncollectible": "mark_uncollectible"}[reason])
    before = written()
    with pytest.raises(NotReminded) as refused:
        remind_now(invoice=invoice.pk, actor="ada")
    assert refused.value.facts == {"invoice": invoice.pk, "reason": reason}
    assert written() == before


def test_a_draft_and_a_seller_without_an_address_are_refused(today: Any) -> None:
    [made] = bill(SubscriptionFactory(), at(1, 1), finalize=False)
    draft = Invoice.objects.get(pk=made["id"])
    with pytest.raises(NotReminded) as refused:
        remind_now(invoice=draft.pk, actor="ada")
    assert refused.value.facts["reason"] == "draft"
    invoice = issued()
    record_seller({name: value for name, value in SELLER.items() if name != "email"}, actor="t")
    today(invoice, 7)
    with pytest.raises(NotReminded) as refused:
        remind_now(invoice=invoice.pk, actor="ada")
    assert refused.value.facts["reason"] == "no-sender"
    with pytest.raises(NotFound):
        remind_now(invoice=999_999_999, actor="ada")
    assert written() == (0, 0, 0, 0)


def test_it_over_rest_once_for_each_key(today: Any, api: ApiClient) -> None:
    invoice = issued()
    today(invoice, 3)
    key = unique("k")
    made = api.post("/v1/reminders", {"invoice": invoice.pk}, key=key)
    assert made.status_code == 201, made.content
    assert (made.json()["step"], made.json()["actor"]) == (1, "key:shop")
    assert api.post("/v1/reminders", {"invoice": invoice.pk}, key=key).json() == made.json()
    refused = api.post("/v1/reminders", {"invoice": invoice.pk}, key=unique("k"))
    assert (refused.status_code, refused.json()["reason"]) == (409, "reminded-today")
    assert api.post("/v1/reminders", {"invoice": 999_999_999}, key=unique("k")).status_code == 404
    assert api.post("/v1/reminders", {"invoice": "1"}, key=unique("k")).status_code == 400
    assert written() == (1, 1, 0, 0)


def test_an_operator_sends_it_from_the_list_of_overdue_invoices(today: Any, client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    invoice, other = issued(), issued()
    today(invoice, 21)
    monkeypatch.setattr(invoice_lists, "is_overdue", lambda: Q(state="open", due_date__isnull=False))
    page = f"/admin/billing/invoice/{invoice.pk}/remind-now/"
    for name in ("/admin/billing/invoice/?overdue=yes", f"/admin/billing/invoice/{invoice.pk}/change/"):
        assert page in client.get(name).content.decode()
    assert page not in client.get("/admin/billing/invoice/").content.decode()
    first = send_first_step(client, page, {"reason": "she called"})
    assert "Reminder 1 asks for 100.00 EUR and goes to ada@example.com." in text_of_response(first)
    assert written() == (0, 0, 0, 0)
    assert client.post(page, hidden_values(first) | {"confirmed": "yes"}).status_code == 302
    assert client.post(page, hidden_values(first) | {"confirmed": "yes"}).status_code == 302, "a double click"
    [reminder] = Reminder.objects.all()
    assert (reminder.invoice_id, reminder.actor.startswith("admin:")) == (invoice.pk, True)
    refused = send_first_step(client, page, {"reason": "again"})
    assert "because it was reminded of today" in text_of_response(refused)
    assert written() == (1, 1, 0, 0)
    transition(other.pk, "pay")
    assert "remind-now" not in client.get(f"/admin/billing/invoice/{other.pk}/change/").content.decode()
