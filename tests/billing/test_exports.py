"""Exports of billing: each kind of rows by customer and subscription, and all that is stored about one customer."""

import errno
import hashlib
import json
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command

from billing.documents.credit_notes import issue_in
from billing.generator.activations import order_subscription
from billing.generator.options import Options
from billing.generator.run.generate import generate_in
from billing.models import Invoice
from billing.payments.purchase_recording import record_return
from billing.payments.purchase_settling import settle
from billing.payments.testing import PurchaseFactory
from ledger import services
from ledger.exports import EXPORTS, export
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring

pytestmark = pytest.mark.django_db

NOT_ABOUT_A_CUSTOMER = {
    "billing_plan", "billing_price", "billing_meter", "billing_coupon", "billing_seller", "billing_tax", "billing_numberseries",
    "billing_run", "billing_runresult", "billing_scheduledtask", "billing_requestkey", "billing_droppedmonth", "billing_pack",
    "billing_duepurchase", "billing_vatcheck", "billing_providerevent", "billing_planmove", "billing_openplanmove",
}  # fmt: skip
"""The catalogue, the seller, what runs and requests did, and what is to be done."""
FOLLOWS = {
    "billing_item", "billing_itemversion", "billing_claim", "billing_cursor", "billing_couponuse",
    "billing_creditpayment", "billing_transition", "billing_movedsubscription", "billing_suspendedbilling", "billing_usagekey",
}  # fmt: skip
"""How the generator works from what is exported, and what documents and entries say as well."""


def lines(name: str, **filters: Any) -> list[dict[str, Any]]:
    """The rows of an export."""
    return [json.loads(line) for line in b"".join(export(name, file_format="ndjson", **filters)).splitlines()]


@pytest.fixture
def two_customers() -> None:
    """C-1 with all kinds of rows, and C-2 with an invoice."""
    plan = PlanFactory(
        prices=[recurring(), recurring(key="calls", kind="usage", timing="arrears", meter="calls", aggregation="sum")]
    )
    for number in (1, 2):
        CustomerFactory(ref=f"C-{number}", name="=2+3", holder_id=f"holder-{number}")
        services.grant(holder_id=f"holder-{number}", amount=10, idempotency_key="g")
        SubscriptionFactory(ref=f"SUB-{number}", customer=f"C-{number}", plan=plan.code)
        generate_in(ref=f"SUB-{number}", options=Options(as_of=at(1, 1)))
    first = Invoice.objects.get(subscription_ref="SUB-1")
    issue_in(invoice_id=first.pk, reason="goodwill", actor="test")


def test_rows_are_exported_by_customer_and_by_subscription(two_customers: None) -> None:
    [invoice] = lines("invoices", customer="C-1")
    stored = Invoice.objects.get(subscription_ref="SUB-1")
    assert (invoice["number"], invoice["customer"], invoice["subscription"]) == (stored.number, "C-1", "SUB-1")
    assert invoice["digest"] == bytes(stored.digest).hex()
    assert invoice["total_minor"] == stored.total_minor
    assert lines("invoices", subscription="SUB-1") == [invoice]
    assert [line["invoice"] for line in lines("invoice-lines", customer="C-1")] == [stored.pk]
    assert [note["reason"] for note in lines("credit-notes", customer="C-1")] == ["goodwill"]
    assert lines("credit-notes", customer="C-2") == []
    assert len(lines("credit-note-lines", customer="C-1")) == 1
    assert len(lines("invoices")) == 2


def test_a_start_that_waits_for_its_payment_is_exported(two_customers: None) -> None:
    plan = PlanFactory(prices=[recurring()]).code
    order_subscription(ref="SUB-3", customer="C-1", plan=plan, started_at=at(1, 1), starts_when_paid=True)
    [waiting] = lines("activations", customer="C-1")
    assert (waiting["subscription"], waiting["state"], waiting["settled_at"]) == ("SUB-3", "waiting", None)
    assert lines("activations", subscription="SUB-3") == [waiting]
    assert lines("activations", customer="C-2") == []


