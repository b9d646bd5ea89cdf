"""While reminders are on hold nothing is reminded of; afterwards one reminder comes, and the next keep their distance."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from django.core import mail as outbox
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from billing.admin import invoice_lists
from billing.auditing import consistency
from billing.documents.sellers import record_seller
from billing.dunning import holds, reminding
from billing.dunning.delivery import deliver_due
from billing.dunning.holds import hold_reminders, release_hold
from billing.dunning.models import Mail, Reminder, ReminderHold
from billing.dunning.reminding import Reminded, remind, remind_due
from billing.errors import InvalidTransition, NotFound
from billing.models import Charge, Invoice, SuspendedBilling
from ledger.errors import Invalid
from ledger.testing import unique
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import hidden_values, send_first_step, text_of_response
from tests.billing.documents.issued import SELLER
from tests.billing.dunning.test_reminding import STEPS, issued, rows, today
from tests.billing.factories import transition
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

__all__ = ["client", "today"]

Today = Callable[[Invoice, int], None]


@pytest.fixture(autouse=True)
def _reminding_seller() -> None:
    record_seller(SELLER | STEPS, actor="t")


def after(invoice: Invoice, days: int) -> date:
    assert invoice.due_date is not None
    return invoice.due_date + timedelta(days=days)


@pytest.mark.parametrize("of", ["invoice", "customer"])
def test_steps_that_fall_into_a_hold_do_not_come_at_once_afterwards(today: Today, of: str) -> None:
    invoice, other = issued(), issued()
    today(invoice, 7)
    assert remind(invoice.pk) is not None
    which = {"invoice": invoice.pk} if of == "invoice" else {"customer": invoice.customer_ref}
    hold_reminders(**which, until=after(invoice, 100), reason="payment plan", actor="t")
    for day in (21, 35, 99):
        today(invoice, day)
        assert (remind(invoice.pk), len(rows())) == (None, 1)
    assert remind_due(dry_run=True) == Reminded(reminded=1), "that of the other customer"
    assert not Charge.objects.exists()
    assert not SuspendedBilling.objects.exists()
    today(invoice, 100)
    second = remind(invoice.pk)
    assert (second and second.step, remind(invoice.pk)) == (2, None)
    today(invoice, 113)
    assert remind(invoice.pk) is None
    today(invoice, 114)
    third = remind(invoice.pk)
    assert (third and third.step, Reminder.objects.filter(invoice_id=other.pk).count()) == (3, 0)
    assert consistency.check() == []


def test_a_hold_without_a_day_lasts_until_it_is_released(today: Today) -> None:
    invoice = issued()
    hold = hold_reminders(invoice=invoice.pk, reason="disputed", actor="ada")
    today(invoice, 3000)
    assert remind_due() == Reminded()
    released = release_hold(hold=hold.pk, reason="they were wrong", actor="grace")
    assert (released.released_by, released.release_reason) == ("grace", "they were wrong")
    again = release_hold(hold=hold.pk, reason="once more", actor="eve")
    assert (again.released_at, again.released_by) == (released.released_at, "grace")
    assert remind_due() == Reminded(reminded=1)
    assert consistency.check() == []


def test_a_hold_is_over_on_its_day_in_every_century(today: Today) -> None:
    invoice = issued()
    hold_reminders(invoice=invoice.pk, until=date(9999, 12, 31), reason="forever", actor="t")
    hold_reminders(invoice=invoice.pk, until=after(invoice, 8), reason="short", actor="t")
    today(invoice, 9)
    assert remind_due() == Reminded(), "the longer one counts"


def test_a_reminder_that_waits_is_not_mailed_during_a_hold(today: Today) -> None:
    invoice = issued()
    today(invoice, 7)
    remind_due()
    hold_reminders(invoice=invoice.pk, reason="disputed", actor="t")
    deliver_due()
    assert (outbox.outbox, [one.state for one in Mail.objects.all()]) == ([], ["failed"])
    assert "on hold" in Mail.objects.get().error


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({"invoice": 999_999_999}, NotFound),
        ({"invoice": None, "customer": "NONE"}, NotFound),
        ({"invoice": None}, Invalid),
        ({"customer": "CUST"}, Invalid),
        ({"reason": ""}, Invalid),
        ({"reason": "a" * 501}, Invalid),
        ({"until": date(1, 1, 1)}, Invalid),
        ({"until": timezone.now().date()}, Invalid),
    ],
)
def test_a_wrong_hold_is_refused(change: dict[str, Any], wrong: type[Exception]) -> None:
    given = {"invoice": issued().pk, "reason": "r", "actor": "t"} | change
    with pytest.raises(wrong):
        hold_reminders(**{name: value for name, value in given.items() if value is not None})
    assert not ReminderHold.objects.exists()


def test_a_void_invoice_has_no_hold() -> None:
    invoice = issued()
    transition(invoice.pk, "void")
    with pytest.raises(InvalidTransition):
        hold_reminders(invoice=invoice.pk, reason="r", actor="t")
    assert not ReminderHold.objects.exists()


def test_more_invoices_on_hold_cost_no_more_queries(today: Today, django_assert_num_queries: Any) -> None:
    invoices = [issued() for _ in range(3)]
    for one in invoices:
        hold_reminders(invoice=one.pk, reason="r", actor="t")
    today(invoices[0], 7)
    with django_assert_num_queries(1):
        assert holds.on_hold(invoices, today=reminding.today_of) == {one.pk for one in invoices}


def test_the_check_finds_a_reminder_during_a_hold(today: Today) -> None:
    invoice = issued()
    hold_reminders(invoice=invoice.pk, reason="disputed", actor="t")
    today(invoice, 7)
    with transaction.atomic():
        reminding._write(invoice, 1, [invoice.subscription_ref])
        found = {one["finding"] for one in consistency.check()}
        transaction.set_rollback(True)
    assert "reminder during a hold" in found


def test_holds_over_rest(api: ApiClient) -> None:
    invoice = issued()
    body = {"invoice": invoice.pk, "until": after(invoice, 100).isoformat(), "reason": "payment plan"}
    made = api.post("/v1/reminder-holds", body, key=(key := unique("k")))
    assert made.status_code == 201, made.content
    hold = made.json()
    assert (hold["invoice"], hold["customer"], hold["released_at"]) == (invoice.pk, invoice.customer_ref, None)
    assert api.post("/v1/reminder-holds", body, key=key).json() == hold
    assert ReminderHold.objects.count() == 1
    path = f"/v1/reminder-holds/{hold['id']}"
    assert api.get(path).json() == hold
    released = api.post(f"{path}/release", {"reason": "not kept"}, key=unique("k")).json()
    assert (released["release_reason"], released["released_by"]) == ("not kept", hold["actor"])
    whole = api.post("/v1/reminder-holds", {"customer": invoice.customer_ref, "reason": "friend"}, key=unique("k")).json()
    assert (whole["invoice"], whole["until"]) == (None, None)
    assert [one["id"] for one in api.get(f"/v1/reminder-holds?customer={invoice.customer_ref}").json()["results"]] == [
        whole["id"], hold["id"],
    ]  # fmt: skip
    assert [one["id"] for one in api.get(f"/v1/reminder-holds?invoice={invoice.pk}").json()["results"]] == [hold["id"]]
    assert api.get("/v1/reminder-holds/999999").status_code == 404


@pytest.mark.parametrize("of", ["invoice", "customer"])
def test_holds_in_the_admin(client: Any, of: str) -> None:
    invoice = issued()
    pk = invoice.pk if of == "invoice" else invoice.customer_id
    page = f"/admin/billing/{of}/{pk}"
    first = send_first_step(client, f"{page}/hold-reminders/", {"until": "", "reason": "disputed"})
    assert "on hold until the hold is released" in text_of_response(first)
    assert not ReminderHold.objects.exists()
    assert client.post(f"{page}/hold-reminders/", hidden_values(first) | {"confirmed": "yes"}).status_code == 302
    [hold] = ReminderHold.objects.all()
    assert (hold.reason, hold.until, hold.actor.startswith("admin:")) == ("disputed", None, True)
    assert "disputed" in text_of_response(client.get(f"/admin/billing/invoice/{invoice.pk}/change/"))
    first = send_first_step(client, f"{page}/release-reminders/", {"reason": "solved"})
    assert client.post(f"{page}/release-reminders/", hidden_values(first) | {"confirmed": "yes"}).status_code == 302
    hold.refresh_from_db()
    assert hold.release_reason == "solved"
    wrong = send_first_step(client, f"{page}/hold-reminders/", {"until": "2001-01-01", "reason": "late"})
    assert (wrong.status_code, list(wrong.context_data["form"].errors)) == (422, ["until"])
    assert ReminderHold.objects.count() == 1


def test_the_list_of_overdue_invoices_leads_to_the_form(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invoice_lists, "is_overdue", lambda: Q(state="open"))
    first, second = issued(), issued()
    hold_reminders(invoice=second.pk, reason="disputed", actor="t")
    page = client.get("/admin/billing/invoice/?overdue=yes").content.decode()
    assert f'href="/admin/billing/invoice/{first.pk}/hold-reminders/">Stop reminders</a>' in page
    assert f'href="/admin/billing/invoice/{second.pk}/release-reminders/">Resume reminders</a>' in page
    assert page.count("-reminders/") == 2
    assert "-reminders/" not in client.get("/admin/billing/invoice/").content.decode()
    seen = operator("billing.view_invoice", name="fin").get("/admin/billing/invoice/?overdue=yes").content.decode()
    assert "-reminders/" not in seen
