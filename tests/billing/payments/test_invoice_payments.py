"""Payments of invoices over REST and in the admin: recorded once, shown with what went back, refused by field."""

from decimal import Decimal
from typing import Any

import pytest

from billing.documents.invoice_payments import record_payment
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.models import CreditNote, Invoice, InvoicePayment, PaymentReturn
from billing.testing import CustomerFactory
from ledger.testing import unique
from tests.billing.admin.conftest import client
from tests.billing.admin.test_order_forms import hidden_values, send_first_step, text_of_response
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import operator

pytestmark = pytest.mark.django_db

__all__ = ["client"]

ADMIN = "/admin/billing"


@pytest.fixture
def invoice() -> Invoice:
    """An open invoice of 100.00 EUR."""
    request = NewOneOffInvoice(lines=[OneOffLine(description="Work", unit_amount=Decimal(100))])
    return issue_one_off_in(customer_ref=CustomerFactory().ref, request=request)


# REST ------------------------------------------------------------------------------------------------


def test_a_payment_over_rest_is_recorded_once_and_shown_with_what_went_back(api: ApiClient, invoice: Invoice) -> None:
    body = {"payment": "t-1", "provider": "bank", "amount_minor": 12000, "reference": f"{invoice.number} thanks"}
    tried = api.post("/v1/payments?dry_run=true", body)
    assert (tried.status_code, InvoicePayment.objects.count(), CreditNote.objects.count()) == (200, 0, 0)
    made = api.post("/v1/payments", body, key="one")
    shown = made.json()
    assert (made.status_code, made["Location"]) == (201, f"/v1/payments/{shown['id']}")
    names = ("invoice", "number", "applied_minor", "deposit_minor", "returned_minor", "actor", "returns")
    assert [shown[name] for name in names] == [invoice.pk, invoice.number, 10000, 2000, 0, "key:shop", []]
    again = api.post("/v1/payments", body, key="one")
    assert (again.content, again["Idempotency-Replayed"]) == (made.content, "true")
    assert api.post("/v1/payments", body, key="two").json()["id"] == shown["id"]
    back = api.post(f"{made['Location']}/returns", {"kind": "refund", "payment": "r-1", "amount_minor": 5000})
    assert (back.status_code, back.json()["credit_minor"], back.json()["reopened_minor"]) == (201, 2000, 3000)
    read = api.get(made["Location"]).json()
    assert (read["returned_minor"], [one["payment"] for one in read["returns"]]) == (5000, ["r-1"])
    document = api.get(f"/v1/invoices/{invoice.pk}").json()
    assert (document["state"], document["amount_paid_minor"], document["amount_remaining_minor"]) == ("open", 7000, 3000)
    for query, count in (
        (f"invoice={invoice.pk}", 1),
        (f"customer={invoice.customer_ref}", 1),
        ("payment=t-1", 1),
        ("payment=x", 0),
    ):
        assert len(api.get(f"/v1/payments?{query}").json()["results"]) == count, query


@pytest.mark.parametrize(
    ("change", "status", "slug"),
    [
        ({"amount_minor": 0}, 400, "invalid-request"),
        ({"amount_minor": 1.5}, 400, "invalid-request"),
        ({"currency": "USD"}, 400, "invalid-request"),
        ({"paid_at": "2199-01-01T00:00:00Z"}, 400, "invalid-request"),
        ({"provider": "A B"}, 400, "invalid-request"),
        ({"invoice": 10**15}, 404, "not-found"),
        ({"invoice": None, "reference": "nothing"}, 409, "payment-not-matched"),
    ],
)
def test_a_bad_payment_is_refused_and_nothing_is_written(
    api: ApiClient, invoice: Invoice, change: dict[str, Any], status: int, slug: str
) -> None:
    refused = api.post("/v1/payments", {"invoice": invoice.pk, "payment": "t-1", "amount_minor": 100} | change)
    assert refused.status_code == status
    assert status == 400 or refused.json()["type"].endswith(slug)
    invoice.refresh_from_db()
    assert (InvoicePayment.objects.count(), invoice.amount_paid_minor) == (0, 0)


