"""Credit of a customer is set against an open invoice, and a charge-back beside a deposit does it by itself."""

from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.test import Client

from billing.api.schemas.payments import CREDIT_PAYMENT
from billing.auditing import consistency
from billing.books.month_documents import receivables_of
from billing.documents import invoices
from billing.documents.credit_payments import pay_with_credit
from billing.documents.credit_refunds import deposit_in
from billing.errors import CreditPaymentExceeds, InvalidTransition, ReturnExceedsPayment
from billing.models import CreditNote, CreditNoteUse, CreditRefund, Invoice, InvoicePayment
from ledger.errors import Invalid
from tests.billing.documents.invoice_payments.test_payments import customer_of, deposits, issued, now_of, pay, rows, send_back
from tests.billing.factories import CustomerFactory
from tests.ledger.staff.admin_site import hidden_key, submit_form

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _sound() -> Any:
    """After each test, billing's checks find nothing."""
    yield
    assert consistency.check() == []


def deposit(invoice: Invoice, amount_minor: int, currency: str = "EUR") -> CreditNote:
    return deposit_in(
        customer_id=invoice.customer_id, currency=currency, amount_minor=amount_minor, reference="payment", actor="key:bank"
    )


def all_rows() -> list[Any]:
    return [*rows(), *(list(model.objects.order_by("pk").values()) for model in (CreditRefund, CreditNoteUse))]


def test_a_deposit_pays_an_invoice_that_was_open_before_it_came() -> None:
    invoice = issued()
    note = deposit(invoice, 12500)
    paid = pay_with_credit(invoice=invoice.pk, actor="key:shop", reason="as agreed")
    assert (paid.provider, paid.amount_minor, paid.applied_minor, paid.reference) == ("credit", 10000, 10000, "as agreed")
    assert (now_of(invoice), deposits(invoice)) == (("paid", 10000, 10000, 0), [(12500, 2500)])
    [refund] = CreditRefund.objects.filter(pk=paid.credit_refund_id)
    assert (refund.amount_minor, refund.reference, refund.actor) == (10000, invoice.number, "key:shop")
    assert list(CreditNoteUse.objects.filter(refund_id=refund.pk).values_list("credit_note_id", "amount_minor")) == [
        (note.pk, 10000)
    ]


def test_a_part_and_one_deposit_of_several() -> None:
    invoice = issued()
    first, second = deposit(invoice, 300), deposit(invoice, 500)
    assert pay_with_credit(invoice=invoice.pk, credit_note=second.pk, amount_minor=200).amount_minor == 200
    assert deposits(invoice) == [(300, 300), (500, 300)]
    assert pay_with_credit(invoice=invoice.pk, credit_note=second.pk).amount_minor == 300
    assert pay_with_credit(invoice=invoice.pk).amount_minor == 300
    assert (deposits(invoice), now_of(invoice)) == ([(300, 0), (500, 0)], ("open", 10000, 800, 9200))
    assert first.pk < second.pk


def test_what_cannot_be_paid_with_credit_is_refused_and_nothing_is_written() -> None:
    invoice, other, draft = issued(), issued(), issued(finalize=False)
    mine, dollars, theirs = deposit(invoice, 700), deposit(invoice, 10000, "USD"), deposit(other, 100)
    before = all_rows()
    for amount in (701, 10001):
        with pytest.raises(CreditPaymentExceeds) as refused:
            pay_with_credit(invoice=invoice.pk, amount_minor=amount)
        assert refused.value.facts == {"invoice": invoice.pk, "remaining_minor": 10000, "left_minor": 700}
    for note in (theirs, dollars, CreditNote(pk=10**15)):
        with pytest.raises(Invalid) as invalid:
            pay_with_credit(invoice=invoice.pk, credit_note=note.pk)
        assert invalid.value.facts["pointer"] == "/credit_note"
    with pytest.raises(InvalidTransition):
        pay_with_credit(invoice=draft.pk)
    assert all_rows() == before
    deposit(other, 20000)
    pay_with_credit(invoice=other.pk)
    with pytest.raises(InvalidTransition):
        pay_with_credit(invoice=other.pk)
    assert mine.left_minor == 700


def test_no_caller_records_money_of_the_provider_credit() -> None:
    invoice = issued()
    before = all_rows()
    with pytest.raises(Invalid) as invalid:
        pay(invoice, 100, provider="credit")
    assert (invalid.value.facts["pointer"], all_rows()) == ("/provider", before)


def test_nothing_goes_back_of_a_payment_by_credit() -> None:
    invoice = issued()
    deposit(invoice, 10000)
    paid = pay_with_credit(invoice=invoice.pk)
    before = all_rows()
    with pytest.raises(ReturnExceedsPayment) as refused:
        send_back(paid)
    assert (refused.value.facts["returnable_minor"], all_rows()) == (0, before)


def test_an_uncollectible_invoice_can_be_paid_with_credit() -> None:
    invoice = issued()
    invoices.mark_uncollectible(invoice.pk)
    deposit(invoice, 10000)
    pay_with_credit(invoice=invoice.pk)
    assert now_of(invoice)[0] == "paid"


# Charge-backs ----------------------------------------------------------------------------------------


