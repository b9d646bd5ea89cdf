"""The page of bank receipts: what is left is booked, or put aside, with a second operator above the limit."""

from pathlib import Path
from typing import Any

import pytest

from billing.auditing import consistency
from billing.models import InvoicePayment
from billing.payments.models import Purchase
from billing.payments.providers.manual_transfers import reference_of
from billing.statements_in.models import BankReceipt
from billing.testing import CustomerFactory
from ledger.staff.kit.cells import day_words
from ledger.staff.models import Approval
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import send_both_steps, send_first_step, text_of_response
from tests.billing.documents.test_one_off_invoices import issued
from tests.billing.payments.test_manual import ordered, state
from tests.billing.statements_in.test_booking import booked, paid

pytestmark = pytest.mark.django_db
__all__ = ["client"]


def left(path: Path, amount: str = "12.00", text: str = "many thanks") -> BankReceipt:
    """A receipt that no file books."""
    booked(path / "a.csv", f"2026-01-05,{amount},{text},EUR,")
    return BankReceipt.objects.latest("pk")


def page(receipt: BankReceipt, name: str = "change") -> str:
    return f"/admin/billing_statements_in/bankreceipt/{receipt.pk}/{name}/"


def test_a_receipt_that_is_left_is_booked_for_the_invoice_that_a_person_names(client: Any, tmp_path: Path) -> None:
    invoice, receipt = issued(CustomerFactory(), "10"), left(tmp_path)
    assert "left for a person: it names no invoice" in text_of_response(client.get(page(receipt)))
    first = send_first_step(client, page(receipt, "book"), {"target": invoice.number, "reason": "She called"})
    assert "which is then paid; amount due: 0.00 EUR" in text_of_response(first)
    send_both_steps(client, page(receipt, "book"), {"target": invoice.number, "reason": "She called"})
    receipt.refresh_from_db()
    assert (receipt.state, receipt.invoice_id, receipt.settled_by) == ("booked", invoice.pk, "admin:mara")
    assert paid(invoice) == ("paid", 1200, 0)
    assert booked(tmp_path / "a.csv", "2026-01-05,12.00,many thanks,EUR,")["known"] == 1
    assert consistency.check() == []


def test_a_receipt_that_is_left_buys_the_pack_of_an_order(client: Any, tmp_path: Path) -> None:
    order, receipt = ordered(), left(tmp_path, "20.00")
    send_both_steps(client, page(receipt, "book"), {"target": reference_of(order.pk), "reason": ""})
    receipt.refresh_from_db()
    assert (receipt.state, receipt.payment_intent_id, state(order)) == ("booked", order.pk, "succeeded")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("INV-999999", "No invoice has the number 'INV-999999'"),
        ("", "This field is required"),
        ("x", "No invoice has the number 'x'"),
    ],
)
def test_a_name_of_nothing_is_refused_at_its_field(client: Any, tmp_path: Path, target: str, message: str) -> None:
    receipt = left(tmp_path)
    assert message in text_of_response(send_first_step(client, page(receipt, "book"), {"target": target, "reason": ""}))
    assert (InvoicePayment.objects.count(), Purchase.objects.count(), BankReceipt.objects.get().state) == (0, 0, "left")


def test_a_receipt_is_put_aside_with_a_reason_and_no_file_books_it(client: Any, tmp_path: Path) -> None:
    receipt = left(tmp_path)
    send_both_steps(client, page(receipt, "put-aside"), {"reason": "The rent of the flat"})
    receipt.refresh_from_db()
    assert (receipt.state, receipt.note, receipt.why) == ("put_aside", "The rent of the flat", "")
    assert "put it aside: The rent of the flat" in text_of_response(client.get(page(receipt)))
    twice = send_first_step(client, page(receipt, "put-aside"), {"reason": "Again"})
    assert f"Receipt {receipt.pk} is put aside already" in text_of_response(twice)
    again = booked(tmp_path / "b.csv", "2026-01-05,12.00,many thanks,EUR,")
    assert (again["known"], again["left"]) == (1, [])


def test_above_the_limit_a_second_operator_books_it(client: Any, tmp_path: Path, settings: Any) -> None:
    settings.LEDGER = {**settings.LEDGER, "SECOND_OPERATOR_ABOVE": ["EUR=1000"]}
    invoice, receipt = issued(CustomerFactory(), "10"), left(tmp_path)
    send_both_steps(client, page(receipt, "book"), {"target": invoice.number, "reason": "x"})
    assert (Approval.objects.count(), InvoicePayment.objects.count()) == (1, 0)
    send_both_steps(client, page(receipt, "put-aside"), {"reason": "x"})
    assert (Approval.objects.count(), BankReceipt.objects.get().state) == (2, "left")


def test_the_list_shows_what_is_left_and_why(client: Any, tmp_path: Path) -> None:
    receipt = left(tmp_path)
    listed = text_of_response(client.get("/admin/billing_statements_in/bankreceipt/?state=left"))
    assert "many thanks" in listed
    assert "it names no invoice" in listed
    assert "many thanks" not in text_of_response(client.get("/admin/billing_statements_in/bankreceipt/?state=booked"))
    assert "many thanks" in text_of_response(client.get(f"/admin/billing_statements_in/bankreceipt/?q={receipt.name}"))
    day = day_words(receipt.booked_on).replace("\u00a0", " ")
    item = f"1 receipt of a bank statement is not booked, such as 12.00 EUR of {day}: it names no invoice."
    assert item in text_of_response(client.get("/admin/"))
