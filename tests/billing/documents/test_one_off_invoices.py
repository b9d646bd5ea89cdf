"""One-off invoices: documents of a customer without a subscription, with the states, numbers and checks of every invoice."""

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection

from billing.auditing import consistency
from billing.documents import credit_notes
from billing.documents.credit_refunds import deposit_in
from billing.documents.one_off_invoices import NewOneOffInvoice, OneOffLine, issue_one_off_in
from billing.documents.printing import invoice_pdf
from billing.documents.sellers import record_seller
from billing.models import CouponUse, CreditNote, Customer, Invoice, InvoiceTax, Line, NumberSeries, Transition
from billing.orders import coupons
from billing.orders.customers import NewCredits
from ledger import reads, services
from ledger.audit.auditing import audit
from tests.billing.factories import CustomerFactory, PlanFactory, SubscriptionFactory, at, recurring, transition, unique
from tests.billing.findings import findings_of
from tests.billing.generator.run.test_generate import bill
from tests.ledger.rest.conftest import ApiClient
from tests.ledger.staff.admin_site import hidden_key, operator

pytestmark = pytest.mark.django_db

WORKSHOP = {"description": "Workshop", "quantity": "2", "unit_amount": "450.00", "tax_rate": "20"}
TRAVEL = {"description": "Travel", "unit_amount": "33.33", "tax_rate": "7"}


def issued(customer: Customer, *amounts: str, **more: Any) -> Invoice:
    """An invoice with a line of each amount at 20 percent."""
    lines = [OneOffLine(description="Work", unit_amount=Decimal(amount), tax_rate=Decimal(20)) for amount in amounts or ["10"]]
    return issue_one_off_in(customer_ref=customer.ref, request=NewOneOffInvoice(lines=lines, **more))


def rows() -> list[Any]:
    """What a refused invoice must leave as it was."""
    return [list(model.objects.order_by("pk").values()) for model in (Invoice, Line, InvoiceTax, NumberSeries)]


def findings() -> list[Any]:
    """What the checks of billing and of the chains find."""
    return [*consistency.check(), *audit([connection.connection]).totals]


def test_it_is_issued_over_rest_once(api: ApiClient) -> None:
    customer = CustomerFactory()
    path = f"/v1/customers/{customer.ref}/invoices"
    before = rows()
    dry = api.post(f"{path}?dry_run=true", {"lines": [WORKSHOP, TRAVEL]}).json()
    assert (dry["number"], dry["total_minor"], rows()) == (None, 111566, before)
    first, again = (api.post(path, {"lines": [WORKSHOP, TRAVEL]}, key="one") for _ in range(2))
    assert (first.status_code, again.json()) == (201, first.json())
    made = first.json()
    # 2 x 450.00 and 33.33; 20 % of 900.00 is 180.00, 7 % of 33.33 is 2.3331.
    assert (made["subscription"], made["customer"], made["state"]) == (None, customer.ref, "open")
    assert (made["subtotal_minor"], made["tax_minor"], made["total_minor"]) == (93333, 18233, 111566)
    assert [(line["kind"], line["title"], line["quantity"], line["amount_minor"]) for line in made["lines"]] == [
        ("one_off", "Workshop", "2", 90000), ("one_off", "Travel", "1", 3333),
    ]  # fmt: skip
    assert first.headers["Location"] == f"/v1/invoices/{made['id']}"
    assert api.get(f"/v1/invoices/{made['id']}").json() == made
    assert api.get(f"/v1/invoices?customer={customer.ref}").json()["results"] == [made]
    assert Invoice.objects.count() == 1
    assert findings() == []


def test_it_shares_the_numbers_with_the_invoices_of_runs() -> None:
    customer = CustomerFactory()
    subscription = SubscriptionFactory(plan=PlanFactory(prices=[recurring()]).code, customer=customer.ref)
    [first] = bill(subscription, at(1, 1))
    second = issued(customer)
    [third] = bill(subscription, at(2, 1))
    assert [first["number"], second.number, third["number"]] == ["INV-000001", "INV-000002", "INV-000003"]
    assert findings() == []


def test_credit_of_the_customer_pays_it_then_prepaid_credits() -> None:
    holder = unique("holder")
    services.grant(holder_id=holder, amount=300, idempotency_key="first")
    terms = NewCredits(credit_type="credits", unit_value=Decimal("0.01"))
    customer = CustomerFactory(holder_id=holder, credits=terms)
    deposit_in(customer_id=customer.pk, currency="EUR", amount_minor=500, reference="payment", actor="test")
    made = issued(customer)
    assert (made.total_minor, made.credit_notes_minor, made.credits_applied_minor, made.amount_due_minor) == (1200, 500, 300, 400)
    assert transition(made.pk, "void").state == "void"
    assert CreditNote.objects.get().left_minor == 500
    assert reads.balance(holder).available == 300
    assert findings() == []


def test_a_draft_is_finalised_or_deleted_and_who_did_it_is_chained(api: ApiClient) -> None:
    customer = CustomerFactory()
    kept, gone = issued(customer, finalize=False), issued(customer, finalize=False)
    assert (kept.state, kept.number) == ("draft", None)
    assert api.post(f"/v1/invoices/{kept.pk}/finalize", {"reason": "checked"}).json()["number"] == "INV-000001"
    assert api.delete(f"/v1/invoices/{gone.pk}", key="gone").status_code == 200
    assert api.post(f"/v1/invoices/{kept.pk}/pay", {}).json()["state"] == "paid"
    assert list(Transition.objects.order_by("pk").values_list("customer_id", "subscription_id", "sequence", "kind")) == [
        (customer.pk, None, 1, "finalize"), (customer.pk, None, 2, "delete"), (customer.pk, None, 3, "pay"),
    ]  # fmt: skip
    assert findings() == []
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE billing_transition DISABLE TRIGGER USER")
        cursor.execute("UPDATE billing_transition SET reason = 'forged' WHERE sequence = 1")
    assert "digest of a transition" in {one["finding"] for one in consistency.check()}


