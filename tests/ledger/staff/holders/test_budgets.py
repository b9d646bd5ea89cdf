"""Operators set and end budgets, see what is used of them, and read why a spend was refused."""

import pytest
from django.contrib.admin.utils import quote

from ledger import reads, services
from ledger.errors import BudgetExceeded
from tests.ledger.staff.admin_site import entries_and_refusals, operator, submit_form, text_of

pytestmark = pytest.mark.django_db

HOLDER = "/admin/ledger/account/holders/ada/?type=credits"
SETTING = {
    "budget": "daily",
    "limit": "10",
    "window": "day",
    "time_zone": "UTC",
    "by": "label",
    "label": "member",
    "mode": "hard",
}


def form(page):
    return f"/admin/ledger/account/{quote('ada/credits')}/{page}/"


@pytest.fixture
def credits_of_100():
    services.grant(holder_id="ada", amount=100, idempotency_key="g")


@pytest.mark.slow
def test_a_budget_is_set_shown_and_ended(client, credits_of_100):
    assert "Budgets" not in text_of(client.get(HOLDER).content.decode())
    assert submit_form(client, form("set-budget"), reason="agreed", **SETTING).status_code == 302
    entry = reads.entry("ada", "credits", 2)
    assert (entry.kind, entry.budget, entry.actor, entry.reason) == ("adjust", "daily", "admin:mara", "agreed")
    assert "daily 10 a day each member 0 10 hard" in text_of(client.get(HOLDER).content.decode())
    services.spend(holder_id="ada", amount=7, idempotency_key="s", metadata={"member": "ann"})
    page = text_of(client.get(HOLDER).content.decode())
    assert "daily 10 a day member ann 7 3 hard" in page
    assert "has the hard budget daily, 10 a day for each member" in page
    known = client.get(form("set-budget") + "?budget=daily").content.decode()
    assert 'value="member"' in known
    assert submit_form(client, form("end-budget"), budget="daily", reason="over").status_code == 302
    page = text_of(client.get(HOLDER).content.decode())
    assert "Budgets" not in page
    assert "has no budget daily" in page
    assert "budget daily ended" in text_of(
        client.get(f"/admin/ledger/entrylisting/{quote('ada/credits/4')}/change/").content.decode()
    )


def test_a_budget_for_later_is_shown_with_its_start(client, credits_of_100):
    later = SETTING | {"starts_at": "2199-03-01 00:00:00", "ends_at": "2199-04-01 00:00:00"}
    assert submit_form(client, form("set-budget"), reason="agreed", **later).status_code == 302
    page = text_of(client.get(HOLDER).content.decode()).replace("\xa0", " ")
    assert "daily 10 a day from 1 Mar 2199, 00:00:00 UTC until 1 Apr 2199, 00:00:00 UTC each member 0 10 hard" in page


def test_a_refusal_says_what_is_left_and_until_when(client, credits_of_100):
    services.set_budget(holder_id="ada", budget="b", limit=10, window="month", by="label", label="member", idempotency_key="b")
    services.spend(holder_id="ada", amount=7, idempotency_key="s", metadata={"member": "ann"})
    with pytest.raises(BudgetExceeded):
        services.spend(holder_id="ada", amount=5, idempotency_key="t", metadata={"member": "ann"})
    page = text_of(client.get(HOLDER).content.decode())
    assert "spend: 5 requested, 3 left of the budget b of ann: 7 of 10 used until 1 " in page
    answer = text_of(client.get(f"/admin/ledger/refusallisting/{quote('ada/credits/4')}/change/").content.decode())
    assert "Wait until the budget b has room on 1 " in answer


@pytest.mark.slow
def test_a_wrong_budget_names_the_field_and_writes_nothing(client, credits_of_100):
    for wrong in ({"window": "rolling"}, {"limit": "-1"}, {"time_zone": "Mars"}, {"label": ""}, {"budget": "A b"}):
        assert submit_form(client, form("set-budget"), reason="x", **SETTING | wrong).status_code == 422
    assert submit_form(client, form("end-budget"), reason="x", budget="none").status_code in (409, 422)
    assert entries_and_refusals()[0] == 1


@pytest.mark.parametrize("page", ["set-budget", "end-budget"])
def test_a_budget_needs_its_permission(credits_of_100, page):
    assert operator("ledger.view_account").get(form(page)).status_code == 403
