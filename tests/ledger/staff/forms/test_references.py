"""Fields that refer to rows search among all of them; what the operator may not see is not listed, and the unknown is refused."""

import re

import pytest

from billing.documents.sellers import record_seller
from billing.models import Coupon, Subscription
from billing.payments.models import Purchase
from billing.payments.testing import PackFactory
from billing.testing import CustomerFactory, PlanFactory
from ledger import services
from ledger.database.statements import fetch_rows
from ledger.models import CreditType, Entry
from ledger.operators import additions
from ledger.staff import references
from ledger.staff.history import never_reading_whole_tables
from ledger.staff.references import CODES, HOLDERS, MOST_FOUND, MOST_LISTED, PRICED_TYPES
from ledger.values import MINOR_DIGITS
from tests.billing.documents.issued import SELLER
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db
SEARCH = "/admin/ledger/account/references/{}/"


def search(client, noun, word):
    response = client.get(SEARCH.format(noun), {"s": word})
    assert response.status_code == 200
    return [tuple(row) for row in response.json()["rows"]]


def test_a_row_is_found_by_its_ref_or_its_name_however_old_it_is(monkeypatch):
    CustomerFactory(ref="C-7", name="Ada Lovelace")
    PackFactory(code="starter", name="Starter pack")
    services.grant(holder_id="brightwater", amount=1, idempotency_key="g")
    services.publish_rate(code="gpt.out", price=3, per=1_000, actor="admin:mara")
    CreditType.objects.create(code="tokens", name="Tokens of models")
    monkeypatch.setattr("billing.admin.references.MOST_LISTED", 0)
    client = operator()
    for noun, word, expected in (
        ("customer", "c-7", ("C-7", "Ada Lovelace")),
        ("customer", "lovel", ("C-7", "Ada Lovelace")),
        ("pack", "pack", ("starter", "Starter pack")),
        ("holder_id", "bright", ("brightwater", "")),
        ("rate_code", "gpt", ("gpt.out", "")),
        ("credit_type", "models", ("tokens", "Tokens of models")),
        ("time_zone", "berlin", ("Europe/Berlin", "")),
        ("currency", "eur", ("EUR", "Euro")),
        ("currency", "swiss", ("CHF", "Swiss franc")),
        ("country", "japan", ("JP", "Japan")),
    ):
        assert search(client, noun, word) == [expected], (noun, word)
        assert search(client, noun, "xyzzy") == [], noun


def test_currencies_begin_with_the_sellers():
    client = operator()
    assert search(client, "currency", "")[0] == ("AED", "UAE dirham")
    record_seller(SELLER, actor="admin:mara")
    assert search(client, "currency", "")[:2] == [("EUR", "Euro"), ("AED", "UAE dirham")]
    assert len(search(client, "currency", "")) == len(MINOR_DIGITS)
    for address in ("billing/plan", "billing_payments/pack", "billing/customer", "billing/coupon"):
        page = client.get(f"/admin/{address}/add/").content.decode()
        [tag] = re.findall(r'<input[^>]*name="currency"[^>]*>', page)
        assert 'list="references-currency"' in tag, address
        assert 'value="EUR"' in tag, address


def test_a_rate_and_its_type_are_found_behind_any_number_of_versions_of_others(monkeypatch):
    """The reads of codes go from rate to rate: a bound of 2 is reached by codes, not by versions."""
    for price in range(1, 6):
        services.publish_rate(code="a-first", price=price, per=1, actor="admin:mara")
    services.publish_rate(code="z-last", credit_type="usd_cents", price=1, per=1, actor="admin:mara")
    client = operator()
    monkeypatch.setattr(references, "MOST_CODES", 2)
    assert search(client, "rate_code", "z-la") == [("z-last", "")]
    assert search(client, "credit_type", "usd") == [("usd_cents", "")]
    with never_reading_whole_tables():
        for sql in (CODES, PRICED_TYPES):
            plan = "\n".join(fetch_rows(str, f"EXPLAIN {sql}", [2]))
            assert "Seq Scan on ledger_rate" not in plan, plan