def test_purchases_are_exported_with_what_became_of_them(two_customers: None) -> None:
    purchase = PurchaseFactory(customer="C-1", holder_id="holder-1")
    record_return(purchase=purchase.pk, kind="refund", payment="r-1")
    settle(purchase.pk)
    [row] = lines("purchases", customer="C-1")
    assert (row["payment"], row["paid_minor"], row["customer"]) == (purchase.payment, 2000, "C-1")
    for name in ("purchase-grants", "purchase-returns", "return-settlements"):
        assert [each["purchase"] for each in lines(name, customer="C-1")] == [purchase.pk], name
        assert lines(name, customer="C-2") == []


def test_a_purchase_for_a_customers_holder_is_the_customers_unless_another_customer_paid(two_customers: None) -> None:
    unnamed = PurchaseFactory(holder_id="holder-1", customer=None)
    PurchaseFactory(holder_id="holder-1", customer="C-2")
    PurchaseFactory(holder_id="stranger", customer=None)
    assert [row["id"] for row in lines("purchases", customer="C-1")] == [unnamed.pk]
    assert [row["purchase"] for row in lines("purchase-grants", customer="C-1")] == [unnamed.pk]


def test_documents_are_chosen_by_their_day_of_issue(two_customers: None) -> None:
    day = Invoice.objects.get(subscription_ref="SUB-1").issue_date
    issued = datetime(day.year, day.month, day.day, tzinfo=UTC)
    assert len(lines("invoices", since=issued)) == 2
    assert lines("invoices", until=issued) == []


def test_names_are_safe_in_spreadsheets(two_customers: None) -> None:
    assert b"'=2+3" in b"".join(export("customers", file_format="csv", customer="C-1"))


def test_all_that_is_stored_about_a_customer_is_one_file(two_customers: None, tmp_path: Path) -> None:
    out = StringIO()
    call_command("export_customer", "C-1", "--output", str(tmp_path / "C-1.zip"), "--format", "json", stdout=out)
    assert [path.name for path in tmp_path.iterdir()] == ["C-1.zip"]
    with ZipFile(tmp_path / "C-1.zip") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    manifest = json.loads(files.pop("manifest.json"))
    assert manifest == json.loads(out.getvalue())
    assert {one["name"] for one in manifest["files"]} == set(files)
    for one in manifest["files"]:
        content = files[one["name"]]
        assert (one["rows"], one["sha256"]) == (len(content.splitlines()), hashlib.sha256(content).hexdigest())
    assert json.loads(files["customers.ndjson"])["name"] == "=2+3"
    assert [json.loads(line)["holder_id"] for line in files["entries.ndjson"].splitlines()] == ["holder-1"]
    together = b"".join(files.values())
    assert b"C-1" in together
    assert b"C-2" not in together
    assert b"holder-2" not in together


def test_an_unknown_customer_is_refused_and_no_file_is_written(two_customers: None, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="Customer 'C-9' does not exist") as ended:
        call_command("export_customer", "C-9", "--output", str(tmp_path / "C-9.zip"))
    assert ended.value.returncode == 2
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written_is_said_and_no_part_of_it_stays(
    two_customers: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match="cannot be written: No such file or directory"):
        call_command("export_customer", "C-1", "--output", str(tmp_path / "nowhere" / "C-1.zip"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(ZipFile, "writestr", full)
    with pytest.raises(CommandError, match="cannot be written: No space left on device"):
        call_command("export_customer", "C-1", "--output", str(tmp_path / "C-1.zip"))
    assert not list(tmp_path.iterdir())


def test_every_table_about_customers_is_exported() -> None:
    """A new table is exported, or named above with the reason."""
    exported = {one.source.split()[1] for one in EXPORTS.values()}
    configs = [config for config in apps.get_app_configs() if config.name.partition(".")[0] == "billing"]
    tables = {model._meta.db_table for config in configs for model in config.get_models()}
    assert {"billing_pack", "billing_mail", "billing_invoice"} <= tables
    known = exported | NOT_ABOUT_A_CUSTOMER | FOLLOWS
    assert tables - known == set()
    assert not exported & (NOT_ABOUT_A_CUSTOMER | FOLLOWS)
