"""VAT ids that are looked up before they are stored: over REST and in the admin, once for a key; and the evidence that stays."""

import json
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from pytest_django import Settings

from billing import apps as billing_app
from billing.auditing import consistency
from billing.documents.sellers import current_seller, record_seller
from billing.models import Customer, Invoice, RequestKey, Seller, VatCheck, VatLookup
from billing.orders import customers, vat_lookups
from billing.orders.customers import NewCustomer
from billing.orders.erasure import erase_customer
from billing.tax_services import apps as tax_services
from billing.tax_services import vies as vies_client
from ledger.database.statements import fetch_rows
from ledger.exports import export
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import CUSTOMER, send_both_steps, send_first_step, text_of_response
from tests.billing.admin.test_sellers import TYPED
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, unique
from tests.billing.generator.run.test_generate import bill
from tests.billing.tax_services.vies_double import ViesDouble, failing, invalid, valid
from tests.ledger.rest.conftest import ApiClient

pytestmark = pytest.mark.django_db
__all__ = ["client"]

FR, FR_2 = "FR40303265045", "FR23334175221"
BODY = {"name": "ACME", "currency": "EUR", "vat_id": "fr 40303265045", "address": {"line1": "1 rue X", "country": "FR"}}


def new(api: ApiClient, key: str = "", **more: Any) -> Any:
    """Create a customer over REST."""
    return api.post("/v1/customers", {"ref": unique("CUST"), **BODY, **more}, **({"key": key} if key else {}))


def outcomes(ref: str) -> list[tuple[str, str]]:
    """The lookups of a customer, the newest first: VAT id and outcome."""
    return list(VatLookup.objects.filter(customer__ref=ref).order_by("-pk").values_list("vat_id", "outcome"))


def faults(response: Any) -> list[tuple[str, str]]:
    """Field and rule of each fault."""
    assert response.status_code == 400, response.content
    return [(one["pointer"], one["code"]) for one in response.json()["errors"]]


# What a write does ----------------------------------------------------------------------------------


def test_a_confirmed_id_is_stored_with_what_vies_said(api: ApiClient, vies: ViesDouble) -> None:
    record_seller(SELLER, actor="test")
    made = new(api)
    assert (made.status_code, made.json()["vat_id"]) == (201, FR)
    listed = api.get(f"/v1/vat-lookups?customer={made.json()['ref']}").json()["results"]
    assert [(each["outcome"], each["vat_id"], each["consultation"]) for each in listed] == [("valid", FR, "WAPIAAAAZxT0vM3d")]
    [one] = listed
    assert (one["name"], one["address"], one["requester"]) == ("ACME SA", "1 RUE X, 75001 PARIS", SELLER["vat_id"])
    assert one["buyer"] == {"name": "ACME", "address": {"country": "FR", "line1": "1 rue X"}}
    assert api.get(f"/v1/vat-lookups/{one['id']}").json() == one
    assert api.get("/v1/vat-lookups/999999999").status_code == 404
    check = VatCheck.objects.get(customer__ref=made.json()["ref"])
    assert (check.outcome, check.tries, (check.due_at - VatLookup.objects.get().recorded_at).days >= 29) == ("valid", 0, True)


def test_an_invalid_id_is_refused_by_field_and_rule_and_nothing_is_written(api: ApiClient, vies: ViesDouble) -> None:
    vies.answers = invalid
    refused = new(api, key="one")
    assert faults(refused) == [("/vat_id", "not-valid-in-vies")]
    assert (Customer.objects.count(), VatLookup.objects.count(), VatCheck.objects.count()) == (0, 0, 0)
    assert not RequestKey.objects.filter(idempotency_key="one").exists()
    # It was not stored under the key: mended, the same key succeeds.
    vies.answers = valid
    assert new(api, key="one").status_code == 201


