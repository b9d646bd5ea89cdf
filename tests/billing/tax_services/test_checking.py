"""`check_vat_ids`: what gave no answer is asked again, what was answered a month later; bounded, shared, and told."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from pytest_django import Settings

from billing.admin import attention
from billing.documents.sellers import record_seller
from billing.models import Customer, VatCheck, VatLookup
from billing.orders import customers
from billing.orders.vat_lookups import TRIED_AGAIN_AFTER
from billing.tax_services import checking
from billing.tax_services import vies as client
from billing.tax_services.checking import CheckedVatIds, check_due
from ledger.database.statements import fetch_rows
from ledger.database.transactions import locked_transaction
from ledger.errors import HolderBusy, OutcomeUnknown
from ledger_project.monitoring.findings import CheckState
from ledger_project.monitoring.work_checks import vat_ids
from tests.billing.documents.issued import SELLER
from tests.billing.factories import CustomerFactory
from tests.billing.tax_services.vies_double import ViesDouble, failing, invalid, valid
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.signals.conftest import receiver, webhook

pytestmark = pytest.mark.django_db
__all__ = ["receiver", "webhook"]
FR, FR_2 = "FR40303265045", "FR23334175221"


def due(customer: Customer) -> None:
    """Let the VAT id of the customer be due now, and no id asked in the last minute."""
    VatCheck.objects.filter(customer=customer).update(due_at=timezone.now())
    VatCheck.objects.update(asked_at=None)


def outcomes(customer: Customer) -> list[str]:
    """What VIES said, the newest first."""
    return list(VatLookup.objects.filter(customer=customer).order_by("-pk").values_list("outcome", flat=True))


def run(**options: Any) -> tuple[int, Any]:
    """Run the command; return its exit code and its summary."""
    out, code = StringIO(), 0
    try:
        call_command("check_vat_ids", format="json", stdout=out, **options)
    except SystemExit as end:
        code = int(end.code or 0)
    return code, json.loads(out.getvalue())


def test_what_had_no_answer_is_asked_again_later_and_later(vies: ViesDouble) -> None:
    vies.answers = failing("MS_UNAVAILABLE")
    customer = CustomerFactory(vat_id=FR)
    waits = []
    for _ in range(len(TRIED_AGAIN_AFTER) + 1):
        due(customer)
        began = timezone.now()
        assert check_due() == CheckedVatIds(due=1, unavailable=1)
        waits.append(round((VatCheck.objects.get().due_at - began).total_seconds() / 60))
        assert check_due() == CheckedVatIds()
    assert waits == [1, 5, 30, 120, 360, 1440, 1440]
    vies.answers = valid
    due(customer)
    assert check_due() == CheckedVatIds(due=1, valid=1)
    check = VatCheck.objects.get()
    assert (check.tries, check.outcome, check.error, (check.due_at - timezone.now()).days) == (0, "valid", "", 29)
    assert outcomes(customer) == ["valid", *["unavailable"] * 7]


def test_an_id_that_becomes_invalid_is_found_and_told_and_the_customer_stays_as_it_is(api: ApiClient, vies: ViesDouble) -> None:
    assert api.post("/v1/customers", {"ref": "C-FR", "name": "ACME", "currency": "EUR", "vat_id": FR}).status_code == 201
    customer = Customer.objects.get(ref="C-FR")
    request = mock.Mock()
    request.user.has_perm = lambda permission: permission == "billing.view_vatlookup"
    assert attention.items(request) == []
    vies.answers = invalid
    due(customer)
    assert check_due() == CheckedVatIds(due=1, invalid=1)
    assert Customer.objects.values_list("vat_id", flat=True).get() == FR
    [item] = attention.items(request)
    assert "1 customer has a VAT id that is not valid any more, says VIES, such as C-FR." in item.text
    vies.answers = valid
    due(customer)
    assert (check_due(), attention.items(request)) == (CheckedVatIds(due=1, valid=1), [])


def test_a_signal_says_the_first_answer_and_each_other_answer(webhook: Any, vies: ViesDouble) -> None:
    webhook("customer.vat_id_checked")
    customer = CustomerFactory(ref="C-FR", vat_id=FR)
    for answers in (failing("TIMEOUT"), valid, valid, failing("TIMEOUT"), invalid, invalid, valid):
        vies.answers = answers
        due(customer)
        check_due()
    rows = fetch_rows(json.loads, "SELECT data::text FROM ledger_signal WHERE sequence IS NULL ORDER BY number")
    assert [(row["customer"], row["outcome"]) for row in rows] == [
        ("C-FR", "valid"), ("C-FR", "invalid"), ("C-FR", "valid"),
    ]  # fmt: skip
    assert all(row.keys() == {"customer", "lookup", "outcome"} for row in rows)


def test_customers_from_before_the_setting_are_looked_up(vies: ViesDouble, settings: Settings) -> None:
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": ""}
    known = [CustomerFactory(vat_id=FR), CustomerFactory(vat_id="EL094259216")]
    for vat_id in ("", "GB999999973"):
        CustomerFactory(vat_id=vat_id)
    assert (check_due(), run()[1]["due"], VatCheck.objects.count()) == (CheckedVatIds(), 0, 0)
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": vies.url}
    assert run() == (0, {"dry_run": False, "due": 2, "valid": 2, "invalid": 0, "unavailable": 0, "failed": 0, "exit_code": 0})
    assert [outcomes(one) for one in known] == [["valid"], ["valid"]]
    assert [asked["countryCode"] for asked in vies.asked] == ["FR", "EL"]


def test_earlier_customers_come_as_they_can_be_taken(
    vies: ViesDouble, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So those who wait for their turn are not overdue."""
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": ""}
    for _ in range(5):
        CustomerFactory(vat_id=FR)
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": vies.url}
    monkeypatch.setattr(checking, "PER_MINUTE", 2)
    seen = []
    for _ in range(4):
        seen.append((check_due().valid, VatCheck.objects.count()))
        assert check_due() == CheckedVatIds()
        VatCheck.objects.update(asked_at=None)
    assert seen == [(2, 2), (2, 4), (1, 5), (0, 5)]