def test_every_list_answers_any_text():
    client = operator()
    for noun in additions.references():
        for word in ("", "%", "'", "\\", "ä" * 255, "a" * 256, "\x00", "_", "a:*", "…"):
            search(client, noun, word)
    assert client.get(SEARCH.format("secrets"), {"s": "a"}).status_code == 404


def test_the_list_shows_what_the_operator_may_see_and_no_more():
    CustomerFactory(ref="C-7", name="Ada Lovelace")
    PackFactory(code="starter", name="Starter pack")
    seller = operator("billing_payments.add_purchase", "billing_payments.view_pack")
    page = seller.get("/admin/billing_payments/purchase/add/").content.decode()
    assert '<option value="starter">Starter pack</option>' in page
    assert "Ada Lovelace" not in page
    assert (search(seller, "pack", "star"), search(seller, "customer", "ada")) == ([("starter", "Starter pack")], [])


def test_a_list_of_holders_is_read_by_the_index_on_first_entries_and_is_bounded():
    for number in range(MOST_FOUND + 5):
        services.grant(holder_id=f"team-{number:03}", amount=1, idempotency_key="g")
        services.grant(holder_id=f"team-{number:03}", credit_type="calls", amount=1, idempotency_key="h")
    client = operator()
    assert search(client, "holder_id", "team-") == [(f"team-{number:03}", "") for number in range(MOST_FOUND)]
    with never_reading_whole_tables():
        plan = "\n".join(fetch_rows(str, f"EXPLAIN {HOLDERS}", ["team-", "team-\x7f", MOST_FOUND]))
    assert "Limit" in plan
    assert "ledger_entry_first" in plan, plan
    assert "Sort" not in plan


def test_a_page_has_the_first_rows_for_browsers_without_scripts_also_for_cells_of_rows():
    PlanFactory(code="team")
    services.grant(holder_id="brightwater", amount=1, idempotency_key="g")
    client = operator()
    page = client.get("/admin/ledger/account/grant-credits/").content.decode()
    assert '<option value="brightwater"></option>' in page
    assert page.count("<option") < 2 * MOST_LISTED
    [tag] = re.findall(r'<input[^>]*name="plans-0-name"[^>]*>', client.get("/admin/billing/coupon/add/").content.decode())
    assert 'list="references-plan"' in tag


def test_an_unknown_reference_is_refused_at_its_field_and_nothing_is_written():
    PackFactory(code="starter", currency="EUR")
    PlanFactory(code="team")
    CustomerFactory(ref="C-7")
    client = operator()
    subscription = {"customer": "C-7", "plan": "team", "ref": "S-1", "started_at": "2026-01-01T00:00", "idempotency_key": "k"}
    purchase = {"pack": "starter", "holder_id": "ada", "payment": "p-1", "paid": "9.00", "idempotency_key": "k"}
    coupon = {"code": "TEN", "kind": "percentage", "percent": "10", "duration": "forever", "idempotency_key": "k"}
    for address, form, field, typed in (
        ("billing/subscription", subscription, "plan", "xyzzy"),
        ("billing/subscription", subscription, "customer", "xyzzy"),
        ("billing/subscription", subscription, "time_zone", "Europe/Xyzzy"),
        ("billing_payments/purchase", purchase, "pack", "xyzzy"),
        ("billing_payments/purchase", purchase, "customer", "xyzzy"),
        ("billing/coupon", coupon, "plans", '[{"name": "team"}, {"name": "xyzzy"}]'),
    ):
        refused = client.post(f"/admin/{address}/add/", form | {field: typed, "confirmed": "yes"})
        assert refused.status_code == 422, (address, field)
        assert list(refused.context_data["form"].errors) == [field], refused.context_data["form"].errors
    assert [model.objects.count() for model in (Subscription, Purchase, Coupon, Entry)] == [0, 0, 0, 0]