def test_a_change_to_an_invalid_id_is_refused_and_other_changes_are_not(api: ApiClient, vies: ViesDouble) -> None:
    ref = new(api).json()["ref"]
    vies.answers = invalid
    assert faults(api.patch(f"/v1/customers/{ref}", {"vat_id": FR_2, "name": "Other"})) == [("/vat_id", "not-valid-in-vies")]
    assert Customer.objects.values_list("vat_id", "name").get(ref=ref) == (FR, "ACME")
    asked = len(vies.asked)
    assert api.patch(f"/v1/customers/{ref}", {"name": "Other", "vat_id": FR}).status_code == 200
    assert (len(vies.asked), outcomes(ref)) == (asked, [(FR, "valid")])


@pytest.mark.parametrize("answers", [failing("MS_UNAVAILABLE"), lambda asked: (500, b"oops"), lambda asked: (200, b"<html>")])
def test_without_an_answer_the_offline_check_is_enough_for_now(api: ApiClient, vies: ViesDouble, answers: Any) -> None:
    vies.answers = answers
    ref = new(api).json()["ref"]
    assert outcomes(ref) == [(FR, "unavailable")]
    check = VatCheck.objects.get(customer__ref=ref)
    assert (check.tries, check.outcome, check.error) == (1, "", VatLookup.objects.get().error)
    assert 0 < (check.due_at - VatLookup.objects.get().recorded_at).total_seconds() <= 61


def test_what_the_offline_check_refuses_is_never_sent(api: ApiClient, vies: ViesDouble) -> None:
    assert faults(new(api, vat_id="FR40303265046")) == [("/vat_id", "wrong-check-digits")]
    for vat_id in ("", "GB999999973", "CHE123456788"):
        assert new(api, vat_id=vat_id).status_code == 201
    assert (vies.asked, VatLookup.objects.count(), VatCheck.objects.count()) == ([], 0, 0)