def test_a_dry_run_counts_and_asks_nobody(vies: ViesDouble) -> None:
    customer = CustomerFactory(vat_id=FR)
    due(customer)
    assert run(dry_run=True)[1]["due"] == 1
    assert (vies.asked, outcomes(customer)) == ([], [])


def test_all_machines_together_ask_a_few_in_a_minute(vies: ViesDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "PER_MINUTE", 3)
    for _ in range(5):
        CustomerFactory(vat_id=FR)
    assert [check_due().due, check_due().due, len(vies.asked)] == [3, 0, 3]
    VatCheck.objects.update(asked_at=timezone.now() - timedelta(seconds=61))
    assert (check_due().due, check_due().due) == (2, 0)


def test_a_run_ends_when_the_service_is_down_and_not_when_a_member_state_is(vies: ViesDouble) -> None:
    for _ in range(3):
        CustomerFactory(vat_id=FR)
    vies.answers = failing("GLOBAL_MAX_CONCURRENT_REQ")
    assert run() == (3, {"dry_run": False, "due": 1, "valid": 0, "invalid": 0, "unavailable": 1, "failed": 0, "exit_code": 3})
    vies.answers = failing("MS_UNAVAILABLE")
    assert check_due() == CheckedVatIds(due=2, unavailable=2)


