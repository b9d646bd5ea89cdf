"""Pages of packs and purchases: forms in two steps, and what became of the credits."""

from typing import Any

import pytest

from billing.payments.models import Pack, Purchase, PurchaseReturn, ReturnSettlement
from billing.payments.purchase_recording import record_purchase
from billing.payments.testing import PackFactory, PurchaseFactory
from ledger import reads as ledger_reads
from ledger import services
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import hidden_values, rows_typed, send_both_steps, send_first_step, text_of_response
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

__all__ = ["client"]

PACKS, PURCHASES = "/admin/billing_payments/pack", "/admin/billing_payments/purchase"
PACK = {"code": "starter", "name": "Starter", "credits": "1000", "bonus": "100", "price": "20.00", "currency": "eur"}


def test_a_pack_and_its_next_version_are_written_by_forms(client: Any) -> None:
    assert send_both_steps(client, f"{PACKS}/add/", PACK).status_code == 302
    first = Pack.objects.get()
    assert (first.code, first.version, first.bonus, first.price_minor, first.currency) == ("starter", 1, 100, 2000, "EUR")
    filled = client.get(f"{PACKS}/{first.pk}/new-version/").context_data["form"]
    assert (filled["code"].value(), filled["price"].value()) == ("starter", "20.00")
    assert send_both_steps(client, f"{PACKS}/{first.pk}/new-version/", PACK | {"price": "15"}).status_code == 302
    shown = text_of_response(client.get(f"{PACKS}/{first.pk}/change/"))
    assert "1,000 credits and 100 credits as a bonus for 20.00 EUR." in shown
    assert "v2" in shown


def test_what_a_pack_pays_for_is_typed_in_its_form_and_stands_beside_its_price(client: Any) -> None:
    typed = rows_typed("applies_to", {"rate": "image.small"}, {"label": "member", "value": "ada"})
    values = PACK | typed
    assert send_both_steps(client, f"{PACKS}/add/", values).status_code == 302
    pack = Pack.objects.get()
    assert pack.applies_to == {"rates": ["image.small"], "labels": {"member": ["ada"]}}
    words = "only for the rate image.small with member ada"
    assert f"for 20.00 EUR, {words}." in text_of_response(client.get(f"{PACKS}/{pack.pk}/change/"))
    again = client.get(f"{PACKS}/{pack.pk}/new-version/").context_data["form"]
    assert again["applies_to"].value() == [{"rate": "image.small"}, {"label": "member", "value": "ada"}]
    purchase = PurchaseFactory(pack=pack.code, holder_id="ada")
    bought = text_of_response(client.get(f"{PURCHASES}/{purchase.pk}/change/"))
    assert f"20.00 EUR bought 1,000 credits and a bonus of 100 credits, {words}, for ada" in bought


def test_a_bad_pack_is_refused_at_its_field(client: Any) -> None:
    response = send_first_step(client, f"{PACKS}/add/", PACK | {"price": "0"})
    assert (response.status_code, list(response.context_data["form"].errors)) == (422, ["price"])
    assert not Pack.objects.exists()


def test_a_purchase_is_recorded_by_a_form_and_its_page_adds_the_credits(client: Any) -> None:
    pack = PackFactory()
    values = {"pack": pack.code, "holder_id": "ada", "payment": "transfer 7", "reason": "Seen in the account"}
    first = send_first_step(client, f"{PURCHASES}/add/", values)
    assert "20.00 EUR bought 1,000 credits and a bonus of 100 credits for ada" in text_of_response(first)
    assert not Purchase.objects.exists()
    done = client.post(f"{PURCHASES}/add/", hidden_values(first) | {"confirmed": "yes"})
    purchase = Purchase.objects.get()
    assert (purchase.provider, purchase.actor.split(":")[0], done.status_code) == ("manual", "admin", 302)
    shown = text_of_response(client.get(done["Location"]))
    assert ledger_reads.balance("ada").balance == 1100
    assert "granted" in shown
    assert "still to be added" not in shown


def test_a_payment_that_is_known_is_refused_at_its_field(client: Any) -> None:
    purchase = PurchaseFactory()
    values = {"pack": PackFactory().code, "holder_id": "bob", "payment": purchase.payment}
    response = send_first_step(client, f"{PURCHASES}/add/", values)
    assert (response.status_code, list(response.context_data["form"].errors)) == (422, ["payment"])
    assert Purchase.objects.count() == 1


def test_a_return_is_recorded_and_its_claim_shown(client: Any) -> None:
    purchase = PurchaseFactory(holder_id="ada")
    services.spend(holder_id="ada", amount=1100, idempotency_key="all")
    url = f"{PURCHASES}/{purchase.pk}"
    values = {"kind": "dispute", "payment": "d-1", "amount": "10.00"}
    assert send_both_steps(client, f"{url}/return/", values).status_code == 302
    shown = text_of_response(client.get(f"{url}/change/"))
    assert "Of the returned money, 10.00 EUR had bought 500 credits that were gone." in shown
    assert ReturnSettlement.objects.get().claim_minor == 1000
    too_much = send_first_step(client, f"{url}/return/", values | {"kind": "refund", "payment": "d-2", "amount": "10.01"})
    assert too_much.status_code == 422
    assert PurchaseReturn.objects.count() == 1
    assert send_both_steps(client, f"{url}/return/", values | {"payment": "d-2", "amount": "10.01"}).status_code == 302
    assert "Disputes took 0.01 EUR more: a loss." in text_of_response(client.get(f"{url}/change/"))


def test_lists_filter_and_show_what_waits(client: Any) -> None:
    granted = PurchaseFactory(holder_id="ada")
    waiting = record_purchase(pack=PackFactory().code, holder_id="bob", payment="p-2")
    for query, found in (("", {granted, waiting}), ("holder=ada", {granted}), ("waiting=yes", {waiting}), ("q=p-2", {waiting})):
        rows = client.get(f"{PURCHASES}/?{query}").context_data["cl"].result_list
        assert {row.pk for row in rows} == {row.pk for row in found}, query
    assert len(client.get(f"{PACKS}/?on_sale=yes").context_data["cl"].result_list) == 2


def test_only_those_who_may_record_purchases_and_returns() -> None:
    purchase = PurchaseFactory()
    reader = operator("billing_payments.view_purchase", "billing_payments.view_pack", name="reader")
    assert reader.get(f"{PURCHASES}/{purchase.pk}/change/").status_code == 200
    for url in (f"{PURCHASES}/add/", f"{PURCHASES}/{purchase.pk}/return/", f"{PACKS}/add/"):
        assert reader.get(url).status_code == 403
