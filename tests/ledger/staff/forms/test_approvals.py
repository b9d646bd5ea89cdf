"""A second operator: forms above an amount wait, are carried out once by somebody else, and never by who asked."""

import re
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.db import connection
from django.test import Client

from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import CreditNote, Invoice
from billing.payments.models import Purchase
from billing.payments.testing import PackFactory
from ledger import conf, reads, services
from ledger.errors import HolderBusy
from ledger.models import StaffEvent
from ledger.staff import approvals
from ledger.staff.approvals import APPROVED, DECLINED, needs_second
from ledger.staff.models import Approval, ApprovalDecision
from tests.billing.factories import PlanFactory, SubscriptionFactory, at, recurring
from tests.ledger.staff.admin_site import entries_and_refusals, hidden_key, operator, submit_form

pytestmark = pytest.mark.django_db

GRANT = "/admin/ledger/account/grant-credits/"


@pytest.fixture(autouse=True)
def limits(settings: Any) -> None:
    """Above 100 credits, and above 5.00 EUR."""
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["credits=100", "EUR=500"]}


@pytest.fixture
def mara() -> Client:
    return operator(name="mara")


@pytest.fixture
def ben() -> Client:
    return operator(name="ben")


def granted(amount: int) -> dict[str, str]:
    """What is typed."""
    return {
        "confirmed": "yes", "holder_id": "ada", "holder_again": "ada", "credit_type": "credits", "amount": str(amount),
        "source": "promotional", "priority": "100", "reason": "goodwill",
    }  # fmt: skip


def judge(client: Client, row: Approval, decision: str | None = None) -> Any:
    """Open an approval, or decide it."""
    url = f"/admin/ledger_staff/approval/{row.pk}/judge/"
    return client.get(url) if decision is None else client.post(url, {"decision": decision})


def test_an_amount_up_to_the_limit_does_not_wait(mara: Client) -> None:
    submit_form(mara, GRANT, **granted(100))
    assert reads.balance("ada").balance == 100
    assert not Approval.objects.exists()


def test_the_page_says_before_that_a_second_operator_is_needed(mara: Client) -> None:
    values = {**granted(101), "idempotency_key": hidden_key(mara.get(GRANT).content.decode())}
    del values["confirmed"]
    page = mara.post(GRANT, values).content.decode()
    assert "needs the approval of a second operator" in page
    assert "Ask for approval" in page
    assert not Approval.objects.exists()


def test_an_amount_above_the_limit_waits_and_is_carried_out_by_somebody_else(mara: Client, ben: Client) -> None:
    response = submit_form(mara, GRANT, **granted(101))
    row = Approval.objects.get()
    assert response["Location"] == f"/admin/ledger_staff/approval/{row.pk}/change/"
    assert entries_and_refusals() == (0, 0)
    assert (row.requested_by, row.stakes, row.reason) == ("admin:mara", {"credits": 101}, "goodwill")
    shown = judge(ben, row).content.decode()
    assert "What will happen" in shown
    assert "Requested by admin:mara" in shown
    assert "Approve: Grant" in shown
    assert entries_and_refusals() == (0, 0)
    done = judge(ben, row, APPROVED)
    assert done["Location"] == f"/admin/ledger/entrylisting/{quote('ada/credits/1')}/change/"
    entry = reads.entry("ada", "credits", 1)
    assert (entry.amount, entry.actor, entry.reason) == (101, "admin:mara", "goodwill")
    assert ApprovalDecision.objects.get().decided_by == "admin:ben"
    actions = list(StaffEvent.objects.order_by("pk").values_list("action", "actor"))
    assert ("approval-requested", "admin:mara") in actions
    assert ("approval-given", "admin:ben") in actions