def test_it_can_be_credited_and_what_was_paid_is_credit_of_the_customer() -> None:
    customer = CustomerFactory()
    made = issued(customer, "10", "5")
    transition(made.pk, "pay")
    note = credit_notes.issue_in(
        invoice_id=made.pk, lines=[credit_notes.CreditLine(position=2, amount_minor=300)], reason="less", actor="test"
    )
    assert (note.amount_minor, note.left_minor, note.subscription_id) == (360, 360, None)
    assert issued(customer).amount_due_minor == 840
    whole = credit_notes.issue_in(invoice_id=made.pk, reason="all of it", actor="test")
    assert whole.amount_minor == 1440
    assert findings() == []


def test_the_vat_status_of_the_customer_applies() -> None:
    customer = CustomerFactory(vat_status="exempt")
    made = issued(customer)
    assert [(tax.category, tax.rate, tax.amount_minor) for tax in InvoiceTax.objects.filter(invoice=made)] == [("E", 0, 0)]
    assert made.total_minor == 1000


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"lines": []}, "/lines"),
        ({"lines": [WORKSHOP, {"description": "x"}]}, "/lines/1/unit_amount"),
        ({"lines": [WORKSHOP | {"quantity": "0"}]}, "/lines/0/quantity"),
        ({"lines": [WORKSHOP | {"quantity": "1000000000000000000"}]}, "/lines/0/unit_amount"),
        ({"lines": [WORKSHOP], "currency": "XXX"}, "/currency"),
        ({"lines": [TRAVEL, WORKSHOP | {"tax_category": "E"}]}, "/lines/1/tax_rate"),
        ({"lines": [WORKSHOP | {"tax_category": "S\n"}]}, "/lines/0/tax_category"),
        ({"lines": [WORKSHOP | {"tax_category": "<b>"}]}, "/lines/0/tax_category"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(api: ApiClient, body: dict[str, Any], pointer: str) -> None:
    customer = CustomerFactory()
    before = rows()
    refused = api.post(f"/v1/customers/{customer.ref}/invoices", body)
    assert refused.status_code == 400, refused.content
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    assert rows() == before


def test_what_is_too_large_is_said_in_the_currency(api: ApiClient) -> None:
    body = {"lines": [WORKSHOP | {"quantity": "1000000000000000000"}]}
    [error] = api.post(f"/v1/customers/{CustomerFactory().ref}/invoices", body).json()["errors"]
    assert error["detail"] == "the invoice must be at most 45,035,996,273,704.95 EUR"


def test_a_coupon_on_it_is_a_finding() -> None:
    customer = CustomerFactory()
    code = coupons.create_coupon(code=unique("c"), kind="percentage", value=Decimal(10), duration="once").code
    given = coupons.give_coupon(customer_id=customer.pk, customer_ref=customer.ref, customer_currency="EUR", code=code)
    draft = issued(customer, finalize=False)
    subscription = SubscriptionFactory(customer=customer.ref)
    CouponUse.objects.create(
        customer_coupon_id=given.pk, invoice_id=draft.pk, subscription_id=subscription.pk, amount_minor=1, currency="EUR"
    )
    assert len(findings_of("coupon of another")) == 1


@pytest.mark.slow
@pytest.mark.check
def test_it_is_made_in_the_admin_and_its_pages_have_no_subscription() -> None:
    customer = CustomerFactory()
    client = operator()
    form = f"/admin/billing/customer/{customer.pk}/new-invoice/"
    assert form in client.get(f"/admin/billing/customer/{customer.pk}/change/").content.decode()
    typed = {
        "description_1": "Workshop", "quantity_1": "2", "unit_amount_1": "450.00", "tax_rate_1": "20", "finalize": "yes",
        "description_3": "Travel", "unit_amount_3": "33.33", "reason": "ordered by phone",
    }  # fmt: skip
    sent = typed | {"idempotency_key": hidden_key(client.get(form).content.decode())}
    wrong = client.post(form, sent | {"unit_amount_3": ""}).content.decode()
    assert "unit_amount_3" in wrong
    shown = client.post(form, sent).content.decode()
    assert f"The invoice is finalised: {customer.ref} has to pay 1,113.33 EUR." in shown
    assert not Invoice.objects.exists()
    for _ in range(2):
        assert client.post(form, sent | {"confirmed": "1"}).status_code == 302
    made = Invoice.objects.get()
    assert (made.number, made.total_minor) == ("INV-000001", 111333)
    page = f"/admin/billing/invoice/{made.pk}/"
    assert "All invoices of this customer" in client.get(f"{page}change/").content.decode()
    assert client.get("/admin/billing/invoice/").status_code == 200
    void = {"reason": "wrong", "idempotency_key": unique("void"), "confirmed": "yes"}
    assert client.post(f"{page}void/", void).status_code == 302
    assert Invoice.objects.get().state == "void"


def test_it_is_printed() -> None:
    seller = {"name": "Fern GmbH", "line1": "Lindenstr. 4", "city": "Berlin", "country": "DE", "iban": "DE02120300000000202051"}
    record_seller(seller | {"vat_id": "DE136695976", "postal_code": "10969"}, actor="test")
    customer = CustomerFactory(address={"line1": "Street 1", "city": "Berlin", "postal_code": "10115", "country": "DE"})
    assert invoice_pdf(issued(customer).pk).content.startswith(b"%PDF")