def test_an_invoice_that_is_paid_twice_stays_paid_when_the_first_payment_is_charged_back() -> None:
    invoice = issued()
    first, second = pay(invoice, 10000), pay(invoice, 10000)
    made = send_back(first, "dispute")
    assert (made.credit_minor, made.reopened_minor, made.claim_minor) == (0, 10000, 0)
    assert (now_of(invoice), deposits(invoice)) == (("paid", 10000, 10000, 0), [(10000, 0)])
    # The money of the second is what pays now. If it goes back too, the customer owes all of it.
    assert send_back(second, "dispute").claim_minor == 10000


def test_a_deposit_of_another_invoice_pays_what_is_due_again_as_far_as_it_goes() -> None:
    invoice = issued()
    first = pay(invoice, 10000)
    deposit(invoice, 4000)
    send_back(first, "dispute", amount_minor=7000)
    assert (now_of(invoice), deposits(invoice)) == (("open", 10000, 7000, 3000), [(4000, 0)])


def test_the_deposit_of_the_payment_itself_goes_back_and_pays_nothing() -> None:
    invoice = issued()
    paid = pay(invoice, 12500)
    made = send_back(paid, "dispute")
    assert (made.credit_minor, made.reopened_minor) == (2500, 10000)
    assert (now_of(invoice), deposits(invoice)) == (("open", 10000, 0, 10000), [(2500, 0)])


def test_a_month_shows_credit_against_invoices_beside_payments() -> None:
    invoice = issued()
    pay(invoice, 1000)
    deposit(invoice, 300)
    pay_with_credit(invoice=invoice.pk)
    assert invoice.issue_date is not None
    [row] = [each for each in receivables_of(invoice.issue_date.replace(day=1)) if each.id == invoice.pk]
    assert (row.due_minor, row.credited_minor, row.paid_minor, row.unpaid_minor) == (10000, 300, 1000, 8700)


# The database, the check -----------------------------------------------------------------------------


@pytest.mark.parametrize("change", [{"provider": "manual"}, {"credit_refund_id": None}, {}])
def test_the_database_ties_credit_to_its_refund(change: dict[str, Any]) -> None:
    invoice = issued()
    deposit(invoice, 300)
    copy = InvoicePayment.objects.get(pk=pay_with_credit(invoice=invoice.pk).pk)
    copy.pk = None
    copy.payment = "another"
    for name, value in change.items():
        setattr(copy, name, value)
    with pytest.raises(IntegrityError), transaction.atomic():
        copy.save()


def test_the_check_finds_a_payment_by_credit_without_its_refund() -> None:
    invoice = issued()
    deposit(invoice, 300)
    pay_with_credit(invoice=invoice.pk)
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE billing_invoicepayment DISABLE TRIGGER USER")
            cursor.execute("UPDATE billing_invoicepayment SET credit_refund_id = 1000000")
        found = {one["finding"] for one in consistency.check()}
        transaction.set_rollback(True)
    assert "payment by credit is not its refund" in found
    with pytest.raises(DatabaseError), transaction.atomic():
        InvoicePayment.objects.update(credit_refund_id=None)


# REST and admin --------------------------------------------------------------------------------------


def test_the_call_pays_once_and_has_a_dry_run(api: Any) -> None:
    invoice = issued()
    note = deposit(invoice, 12500)
    path, body = f"/v1/invoices/{invoice.pk}/credit-payments", {"credit_note": note.pk, "reason": "as agreed"}
    tried = api.post(f"{path}?dry_run=true", body)
    assert (tried.status_code, now_of(invoice)[0]) == (200, "open"), tried.content
    made, again = api.post(path, body, key="k-1"), api.post(path, body, key="k-1")
    assert (made.status_code, made.json()) == (201, again.json())
    assert made.json().keys() == CREDIT_PAYMENT.keys()
    assert (made.json()["amount_minor"], made.json()["provider"], now_of(invoice)[0]) == (10000, "credit", "paid")
    assert api.get(f"/v1/payments/{made.json()['id']}").json() == made.json()
    refused = api.post(path, body, key="k-2")
    assert (refused.status_code, refused.json()["type"].rsplit("/", 1)[1]) == (409, "invalid-transition")
    assert deposits(invoice) == [(12500, 2500)]


def test_the_page_of_an_invoice_pays_with_credit(admin_client: Client) -> None:
    invoice = issued(customer=CustomerFactory(currency="EUR"))
    page = f"/admin/billing/invoice/{invoice.pk}/change/"
    url = f"/admin/billing/invoice/{invoice.pk}/pay-with-credit/"
    assert "pay-with-credit" not in admin_client.get(page).content.decode()
    note = deposit(invoice, 4000)
    assert "pay-with-credit" in admin_client.get(page).content.decode()
    typed = {"amount": "15.00", "credit_note": str(note.pk), "reason": "as agreed"}
    key = hidden_key(admin_client.get(url).content.decode())
    tried = admin_client.post(url, {"idempotency_key": key, **typed}).content.decode()
    assert "of the customer&#x27;s credit pays" in tried
    assert deposits(invoice) == [(4000, 4000)]
    submit_form(admin_client, url, **typed)
    assert (now_of(invoice), deposits(invoice)) == (("open", 10000, 1500, 8500), [(4000, 2500)])
    [paid] = InvoicePayment.objects.filter(invoice_id=invoice.pk)
    shown = admin_client.get(f"/admin/billing/invoicepayment/{paid.pk}/change/").content.decode()
    assert "credit paid" in shown
    assert "/return/" not in shown
    assert customer_of(invoice).pk == paid.customer_id