@pytest.mark.slow
def test_nobody_approves_what_they_asked_for(mara: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    row = Approval.objects.get()
    assert "A second operator must approve it." in judge(mara, row).content.decode()
    assert judge(mara, row, APPROVED).status_code == 403
    assert not approvals.decide(row.pk, decision=APPROVED, decided_by="admin:mara")
    assert entries_and_refusals() == (0, 0)
    assert not ApprovalDecision.objects.exists()


def test_a_declined_form_is_never_carried_out(mara: Client, ben: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    row = Approval.objects.get()
    judge(ben, row, DECLINED)
    assert judge(ben, row, APPROVED).status_code == 403
    assert entries_and_refusals() == (0, 0)
    assert ApprovalDecision.objects.get().decision == DECLINED


def test_nobody_declines_what_was_approved(mara: Client, ben: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    row = Approval.objects.get()
    judge(ben, row, APPROVED)
    cleo = operator(name="cleo")
    assert judge(cleo, row, DECLINED)["Location"] == f"/admin/ledger_staff/approval/{row.pk}/change/"
    assert ApprovalDecision.objects.get().decision == APPROVED
    assert not StaffEvent.objects.filter(action="approval-declined").exists()
    assert "Another operator has decided it in the meantime." in cleo.get("/admin/").content.decode()


def test_an_approved_form_is_carried_out_once(mara: Client, ben: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    row = Approval.objects.get()
    judge(ben, row, APPROVED)
    judge(ben, row, APPROVED)
    judge(operator(name="cleo"), row, APPROVED)
    assert entries_and_refusals() == (1, 0)


def test_a_form_that_was_approved_before_a_crash_is_carried_out_by_the_next_click(mara: Client, ben: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    row = Approval.objects.get()
    assert approvals.decide(row.pk, decision=APPROVED, decided_by="admin:ben")
    assert entries_and_refusals() == (0, 0)
    judge(ben, row, APPROVED)
    assert entries_and_refusals() == (1, 0)


def test_a_double_click_asks_once(mara: Client) -> None:
    values = {**granted(101), "idempotency_key": hidden_key(mara.get(GRANT).content.decode())}
    first, second = mara.post(GRANT, values), mara.post(GRANT, values)
    assert first["Location"] == second["Location"]
    assert Approval.objects.count() == 1


def test_the_second_operator_needs_the_permission_for_the_form(mara: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    row = Approval.objects.get()
    reader = operator("ledger_staff.view_approval", name="rita")
    assert judge(reader, row)["Location"] == f"/admin/ledger_staff/approval/{row.pk}/change/"
    assert judge(reader, row, APPROVED).status_code == 403
    assert not ApprovalDecision.objects.exists()
    assert entries_and_refusals() == (0, 0)
    assert judge(operator("ledger.grant_credits", name="gus"), row).status_code == 403


@pytest.mark.slow
def test_what_is_refused_when_it_is_approved_says_why(mara: Client, ben: Client) -> None:
    services.grant(holder_id="ada", amount=500, idempotency_key="g")
    services.spend(holder_id="ada", amount=400, idempotency_key="s")
    url = f"/admin/ledger/entrylisting/{quote('ada/credits/2')}/refund/"
    submit_form(mara, url, confirmed="yes", amount="", reason="mistake")
    row = Approval.objects.get()
    assert row.stakes == {"credits": 400}
    services.refund(holder_id="ada", spend=2, idempotency_key="r")
    page = judge(ben, row, APPROVED).content.decode()
    assert "refund" in page
    assert reads.balance("ada").balance == 500


def test_an_overdraft_waits_by_its_limit(mara: Client, ben: Client) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    url = f"/admin/ledger/account/{quote('ada/credits')}/set-overdraft/"
    submit_form(mara, url, confirmed="yes", limit="1000", reason="agreed")
    row = Approval.objects.get()
    assert row.stakes == {"credits": 1000}
    judge(ben, row, APPROVED)
    assert reads.balance("ada").overdraft == 1000


@pytest.mark.parametrize("given", [{"amount": "101"}, {"up_to": "101"}])
def test_a_recurring_grant_waits_by_the_credits_of_a_period(mara: Client, ben: Client, given: dict[str, str]) -> None:
    services.grant(holder_id="ada", amount=5, idempotency_key="g")
    url = f"/admin/ledger/account/{quote('ada/credits')}/set-recurring-grant/"
    values = {"recurring_grant": "monthly", "interval": "month", "interval_count": "1", "time_zone": "UTC", "reason": "agreed"}
    values |= {"source": "promotional", "priority": "100", "expiry": "period_end"}
    submit_form(mara, url, confirmed="yes", **values, **given)
    row = Approval.objects.get()
    assert (row.stakes, entries_and_refusals()) == ({"credits": 101}, (1, 0))
    judge(ben, row, APPROVED)
    assert [each.name for each in reads.recurring_grants("ada", "credits", upcoming=0)] == ["monthly"]


def test_a_purchase_by_hand_waits_by_its_credits(mara: Client, ben: Client) -> None:
    pack = PackFactory(credits=100, bonus=1)
    values = {"pack": pack.code, "holder_id": "ada", "payment": "bank-1", "reason": "seen in the account"}
    submit_form(mara, "/admin/billing_payments/purchase/add/", confirmed="yes", **values)
    row = Approval.objects.get()
    assert row.stakes == {"credits": 101, pack.currency: pack.price_minor}
    assert not Purchase.objects.exists()
    judge(ben, row, APPROVED)
    assert Purchase.objects.get().actor == "admin:mara"


def test_nothing_is_done_while_it_is_not_known_what_a_form_moves(mara: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*_: Any) -> None:
        raise HolderBusy(key="ledger/ada")

    monkeypatch.setattr("ledger.staff.operations.EntryPage.try_out", busy)
    response = submit_form(mara, GRANT, **granted(101))
    assert response.status_code == 422
    assert "Nothing was written; press the button again." in response.content.decode()
    assert entries_and_refusals() == (0, 0)
    assert not Approval.objects.exists()


def test_approvals_work_below_a_prefix(mara: Client, ben: Client) -> None:
    values = {**granted(101), "idempotency_key": hidden_key(mara.get(GRANT).content.decode())}
    mara.post(GRANT, values, SCRIPT_NAME="/credits")
    row = Approval.objects.get()
    assert row.path == GRANT
    ben.post(f"/admin/ledger_staff/approval/{row.pk}/judge/", {"decision": APPROVED}, SCRIPT_NAME="/credits")
    assert entries_and_refusals() == (1, 0)


@pytest.mark.slow
def test_a_credit_note_waits_by_its_amount_with_tax(mara: Client, ben: Client) -> None:
    plan = PlanFactory(prices=[recurring(unit_amount="5", tax_rate="20")])
    SubscriptionFactory(ref="SUB-1", plan=plan.code)
    generate_in(ref="SUB-1", options=Options(as_of=at(1, 1)))
    invoice = Invoice.objects.get()
    url = f"/admin/billing/invoice/{invoice.pk}/credit/"
    submit_form(mara, url, reason="outage")
    row = Approval.objects.get()
    assert row.stakes == {"EUR": 600}
    for client in (mara, ben):
        assert "The credit note credits 6.00 EUR" in judge(client, row).content.decode()
    assert not CreditNote.objects.exists()
    judge(ben, row, APPROVED)
    assert CreditNote.objects.get().amount_minor == 600


def test_the_first_page_and_the_list_show_what_waits(mara: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    assert "1 form waits for a second operator." in mara.get("/admin/").content.decode()
    listed = mara.get("/admin/ledger_staff/approval/").content.decode()
    assert re.search(r"101 credits", listed)
    assert "waits" in listed
    assert "Grant credits" in mara.get(f"/admin/ledger_staff/approval/{Approval.objects.get().pk}/change/").content.decode()


@pytest.mark.parametrize(
    ("totals", "needs"),
    [
        ({}, False),
        ({"credits": 100}, False),
        ({"credits": 101}, True),
        ({"EUR": 501}, True),
        ({"sms": 10**9}, False),
        ({"credits": 100, "EUR": 501}, True),
    ],
)
def test_limits_are_by_credit_type_and_currency(totals: dict[str, int], needs: bool) -> None:
    assert needs_second(totals, "admin:mara") is needs


@pytest.mark.parametrize("wrong", ["credits", "credits=-1", "Credits=1", "EURO=1", "credits=1.5"])
def test_a_wrong_limit_is_named_by_the_check(wrong: str) -> None:
    assert conf.SECOND_OPERATOR_ABOVE.complaint([wrong]).endswith(f"not {wrong!r}")
    assert conf.SECOND_OPERATOR_ABOVE.complaint(["credits=1", "EUR=5"]) == ""


def test_several_forms_of_a_day_add_up(mara: Client) -> None:
    submit_form(mara, GRANT, **granted(60))
    values = {**granted(41), "idempotency_key": hidden_key(mara.get(GRANT).content.decode())}
    del values["confirmed"]
    assert "Ask for approval" in mara.post(GRANT, values).content.decode()
    submit_form(mara, GRANT, **granted(41))
    assert (reads.balance("ada").balance, Approval.objects.get().stakes) == (60, {"credits": 41})
    submit_form(mara, GRANT, **granted(40))
    assert (reads.balance("ada").balance, Approval.objects.count()) == (100, 1)
    submit_form(operator(name="ben"), GRANT, **granted(100))
    assert (reads.balance("ada").balance, Approval.objects.count()) == (200, 1)


def test_what_was_approved_and_what_is_a_day_old_does_not_add_up(mara: Client, ben: Client) -> None:
    submit_form(mara, GRANT, **granted(101))
    judge(ben, Approval.objects.get(), APPROVED)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO ledger_operator_stake "
            "VALUES ('k', 'credits', 'admin:mara', 100, sha256(''), now() - interval '25 hours')"
        )
    submit_form(mara, GRANT, **granted(100))
    submit_form(ben, GRANT, **granted(100))
    assert (reads.balance("ada").balance, Approval.objects.count()) == (301, 1)


def test_a_second_click_is_let_through_and_adds_nothing(mara: Client) -> None:
    values = {**granted(60), "idempotency_key": hidden_key(mara.get(GRANT).content.decode())}
    first, second = mara.post(GRANT, values), mara.post(GRANT, values)
    assert first["Location"] == second["Location"]
    other = mara.post(GRANT, values | {"amount": "40"})
    assert (other.status_code, entries_and_refusals()) == (422, (1, 0))
    submit_form(mara, GRANT, **granted(40))
    assert not Approval.objects.exists()


def test_a_form_that_moves_more_by_now_than_was_approved_is_not_carried_out(mara: Client, ben: Client) -> None:
    services.grant(holder_id="ada", amount=500, idempotency_key="g")
    services.spend(holder_id="ada", amount=300, idempotency_key="s")
    url = f"/admin/ledger/entrylisting/{quote('ada/credits/1')}/reissue/"
    submit_form(mara, url, confirmed="yes", priority="5", reason="r")
    row = Approval.objects.get()
    assert (row.stakes, entries_and_refusals()) == ({"credits": 200}, (2, 0))
    services.refund(holder_id="ada", spend=2, idempotency_key="r")
    page = judge(ben, row, APPROVED).content.decode()
    assert "the form would move 500 credits by now, and 200 credits was asked for" in page
    assert entries_and_refusals() == (3, 0)


@pytest.mark.parametrize(("operation", "values"), [("transfer", {"to": "ben", "holder_again": "ben", "amount": "200"})])
def test_a_transfer_waits_by_its_credits(mara: Client, operation: str, values: dict[str, str]) -> None:
    services.grant(holder_id="ada", amount=500, idempotency_key="g")
    submit_form(mara, f"/admin/ledger/account/{quote('ada/credits')}/{operation}/", confirmed="yes", reason="r", **values)
    assert (Approval.objects.get().stakes, entries_and_refusals()) == ({"credits": 200}, (1, 0))
