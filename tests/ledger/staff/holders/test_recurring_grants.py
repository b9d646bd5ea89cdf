"""Operators set and end recurring grants, and see what comes and what was granted."""

import pytest

from ledger import reads, services
from tests.ledger.staff.admin_site import entries_and_refusals, submit_form, text_of
from tests.ledger.staff.holders.test_budgets import HOLDER, form

pytestmark = pytest.mark.django_db

TERMS = {
    "recurring_grant": "monthly",
    "amount": "100",
    "interval": "month",
    "interval_count": "1",
    "time_zone": "UTC",
    "source": "promotional",
    "priority": "100",
    "expiry": "rollover",
    "rollover_cap": "50",
}


@pytest.fixture
def credits_of_5():
    services.grant(holder_id="ada", amount=5, idempotency_key="g")


@pytest.mark.slow
def test_a_recurring_grant_is_set_shown_and_ended(client, credits_of_5):
    assert "Recurring grants" not in text_of(client.get(HOLDER).content.decode())
    assert submit_form(client, form("set-recurring-grant"), reason="agreed", **TERMS).status_code == 302
    entry = reads.entry("ada", "credits", 2)
    assert (entry.kind, entry.recurring_grant, entry.actor) == ("adjust", "monthly", "admin:mara")
    assert "monthly Monthly grant of 100 up to 50 unspent kept" in text_of(client.get(HOLDER).content.decode())
    services.grant_all_due()
    page = text_of(client.get(HOLDER).content.decode())
    assert "#3" in page
    assert "has the recurring grant monthly: monthly grant of 100" in page
    assert 'value="50"' in client.get(form("set-recurring-grant") + "?recurring_grant=monthly").content.decode()
    assert submit_form(client, form("end-recurring-grant"), recurring_grant="monthly", reason="over").status_code == 302
    page = text_of(client.get(HOLDER).content.decode())
    assert "Recurring grants" not in page
    assert "has no recurring grant monthly" in page


@pytest.mark.slow
def test_wrong_terms_name_the_field_and_write_nothing(client, credits_of_5):
    for wrong in ({"rollover_cap": ""}, {"amount": "-1"}, {"up_to": "5"}, {"time_zone": "Mars"}, {"recurring_grant": "A b"}):
        assert submit_form(client, form("set-recurring-grant"), reason="x", **TERMS | wrong).status_code == 422
    assert entries_and_refusals()[0] == 1