def test_a_return_of_too_much_is_refused_and_an_unknown_payment_is_not_found(api: ApiClient, invoice: Invoice) -> None:
    paid = record_payment(invoice=invoice.pk, payment="t-1", amount_minor=4000)
    refused = api.post(f"/v1/payments/{paid.pk}/returns", {"kind": "refund", "payment": "r-1", "amount_minor": 4001})
    assert (refused.status_code, refused.json()["returnable_minor"]) == (409, 4000)
    assert api.post("/v1/payments/999999999/returns", {"kind": "refund", "payment": "r-1"}).status_code == 404
    assert api.get("/v1/payments/999999999").status_code == 404
    assert not PaymentReturn.objects.exists()


def test_the_void_of_a_partly_paid_invoice_says_what_is_paid(api: ApiClient, invoice: Invoice) -> None:
    record_payment(invoice=invoice.pk, payment="t-1", amount_minor=4000)
    refused = api.post(f"/v1/invoices/{invoice.pk}/void", {})
    assert (refused.status_code, refused.json()["paid_minor"]) == (409, 4000)
    assert refused.json()["type"].endswith("invalid-transition")


# The admin -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.check
def test_a_payment_is_recorded_on_the_page_of_its_invoice(client: Any, invoice: Invoice) -> None:
    url = f"{ADMIN}/invoice/{invoice.pk}/record-payment/"
    values = {"amount": "120.00", "payment": "transfer 7", "reference": "thanks", "reason": "Seen in the account"}
    first = send_first_step(client, url, values)
    assert "100.00 EUR paid the invoice, 20.00 EUR became credit of the customer." in text_of_response(first)
    assert not InvoicePayment.objects.exists()
    done = client.post(url, hidden_values(first) | {"confirmed": "yes"})
    paid = InvoicePayment.objects.get()
    assert (done.status_code, paid.amount_minor, paid.provider, paid.actor.split(":")[0]) == (302, 12000, "manual", "admin")
    assert client.post(url, hidden_values(first) | {"confirmed": "yes"}).status_code == 302
    assert InvoicePayment.objects.count() == 1
    page = text_of_response(client.get(f"{ADMIN}/invoice/{invoice.pk}/change/"))
    assert "transfer 7" in page
    for url in (f"{ADMIN}/invoicepayment/", f"{ADMIN}/invoicepayment/{paid.pk}/change/", f"{ADMIN}/invoicepayment/?q=transfer 7"):
        assert str(invoice.number) in text_of_response(client.get(url)), url


def test_a_return_is_recorded_on_the_page_of_its_payment(client: Any, invoice: Invoice) -> None:
    paid = record_payment(invoice=invoice.pk, payment="t-1", amount_minor=10000)
    url = f"{ADMIN}/invoicepayment/{paid.pk}/return/"
    first = send_first_step(client, url, {"kind": "dispute", "payment": "d-1", "amount": "30.00", "reason": "bank"})
    assert "By 30.00 EUR the invoice is due again." in text_of_response(first)
    assert client.post(url, hidden_values(first) | {"confirmed": "yes"}).status_code == 302
    back = PaymentReturn.objects.get()
    assert (back.kind, back.amount_minor, back.reopened_minor) == ("dispute", 3000, 3000)
    assert "70.00 EUR of it" in text_of_response(client.get(f"{ADMIN}/invoice/{invoice.pk}/change/"))


def test_a_wrong_amount_is_refused_at_its_field(client: Any, invoice: Invoice) -> None:
    response = send_first_step(
        client, f"{ADMIN}/invoice/{invoice.pk}/record-payment/", {"amount": "0", "payment": "x", "reason": "r"}
    )
    assert (response.status_code, list(response.context_data["form"].errors)) == (422, ["amount"])
    assert not InvoicePayment.objects.exists()


def test_each_permission_allows_only_its_own_form(invoice: Invoice) -> None:
    paid = record_payment(invoice=invoice.pk, payment=unique("t"), amount_minor=4000)
    urls = {
        "pay_invoice": f"{ADMIN}/invoice/{invoice.pk}/record-payment/",
        "return_payment": f"{ADMIN}/invoicepayment/{paid.pk}/return/",
    }
    for permission in urls:
        browser = operator(*(f"billing.{each}" for each in ("view_invoice", "view_invoicepayment", permission)), name=permission)
        assert {name for name, url in urls.items() if browser.get(url).status_code == 200} == {permission}