def test_a_killed_process_leaves_the_id_to_the_others_after_a_while(vies: ViesDouble) -> None:
    customer = CustomerFactory(vat_id=FR)
    with mock.patch.object(client, "look_up", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        check_due()
    assert (check_due(), outcomes(customer)) == (CheckedVatIds(), [])
    wait = VatCheck.objects.get().due_at - timezone.now()
    assert timedelta(minutes=4) < wait < timedelta(minutes=6)
    due(customer)
    assert check_due() == CheckedVatIds(due=1, valid=1)


@pytest.mark.parametrize(("changed_to", "then"), [("", []), (FR_2, [(FR_2, "valid")])])
def test_what_was_said_about_a_former_id_is_not_kept(vies: ViesDouble, changed_to: str, then: list[Any]) -> None:
    """Somebody changes the id while VIES is asked about it; the same run looks the new one up."""
    customer = CustomerFactory(vat_id=FR)
    look_up = client.look_up

    def and_change(vat_id: str, **more: Any) -> Any:
        found = look_up(vat_id, **more)
        if vat_id == FR:
            customers.change_customer(ref=customer.ref, vat_id=changed_to)
        return found

    with mock.patch.object(client, "look_up", and_change):
        assert check_due() == CheckedVatIds(due=1 + len(then), valid=len(then))
    assert list(VatLookup.objects.values_list("vat_id", "outcome")) == then
    assert VatCheck.objects.count() == len(then)


def test_a_customer_whose_result_cannot_be_stored_does_not_stop_the_others(vies: ViesDouble) -> None:
    for _ in range(3):
        CustomerFactory(vat_id=FR)
    busy = [HolderBusy(holder_id="x"), OutcomeUnknown(), None]

    def locked(*names: str) -> Any:
        if names[0].startswith("customer/") and (error := busy.pop(0)):
            raise error
        return locked_transaction(*names)

    with mock.patch.object(checking, "locked_transaction", locked):
        assert run()[1] == {
            "dry_run": False, "due": 3, "valid": 1, "invalid": 0, "unavailable": 0, "failed": 2, "exit_code": 3,
        }  # fmt: skip
    assert (VatLookup.objects.count(), check_due()) == (1, CheckedVatIds())
    VatCheck.objects.filter(outcome="").update(due_at=timezone.now())
    assert check_due() == CheckedVatIds(due=2, valid=2)


def test_another_seller_asks_for_itself(vies: ViesDouble) -> None:
    record_seller(SELLER, actor="test")
    record_seller({**SELLER, "ref": "fr", "vat_id": FR_2, "invoice_prefix": "FR", "credit_note_prefix": "FRC"}, actor="test")
    request = customers.NewCustomer(ref="C-FR", name="ACME", currency="EUR", vat_id=FR)
    customer = customers.create(request, customers.look_up_before(request))
    customers.change_customer(ref="C-FR", name="ACME SA")
    assert check_due() == CheckedVatIds()
    customers.change_customer(ref="C-FR", seller="fr")
    assert check_due() == CheckedVatIds(due=1, valid=1)
    rows = VatLookup.objects.filter(customer=customer).order_by("pk")
    assert list(rows.values_list("requester", flat=True)) == [SELLER["vat_id"], FR_2]


def test_doctor_says_what_is_overdue_and_what_has_no_answer(vies: ViesDouble, settings: Settings) -> None:
    customer = CustomerFactory(vat_id=FR)
    assert vat_ids(connection).state is CheckState.OK
    VatCheck.objects.update(due_at=timezone.now() - timedelta(hours=2))
    assert (vat_ids(connection).state, "1 lookups" in vat_ids(connection).text) == (CheckState.WARNING, True)
    VatCheck.objects.update(due_at=timezone.now(), tries=5, error="MS_UNAVAILABLE")
    found = vat_ids(connection)
    assert (found.state, "MS_UNAVAILABLE" in found.text) == (CheckState.WARNING, True)
    due(customer)
    check_due()
    assert vat_ids(connection).state is CheckState.OK
    settings.LEDGER = {**settings.LEDGER, "VIES_URL": ""}
    assert vat_ids(connection).state is CheckState.OK
