"""A refusal's page answers: why, what can be done now, and what became of the same reference later."""

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.admin.utils import quote

from ledger import services
from ledger.errors import InsufficientCredits, RefundExceedsSpend
from ledger.models import CreditType
from tests.ledger.staff.admin_site import cost_of, load_history, operator, text_of

pytestmark = pytest.mark.django_db

REFUSALS = "/admin/ledger/refusallisting/"


def refuse_a_spend(amount=700, key="too-much", **more):
    """Let ada ask for more credits than she has; only the refusal is recorded."""
    with pytest.raises(InsufficientCredits):
        services.spend(holder_id="ada", amount=amount, idempotency_key=key, **more)


def refusal_page(client, sequence, credit_type="credits"):
    """The page of a refusal of ada, as HTML."""
    response = client.get(f"{REFUSALS}{quote(f'ada/{credit_type}/{sequence}')}/change/")
    assert response.status_code == 200
    return response.content.decode()


def suggested_actions(page):
    """The buttons under "What can be done": their texts with their links."""
    group = re.search(r'aria-label="What can be done">(.*?)</div>', page, re.DOTALL)
    return {
        text_of(text).strip(): html.unescape(url) for url, text in re.findall(r'<a href="([^"]+)"(.*?)</a>', group[1], re.DOTALL)
    }


@pytest.fixture
def ada():
    """262 spendable, 60 held, 1,000 that start later."""
    services.grant(holder_id="ada", amount=322, idempotency_key="g")
    services.grant(holder_id="ada", amount=1_000, idempotency_key="l", effective_at=datetime.now(UTC) + timedelta(days=40))
    services.hold(holder_id="ada", amount=60, idempotency_key="h")


def test_a_refusal_says_why_and_offers_what_would_help(client, ada):
    refuse_a_spend(reference="job-19")
    page = refusal_page(client, 4)
    text = text_of(page)
    assert "Refused: 700 requested, 262 spendable. 60 are held until" in text
    assert "Short by 438." in text
    assert "Now 262 are spendable: the same request would be short by 438." in text
    assert "No request with the reference job-19 is among the next 1,000 entries of the account." in text
    offered = suggested_actions(page)
    account, hold = quote("ada/credits"), quote("ada/credits/3")
    addresses = list(offered.values())
    assert addresses == [
        f"/admin/ledger/account/{account}/grant/?amount=438&reference=job-19",
        f"/admin/ledger/entrylisting/{hold}/release/",
    ]
    assert all(client.get(address).status_code == 200 for address in addresses)


def test_what_has_been_done_since_is_not_offered_again(client, ada):
    refuse_a_spend()
    services.release(holder_id="ada", hold=3, idempotency_key="r")
    services.grant(holder_id="ada", amount=500, idempotency_key="g2")
    text = text_of(refusal_page(client, 4))
    assert "Now 822 are spendable: the same request with a new key would succeed." in text
    assert "Release hold" not in text
    assert "The request had no reference, so a later attempt cannot be recognised." in text


def test_the_page_names_later_requests_with_the_same_reference_and_their_results(client, ada):
    refuse_a_spend(reference="job-19")
    refuse_a_spend(amount=300, key="less", reference="job-19")
    services.spend(holder_id="ada", amount=200, idempotency_key="least", reference="job-19")
    first, second = text_of(refusal_page(client, 4)), text_of(refusal_page(client, 5))
    assert re.search(r"job-19 was refused .* later \( #5 \)\. Refused: 300 requested, 262 spendable\.", first)
    assert re.search(r"job-19 succeeded .* later: spend of 200 #6", second)


def test_amounts_are_shown_in_the_unit_of_their_type(client):
    CreditType.objects.create(code="usd_cents", name="US dollars", unit="USD", scale=2)
    services.grant(holder_id="ada", credit_type="usd_cents", amount=262, idempotency_key="g")
    refuse_a_spend(credit_type="usd_cents")
    page = refusal_page(client, 2, "usd_cents")
    assert "Refused: 7.00 requested, 2.62 spendable. Short by 4.38." in text_of(page)
    assert "Grant 4.38 USD" in text_of(page)
    assert "7.00 requested, 2.62 spendable. Short by 4.38." in text_of(client.get(REFUSALS).content.decode())


def test_other_refusals_offer_their_own_way(client):
    services.grant(holder_id="ada", amount=100, idempotency_key="g")
    services.spend(holder_id="ada", amount=30, idempotency_key="s")
    with pytest.raises(RefundExceedsSpend):
        services.refund(holder_id="ada", spend=2, amount=31, idempotency_key="r")
    refund = refusal_page(client, 3)
    assert "Refused: 31 requested, 30 are left of spend #2. Over by 1." in text_of(refund)
    assert list(suggested_actions(refund).values()) == [f"/admin/ledger/entrylisting/{quote('ada/credits/2')}/refund/"]


def test_an_operator_who_may_only_look_is_offered_no_form(ada):
    refuse_a_spend()
    page = refusal_page(operator("ledger.view_refusallisting"), 4)
    assert "Release hold #3: 60 until" in text_of(page)
    assert suggested_actions(page) == {}


@pytest.mark.slow
def test_the_page_costs_the_same_however_much_followed(client, ada):
    refuse_a_spend(reference="job-19")
    address = f"{REFUSALS}{quote('ada/credits/4')}/change/"
    few = cost_of(client, address)
    load_history(holders=30, entries=5_000, first_holder=101)
    many = cost_of(client, address)
    assert len(many.statements) == len(few.statements) <= 8
    for plan in many.plans:
        assert "Seq Scan on ledger_entry" not in plan, plan


@pytest.mark.slow
def test_a_credit_type_is_named_in_the_admin_and_a_wrong_one_is_refused(client):
    add = "/admin/ledger/credittype/add/"
    good = {"code": "usd_cents", "name": "US dollars", "unit": "USD", "scale": "2"}
    for wrong in ({"code": "USD"}, {"scale": "13"}, {"scale": "-1"}, {"name": ""}, {"unit": "x" * 17}):
        assert client.post(add, good | wrong).status_code == 200
    assert not CreditType.objects.exists()
    assert client.post(add, good).status_code == 302
    assert "1,234,567 is 12,345.67 USD" in text_of(client.get("/admin/ledger/credittype/").content.decode())
    assert operator("ledger.view_account", name="ben").get(add).status_code == 403