def test_without_the_setting_nobody_is_asked(api: ApiClient, vies: ViesDouble, settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": ""}
    assert new(api).status_code == 201
    assert (vies.asked, VatLookup.objects.count(), VatCheck.objects.count()) == ([], 0, 0)
    refused = api.put("/v1/sellers/default", {**SELLER, "needs_confirmed_vat_id": True})
    assert faults(refused) == [("/needs_confirmed_vat_id", "needs-lookups")]


def test_a_repeated_call_gets_its_response_whatever_vies_says_by_then(api: ApiClient, vies: ViesDouble) -> None:
    body = {"ref": unique("CUST"), **BODY}
    first = api.post("/v1/customers", body, key="one")
    vies.answers = invalid
    again = api.post("/v1/customers", body, key="one")
    assert (again.status_code, again.content, again["Idempotency-Replayed"]) == (201, first.content, "true")
    change = {"vat_id": FR_2}
    vies.answers = valid
    changed = api.patch(f"/v1/customers/{body['ref']}", change, key="two")
    vies.answers = invalid
    assert api.patch(f"/v1/customers/{body['ref']}", change, key="two").content == changed.content
    assert (len(vies.asked), len(outcomes(body["ref"]))) == (2, 2)


def test_a_dry_run_asks_and_writes_nothing(api: ApiClient, vies: ViesDouble) -> None:
    assert api.post("/v1/customers?dry_run=true", {"ref": "C", **BODY}).status_code == 200
    vies.answers = invalid
    assert faults(api.post("/v1/customers?dry_run=true", {"ref": "C", **BODY})) == [("/vat_id", "not-valid-in-vies")]
    assert (len(vies.asked), Customer.objects.count(), VatLookup.objects.count(), VatCheck.objects.count()) == (2, 0, 0, 0)


def test_a_customer_of_a_call_from_python_is_looked_up_by_the_command(vies: ViesDouble) -> None:
    customer = CustomerFactory(vat_id=FR)
    assert (vies.asked, outcomes(customer.ref)) == ([], [])
    assert VatCheck.objects.get(customer=customer).tries == 0


def test_an_id_that_is_taken_away_is_not_asked_again(api: ApiClient, vies: ViesDouble) -> None:
    ref = new(api).json()["ref"]
    assert api.patch(f"/v1/customers/{ref}", {"vat_id": ""}).status_code == 200
    assert (VatCheck.objects.filter(customer__ref=ref).exists(), outcomes(ref)) == (False, [(FR, "valid")])


# The admin ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_the_form_of_a_customer_shows_what_vies_says_and_keeps_it(client: Any, vies: ViesDouble) -> None:
    typed = CUSTOMER | {"vat_id": FR}
    shown = text_of_response(send_first_step(client, "/admin/billing/customer/add/", typed))
    assert "says that the VAT id is valid: ACME SA, 1 RUE X, 75001 PARIS." in shown
    assert (Customer.objects.count(), VatLookup.objects.count()) == (0, 0)
    assert send_both_steps(client, "/admin/billing/customer/add/", typed).status_code == 302
    customer = Customer.objects.get()
    assert outcomes(customer.ref) == [(FR, "valid")]
    page = text_of_response(client.get(f"/admin/billing/customer/{customer.pk}/change/"))
    assert "says that the VAT id is valid: ACME SA" in page
    lookup = VatLookup.objects.get()
    for url in ("/admin/billing/vatlookup/", f"/admin/billing/vatlookup/{lookup.pk}/change/"):
        assert FR in text_of_response(client.get(url)), url
    assert FR in text_of_response(client.get(f"/admin/billing/vatlookup/?q={FR}"))
    assert FR not in text_of_response(client.get("/admin/billing/vatlookup/?outcome=invalid"))


@pytest.mark.slow
@pytest.mark.check
def test_the_form_refuses_an_invalid_id_at_its_field(client: Any, vies: ViesDouble) -> None:
    customer = CustomerFactory()
    vies.answers = invalid
    for url in ("/admin/billing/customer/add/", f"/admin/billing/customer/{customer.pk}/edit/"):
        response = send_first_step(client, url, CUSTOMER | {"vat_id": FR})
        assert response.status_code == 422
        assert "is not valid" in str(response.context_data["form"].errors["vat_id"])
    assert (Customer.objects.values_list("vat_id", flat=True).get(), VatLookup.objects.count()) == ("", 0)


def test_an_operator_says_that_a_seller_needs_confirmed_ids(client: Any, vies: ViesDouble, settings: Settings) -> None:
    typed = {**TYPED, "needs_confirmed_vat_id": "yes"}
    assert send_both_steps(client, "/admin/billing/seller/add/", typed).status_code == 302
    current = current_seller("us")
    assert current is not None
    assert current.details["needs_confirmed_vat_id"] is True
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": ""}
    response = send_first_step(client, "/admin/billing/seller/add/", {**typed, "name": "Other"})
    assert "LEDGER_VIES_URL is not set" in str(response.context_data["form"].errors["needs_confirmed_vat_id"])
    assert Seller.objects.count() == 1


# Documents ------------------------------------------------------------------------------------------


def billed(**customer: Any) -> Invoice:
    """The invoice of a plan at 100.00 and 20 %, for a business in France under reverse charge."""
    made = CustomerFactory(vat_id=FR, vat_status="reverse_charge", **customer)
    vat_lookups.keep_new(made, vies_client.look_up(FR))
    plan = PlanFactory(prices=[recurring(unit_amount="100.00", tax_rate="20")])
    subscription = SubscriptionFactory(plan=plan.code, customer=made.ref)
    bill(subscription, at(1, 1))
    return Invoice.objects.get(subscription_ref=subscription.ref)


@pytest.mark.parametrize(
    ("answers", "needs", "tax_minor"),
    [(valid, True, 0), (failing("MS_UNAVAILABLE"), True, 2000), (failing("MS_UNAVAILABLE"), False, 0),
     (invalid, True, 2000), (invalid, False, 0)],
)  # fmt: skip
def test_an_invoice_names_the_lookup_and_the_seller_decides_about_reverse_charge(
    api: ApiClient, vies: ViesDouble, answers: Any, needs: bool, tax_minor: int
) -> None:
    record_seller({**SELLER, **({"needs_confirmed_vat_id": True} if needs else {})}, actor="test")
    vies.answers = answers
    invoice = billed()
    lookup = VatLookup.objects.get()
    assert (invoice.tax_minor, invoice.buyer["vat_lookup"]) == (tax_minor, {"id": lookup.pk, "outcome": lookup.outcome})
    assert api.get(f"/v1/invoices/{invoice.pk}").json()["vat_lookup"] == lookup.pk
    assert consistency.check() == []


@pytest.mark.parametrize(("answers", "category"), [(valid, "AE"), (failing("MS_UNAVAILABLE"), "S")])
def test_a_one_off_invoice_relies_on_the_lookup_too(api: ApiClient, vies: ViesDouble, answers: Any, category: str) -> None:
    record_seller({**SELLER, "needs_confirmed_vat_id": True}, actor="test")
    vies.answers = answers
    ref = new(api, vat_status="reverse_charge").json()["ref"]
    body = {"lines": [{"description": "Set-up", "unit_amount": "10.00", "tax_rate": "20"}]}
    invoice = api.post(f"/v1/customers/{ref}/invoices", body).json()
    assert [tax["category"] for tax in invoice["taxes"]] == [category]
    assert invoice["vat_lookup"] == VatLookup.objects.get().pk


def test_an_answer_outlives_a_time_without_one_and_not_a_new_answer(vies: ViesDouble) -> None:
    record_seller({**SELLER, "needs_confirmed_vat_id": True}, actor="test")
    customer = CustomerFactory(vat_id=FR, vat_status="reverse_charge")
    from billing.orders.tax_policies import buyer_of, policy_of

    seen = []
    for answers in (failing("MS_UNAVAILABLE"), valid, failing("TIMEOUT"), invalid, failing("TIMEOUT"), valid):
        vies.answers = answers
        vat_lookups.keep(customer, vies_client.look_up(FR), tries=0)
        seen.append((buyer_of(customer)["vat_lookup"]["outcome"], policy_of(customer, buyer_of(customer)).vat_status.value))
    charged, reverse = "taxable", "reverse_charge"
    assert seen == [
        ("unavailable", charged), ("valid", reverse), ("valid", reverse), ("invalid", charged), ("invalid", charged),
        ("valid", reverse),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.check
def test_a_document_that_names_another_lookup_is_found(vies: ViesDouble) -> None:
    record_seller(SELLER, actor="test")
    invoice, other = billed(), billed()
    assert consistency.check() == []
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_invoice DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE billing_invoice SET buyer = jsonb_set(buyer, '{vat_lookup,id}', %s) WHERE id = %s",
            [json.dumps(other.buyer["vat_lookup"]["id"]), invoice.pk],
        )
        found = {one["finding"] for one in consistency.check()}
        transaction.set_rollback(True)
    assert "lookup of a VAT id is not the buyer's" in found


def test_a_tax_office_gets_each_invoice_under_reverse_charge_with_its_lookup(api: ApiClient, vies: ViesDouble) -> None:
    record_seller(SELLER, actor="test")
    ref = new(api, vat_status="reverse_charge").json()["ref"]
    body = {"lines": [{"description": "Set-up", "unit_amount": "10.00", "tax_rate": "20"}], "finalize": True}
    made = api.post(f"/v1/customers/{ref}/invoices", body).json()
    api.post(f"/v1/customers/{ref}/invoices", {**body, "finalize": False})
    lookup = VatLookup.objects.get()
    [row] = (json.loads(line) for line in b"".join(export("reverse-charge", file_format="ndjson", customer=ref)).splitlines())
    assert (row["number"], row["customer"], row["vat_id"], row["base_minor"]) == (made["number"], ref, FR, 1000)
    assert (row["vat_lookup"], row["outcome"], row["consultation"]) == (lookup.pk, "valid", "WAPIAAAAZxT0vM3d")
    assert (row["name"], row["address"]) == ("ACME SA", "1 RUE X, 75001 PARIS")
    csv = b"".join(export("reverse-charge", file_format="csv", customer=ref, since=at(1, 1).date())).decode()
    assert (made["number"] in csv, csv.count("WAPIAAAAZxT0vM3d")) == (True, 1)


def test_without_its_package_the_setting_is_an_error(vies: ViesDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tax_services.check_package(None) == []
    monkeypatch.setattr(tax_services, "find_spec", lambda name: None)
    assert [found.id for found in tax_services.check_package(None)] == ["billing.E004"]


def test_without_its_application_the_setting_is_an_error(vies: ViesDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    assert billing_app._check_lookups(None) == []
    monkeypatch.setattr(billing_app.apps, "is_installed", lambda name: name != "billing.tax_services")
    assert [found.id for found in billing_app._check_lookups(None)] == ["billing.E004"]


# What stays, and what is erased ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    ["outcome = 'valid'", "consultation = 'X'", "vat_id = 'FR1'", "name = 'X'", "name = ''", "buyer = '{}'", "asked_at = now()"],
)
def test_a_lookup_is_never_changed(vies: ViesDouble, change: str) -> None:
    customer = CustomerFactory(vat_id=FR)
    vies.answers = valid
    vat_lookups.keep(customer, vies_client.look_up(FR), tries=0)
    for statement in (f"UPDATE billing_vatlookup SET {change}", "DELETE FROM billing_vatlookup"):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    assert VatLookup.objects.filter(name="ACME SA", outcome="valid", consultation="").count() == 1


def test_an_erasure_reaches_the_lookups(api: ApiClient, vies: ViesDouble) -> None:
    ref = new(api).json()["ref"]
    erase_customer(ref=ref)
    row = VatLookup.objects.get(customer__ref=ref)
    assert (row.vat_id, row.name, row.address, row.buyer, row.outcome) == ("", "", "", {}, "valid")
    assert not VatCheck.objects.filter(customer__ref=ref).exists()
    shown = api.get(f"/v1/vat-lookups/{row.pk}").json()
    assert (shown["name"], shown["address"], shown["buyer"], shown["vat_id"]) == (None, None, {}, "")
    assert consistency.check() == []


def test_with_documents_an_erasure_keeps_the_vat_id_as_they_do(api: ApiClient, vies: ViesDouble) -> None:
    record_seller(SELLER, actor="test")
    ref = new(api, vat_status="reverse_charge").json()["ref"]
    body = {"lines": [{"description": "Set-up", "unit_amount": "10.00"}], "finalize": True}
    assert api.post(f"/v1/customers/{ref}/invoices", body).status_code == 201
    erase_customer(ref=ref)
    row = VatLookup.objects.get(customer__ref=ref)
    assert (row.vat_id, row.name, row.address, row.buyer, row.consultation) == (FR, "", "", {}, "WAPIAAAAZxT0vM3d")
    assert consistency.check() == []


def test_no_write_of_the_lookups_takes_a_lock_on_a_customer(vies: ViesDouble) -> None:
    foreign = "SELECT conname FROM pg_constraint WHERE contype = 'f' AND conrelid = %s::regclass"
    assert [fetch_rows(str, foreign, [table]) for table in ("billing_vatlookup", "billing_vatcheck")] == [[], []]


def test_python_may_give_what_it_looked_up_itself(vies: ViesDouble) -> None:
    request = NewCustomer(ref=unique("CUST"), name="ACME", currency="EUR", vat_id=FR)
    made = customers.create(request, customers.look_up_before(request))
    assert outcomes(made.ref) == [(FR, "valid")]
